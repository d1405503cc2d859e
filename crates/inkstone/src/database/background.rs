//! Background threads of an open database: `ink-purge`, `ink-undo` (rolls back what an earlier run
//! has left of large transactions), `ink-redo` (redoes what the opening has left),
//! `ink-checkpoint`, `ink-warm`. (The log has
//! `ink-log`, the buffer pool `ink-frames` and `ink-cleaner`.)
//!
//! They hold the database weakly: it closes when its last handle goes.

use super::Inner;
use super::checkpoint::Occasion;
use crate::log::Log;
use crate::mvcc::versions::Cut;
use crate::paranoid::paranoid;
use crate::recovery::RedoStat;
use crate::rows::purge;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex};
use crate::txn::undo_place::saved_every;
use crate::{Error, Result};
use inkstone_format::{PageId, pool_dump};
use inkstone_io::{Create, OpenOptions};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Page numbers that were resident at the last close.
const DUMP: &str = "buffer_pool.dump";
const PURGE_INTERVAL: Duration = Duration::from_millis(250);
/// Between tries to redo pages that could not be read.
const REDO_INTERVAL: Duration = Duration::from_secs(1);
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(100);
/// Pages of the dump that are loaded together.
const WARM_PAGES: usize = 256;
/// A checkpoint is written when it has come this much further, or after a second.
const CHECKPOINT_DISTANCE_PARTS: u64 = 32;

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    /// True when it is time to stop. Sleeps before it looks, unless the time is none.
    fn sleep_unless_zero(&self, time: Duration) -> bool {
        if time.is_zero() {
            *self.stopped.lock()
        } else {
            self.sleep(time)
        }
    }

    /// Sleeps; true when it is time to stop.
    fn sleep(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, time);
        }
        *stopped
    }
}

/// The options of the background threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpkeepOptions {
    /// Bytes of log that recovery should have to read at most.
    pub log_file_size: u64,
    /// `buffer_pool_dump_at_shutdown`.
    pub stays_warm: bool,
}

/// The running threads.
pub(crate) struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    /// Of which one of them waits for calls.
    log: Option<Arc<Log>>,
}

impl Background {
    pub fn start(inner: &Arc<Inner>) -> Result<Self> {
        let stop = Arc::<Stop>::default();
        if inner.options.is_read_only() {
            // There is nothing to purge, no log that may be let go of, and memory is all there is.
            return Ok(Self {
                stop,
                threads: Vec::new(),
                log: None,
            });
        }
        let mut threads = vec![
            spawn("ink-purge", inner, &stop, PURGE_INTERVAL, purge_round)?,
            spawn("ink-undo", inner, &stop, PURGE_INTERVAL, undo_round)?,
            checkpoints(inner, &stop)?,
        ];
        if inner.redo_left.is_some() {
            threads.push(redo_rest(inner, &stop)?);
        }
        if inner.upkeep.stays_warm {
            threads.push(warm_up(inner, &stop)?);
        }
        Ok(Self {
            stop,
            threads,
            log: Some(inner.core.storage.log.clone()),
        })
    }

