//! Waiting for a transaction to end, or to give something back, and deadlocks.
//!
//! Every waiter has one edge, to the transaction that it waits for (of several blockers the first).
//! So the graph is a set of chains, and a new edge closes a circle iff the chain that begins at its
//! end leads back to its start.
//!
//! Why one edge for each waiter finds all deadlocks: take transactions none of which can go on before
//! others of them end. Each waits for one of them, so the chain from any of them runs in a circle.
//! Edges are entered under one mutex, so the thread that enters the circle's last edge sees the
//! others. And no false ones: an edge whose waiter is doomed, or whose blocker has ended or given
//! something back since, is about to be removed by its waiter, and is not followed.

use super::{Blocker, LockMode, LockWaitHooks};
use crate::counters::{Counter, Counters, Timed};
use crate::poison::Poison;
use crate::sync::{HashMap, Instant, Mutex, RwLock};
use crate::txn::interrupt::Interrupt;
use crate::txn::system::{TrxState, Wanted};
use crate::{Error, Result};
use inkstone_format::TrxId;
use std::cmp::{Ordering, Reverse};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// A waiter looks at least this often whether the engine is poisoned.
const POISON_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A row of the information table on waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub waiter: TrxId,
    /// For whose end.
    pub blocker: TrxId,
    /// For how long by now.
    pub waited: Duration,
    /// The waiter's number of changes.
    pub weight: u64,
    /// What it waits to lock, where that is known.
    pub wanted: Option<Wanted>,
}

#[derive(Debug)]
struct Edge {
    waiter: Arc<TrxState>,
    blocker: Blocker,
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    edges: HashMap<TrxId, Edge>,
    latest_deadlock: Option<String>,
}

impl State {
    /// The waiters of the circle that the edge of `start` is part of; empty if there is none.
    fn circle(&self, start: &TrxState) -> Vec<&Edge> {
        let mut path = Vec::new();
        let mut at = start.id();
        while let Some(edge) = self.edges.get(&at) {
            if edge.waiter.is_doomed() || edge.blocker.is_over() || path.len() == self.edges.len() {
                break;
            }
            path.push(edge);
            at = edge.blocker.id();
            if at == start.id() {
                return path;
            }
        }
        Vec::new()
    }
}

/// Who waits for whom.
pub struct WaitGraph {
    /// One mutex for all: it is taken when a wait begins and when it ends, by threads that are
    /// about to sleep for at least a transaction's remaining life, and a circle may run through any
    /// of them. Held for a walk along one chain.
    state: Mutex<State>,
    /// What the embedder wants to know of it.
    hooks: RwLock<Option<Arc<dyn LockWaitHooks>>>,
    counters: Arc<Counters>,
    poison: Poison,
}

impl WaitGraph {
    /// A graph without waiters.
    pub fn new(counters: Arc<Counters>, poison: Poison) -> Self {
        Self {
            state: Mutex::default(),
            hooks: RwLock::default(),
            counters,
            poison,
        }
    }

    /// Has `hooks` called from the next wait on.
    pub fn set_hooks(&self, hooks: Arc<dyn LockWaitHooks>) {
        *self.hooks.write() = Some(hooks);
    }

    /// Sleeps until `blocker` has ended, or has given something back since the caller looked.
    /// Afterwards the caller checks everything again.
    ///
    /// # Errors
    /// - [`Error::Deadlock`]: `me` was chosen as the victim and must be rolled back. The cheapest
    ///   member of a circle is chosen (fewest changes, then the youngest), or whom the hooks prefer.
    /// - [`Error::LockTimeout`]: `deadline` has passed; it says how long this one wait took.
    /// - [`Error::Interrupted`]: the transaction's interrupt was raised.
    /// - [`Error::Poisoned`].
    pub fn wait(
        &self,
        me: &Arc<TrxState>,
        blocker: impl Into<Blocker>,
        deadline: Instant,
    ) -> Result<()> {
        let blocker = blocker.into();
        crate::invariant!(me.id() != blocker.id(), "{me:?} waits for itself");
        self.poison.check()?;
        if me.is_doomed() {
            return Err(Error::Deadlock);
        }
        let interrupt = me.details().interrupt;
        let _watch = interrupt.as_ref().map(|interrupt| interrupt.watch(me));
        if !blocker.add_waiter(me, blocker.releases) {
            return Ok(());
        }
        let hooks = self.hooks.read().clone();
        // Before the edge: a panic leaves nothing behind but a waiter to be woken, who may be gone.
        if let Some(hooks) = &hooks
            && let Some(owner) = blocker.hold_owner()
        {
            hooks.about_to_wait(me.owner(), owner.get());
        }
        self.counters.add(Counter::LockWaits, 1);
        let since = Instant::now();
        self.enter(me, &blocker, since, hooks.as_deref());
        let woken = self.sleep(me, &blocker, interrupt.as_ref(), deadline);
        self.counters.record(Timed::RowLockWait, since.elapsed());
        self.state.lock().edges.remove(&me.id());
        // Only who has an edge is doomed: from here on it cannot happen, and what happened before
        // is reported by this very wait.
        if me.is_doomed() {
            blocker.remove_waiter(me);
            return Err(Error::Deadlock);
        }
        match woken {
            Wake::Ended => Ok(()),
            Wake::Failed(error) => {
                blocker.remove_waiter(me);
                Err(error)
            }
            Wake::TimedOut => {
                blocker.remove_waiter(me);
                self.counters.add(Counter::LockTimeouts, 1);
                let waited_ms = since.elapsed().as_millis() as u64;
                Err(Error::LockTimeout { waited_ms })
            }
        }
    }

