//! Which transaction waits for which, and deadlocks.
//!
//! Every waiter has edges to the transactions that it waits for. Of those that stand in a queue
//! before it the last one that waits for all the others is enough: the transactions that can be
//! reached are the same. Edges are entered, changed and removed under the latch of the tree in
//! which the waiter waits, so that they are what the queues say.
//!
//! A circle is looked for when edges are entered or grow, from their beginning. Each circle has an
//! edge that came last, so none is missed. And none is false: a waiter that is granted what it
//! waits for loses its edges at once, and those of a doomed waiter, or to a transaction that has
//! ended, are not followed.

use super::deadlock::{self, Deadlock, TreeNames};
use super::request::Request;
use super::{Access, LockMode, LockWaitHooks};
use crate::counters::{Counter, Counters};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::{Check, Checked, paranoid};
use crate::sync::{HashMap, HashSet, RwLock};
use inkstone_format::TrxId;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

/// What a request waits for.
#[derive(Debug, Default)]
pub(crate) struct Blockers {
    pub trxs: Vec<Arc<TrxState>>,
    /// A shared request in its place would wait for them, too.
    pub are_exclusive: bool,
}

#[derive(Debug)]
struct Edges {
    request: Arc<Request>,
    blockers: Vec<Arc<TrxState>>,
    are_exclusive: bool,
}

impl Edges {
    /// Whether it waits for all that a waiter before it in a queue waits for.
    fn waits_for_all_of(&self, before: &Self) -> bool {
        let (one, other) = (&self.request, &before.request);
        paranoid!(
            one.trx.id() != other.trx.id(),
            "{:?} is twice in a circle",
            one.trx.id()
        );
        let is_shared = one.access == Access::Row(LockMode::Shared);
        let is_exclusive = other.access == Access::Row(LockMode::Exclusive);
        let is_covered = is_shared && is_exclusive && before.are_exclusive;
        one.wants_the_same_row(other) && (one.access == other.access || is_covered)
    }
}

#[derive(Debug, Default)]
struct State {
    edges: HashMap<TrxId, Edges>,
    /// How many wait for a transaction, where any do.
    waited_for: HashMap<TrxId, u32>,
    latest_deadlock: Option<Arc<Deadlock>>,
    /// Of victims that have not woken yet.
    accounts: HashMap<TrxId, Arc<Deadlock>>,
}

/// Waiters that a check looks at.
const CHECKED: usize = 8;

impl Check for State {
    fn check(&self) {
        let mut waits = 0;
        for (id, edges) in self.edges.iter().take(CHECKED) {
            paranoid!(
                edges.request.trx.id() == *id,
                "the wait of {:?} under the name {id:?}",
                edges.request.trx.id()
            );
            for blocker in edges.blockers.iter().take(CHECKED) {
                let count = self.waited_for.get(&blocker.id());
                paranoid!(
                    blocker.id() != *id && count.is_some_and(|&count| count > 0),
                    "{id:?} waits for {:?}, for which {count:?} wait",
                    blocker.id()
                );
            }
            waits += edges.blockers.len();
        }
        if self.edges.len() <= CHECKED && self.waited_for.len() <= CHECKED {
            let counted: u32 = self.waited_for.values().sum();
            paranoid!(
                counted as usize == waits,
                "{waits} waits for transactions, {counted} counted"
            );
        }
    }
}

impl State {
    fn add_blockers(&mut self, blockers: &[Arc<TrxState>]) {
        for blocker in blockers {
            *self.waited_for.entry(blocker.id()).or_default() += 1;
        }
    }

    fn remove_blockers(&mut self, blockers: &[Arc<TrxState>]) {
        for blocker in blockers {
            let count = self.waited_for.get_mut(&blocker.id());
            paranoid!(count.is_some(), "nothing waited for {:?}", blocker.id());
            if let Some(count) = count {
                *count -= 1;
                if *count == 0 {
                    self.waited_for.remove(&blocker.id());
                }
            }
        }
    }