    pub fn stop(self) {
        *self.stop.stopped.lock() = true;
        self.stop.wake.notify_all();
        if let Some(log) = &self.log {
            log.end_calls();
        }
        for thread in self.threads {
            // The last handle may be dropped by one of these threads themselves.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn thread_error(inner: &Inner, error: std::io::Error) -> Error {
    Error::io("start a thread for", inner.directory.path(), error)
}

fn spawn(
    name: &str,
    inner: &Arc<Inner>,
    stop: &Arc<Stop>,
    interval: Duration,
    round: fn(&Inner, u64) -> Result<bool>,
) -> Result<JoinHandle<()>> {
    let (weak, stop): (Weak<Inner>, _) = (Arc::downgrade(inner), stop.clone());
    let body = move || {
        let mut busy = false;
        let mut count = 0;
        // While there is much to do it goes on at once.
        while !stop.sleep(if busy {
            Duration::from_millis(1)
        } else {
            interval
        }) {
            let Some(inner) = weak.upgrade() else { return };
            count += 1;
            // A failure that matters has poisoned the engine; others (a full disk) pass.
            busy = round(&inner, count).unwrap_or(false);
        }
    };
    thread::spawn(name, body).map_err(|e| thread_error(inner, e))
}

fn purge_round(inner: &Inner, _: u64) -> Result<bool> {
    Ok(purge::run(&inner.core)? > 0)
}

fn undo_round(inner: &Inner, _: u64) -> Result<bool> {
    inner.core.storage.poison.check()?;
    inner.core.finish_recovered()?;
    inner.recovery_listener.undone();
    Ok(false)
}

/// The thread that writes checkpoints: ten times a second, and when the log is short of room.
fn checkpoints(inner: &Arc<Inner>, stop: &Arc<Stop>) -> Result<JoinHandle<()>> {
    let (weak, stop) = (Arc::downgrade(inner), stop.clone());
    let log = inner.core.storage.log.clone();
    let body = move || {
        let (mut busy, mut count) = (false, 0);
        // While there is much to do it goes on at once.
        loop {
            let called = log.next_call(if busy {
                Duration::from_millis(1)
            } else {
                CHECKPOINT_INTERVAL
            });
            if *stop.stopped.lock() {
                return;
            }
            let Some(inner) = weak.upgrade() else { return };
            count += u64::from(!called);
            let round = checkpoint_round(&inner, count, called);
            log.set_checkpoint_failure(round.as_ref().err().cloned());
            busy = round.unwrap_or(false);
        }
    };
    inner.core.storage.log.answer_calls();
    thread::spawn("ink-checkpoint", body).map_err(|e| thread_error(inner, e))
}

/// `called`: a writer waits for room in the log, or soon would.
fn checkpoint_round(inner: &Inner, count: u64, called: bool) -> Result<bool> {
    inner.core.storage.poison.check()?;
    inner.note_boundary();
    let limit = inner.upkeep.log_file_size / 2;
    let saved_every = saved_every(inner.upkeep.log_file_size);
    paranoid!(
        saved_every > 0 && saved_every < limit,
        "undo is saved of transactions that keep {saved_every} bytes of a log"
    );
    let saved = inner.save_long_undo(if inner.core.storage.log.has_room() {
        saved_every
    } else {
        saved_every / 4
    });
    let (kept, capacity) = (inner.kept_log(), inner.upkeep.log_file_size);
    let second = !called && count.is_multiple_of(10);
    if second || called || kept > capacity / CHECKPOINT_DISTANCE_PARTS {
        inner.checkpoint(Occasion::Routine)?;
    }
    if second {
        inner.look_after_space(count / 10)?;
    }
    if !called && count == 1 {
        // What an earlier run has left.
        inner.cut_undo_file(Cut::Most);
    } else if second {
        inner.cut_undo_file(Cut::Half);
    }
    saved?;
    // Where the log grows by a good part of its size in one interval the next checkpoint is due at
    // once.
    let moved = kept.saturating_sub(inner.kept_log());
    Ok(kept > limit && moved > capacity / CHECKPOINT_DISTANCE_PARTS)
}

fn warm_up(inner: &Arc<Inner>, stop: &Arc<Stop>) -> Result<JoinHandle<()>> {
    let (weak, stop, pages) = (Arc::downgrade(inner), stop.clone(), inner.read_dump());
    let body = move || {
        for pages in pages.chunks(WARM_PAGES) {
            let Some(inner) = weak.upgrade() else { return };
            if !inner.warm(pages).unwrap_or(false) || stop.sleep(Duration::from_millis(1)) {
                return;
            }
        }
    };
    thread::spawn("ink-warm", body).map_err(|e| thread_error(inner, e))
}

fn redo_rest(inner: &Arc<Inner>, stop: &Arc<Stop>) -> Result<JoinHandle<()>> {
    let (weak, stop) = (Arc::downgrade(inner), stop.clone());
    let body = move || {
        loop {
            let Some(inner) = weak.upgrade() else { return };
            let Some(left) = &inner.redo_left else { return };
            let pause = match left.redo_some(&inner.core.storage.pool) {
                Ok(true) => Duration::ZERO,
                // All is done, or what is left cannot be done yet.
                Ok(false) if left.stat().pages == 0 => return inner.recovery_listener.redone(),
                Ok(false) => {
                    left.try_again();
                    REDO_INTERVAL
                }
                // A failure that matters has poisoned the engine; others pass.
                Err(error) if error.is_final() => return,
                Err(_) => REDO_INTERVAL,
            };
            drop(inner);
            if stop.sleep_unless_zero(pause) {
                return;
            }
        }
    };
    thread::spawn("ink-redo", body).map_err(|e| thread_error(inner, e))
}

impl Inner {
    /// Redoes what this opening has left of redo. Fails if a page cannot be redone.
    pub(crate) fn finish_redo(&self) -> Result<()> {
        self.core.storage.poison.check()?;
        let pool = &self.core.storage.pool;
        self.redo_left
            .as_ref()
            .map_or(Ok(()), |left| left.redo_all(pool))
    }

    /// What this opening has left of redo, as of now.
    pub(super) fn redo_left(&self) -> RedoStat {
        self.redo_left
            .as_ref()
            .map_or_else(RedoStat::default, |left| left.stat())
    }

    /// Writes the resident page numbers, eight bytes each.
    pub(super) fn dump_buffer_pool(&self) -> Result<()> {
        if !self.upkeep.stays_warm {
            return Ok(());
        }
        let path = self.directory.path_of(DUMP);
        let pages = self.core.storage.pool.resident_pages();
        let bytes = pool_dump::encode(&pages);
        let options = OpenOptions {
            create: Create::IfMissing,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let file = self
            .directory
            .open(DUMP, options)
            .map_err(|e| Error::io("create", &path, e))?;
        // Cut to nothing first, ext4 would write it out when it is closed.
        file.write_at(&bytes, 0)
            .and_then(|()| file.set_len(bytes.len() as u64))
            .map_err(|e| Error::io("write", &path, e))
    }

    /// Loads some pages of the dump, side by side; false if the pool is full.
    fn warm(&self, pages: &[PageId]) -> Result<bool> {
        let pool = &self.core.storage.pool;
        // A page that is gone, or whose table is, is not an error here.
        let mut known = Vec::with_capacity(pages.len());
        for of_table in pages.chunk_by(|a, b| a.space == b.space) {
            let file = self.files.find(of_table[0].space).ok().flatten();
            let pages = file.map_or(0, |file| file.pages());
            known.extend(of_table.iter().filter(|id| id.page.0 < pages));
        }
        pool.load_many(&known)
    }

    fn read_dump(&self) -> Vec<PageId> {
        let options = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        let read = || {
            let file = self.directory.open(DUMP, options)?;
            let mut bytes = vec![0; (file.len()? as usize).min(64 << 20)];
            file.read_at(&mut bytes, 0)?;
            Ok::<_, std::io::Error>(bytes)
        };
        // A hint only: without it the pool is cold. Nothing says that it is not damaged.
        let mut pages = pool_dump::decode(&read().unwrap_or_default());
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}