    /// Enters the edge; if that closes a circle, dooms a victim.
    fn enter(
        &self,
        me: &Arc<TrxState>,
        blocker: &Blocker,
        since: Instant,
        hooks: Option<&dyn LockWaitHooks>,
    ) {
        let mut state = self.state.lock();
        let edge = Edge {
            waiter: me.clone(),
            blocker: blocker.clone(),
            since,
        };
        let other = state.edges.insert(me.id(), edge);
        crate::invariant!(other.is_none(), "{me:?} waits twice at once");
        let circle = state.circle(me);
        // Their owners need not be held: none can end while its edge is in.
        let preferred = |a: &TrxState, b: &TrxState| {
            hooks.map_or(Ordering::Equal, |hooks| {
                hooks.compare_victims(a.owner(), b.owner())
            })
        };
        let cost = |trx: &TrxState| (trx.weight(), Reverse(trx.id()));
        let waiters = circle.iter().map(|edge| &edge.waiter);
        let victim = waiters.min_by(|a, b| preferred(a, b).then_with(|| cost(a).cmp(&cost(b))));
        let Some(victim) = victim.cloned() else {
            return;
        };
        let text = describe(&circle, &victim);
        state.latest_deadlock = Some(text);
        self.counters.add(Counter::Deadlocks, 1);
        victim.doom();
    }

    fn sleep(
        &self,
        me: &TrxState,
        blocker: &Blocker,
        interrupt: Option<&Interrupt>,
        deadline: Instant,
    ) -> Wake {
        loop {
            if me.is_doomed() || blocker.is_over() {
                return Wake::Ended;
            }
            let interrupted = interrupt.map_or(Ok(()), Interrupt::check);
            if let Err(error) = self.poison.check().and(interrupted) {
                return Wake::Failed(error);
            }
            let now = Instant::now();
            if now >= deadline {
                return Wake::TimedOut;
            }
            me.sleep(deadline.min(now + POISON_CHECK_INTERVAL));
        }
    }

    /// What the latest deadlock was, in words.
    pub fn latest_deadlock(&self) -> Option<String> {
        self.state.lock().latest_deadlock.clone()
    }

    /// Everyone who waits right now.
    pub fn waiters(&self) -> Vec<Waiter> {
        let state = self.state.lock();
        let waiters = state.edges.values().map(|edge| Waiter {
            waiter: edge.waiter.id(),
            blocker: edge.blocker.id(),
            waited: edge.since.elapsed(),
            weight: edge.waiter.weight(),
            wanted: edge.waiter.details().wanted,
        });
        waiters.collect()
    }
}

enum Wake {
    Ended,
    TimedOut,
    Failed(Error),
}

fn describe(circle: &[&Edge], victim: &TrxState) -> String {
    let mut text = format!("deadlock of {} transactions:\n", circle.len());
    for edge in circle {
        let (me, on, details) = (&edge.waiter, &edge.blocker, edge.waiter.details());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "  transaction {} (tag {}, {} changes) waits for transaction {} since {} ms",
            me.id(),
            details.tag,
            me.weight(),
            on.id(),
            edge.since.elapsed().as_millis(),
        );
        if let Some(wanted) = &details.wanted {
            let mode = match wanted.mode {
                LockMode::Shared => "shared",
                LockMode::Exclusive => "exclusive",
            };
            let _ = write!(
                text,
                ", to lock {mode} in tablespace {}, tree {}, key {}",
                wanted.space,
                wanted.tree,
                wanted
                    .key
                    .iter()
                    .take(32)
                    .map(|b| format!("{b:02x}"))
                    .collect::<String>()
            );
        }
        text.push('\n');
    }
    let fewest = circle.iter().map(|edge| edge.waiter.weight()).min();
    let why = match fewest == Some(victim.weight()) {
        true => "it had the fewest changes",
        false => "the program prefers it",
    };
    let _ = write!(text, "transaction {} was rolled back: {why}", victim.id());
    text
}
