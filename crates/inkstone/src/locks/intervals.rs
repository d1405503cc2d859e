//! Intervals of keys.
//!
//! Nothing lies between a key and the same with a zero behind it: the place behind a key is the
//! place before that. So each place between keys has one name, the bytes that it lies before, and
//! places are ordered as these bytes are. Half-open intervals of places express every pair of
//! bounds; two overlap iff each begins before the other ends.

use crate::paranoid::{Check, paranoid};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The place before a key.
pub(crate) fn before(key: &[u8]) -> Box<[u8]> {
    key.into()
}

/// The place behind a key.
pub(crate) fn after(key: &[u8]) -> Box<[u8]> {
    let mut place = Vec::with_capacity(key.len() + 1);
    place.extend_from_slice(key);
    place.push(0);
    place.into()
}

/// The bound of an interval that begins at a place.
pub(crate) fn low_bound(place: &[u8]) -> Bound<Vec<u8>> {
    match place.split_last() {
        // The empty key is the smallest.
        None => Bound::Unbounded,
        Some((0, key)) => Bound::Excluded(key.to_vec()),
        Some(_) => Bound::Included(place.to_vec()),
    }
}

/// Where an interval ends. The derived order is that of places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum High {
    /// At a place.
    At(Box<[u8]>),
    /// Behind all keys.
    Unbounded,
}

impl High {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::At(place) => place.len(),
                Self::Unbounded => 0,
            }
    }

    /// Whether a place lies before it.
    fn is_behind(&self, place: &[u8]) -> bool {
        match self {
            Self::At(high) => **high > *place,
            Self::Unbounded => true,
        }
    }

    /// Whether it ends at a place, or behind it.
    fn reaches(&self, place: &[u8]) -> bool {
        match self {
            Self::At(high) => **high >= *place,
            Self::Unbounded => true,
        }
    }

    fn is_at(&self, place: &[u8]) -> bool {
        matches!(self, Self::At(high) if **high == *place)
    }

    pub fn as_bound(&self) -> Bound<Vec<u8>> {
        match self {
            Self::Unbounded => Bound::Unbounded,
            Self::At(place) => match place.split_last() {
                Some((0, key)) => Bound::Included(key.to_vec()),
                _ => Bound::Excluded(place.to_vec()),
            },
        }
    }
}

/// What lies between two places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub low: Box<[u8]>,
    pub high: High,
}

impl Interval {
    /// `None` if nothing lies between the bounds.
    pub fn new(low: Bound<&[u8]>, high: Bound<&[u8]>) -> Option<Self> {
        let low = match low {
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => before(&[]),
        };
        let high = match high {
            Bound::Included(key) => High::At(after(key)),
            Bound::Excluded(key) => High::At(before(key)),
            Bound::Unbounded => High::Unbounded,
        };
        high.is_behind(&low).then_some(Self { low, high })
    }

    /// From the first to the last of some keys.
    pub fn of_keys(first: &[u8], last: &[u8]) -> Self {
        paranoid!(first <= last, "keys from {first:x?} to {last:x?}");
        Self {
            low: before(first),
            high: High::At(after(last)),
        }
    }

    pub fn overlaps(&self, with: &Self) -> bool {
        self.high.is_behind(&with.low) && with.high.is_behind(&self.low)
    }

    pub fn has(&self, key: &[u8]) -> bool {
        !self.is_behind(key) && !self.is_before(key)
    }

    /// Whether a key lies before it.
    pub fn is_behind(&self, key: &[u8]) -> bool {
        *key < *self.low
    }

    /// Whether a key lies behind it.
    pub fn is_before(&self, key: &[u8]) -> bool {
        !self.high.is_behind(key)
    }
}

/// Intervals of a set that a check looks at.
const CHECKED: usize = 8;

impl Check for IntervalSet {
    fn check(&self) {
        let mut before: Option<&High> = None;
        let mut bytes = 0;
        for (low, high) in self.ends.iter().take(CHECKED) {
            paranoid!(
                high.is_behind(low) && before.is_none_or(|before| !before.reaches(low)),
                "an interval from {low:x?} to {high:x?}, behind one to {before:x?}"
            );
            before = Some(high);
            bytes += low_bytes(low) + high.bytes();
        }
        let is_all = self.ends.len() <= CHECKED;
        paranoid!(
            if is_all {
                bytes == self.bytes
            } else {
                bytes < self.bytes
            },
            "{} intervals take {} bytes, the first ones {bytes}",
            self.ends.len(),
            self.bytes
        );
    }
}

fn low_bytes(low: &[u8]) -> usize {
    size_of::<Box<[u8]>>() + low.len()
}

/// Disjoint, not touching, not empty intervals.
#[derive(Debug, Default)]
pub(crate) struct IntervalSet {
    /// Where each ends, by the place where it begins.
    ends: BTreeMap<Box<[u8]>, High>,
    bytes: usize,
}

