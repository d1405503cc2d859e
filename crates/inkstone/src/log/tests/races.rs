//! Ring and group commit under many schedules (`cargo xtask races`).

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::explore::{Seen, explore};
use crate::sync::{Condvar, Mutex, thread};
use std::task::Poll;

/// Several threads append, wait for durability, and lose power at that very moment; then all comes
/// back in order. One waits for nothing: while it copies, flights end before frames that others
/// wait for.
fn append_and_wait(change: impl Fn(&mut LogOptions) + Clone + Send + Sync + 'static) {
    explore(move || {
        let vfs = MemoryVfs::new();
        let (log, ..) = open(params_with(&vfs, &change));
        let threads: Vec<_> = (0..4u64)
            .map(|nth| {
                let (log, vfs) = (log.clone(), vfs.clone());
                let body = move || {
                    let mut mine = Vec::new();
                    for i in 0..2 {
                        let bytes = payload(nth << 8 | i, [20, 5000][i as usize]);
                        let (start, end) = append(&log, &bytes);
                        if nth == 3 {
                            // Threads behind it wait for its frames.
                        } else if nth == 2 && i == 0 {
                            log.wait_written(end).unwrap();
                            assert!(log.written_lsn() >= end);
                        } else {
                            log.wait_durable(end).unwrap();
                            let after = vfs.crash(|_, _| false);
                            let (frames, reached) = read(read_params(&after, 1)).unwrap();
                            assert!(reached >= end, "{reached} is lost, {end} was durable");
                            assert!(frames.iter().any(|f| f.0 == start.0 && f.2 == bytes));
                        }
                        mine.push((start.0, bytes));
                    }
                    mine
                };
                thread::spawn("appender", body).unwrap()
            })
            .collect();
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        all.sort();
        log.close().unwrap();
        let (frames, end) = read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
        assert_eq!(end, log.current_lsn());
        let frames: Vec<_> = frames.into_iter().map(|(s, _, p)| (s, p)).collect();
        assert!(frames == all, "frames are lost or in disorder");
    });
}

#[test]
fn group_commit_unbuffered() {
    append_and_wait(|_| {});
}

#[test]
fn group_commit_buffered() {
    append_and_wait(|options| options.buffering = true);
}

#[test]
fn group_commit_with_several_flights() {
    append_and_wait(|options| options.write = LogWrite::Async);
}

#[test]
fn group_commit_written_through() {
    append_and_wait(|options| options.write_through = true);
}

#[test]
fn the_ring_wraps_and_fills_without_losing_a_frame() {
    static FULL: Seen = Seen::never();
    explore(|| {
        let vfs = MemoryVfs::new();
        let (log, counters, _) = open(params(&vfs));
        // Each is a quarter of the ring: three threads fill it, and go round.
        let bytes = log.shared.ring.capacity() as usize / 4;
        let threads: Vec<_> = (0..3u64)
            .map(|nth| {
                let log = log.clone();
                let body = move || {
                    (0..3)
                        .map(|i| {
                            let bytes = payload(nth << 8 | i, bytes);
                            log.wait_for_space().unwrap();
                            (append(&log, &bytes).0.0, bytes)
                        })
                        .collect::<Vec<_>>()
                };
                thread::spawn("appender", body).unwrap()
            })
            .collect();
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        all.sort();
        log.close().unwrap();
        if counters.get(Counter::LogWaits) > 0 {
            FULL.see();
        }
        let (frames, _) = read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
        let frames: Vec<_> = frames.into_iter().map(|(s, _, p)| (s, p)).collect();
        assert!(frames == all, "frames are lost or in disorder");
    });
    FULL.check("an append that waits for room");
}

/// Threads that append and wait for durability, each a few times, until they hear of a poison.
fn append_until_poisoned(
    log: &Arc<Log>,
    (threads, times): (u64, u64),
    poisoned: &'static Seen,
    acknowledged: &Arc<AtomicU64>,
) -> Vec<thread::JoinHandle<()>> {
    let appender = |nth: u64| {
        let (log, acknowledged) = (log.clone(), acknowledged.clone());
        let body = move || {
            for i in 0..times {
                let Ok((_, end)) = log.append(&payload(nth << 8 | i, 40), Claim::IfNews, |_, _| {})
                else {
                    return;
                };
                if log.wait_durable(end).is_err() {
                    poisoned.see();
                    return;
                }
                acknowledged.fetch_max(end.0, Ordering::SeqCst);
            }
        };
        thread::spawn("appender", body).unwrap()
    };
    (0..threads).map(appender).collect()
}

