//! A commit that others see and that is not durable yet: a thread waits for it, or a future.

use crate::Result;
use crate::counters::Timed;
use crate::debug::debug_as;
use crate::log::Ticket;
use crate::options::Durability;
use crate::sync::Instant;
use crate::txn::core::Core;
use inkstone_format::Lsn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A commit that is visible, and durable once [`wait`](PendingCommit::wait) has returned, or the
/// future that it is has been ready.
///
/// The future needs no runtime: any executor can poll it, and none of its threads blocks. It waits
/// as was said when the transaction committed. The database's thread `ink-log` writes and syncs the
/// log for it, for all commits at once that came during the sync before. What is not awaited is
/// durable within about a second, as with [`Durability::Lazy`], and dropping the future changes
/// nothing else: the commit stands.
///
/// The statements of a transaction block, for pages and row locks; an async program runs them where
/// blocking is allowed (`spawn_blocking`), and awaits the commit.
///
/// ```
/// use inkstone::{Database, Durability, Isolation, Options};
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Wake, Waker};
/// use std::thread::{self, Thread};
///
/// /// An executor of one future, for the example: any other will do.
/// fn block_on<F: Future>(future: F) -> F::Output {
///     struct Unpark(Thread);
///     impl Wake for Unpark {
///         fn wake(self: Arc<Self>) {
///             self.0.unpark();
///         }
///     }
///     let waker = Waker::from(Arc::new(Unpark(thread::current())));
///     let mut future = std::pin::pin!(future);
///     loop {
///         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
///             Poll::Ready(output) => return output,
///             Poll::Pending => thread::park(),
///         }
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let table = db.create_table("jobs", &[])?;
/// block_on(async {
///     // With tokio: `spawn_blocking(move || ..).await`.
///     let txn = db.begin(Isolation::RepeatableRead)?;
///     txn.insert(&table, b"1", b"send mail")?;
///     let commit = txn.commit_deferred(Durability::Sync)?;
///     commit.await // on disk when this is ready
/// })?;
/// # Ok::<(), inkstone::Error>(())
/// ```
#[must_use = "a commit that is not awaited may be lost by a crash"]
pub struct PendingCommit {
    core: Arc<Core>,
    lsn: Lsn,
    durability: Durability,
    ticket: Option<Ticket>,
    first_polled: Option<Instant>,
}

debug_as!(
    PendingCommit,
    "PendingCommit",
    |this| "lsn" = this.lsn,
    "durability" = this.durability
);

impl PendingCommit {
    /// The commit whose record ends at `lsn`.
    pub(crate) fn new(core: &Arc<Core>, lsn: Lsn, durability: Durability) -> Self {
        Self {
            core: core.clone(),
            lsn,
            durability,
            ticket: None,
            first_polled: None,
        }
    }

    /// Waits as `durability` says.
    pub fn wait(self, durability: Durability) -> Result<()> {
        self.core.wait_for_commit(self.lsn, durability)
    }

    /// End of the commit record in the log; 0 if the transaction changed nothing.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl Future for PendingCommit {
    type Output = Result<()>;

    /// Ready as was said when the transaction committed.
    /// [`Error::Poisoned`](crate::Error::Poisoned): the log has failed, and the outcome is left to
    /// recovery.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let synced = match this.durability {
            Durability::Sync => true,
            Durability::Write => false,
            Durability::Lazy => return Poll::Ready(Ok(())),
        };
        let since = *this.first_polled.get_or_insert_with(Instant::now);
        let storage = &this.core.storage;
        let goal = (this.lsn, synced);
        let polled = storage
            .log
            .poll_reached(goal, &mut this.ticket, context.waker());
        if polled.is_ready() {
            storage.counters.record(Timed::CommitWait, since.elapsed());
        }
        polled
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        // In a forked child the log's latch may be another thread's for ever.
        if !self.core.storage.poison.is_forked() {
            self.core.storage.log.forget(&ticket);
        }
    }
}
