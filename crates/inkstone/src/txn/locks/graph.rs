//! Who waits for whom, and deadlocks.
//!
//! Every waiter has edges to the transactions that it waits for. Of those that stand in a queue before it
//! the last one that waits for all the others will do: whom they reach is the same. Edges are entered,
//! changed and removed while the latch of the tree is held in which somebody waits, so that they are what
//! the queues say.
//!
//! A circle is looked for when edges are entered or grow, from their beginning. Each circle has an edge
//! that came last, so none is missed. And none is false: whoever is granted what it waits for loses its
//! edges at once, and those of a doomed waiter, or to a transaction that has ended, are not followed.

use super::request::{Request, Target};
use super::{Access, LockMode, LockWaitHooks};
use crate::counters::{Counter, Counters};
use crate::mutants::{self, Mutant};
use crate::sync::{HashMap, HashSet, Mutex, RwLock};
use crate::txn::system::{TrxState, Wanted};
use inkstone_format::TrxId;
use std::cmp::{Ordering, Reverse};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// A row of the information table on waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub waiter: TrxId,
    /// For whom: of several one.
    pub blocker: TrxId,
    /// For how long by now.
    pub waited: Duration,
    /// The waiter's number of changes.
    pub weight: u64,
    /// What it waits to lock.
    pub wanted: Wanted,
}

#[derive(Debug)]
struct Edges {
    request: Arc<Request>,
    blockers: Vec<Arc<TrxState>>,
}

#[derive(Debug, Default)]
struct State {
    edges: HashMap<TrxId, Edges>,
    /// How many wait for a transaction, where any do.
    waited_for: HashMap<TrxId, u32>,
    latest_deadlock: Option<String>,
}

impl State {
    fn add_blockers(&mut self, blockers: &[Arc<TrxState>]) {
        for blocker in blockers {
            *self.waited_for.entry(blocker.id()).or_default() += 1;
        }
    }

    fn remove_blockers(&mut self, blockers: &[Arc<TrxState>]) {
        for blocker in blockers {
            if let Some(count) = self.waited_for.get_mut(&blocker.id()) {
                *count -= 1;
                if *count == 0 {
                    self.waited_for.remove(&blocker.id());
                }
            }
        }
    }

    /// The waiters of the shortest circle that leads from `start` to itself; empty if there is none. A longer one
    /// may go through somebody without whom the others still wait for each other.
    fn circle(&self, start: &TrxState) -> Vec<&Edges> {
        // Most of those who begin to wait keep nobody waiting.
        if start.is_doomed() || !self.waited_for.contains_key(&start.id()) {
            return Vec::new();
        }
        let mut seen: HashSet<TrxId> = HashSet::default();
        // Each with the place of the one that waits for it.
        let mut reached: Vec<(&Edges, usize)> = Vec::new();
        reached.extend(self.edges.get(&start.id()).map(|edges| (edges, 0)));
        let mut next = 0;
        while let Some(&(edges, _)) = reached.get(next) {
            for blocker in &edges.blockers {
                if blocker.id() == start.id() {
                    return way_to(&reached, next);
                }
                if !blocker.is_ended()
                    && !blocker.is_doomed()
                    && seen.insert(blocker.id())
                    && let Some(further) = self.edges.get(&blocker.id())
                {
                    reached.push((further, next));
                }
            }
            next += 1;
        }
        Vec::new()
    }
}

/// Those from the first one that was reached to the one at a place.
fn way_to<'s>(reached: &[(&'s Edges, usize)], place: usize) -> Vec<&'s Edges> {
    let mut places = vec![place];
    while let Some(&at) = places.last().filter(|&&at| at > 0) {
        places.push(reached[at].1);
    }
    places.iter().rev().map(|&at| reached[at].0).collect()
}

/// Who waits for whom.
pub struct WaitGraph {
    /// One mutex for all: a circle may run through any of them. It is taken when a wait begins and when it
    /// ends, inside the latch of a tree's locks; inside it, waiters' `woken` latches.
    state: Mutex<State>,
    /// What the embedder wants to know of it.
    hooks: RwLock<Option<Arc<dyn LockWaitHooks>>>,
    counters: Arc<Counters>,
}