impl IntervalSet {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory, in bytes, but for what the allocator adds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those that begin behind a place, or all.
    pub fn iter_after(&self, place: Option<&[u8]>) -> impl Iterator<Item = (&[u8], &High)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.ends.range::<[u8], _>((from, Bound::Unbounded));
        behind.map(|(low, high)| (&**low, high))
    }

    /// From the first interval that begins behind a place, or of all, to the end of the next.
    pub fn two_after(&self, place: Option<&[u8]>) -> Option<Interval> {
        let mut intervals = self.iter_after(place);
        let ((low, _), (_, high)) = (intervals.next()?, intervals.next()?);
        paranoid!(
            high.is_behind(low),
            "two intervals from {low:x?} to {high:x?}"
        );
        let (low, high) = (low.into(), high.clone());
        Some(Interval { low, high })
    }

    /// The last one that begins in front of a place, or at it. Those before it end before it
    /// begins.
    fn last_from(&self, place: Bound<&[u8]>) -> Option<(&[u8], &High)> {
        let mut from = self.ends.range::<[u8], _>((Bound::Unbounded, place));
        from.next_back().map(|(low, high)| (&**low, high))
    }

    pub fn overlaps(&self, with: &Interval) -> bool {
        self.last_before(&with.high)
            .is_some_and(|(_, end)| end.is_behind(&with.low))
    }

    pub fn covers(&self, what: &Interval) -> bool {
        self.last_from(Bound::Included(&what.low))
            .is_some_and(|(_, end)| *end >= what.high)
    }

    /// Whether one of them has a key.
    pub fn has(&self, key: &[u8]) -> bool {
        self.last_from(Bound::Included(key))
            .is_some_and(|(_, end)| end.is_behind(key))
    }

    pub fn insert(&mut self, interval: &Interval) {
        if !self.lengthen(interval) {
            self.insert_joining(interval.clone());
        }
        paranoid!(
            self.covers(interval),
            "{interval:x?} was inserted and is not covered"
        );
    }

    /// Moves the end of the interval in which this one begins, or where it begins: so the interval
    /// of a scan grows. False: there is none, or another one lies behind its end.
    fn lengthen(&mut self, Interval { low, high }: &Interval) -> bool {
        let upto = match high {
            High::At(place) => Bound::Included(&**place),
            High::Unbounded => Bound::Unbounded,
        };
        let mut upto = self.ends.range_mut::<[u8], _>((Bound::Unbounded, upto));
        let Some((begins, end)) = upto.next_back() else {
            return false;
        };
        if **begins > **low || !end.reaches(low) {
            return false;
        }
        if *end < *high {
            let before = end.bytes();
            end.clone_from(high);
            self.bytes = self.bytes - before + end.bytes();
        }
        true
    }

    fn insert_joining(&mut self, Interval { mut low, mut high }: Interval) {
        while let Some((begins, end)) = self.last_touching(&high) {
            if !end.reaches(&low) {
                break;
            }
            let (begins, end): (Box<[u8]>, High) = (begins.into(), end.clone());
            self.ends.remove(&begins);
            self.bytes -= low_bytes(&begins) + end.bytes();
            low = low.min(begins);
            high = high.max(end);
        }
        paranoid!(
            high.is_behind(&low)
                && self
                    .last_touching(&high)
                    .is_none_or(|(_, end)| !end.reaches(&low)),
            "intervals overlap from {low:x?} to {high:x?}"
        );
        self.bytes += low_bytes(&low) + high.bytes();
        let other = self.ends.insert(low, high);
        paranoid!(
            other.is_none(),
            "two intervals begin at one place, one to {other:x?}"
        );
    }

    /// An interval with those that end where it begins, and begin where it ends; `None`: there is
    /// none.
    pub fn with_neighbours(&self, of: &Interval) -> Option<Interval> {
        let before = self.last_from(Bound::Excluded(&of.low));
        let low = before
            .filter(|(_, end)| end.is_at(&of.low))
            .map(|(low, _)| low);
        let high = match &of.high {
            High::At(place) => self.ends.get(place),
            High::Unbounded => None,
        };
        let (from, to) = (low.unwrap_or(&of.low), high.unwrap_or(&of.high));
        paranoid!(
            *from <= *of.low && *to >= of.high,
            "{of:x?} with its neighbours is from {from:x?} to {to:x?}"
        );
        (low.is_some() || high.is_some()).then(|| Interval {
            low: from.into(),
            high: to.clone(),
        })
    }

    /// Removes those that begin in an interval, as far as they lie in it: of one that goes on
    /// behind it the rest stays.
    pub fn remove_in(&mut self, interval: &Interval) {
        while let Some((low, high)) = self.last_before(&interval.high) {
            if *low < *interval.low {
                break;
            }
            let (low, high) = (Box::from(low), high.clone());
            self.ends.remove::<[u8]>(&low);
            self.bytes -= low_bytes(&low) + high.bytes();
            if let High::At(place) = &interval.high
                && high.is_behind(place)
            {
                self.insert_joining(Interval {
                    low: place.clone(),
                    high,
                });
            }
        }
        paranoid!(
            self.last_before(&interval.high)
                .is_none_or(|(low, _)| *low < *interval.low),
            "an interval begins in {interval:x?}, from which all were removed"
        );
    }

    /// The last one that begins before `high`.
    fn last_before(&self, high: &High) -> Option<(&[u8], &High)> {
        self.last_from(match high {
            High::At(place) => Bound::Excluded(place),
            High::Unbounded => Bound::Unbounded,
        })
    }

    /// The last one that does not begin behind `high`.
    fn last_touching(&self, high: &High) -> Option<(&[u8], &High)> {
        self.last_from(match high {
            High::At(place) => Bound::Included(place),
            High::Unbounded => Bound::Unbounded,
        })
    }
}
