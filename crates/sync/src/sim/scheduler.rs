//! The scheduler of one run: which of its threads runs, what time it is, what each thread waits
//! for.
//!
//! # Promises
//!
//! 1. At most one thread of the run has the token, and only that one touches the state. The others
//!    wait for their batons. (The mutex around the state is there for the compiler and is never
//!    contended, but by the thread that waits for the run's end.) Tested by
//!    `a_seed_repeats_and_seeds_differ`.
//! 2. Whatever is decided depends on the seed and on what the threads did before, and on nothing
//!    else: neither on addresses nor on the operating system. Tested by
//!    `a_seed_repeats_and_seeds_differ`.
//! 3. A thread that is in a queue is blocked, and waits for that queue's key. Tested by
//!    `parked_threads_get_the_token_of_their_waker`, `a_lost_wake_up_is_a_deadlock`.

use super::context::{Baton, Context, Place, cost};
use super::policy::{Dice, Policy, mix};
use super::report::{Event, Report, Turn, describe};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// How often, in percent of the turns that were cut short, all threads draw new priorities.
const REDRAW_PERCENT: u64 = 10;

/// What a thread can wait for. An address stands for what lies there, and only until the waiter is
/// woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Lock(usize),
    Condvar(usize),
    Park(usize),
    End(usize),
    Sleep,
}

/// A wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub key: Key,
    /// Virtual nanoseconds at which it ends by itself.
    pub deadline: Option<u64>,
    /// What the choice of the threads to wake sees of it.
    pub token: usize,
    pub at: Place,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    By(usize),
    TimedOut,
}

#[derive(Debug)]
pub(super) enum Status {
    Ready,
    Waiting(Wait),
    Ended,
}

#[derive(Debug)]
pub(super) struct Scheduled {
    pub name: String,
    pub status: Status,
    woken: Woken,
    priority: i64,
    baton: Arc<Baton>,
    thread: Option<Thread>,
}

#[derive(Debug)]
pub(super) struct State {
    dice: Dice,
    policy: Policy,
    pub threads: Vec<Scheduled>,
    /// Numbers of the threads that have not ended, in their order.
    live: Vec<usize>,
    /// Waiters by what they wait for, longest first. Never iterated over, as keys are addresses.
    queues: HashMap<Key, VecDeque<usize>>,
    /// Virtual nanoseconds since the run began.
    pub now: u64,
    /// Below all priorities that were given so far.
    lowest: i64,
    units_max: u64,
    pub report: Report,
    record: bool,
    /// Messages of threads that panicked.
    pub panics: Vec<String>,
    /// Why the run stopped before its end.
    failure: Option<String>,
    over: bool,
}

#[derive(Debug)]
pub(super) struct Scheduler {
    pub seed: u64,
    state: Mutex<State>,
    over: Condvar,
}

/// Which thread runs next.
enum Next {
    Thread(usize),
    None,
    Failed(String),
}