    /// False if the waiter waits no more.
    fn replace_blockers(&mut self, waiter: &TrxState, blockers: Blockers) -> bool {
        let Some(edges) = self.edges.get_mut(&waiter.id()) else {
            return false;
        };
        edges.are_exclusive = blockers.are_exclusive;
        let before = std::mem::replace(&mut edges.blockers, blockers.trxs.clone());
        self.add_blockers(&blockers.trxs);
        self.remove_blockers(&before);
        true
    }

    /// A waiter that closes a circle gets edges to every transaction that it waits for: there may
    /// be a shorter circle, without the waiters before it in the queue. Queues are long, so this is
    /// done for no other waiter.
    fn complete(&mut self, waiter: &TrxState, all: impl FnOnce() -> Blockers) {
        if !self.circle(waiter).is_empty() {
            self.replace_blockers(waiter, all());
        }
    }

    /// The waiters of the shortest circle that leads from `start` to itself; empty if there is
    /// none. A longer one may go through a waiter without which the others still wait for each
    /// other.
    fn circle(&self, start: &TrxState) -> Vec<&Edges> {
        // Most transactions that begin to wait keep no other waiting.
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
                paranoid!(
                    blocker.id() != edges.request.trx.id(),
                    "{:?} waits for itself",
                    blocker.id()
                );
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
    paranoid!(
        places.last() == Some(&0) && places.is_sorted_by(|a, b| a > b),
        "a way to place {place} by {places:?}"
    );
    places.iter().rev().map(|&at| reached[at].0).collect()
}

/// A circle without the waiters that only stand in a queue between two others. In a queue, a waiter
/// mostly has an edge only to the one before it: if both want the same of the same row, or the one
/// before it waits only for such as are in the way of both, it waits for all that the one before it
/// waits for. Were that one the victim, the others would still wait for each other.
fn without_bystanders(mut circle: Vec<&Edges>) -> Vec<&Edges> {
    paranoid!(
        circle.len() != 1,
        "a transaction waits for itself: {circle:?}"
    );
    let mut at = 0;
    while at < circle.len() && circle.len() > 2 {
        let next = (at + 1) % circle.len();
        if circle[at].waits_for_all_of(circle[next]) {
            circle.remove(next);
            // Those before it have moved up.
            at -= usize::from(next < at);
        } else {
            at += 1;
        }
    }
    circle
}

/// Which transaction waits for which.
pub struct WaitGraph {
    /// One mutex for all: a circle may run through any of them. It is taken when a wait begins and
    /// when it ends, inside the latch of a tree's locks; inside it, waiters' `woken` latches.
    state: Checked<State>,
    /// What the embedder wants to know of it.
    hooks: RwLock<Option<Arc<dyn LockWaitHooks>>>,
    /// The source of the trees' names.
    names: RwLock<Option<Arc<dyn TreeNames>>>,
    counters: Arc<Counters>,
}

impl WaitGraph {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            state: Checked::default(),
            hooks: RwLock::default(),
            names: RwLock::default(),
            counters,
        }
    }

    /// Has `hooks` called from the next wait on.
    pub fn set_hooks(&self, hooks: Arc<dyn LockWaitHooks>) {
        *self.hooks.write() = Some(hooks);
    }

    /// Has trees named by `names`, in accounts of deadlocks and in errors.
    pub fn set_names(&self, names: Arc<dyn TreeNames>) {
        *self.names.write() = Some(names);
    }

    pub(crate) fn hooks(&self) -> Option<Arc<dyn LockWaitHooks>> {
        self.hooks.read().clone()
    }

    /// A transaction begins to wait. If that closes a circle, a victim is doomed. One without
    /// patience closes none: it is about to leave, and no transaction must be rolled back for it.
    /// `all`: every transaction that it waits for; of these, `blockers` are enough to find out
    /// whether there is a circle.
    pub(crate) fn enter(
        &self,
        request: &Arc<Request>,
        blockers: Blockers,
        all: impl FnOnce() -> Blockers,
    ) {
        if !request.trx.is_patient() {
            return;
        }
        let mut state = self.state.lock();
        state.add_blockers(&blockers.trxs);
        let edges = Edges {
            request: request.clone(),
            blockers: blockers.trxs,
            are_exclusive: blockers.are_exclusive,
        };
        let other = state.edges.insert(request.trx.id(), edges);
        crate::invariant!(other.is_none(), "{:?} waits twice at once", request.trx);
        state.complete(&request.trx, all);
        self.break_circles(&mut state, &request.trx);
    }

    /// The transactions that a waiter waits for have changed. `all`: as in [`enter`](Self::enter).
    pub(crate) fn set_blockers(
        &self,
        waiter: &Arc<TrxState>,
        blockers: Blockers,
        all: impl FnOnce() -> Blockers,
    ) {
        let mut state = self.state.lock();
        if state.replace_blockers(waiter, blockers) {
            state.complete(waiter, all);
            self.break_circles(&mut state, waiter);
        }
    }

    /// A transaction waits no more.
    pub(crate) fn leave(&self, waiter: &TrxState) {
        let mut state = self.state.lock();
        if let Some(edges) = state.edges.remove(&waiter.id()) {
            state.remove_blockers(&edges.blockers);
        }
    }

    /// Dooms a member of each circle that the edges of `closer` are part of.
    fn break_circles(&self, state: &mut State, closer: &Arc<TrxState>) {
        loop {
            let circle = without_bystanders(state.circle(closer));
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
            paranoid!(
                !victim.is_doomed() && !victim.is_ended(),
                "{:?} is a victim again, or has ended",
                victim.id()
            );
            let requests: Vec<_> = circle.iter().map(|edges| &edges.request).collect();
            let statement = |owner| match owner {
                0 => None,
                owner => hooks.as_ref()?.statement(owner),
            };
            let deadlock = Arc::new(Deadlock::of(&requests, &victim, statement));
            paranoid!(
                circle.len() >= 2,
                "a deadlock of {} transactions",
                circle.len()
            );
            state.accounts.insert(victim.id(), deadlock.clone());
            state.latest_deadlock = Some(deadlock);
            self.counters.add(Counter::Deadlocks, 1);
            if mutants::on(Mutant::VictimSpared) {
                return;
            }
            victim.doom();
        }
    }

    /// What the latest deadlock was, in words.
    pub fn latest_deadlock(&self) -> Option<String> {
        let latest = self.state.lock().latest_deadlock.clone();
        latest.map(|deadlock| self.words(&deadlock))
    }

    fn words(&self, deadlock: &Deadlock) -> String {
        let names = self.names.read().clone();
        deadlock.words(names.as_deref())
    }

    /// What a request waits for, in words.
    pub(super) fn place_of(&self, request: &Request) -> String {
        let names = self.names.read().clone();
        deadlock::place_of(request, names.as_deref())
    }

    /// Puts the deadlock into words that a transaction is the victim of, and tells the hooks of it,
    /// in the transaction's own thread. Called once for each victim.
    pub(crate) fn tell_of_deadlock(&self, victim: &TrxState) {
        paranoid!(
            victim.is_doomed(),
            "{:?} is told of a deadlock, and was no victim",
            victim.id()
        );
        let deadlock = self.state.lock().accounts.remove(&victim.id());
        let words = deadlock.map(|deadlock| self.words(&deadlock));
        if let (Some(words), Some(hooks)) = (words, self.hooks()) {
            hooks.deadlock_found(&words);
        }
    }

    /// The victim of a deadlock was interrupted, waits no more, and is not rolled back.
    pub(crate) fn spare(&self, victim: &TrxState) {
        let deadlock = self.state.lock().accounts.remove(&victim.id());
        if let Some(deadlock) = deadlock {
            deadlock.spare_victim();
        }
        victim.spare();
    }

    /// How many wait right now.
    pub fn waiting(&self) -> usize {
        self.state.lock().edges.len()
    }
}
