//! Futures that wait for the log.

use super::*;
use crate::log::Ticket;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::task::{Poll, Wake, Waker};
use std::time::Instant;

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    fn times(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wait(&self) {
        let since = Instant::now();
        while self.times() == 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "it is not woken");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A future as the log sees it.
#[derive(Default)]
struct Waiting(Option<Ticket>);

impl Waiting {
    fn poll(&mut self, log: &Log, lsn: Lsn, waker: &Waker) -> Poll<Result<()>> {
        log.poll_reached((lsn, true), &mut self.0, waker)
    }
}

fn is_pending(polled: &Poll<Result<()>>) -> bool {
    polled.is_pending()
}

#[test]
fn the_thread_of_the_log_flushes_for_futures() {
    for synced in [true, false] {
        let vfs = MemoryVfs::new();
        let (log, ..) = open(params(&vfs));
        let (_, end) = append(&log, b"a commit");
        let (count, waker) = Count::new();
        let mut ticket = None;
        assert!(is_pending(&log.poll_reached(
            (end, synced),
            &mut ticket,
            &waker
        )));
        count.wait();
        let reached = if synced {
            log.durable_lsn()
        } else {
            log.written_lsn()
        };
        assert!(reached >= end);
        assert!(matches!(
            log.poll_reached((end, synced), &mut ticket, &waker),
            Poll::Ready(Ok(()))
        ));
        assert!(ticket.is_none() && count.times() == 1);
    }
}

#[test]
fn the_last_waker_counts_and_a_dropped_future_leaves_none() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    vfs.faults.hold_syncs.store(true, Ordering::SeqCst);
    let (_, end) = append(&log, b"a commit");
    let ((first, first_waker), (last, last_waker)) = (Count::new(), Count::new());
    let mut future = Waiting::default();
    assert!(is_pending(&future.poll(&log, end, &first_waker)));
    assert!(is_pending(&future.poll(&log, end, &last_waker)));
    // The log has let go of the first one, and holds the last.
    drop((first_waker, last_waker));
    assert_eq!(
        (Arc::strong_count(&first), Arc::strong_count(&last)),
        (1, 2)
    );

    let (gone, gone_waker) = Count::new();
    let mut dropped = Waiting::default();
    assert!(is_pending(&dropped.poll(&log, end, &gone_waker)));
    log.forget(&dropped.0.take().expect("it waits"));
    drop(gone_waker);
    assert_eq!(Arc::strong_count(&gone), 1, "its waker is kept");

    vfs.faults.hold_syncs.store(false, Ordering::SeqCst);
    last.wait();
    let times = (first.times(), last.times(), gone.times());
    assert_eq!(times, (0, 1, 0));
    assert!(log.shared.state.lock().wakers.are_none());
}

#[test]
fn futures_hear_of_a_failure() {
    for from_outside in [false, true] {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params(&vfs));
        vfs.faults.hold_syncs.store(true, Ordering::SeqCst);
        if !from_outside {
            vfs.faults.sync_in.store(0, Ordering::SeqCst);
        }
        let (_, end) = append(&log, b"a commit");
        let (count, waker) = Count::new();
        let mut future = Waiting::default();
        assert!(is_pending(&future.poll(&log, end, &waker)));
        if from_outside {
            poison.set("a page that could not be written");
        }
        vfs.faults.hold_syncs.store(false, Ordering::SeqCst);
        if !from_outside {
            count.wait();
            let polled = future.poll(&log, end, &waker);
            assert!(matches!(polled, Poll::Ready(Err(Error::Poisoned(_)))));
        }
        let beyond = Lsn(end.0 + 1);
        let polled = Waiting::default().poll(&log, beyond, &waker);
        assert!(matches!(polled, Poll::Ready(Err(Error::Poisoned(_)))));
        // Durable before the poison was seen, or not: it is told.
        count.wait();
    }
}

#[test]
fn a_log_that_closes_wakes_its_futures() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    let over = AtomicBool::new(false);
    crate::sync::test_scope(|scope| {
        let (log, over) = (&log, &over);
        let pollers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let mut done = 0;
                    while !over.load(Ordering::SeqCst) {
                        let (_, end) = append(log, b"a commit");
                        let (count, waker) = Count::new();
                        let mut future = Waiting::default();
                        if is_pending(&future.poll(log, end, &waker)) {
                            count.wait();
                        }
                        assert!(log.durable_lsn() >= end);
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        // The thread ends, and futures come all the same.
        log.shared.background.stop();
        let thread = log.thread.lock().take().expect("ink-log");
        thread.join().expect("ink-log panicked");
        std::thread::sleep(Duration::from_millis(20));
        over.store(true, Ordering::SeqCst);
        let done: u64 = pollers.into_iter().map(|p| p.join().unwrap()).sum();
        assert!(done > 4);
    });
    log.close().unwrap();
}

/// Polls and drops other futures of the log when it is woken.
struct Meddler {
    log: Arc<Log>,
    others: Mutex<Vec<Ticket>>,
    woken: AtomicBool,
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        for ticket in self.others.lock().unwrap().drain(..) {
            self.log.forget(&ticket);
        }
        let (_, waker) = Count::new();
        let mut another = Waiting::default();
        let end = self.log.current_lsn();
        if is_pending(&another.poll(&self.log, end, &waker)) {
            self.log.forget(&another.0.take().unwrap());
        }
        self.woken.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_may_poll_and_drop_other_futures() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    vfs.faults.hold_syncs.store(true, Ordering::SeqCst);
    let (_, end) = append(&log, b"a commit");
    let meddler = Arc::new(Meddler {
        log: log.clone(),
        others: Mutex::default(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(meddler.clone());
    for _ in 0..3 {
        let mut other = Waiting::default();
        assert!(is_pending(&other.poll(&log, end, &waker)));
        meddler.others.lock().unwrap().extend(other.0);
    }
    let mut future = Waiting::default();
    assert!(is_pending(&future.poll(&log, end, &waker)));
    vfs.faults.hold_syncs.store(false, Ordering::SeqCst);
    let since = Instant::now();
    while !meddler.woken.load(Ordering::SeqCst) {
        assert!(since.elapsed() < Duration::from_secs(20), "it hangs");
        std::thread::sleep(Duration::from_micros(200));
    }
    let polled = future.poll(&log, end, &waker);
    assert!(matches!(polled, Poll::Ready(Ok(()))));
}