impl Scheduler {
    pub fn new(config: &super::Config) -> Self {
        let mut dice = Dice::new(config.seed);
        let policy = Policy::draw(&mut dice);
        let state = State {
            dice,
            policy,
            threads: Vec::new(),
            live: Vec::new(),
            queues: HashMap::new(),
            now: 0,
            lowest: 0,
            units_max: config.steps_max,
            report: Report::default(),
            record: config.record,
            panics: Vec::new(),
            failure: None,
            over: false,
        };
        Self {
            seed: config.seed,
            state: Mutex::new(state),
            over: Condvar::new(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that waits for its first turn.
    pub fn register(self: &Arc<Self>, name: String) -> Arc<Context> {
        let mut state = self.state();
        let number = state.threads.len();
        let baton = Arc::<Baton>::default();
        let priority = (state.dice.roll() >> 2) as i64;
        state.threads.push(Scheduled {
            name,
            status: Status::Ready,
            woken: Woken::TimedOut,
            priority,
            baton: baton.clone(),
            thread: None,
        });
        state.live.push(number);
        let scheduler = self.clone();
        Arc::new(Context {
            scheduler,
            number,
            baton,
        })
    }

    /// The thread of the operating system behind `number`, which could be started.
    pub fn started(&self, number: usize, thread: Thread) {
        self.state().threads[number].thread = Some(thread);
    }

    /// The thread `number` could not be started.
    pub fn not_started(&self, number: usize) {
        let mut state = self.state();
        state.threads[number].status = Status::Ended;
        state.live.retain(|&live| live != number);
    }

    /// Lets the first thread of the run begin.
    pub fn begin(&self) {
        let mut state = self.state();
        state.hand_over(0);
    }

    /// Waits for the end of the run; the error says why it has none.
    pub fn await_end(&self) -> Result<Report, String> {
        let mut state = self.state();
        while !state.over {
            state = self
                .over
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.report.virtual_time = std::time::Duration::from_nanos(state.now);
        let report = std::mem::take(&mut state.report);
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(report),
        }
    }

    /// Virtual nanoseconds since the run began.
    pub fn now(&self, me: &Context) -> u64 {
        let mut state = self.state();
        state.account(me.spent());
        state.now
    }

    /// The turn of `me` is over.
    pub fn preempt(&self, me: &Context, at: Place) {
        self.turn(me, Turn::Preempted, at);
    }

    /// `me` would rather let others run.
    pub fn give_way(&self, me: &Context, at: Place) {
        self.turn(me, Turn::GaveWay, at);
    }

    /// `me` waits until it is woken, or for the deadline.
    pub fn block(&self, me: &Context, wait: Wait) -> Woken {
        let mut state = self.state();
        if wait.key != Key::Sleep {
            state
                .queues
                .entry(wait.key)
                .or_default()
                .push_back(me.number);
        }
        state.threads[me.number].status = Status::Waiting(wait);
        drop(state);
        self.turn(me, Turn::Waits, wait.at);
        self.state().threads[me.number].woken
    }

    /// `me` has ended; the calling thread is no longer scheduled.
    pub fn end(&self, me: &Context, panic: Option<String>, at: Place) {
        let mut state = self.state();
        state.threads[me.number].status = Status::Ended;
        state.live.retain(|&live| live != me.number);
        if let Some(text) = panic {
            let text = format!(
                "the thread {} panicked: {text}",
                state.threads[me.number].name
            );
            state.panics.push(text);
        }
        state.wake_all(Key::End(me.number), 0);
        drop(state);
        self.turn(me, Turn::Ended, at);
    }

    fn turn(&self, me: &Context, turn: Turn, at: Place) {
        let mut state = self.state();
        let spent = me.spent();
        state.account(spent);
        // A thread that only gives way gets nowhere either.
        state.report.steps += cost::LOCK as u64;
        let next = match state.report.steps > state.units_max {
            false => state.next(me.number, turn),
            true => Next::Failed(format!("{} steps, and no end", state.units_max)),
        };
        match next {
            Next::Thread(next) => {
                state.note(me.number, turn, spent, next, at);
                if next == me.number {
                    let units = state.turn_units();
                    return me.begin_turn(units);
                }
                state.report.switches += 1;
                state.hand_over(next);
            }
            Next::None => {
                state.over = true;
                self.over.notify_all();
            }
            Next::Failed(text) => {
                state.failure = Some(describe(&state, self.seed, &text, (me.number, at)));
                state.over = true;
                self.over.notify_all();
            }
        }
        drop(state);
        // In a run that failed the token is not handed on any more: its threads stay where they
        // are, as what they would do from here on means nothing.
        if !matches!(turn, Turn::Ended) {
            me.await_turn();
        }
    }
}

impl State {
    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn turn_units(&mut self) -> i64 {
        self.policy.turn(&mut self.dice)
    }

    fn hand_over(&mut self, next: usize) {
        let units = self.turn_units();
        let next = &self.threads[next];
        if let Some(thread) = &next.thread {
            next.baton.pass(thread, units);
        }
    }

    /// Lets time pass.
    fn account(&mut self, units: u64) {
        self.report.steps += units;
        self.now += units * self.policy.unit_nanos;
    }

    /// Enters something in the fingerprint that the threads did.
    pub fn see(&mut self, digest: u64) {
        self.report.fingerprint = mix(self.report.fingerprint ^ digest);
    }

    /// Enters a decision in the fingerprint.
    fn note(&mut self, thread: usize, turn: Turn, spent: u64, next: usize, at: Place) {
        let event = Event {
            thread,
            turn,
            spent,
            next,
            now: self.now,
            at,
        };
        self.report.fingerprint = event.mixed_into(self.report.fingerprint);
        if self.record {
            self.report.events.push(event);
        }
    }

    fn next(&mut self, me: usize, turn: Turn) -> Next {
        self.expire();
        match turn {
            Turn::Preempted => self.draw_priorities(me),
            Turn::GaveWay => {
                self.lowest -= 1;
                self.threads[me].priority = self.lowest;
            }
            Turn::Waits | Turn::Ended => {}
        }
        let early = self.policy.early_percent;
        if early > 0 && turn == Turn::Preempted && self.dice.chance(early) {
            self.jump();
        }
        loop {
            if let Some(next) = self.choose(me, turn) {
                return Next::Thread(next);
            }
            if turn == Turn::GaveWay {
                // No other thread can: it waits for something that time brings about.
                self.now += 50_000;
                self.expire();
                return Next::Thread(self.choose(me, turn).unwrap_or(me));
            }
            if !self.jump() {
                return match self.live.is_empty() {
                    true => Next::None,
                    false => Next::Failed("a deadlock: no thread can run".to_owned()),
                };
            }
        }
    }

    /// A new priority for `me`, and now and then for all: a thread that waits for another without
    /// sleeping must not keep it from running for good.
    fn draw_priorities(&mut self, me: usize) {
        let all = self.dice.chance(REDRAW_PERCENT);
        for index in 0..self.live.len() {
            let number = self.live[index];
            if all || number == me {
                self.threads[number].priority = (self.dice.roll() >> 2) as i64;
            }
        }
    }

    /// One of the threads that can run; not the one that gives way.
    fn choose(&mut self, me: usize, turn: Turn) -> Option<usize> {
        let can_run = |threads: &[Scheduled], number: usize| {
            matches!(threads[number].status, Status::Ready)
                && !(number == me && turn == Turn::GaveWay)
        };
        let (threads, live) = (&self.threads, &self.live);
        let ready = live.iter().copied().filter(|&n| can_run(threads, n));
        if self.policy.priorities {
            return ready.max_by_key(|&n| threads[n].priority);
        }
        let count = ready.clone().count() as u64;
        if count == 0 {
            return None;
        }
        let chosen = self.dice.below(count) as usize;
        ready.clone().nth(chosen)
    }

    /// Ends the waits whose time has come.
    fn expire(&mut self) {
        for index in 0..self.live.len() {
            let number = self.live[index];
            let Status::Waiting(wait) = self.threads[number].status else {
                continue;
            };
            if wait.deadline.is_some_and(|deadline| deadline <= self.now) {
                self.make_ready(number, wait.key, Woken::TimedOut);
            }
        }
    }

    /// Lets the clock jump to the next deadline, if there is one.
    fn jump(&mut self) -> bool {
        let deadline = |&number: &usize| match self.threads[number].status {
            Status::Waiting(wait) => wait.deadline,
            _ => None,
        };
        let Some(next) = self.live.iter().filter_map(deadline).min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.expire();
        true
    }

    fn make_ready(&mut self, number: usize, key: Key, woken: Woken) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.retain(|&waiting| waiting != number);
            if queue.is_empty() {
                self.queues.remove(&key);
            }
        }
        self.threads[number].status = Status::Ready;
        self.threads[number].woken = woken;
    }

    /// The waiters for `key`, longest first, with their tokens.
    pub fn waiting(&self, key: Key) -> Vec<(usize, usize)> {
        let queue = self.queues.get(&key).into_iter().flatten();
        let token = |&number: &usize| match self.threads[number].status {
            Status::Waiting(wait) => (number, wait.token),
            _ => (number, 0),
        };
        queue.map(token).collect()
    }

    /// Wakes a thread that waits for `key`.
    pub fn wake(&mut self, number: usize, key: Key, token: usize) {
        self.make_ready(number, key, Woken::By(token));
    }

    /// Wakes all waiters for `key`.
    pub fn wake_all(&mut self, key: Key, token: usize) {
        for number in self.queues.remove(&key).unwrap_or_default() {
            self.make_ready(number, key, Woken::By(token));
        }
    }

    /// Wakes any one of the waiters for `key`.
    pub fn wake_any(&mut self, key: Key, token: usize) {
        let waiting = self.queues.get(&key).map_or(0, VecDeque::len) as u64;
        if waiting > 0 {
            let chosen = self.dice.below(waiting) as usize;
            let number = self.queues[&key][chosen];
            self.wake(number, key, token);
        }
    }

    /// Random bits for the engine.
    pub fn random_bits(&mut self) -> u64 {
        mix(self.dice.roll())
    }
}
