//! Which segments are live.

use super::segment::Segment;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU64, Ordering};
use inkstone_format::VersionAddress;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The least numbers of live segments, or those of the next ones: what is below is dead. Changed
/// with the directory latched. Nearly all addresses that rows carry are dead, and so none of them
/// costs a look at the directory.
#[derive(Debug)]
pub(super) struct OldestLive {
    unlogged: AtomicU64,
    /// Numbers of logged versions are above all others.
    logged: AtomicU64,
}

impl OldestLive {
    /// With no live segment.
    pub fn new(next_number: u64) -> Self {
        paranoid!(
            next_number < VersionAddress::logged_segment(0),
            "segment {next_number:#x} is the next, and counts as logged"
        );
        Self {
            unlogged: AtomicU64::new(next_number),
            logged: AtomicU64::new(VersionAddress::logged_segment(next_number)),
        }
    }

    /// Whether a segment is dead, by its number alone.
    #[inline]
    pub fn is_above(&self, number: u64) -> bool {
        let oldest = if number < VersionAddress::logged_segment(0) {
            &self.unlogged
        } else {
            &self.logged
        };
        number < oldest.load(Ordering::Acquire)
    }

    /// Looks at the directory, which was changed.
    pub fn set(&self, directory: &Directory) {
        let least_logged = VersionAddress::logged_segment(0);
        let numbers = |range| directory.live.range::<u64, _>(range).next();
        let unlogged = numbers((Bound::Unbounded, Bound::Excluded(least_logged)));
        let logged = numbers((Bound::Included(least_logged), Bound::Unbounded));
        let next = directory.next_number;
        let next_logged = VersionAddress::logged_segment(next);
        let unlogged = unlogged.map_or(next, |(&number, _)| number);
        let logged = logged.map_or(next_logged, |(&number, _)| number);
        paranoid!(
            unlogged <= next && logged <= next_logged,
            "segments {unlogged} and {logged:#x} are live, the next is {next}"
        );
        self.unlogged.store(unlogged, Ordering::Release);
        self.logged.store(logged, Ordering::Release);
    }
}

/// The live segments, by number.
#[derive(Debug)]
pub(super) struct Directory {
    pub live: BTreeMap<u64, Arc<Segment>>,
    pub next_number: u64,
}