#[test]
fn a_failed_sync_poisons_and_acknowledges_no_commit() {
    static POISONED: Seen = Seen::never();
    explore(|| {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params(&vfs));
        vfs.faults.sync_in.store(1, Ordering::SeqCst);
        let acknowledged = Arc::default();
        let threads = append_until_poisoned(&log, (3, 3), &POISONED, &acknowledged);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(poison.check().is_err());
        let (_, reached) = read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
        assert!(reached.0 >= acknowledged.load(Ordering::SeqCst));
        drop(log);
    });
    POISONED.check("a waiter that hears of the failure");
}

#[test]
fn waiters_hear_of_a_poison_from_outside_the_log() {
    static POISONED: Seen = Seen::never();
    explore(|| {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params(&vfs));
        let threads = append_until_poisoned(&log, (4, 2), &POISONED, &Arc::default());
        thread::yield_now();
        poison.set("a page that could not be written");
        // To wait for ever is what must not happen, whatever the outcome.
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(log);
    });
    POISONED.check("a waiter that hears of the poison");
}

/// A thread that waits for a future: the least executor there is.
#[derive(Default)]
struct Parked {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl std::task::Wake for Parked {
    fn wake(self: Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }
}

impl Parked {
    fn wait_for(log: &Log, goal: (Lsn, bool)) -> Result<()> {
        let parked = Arc::new(Self::default());
        let waker = std::task::Waker::from(parked.clone());
        let mut ticket = None;
        loop {
            if let Poll::Ready(result) = log.poll_reached(goal, &mut ticket, &waker) {
                return result;
            }
            let mut woken = parked.woken.lock();
            while !*woken {
                parked.changed.wait(&mut woken);
            }
            *woken = false;
        }
    }
}

/// Futures and threads await commits, one future is dropped, and the log closes beside them.
#[test]
fn futures_are_woken_beside_threads_and_a_close() {
    explore(|| {
        let vfs = MemoryVfs::new();
        let (log, ..) = open(params(&vfs));
        let threads: Vec<_> = (0..4u64)
            .map(|nth| {
                let log = log.clone();
                let body = move || {
                    let (_, end) = append(&log, &payload(nth, 40));
                    match nth {
                        0 => log.wait_durable(end).unwrap(),
                        1 => {
                            let (waker, mut ticket) = (std::task::Waker::noop(), None);
                            if log
                                .poll_reached((end, true), &mut ticket, waker)
                                .is_pending()
                            {
                                log.forget(&ticket.unwrap());
                            }
                        }
                        _ => {
                            Parked::wait_for(&log, (end, nth == 2)).unwrap();
                            let reached = [log.written_lsn(), log.durable_lsn()];
                            assert!(reached[usize::from(nth == 2)] >= end);
                        }
                    }
                };
                thread::spawn("committer", body).unwrap()
            })
            .collect();
        // As a close does, though nothing is appended beside one.
        log.shared.background.stop();
        threads.into_iter().for_each(|t| t.join().unwrap());
        log.close().unwrap();
        assert!(log.shared.state.lock().wakers.are_none());
    });
}

#[test]
fn futures_hear_of_a_poison_from_outside_the_log() {
    static POISONED: Seen = Seen::never();
    explore(|| {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params(&vfs));
        let waiting = |nth: u64| {
            let log = log.clone();
            let body = move || {
                let appended = log.append(&payload(nth, 40), Claim::IfNews, |_, _| {});
                let Ok((_, end)) = appended else {
                    return;
                };
                if Parked::wait_for(&log, (end, true)).is_err() {
                    POISONED.see();
                }
            };
            thread::spawn("committer", body).unwrap()
        };
        let threads: Vec<_> = (0..3).map(waiting).collect();
        thread::yield_now();
        poison.set("a page that could not be written");
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(log);
    });
    POISONED.check("a future that hears of the poison");
}