impl WaitGraph {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            state: Mutex::default(),
            hooks: RwLock::default(),
            counters,
        }
    }

    /// Has `hooks` called from the next wait on.
    pub fn set_hooks(&self, hooks: Arc<dyn LockWaitHooks>) {
        *self.hooks.write() = Some(hooks);
    }

    pub(super) fn hooks(&self) -> Option<Arc<dyn LockWaitHooks>> {
        self.hooks.read().clone()
    }

    /// A transaction begins to wait. If that closes a circle, a victim is doomed.
    pub(super) fn enter(&self, request: &Arc<Request>, blockers: Vec<Arc<TrxState>>) {
        let mut state = self.state.lock();
        state.add_blockers(&blockers);
        let edges = Edges {
            request: request.clone(),
            blockers,
        };
        let other = state.edges.insert(request.trx.id(), edges);
        crate::invariant!(other.is_none(), "{:?} waits twice at once", request.trx);
        self.break_circles(&mut state, &request.trx);
    }

    /// Whom a waiter waits for has changed.
    pub(super) fn set_blockers(&self, waiter: &Arc<TrxState>, blockers: Vec<Arc<TrxState>>) {
        let mut state = self.state.lock();
        let Some(edges) = state.edges.get_mut(&waiter.id()) else {
            return;
        };
        let before = std::mem::replace(&mut edges.blockers, blockers.clone());
        state.add_blockers(&blockers);
        state.remove_blockers(&before);
        self.break_circles(&mut state, waiter);
    }

    /// A transaction waits no more.
    pub(super) fn leave(&self, waiter: &TrxState) {
        let mut state = self.state.lock();
        if let Some(edges) = state.edges.remove(&waiter.id()) {
            state.remove_blockers(&edges.blockers);
        }
    }

    /// Dooms a member of each circle that the edges of `closer` are part of.
    fn break_circles(&self, state: &mut State, closer: &Arc<TrxState>) {
        loop {
            let circle = state.circle(closer);
            let hooks = if circle.is_empty() {
                return;
            } else {
                self.hooks()
            };
            // Their owners need not be held: none can end while its edges are in.
            let preferred = |a: &TrxState, b: &TrxState| {
                hooks.as_ref().map_or(Ordering::Equal, |hooks| {
                    hooks.compare_victims(a.owner(), b.owner())
                })
            };
            let cost = |trx: &TrxState| (trx.cost(), trx.id() != closer.id(), Reverse(trx.id()));
            let waiters = circle.iter().map(|edges| &edges.request.trx);
            let victim = waiters.min_by(|a, b| preferred(a, b).then_with(|| cost(a).cmp(&cost(b))));
            let Some(victim) = victim.cloned() else {
                return;
            };
            let text = describe(&circle, &victim);
            state.latest_deadlock = Some(text);
            self.counters.add(Counter::Deadlocks, 1);
            if mutants::on(Mutant::VictimSpared) {
                return;
            }
            victim.doom();
        }
    }

    /// What the latest deadlock was, in words.
    pub fn latest_deadlock(&self) -> Option<String> {
        self.state.lock().latest_deadlock.clone()
    }

    /// Everyone who waits right now, and those for whom whatever they wait for is about to be over.
    pub fn waiters(&self) -> Vec<Waiter> {
        let state = self.state.lock();
        let waiters = state.edges.values().filter_map(|edges| {
            Some(Waiter {
                waiter: edges.request.trx.id(),
                blocker: edges.blockers.first()?.id(),
                waited: edges.request.since.elapsed(),
                weight: edges.request.trx.weight(),
                wanted: wanted(&edges.request),
            })
        });
        waiters.collect()
    }
}

fn wanted(request: &Request) -> Wanted {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let key = match &request.target {
        Target::Row(key) => key.to_vec(),
        Target::Range(interval) => match interval.low.as_low() {
            Included(key) | Excluded(key) => key,
            Unbounded => Vec::new(),
        },
    };
    Wanted {
        space: request.tree.0,
        tree: request.tree.1,
        key,
        mode: request.access.mode(),
    }
}

fn describe(circle: &[&Edges], victim: &TrxState) -> String {
    let mut text = format!("deadlock of {} transactions:\n", circle.len());
    for (n, edges) in circle.iter().enumerate() {
        let me = &edges.request.trx;
        let on = &circle[(n + 1) % circle.len()].request.trx;
        let wanted = wanted(&edges.request);
        let what = match edges.request.access {
            Access::Insert => "to insert",
            Access::Row(LockMode::Shared) => "to lock shared",
            Access::Row(LockMode::Exclusive) => "to lock exclusive",
        };
        let key = wanted.key.iter().take(32);
        let key = key.map(|byte| format!("{byte:02x}")).collect::<String>();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  transaction {} (tag {}, {} changes) waits for transaction {} since {} ms, {what} in tablespace {}, \
             tree {}, key {key}",
            me.id(),
            me.details().tag,
            me.weight(),
            on.id(),
            edges.request.since.elapsed().as_millis(),
            wanted.space,
            wanted.tree,
        );
    }
    let fewest = circle.iter().map(|edges| edges.request.trx.cost()).min();
    let why = match fewest == Some(victim.cost()) {
        true => "it had the fewest changes and locks",
        false => "the program prefers it",
    };
    let _ = write!(text, "transaction {} was rolled back: {why}", victim.id());
    text
}
