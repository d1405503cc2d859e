//! What is known of locks that were held: a table for each thread, merged by the reader.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Powers of two of nanoseconds that are told apart.
pub const BUCKETS: usize = 48;

/// How a thread used a lock at one place of the source.
#[derive(Clone, Debug)]
pub struct LockUse {
    /// A number of the thread.
    pub thread: usize,
    /// Where the lock lies: tells apart locks that exist at the same time.
    pub address: usize,
    /// The type of what it guards.
    pub what: &'static str,
    /// Where it was taken.
    pub at: &'static Location<'static>,
    /// Whether no other thread could hold it at the same time.
    pub exclusive: bool,
    /// Whether other threads used the lock, too, since it was made.
    pub shared: bool,
    /// How often it was taken.
    pub count: u64,
    /// How often another thread held it, so that this one waited.
    pub waited: u64,
    /// Nanoseconds for which it was held, together.
    pub nanos: u64,
    /// Nanoseconds of the longest hold.
    pub longest: u64,
    /// Holds by the binary logarithm of their nanoseconds.
    pub histogram: [u64; BUCKETS],
}

/// Thread-local tables: addresses of the lock, of its type's name, of the place, and the mode.
type Key = (usize, usize, usize, bool);
type Table = Arc<Mutex<HashMap<Key, LockUse>>>;

static TABLES: Mutex<Vec<Table>> = Mutex::new(Vec::new());

thread_local! {
    static TABLE: (usize, Table) = {
        let mut tables = TABLES.lock();
        tables.push(Table::default());
        (tables.len() - 1, tables[tables.len() - 1].clone())
    };
    /// Page latches that the thread holds.
    static LATCHES: RefCell<Vec<Hold>> = const { RefCell::new(Vec::new()) };
    /// How many locks the thread holds, and what it held while it held others: noting that at once
    /// would make the others' holds longer.
    static ENDED: RefCell<(usize, Vec<(Hold, u64)>)> = const { RefCell::new((0, Vec::new())) };
}

/// Ended holds that wait to be noted, at most.
const ENDED_MAX: usize = 4096;

/// A lock that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    address: usize,
    what: &'static str,
    at: &'static Location<'static>,
    exclusive: bool,
    shared: bool,
    waited: bool,
    since: Instant,
}

/// The users of a lock: none (0), one thread (its number and 1), or several.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicUsize);

impl Users {
    const SEVERAL: usize = usize::MAX;

    pub(super) const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The calling thread does; whether others did, too.
    fn note(&self) -> bool {
        let me = TABLE
            .try_with(|(thread, _)| thread + 1)
            .unwrap_or(Self::SEVERAL);
        match self.0.load(Ordering::Relaxed) {
            Self::SEVERAL => true,
            0 => {
                self.0.store(me, Ordering::Relaxed);
                false
            }
            known => {
                if known != me {
                    self.0.store(Self::SEVERAL, Ordering::Relaxed);
                }
                known != me
            }
        }
    }
}

impl Hold {
    #[track_caller]
    pub(super) fn begin(users: &Users, what: &'static str, exclusive: bool, waited: bool) -> Self {
        let address = std::ptr::from_ref(users).addr();
        Self::of(address, what, exclusive, users.note(), waited)
    }

    #[track_caller]
    fn of(address: usize, what: &'static str, exclusive: bool, shared: bool, waited: bool) -> Self {
        let _ = ENDED.try_with(|ended| ended.borrow_mut().0 += 1);
        Self {
            address,
            what,
            at: Location::caller(),
            exclusive,
            shared,
            waited,
            since: Instant::now(),
        }
    }

    /// The same lock is held again, by a thread that had let go of it for a while.
    pub(super) fn again(&self) -> Self {
        let again = Self::of(self.address, self.what, self.exclusive, self.shared, false);
        Self {
            at: self.at,
            ..again
        }
    }

    /// The nanoseconds up to now.
    pub(super) fn nanos(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// It was held so long; the caller has let go of it. What threads do while they end is not
    /// noted.
    pub(super) fn ended(self, nanos: u64) {
        let _ = ENDED.try_with(|ended| {
            let (held, ended) = &mut *ended.borrow_mut();
            *held -= 1;
            ended.push((self, nanos));
            if *held == 0 || ended.len() == ENDED_MAX {
                note(ended.drain(..));
            }
        });
    }
}

fn note(ended: impl Iterator<Item = (Hold, u64)>) {
    let _ = TABLE.try_with(|(thread, table)| {
        let mut table = table.lock();
        for (hold, nanos) in ended {
            let place = std::ptr::from_ref(hold.at).addr();
            let key = (
                hold.address,
                hold.what.as_ptr().addr(),
                place,
                hold.exclusive,
            );
            let known = table.entry(key).or_insert_with(|| LockUse {
                thread: *thread,
                address: hold.address,
                what: hold.what,
                at: hold.at,
                exclusive: hold.exclusive,
                shared: false,
                count: 0,
                waited: 0,
                nanos: 0,
                longest: 0,
                histogram: [0; BUCKETS],
            });
            known.shared |= hold.shared;
            known.count += 1;
            known.waited += u64::from(hold.waited);
            known.nanos += nanos;
            known.longest = known.longest.max(nanos);
            let bucket = nanos.max(1).ilog2() as usize;
            known.histogram[bucket.min(BUCKETS - 1)] += 1;
        }
    });
}

/// Everything noted since the last call.
pub fn take() -> Vec<LockUse> {
    let tables = TABLES.lock();
    let taken = tables
        .iter()
        .flat_map(|table| std::mem::take(&mut *table.lock()));
    taken.map(|(_, known)| known).collect()
}

/// The calling thread holds the page latch at `address` alone, from here on.
#[track_caller]
pub fn began(address: usize) {
    let hold = Hold::of(address, "page latch", true, true, false);
    let _ = LATCHES.try_with(|latches| latches.borrow_mut().push(hold));
}

/// The calling thread lets go of the page latch at `address`.
pub fn ended(address: usize) {
    let _ = LATCHES.try_with(|latches| {
        let mut latches = latches.borrow_mut();
        if let Some(at) = latches.iter().rposition(|hold| hold.address == address) {
            let hold = latches.swap_remove(at);
            let nanos = hold.nanos();
            hold.ended(nanos);
        }
    });
}
