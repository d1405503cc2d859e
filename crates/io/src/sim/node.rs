//! A simulated file apart from its name: what readers see, what is durable, and the changes in
//! between.
//!
//! # Words
//!
//! - *Change*: a write, or a change of the length, that is not known to be durable. A write is
//!   kept as the image of the 512-byte sectors that it touched, as they were when it returned: a
//!   disk cannot keep a part of a sector.
//! - *Certain*: a change that survives any crash (synced, or written through).
//! - *Forsaken*: a write whose sync failed. As in Linux, it stays in the cache, where it counts as
//!   clean: readers see it, and a later sync does not repair it. When the cache is given up, it
//!   shows whether it ever reached the disk.
//!
//! # Promises
//!
//! 1. `current` = `durable` with all changes applied in order. Checked by
//!    `NodeState::check_invariants`. Tested by `sectors_are_as_durable_or_as_written_later`.
//! 2. The first change is not certain (certain ones at the front are applied to `durable` at once).
//!    Checked by `NodeState::check_invariants`. Tested by
//!    `sectors_are_as_durable_or_as_written_later`.
//! 3. No certain change follows a change of length that is not certain: changes of length
//!    become durable in order, as in a journalling file system. Checked by
//!    `NodeState::check_invariants`. Tested by
//!    `a_write_through_takes_along_the_length_that_it_rests_on`.

use super::content::Content;
use super::losses::Losses;
use super::rng::Rng;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Smallest unit that a disk writes untorn.
pub(super) const SECTOR_BYTES: u64 = 512;

#[derive(Debug)]
pub(super) struct Node {
    /// Position in the order of creation; separates the randomness of files.
    pub(super) id: u64,
    pub(super) state: Mutex<NodeState>,
}

#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// Of which the next sync of each handle tells that was open then.
    pub(super) write_backs_failed: u64,
    current: Content,
    durable: Content,
    /// Each block that was written over, as it was before its last write.
    before: Content,
    changes: VecDeque<Change>,
    /// Changes ever made; the sequence number of the next one.
    next_sequence: u64,
    /// Whether a name leads here.
    pub(super) linked: bool,
    /// Open handles.
    pub(super) handles: usize,
}

#[derive(Debug)]
struct Change {
    kind: Kind,
    sequence: u64,
    certain: bool,
    forsaken: bool,
}

#[derive(Debug)]
enum Kind {
    Write {
        offset: u64,
        image: Box<[u8]>,
        atomic: bool,
    },
    SetLength(u64),
    Allocate {
        offset: u64,
        length: u64,
    },
}

impl Kind {
    fn is_write(&self) -> bool {
        matches!(self, Kind::Write { .. })
    }
}

impl Node {
    pub(super) fn identity(&self) -> crate::Identity {
        crate::Identity(0, self.id)
    }

    pub(super) fn new(id: u64, content: Content, before: Content) -> Self {
        let state = NodeState {
            before,
            durable: content.clone(),
            current: content,
            linked: true,
            ..NodeState::default()
        };
        Self {
            id,
            state: Mutex::new(state),
        }
    }
}

impl NodeState {
    pub(super) fn content(&self) -> &Content {
        &self.current
    }

    pub(super) fn before(&self) -> &Content {
        &self.before
    }

    /// Writes; `certain` when it is durable at once, `atomic` when it may not be torn.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, certain: bool, atomic: bool) {
        if bytes.is_empty() {
            return;
        }
        self.before.share(&self.current, offset, bytes.len() as u64);
        self.current.write(bytes, offset);
        let end = offset + bytes.len() as u64;
        let start = offset - offset % SECTOR_BYTES;
        let image_end = end
            .next_multiple_of(SECTOR_BYTES)
            .min(self.current.length());
        let image = if (start, image_end) == (offset, end) {
            bytes.into()
        } else {
            let mut image = vec![0; (image_end - start) as usize];
            self.current.read(&mut image, start);
            image.into_boxed_slice()
        };
        if certain {
            // The length that makes the write readable is durable with it, and so are the
            // changes of length before it.
            self.make_certain(self.next_sequence, |change| !change.kind.is_write());
        }
        self.push(
            Kind::Write {
                offset: start,
                image,
                atomic,
            },
            certain,
        );
    }

    /// The last write of these bytes did not reach them.
    pub(super) fn tear(&mut self, offset: u64, length: usize) {
        let before = self.before.clone();
        let mut bytes = vec![0; length];
        before.read_present(&mut bytes, offset);
        self.write(&bytes, offset, true, true);
        self.before = before;
    }

    /// Whether a write only replaces bytes that are durable: length, space and the note that there
    /// is data.
    pub(super) fn overwrites(&self, offset: u64, length: u64) -> bool {
        offset + length <= self.durable.length()
            && self.durable.is_written(offset, length)
            && self.changes.iter().all(|change| change.kind.is_write())
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.current.set_length(length);
        self.push(Kind::SetLength(length), false);
    }

    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        self.current.allocate(offset, length);
        self.push(Kind::Allocate { offset, length }, false);
    }

    fn push(&mut self, kind: Kind, certain: bool) {
        self.changes.push_back(Change {
            kind,
            sequence: self.next_sequence,
            certain,
            forsaken: false,
        });
        self.next_sequence += 1;
        if certain {
            self.settle();
        }
    }

    /// What a sync that begins now covers.
    pub(super) fn sync_mark(&self) -> u64 {
        self.next_sequence
    }

    /// The end of a sync: what was changed before the mark is durable now.
    pub(super) fn finish_sync(&mut self, mark: u64) {
        self.make_certain(mark, |change| !change.forsaken);
        self.settle();
    }

    /// Everything is durable now, whatever became of syncs.
    pub(super) fn make_durable(&mut self) {
        self.make_certain(u64::MAX, |_| true);
        self.settle();
    }

    /// A sync failed: the kernel takes the writes for clean, whether they reached the disk or not.
    pub(super) fn forsake(&mut self) {
        for change in &mut self.changes {
            change.forsaken |= change.kind.is_write() && !change.certain;
        }
    }

    /// The kernel wrote back what no sync has covered, if there was anything, and failed.
    pub(super) fn fail_write_back(&mut self) {
        let uncovered = |change: &Change| change.kind.is_write() && !change.certain;
        if self.changes.iter().any(uncovered) {
            self.forsake();
            self.write_backs_failed += 1;
        }
    }

    /// Whether the cache has what the disk may never get.
    pub(super) fn is_forsaken(&self) -> bool {
        self.changes.iter().any(|change| change.forsaken)
    }

    /// The cache gives up what is clean, and readers see what the disk has: of each forsaken write
    /// all, a part or nothing. As long as something is dirty, nothing is given up.
    pub(super) fn forget(&mut self, rng: &mut Rng, untorn: u64) {
        let clean = |change: &Change| change.certain || change.forsaken;
        if !self.is_forsaken() || !self.changes.iter().all(clean) {
            return;
        }
        self.durable = self.after_crash(rng, untorn, &mut Losses::default());
        self.current = self.durable.clone();
        self.changes.clear();
    }

    fn make_certain(&mut self, mark: u64, which: impl Fn(&Change) -> bool) {
        for change in &mut self.changes {
            change.certain |= change.sequence < mark && which(change);
        }
    }

    /// Applies certain changes at the front to `durable` (promise 2).
    fn settle(&mut self) {
        if self.changes.iter().all(|change| change.certain) {
            return self.settle_all();
        }
        while self.changes.front().is_some_and(|change| change.certain) {
            let Some(change) = self.changes.pop_front() else {
                break;
            };
            change.kind.apply(&mut self.durable);
        }
    }

    /// By promise 1 the result is `current`, whose blocks can be shared.
    fn settle_all(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change.kind {
                Kind::SetLength(_) => {
                    self.durable = self.current.clone();
                    return;
                }
                Kind::Write { offset, image, .. } => {
                    self.durable
                        .share(&self.current, offset, image.len() as u64);
                }
                Kind::Allocate { offset, length } => {
                    self.durable.share(&self.current, offset, length);
                }
            }
        }
    }

    /// The bytes that are left after power loss, drawn from `rng`. Writes are torn at multiples of
    /// `untorn` bytes at least. What was lost is added to `losses`.
    pub(super) fn after_crash(&self, rng: &mut Rng, untorn: u64, losses: &mut Losses) -> Content {
        let mut content = self.durable.clone();
        let mood = Mood::pick(rng, self.changes.len(), untorn);
        let lengths_kept = self.count_lengths_kept(rng);
        let mut lengths_seen = 0;
        // Space beyond a cut that was lost is not where later writes went.
        let mut limit = u64::MAX;
        for (position, change) in self.changes.iter().enumerate() {
            match &change.kind {
                Kind::Write {
                    offset,
                    image,
                    atomic,
                } => {
                    let fate = if change.certain {
                        Fate::Kept
                    } else {
                        let fate = mood.fate(rng, position, *atomic);
                        fate.count(losses);
                        fate
                    };
                    fate.apply(rng, &mut content, *offset, image, limit);
                }
                kind => {
                    lengths_seen += 1;
                    if lengths_seen <= lengths_kept {
                        kind.apply(&mut content);
                    } else {
                        losses.lengths_lost += 1;
                        if let Kind::SetLength(length) = kind {
                            limit = limit.min(*length);
                        }
                    }
                }
            }
        }
        content
    }

    /// How many of the changes of length survive: some first ones, the certain ones among them.
    fn count_lengths_kept(&self, rng: &mut Rng) -> u64 {
        let lengths = || self.changes.iter().filter(|change| !change.kind.is_write());
        let all = lengths().count() as u64;
        let certain = lengths().filter(|change| change.certain).count() as u64;
        match rng.below(3) {
            0 => certain,
            1 => all,
            _ => certain + rng.below(all - certain + 1),
        }
    }

    /// Promises 1 to 3 of the module.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut replayed = self.durable.clone();
        let mut length_open = false;
        for change in &self.changes {
            change.kind.apply(&mut replayed);
            length_open |= !change.kind.is_write() && !change.certain;
            assert!(!(length_open && change.certain), "promise 3");
        }
        let bytes = |content: &Content| {
            let mut bytes = vec![0; content.length() as usize];
            content.read(&mut bytes, 0);
            bytes
        };
        assert!(bytes(&replayed) == bytes(&self.current), "promise 1");
        assert!(
            !self.changes.front().is_some_and(|change| change.certain),
            "promise 2"
        );
    }
}

impl Kind {
    fn apply(&self, content: &mut Content) {
        match self {
            Kind::Write { offset, image, .. } => content.write(image, *offset),
            Kind::SetLength(length) => content.set_length(*length),
            Kind::Allocate { offset, length } => content.allocate(*offset, *length),
        }
    }
}

/// How a crash treats the writes of one file. Without moods, a crash that keeps all of many
/// writes, or none, would never be seen.
struct Mood {
    keep_percent: u64,
    tear_percent: u64,
    /// Writes before this position are kept.
    kept_first: usize,
    /// Writes are torn at multiples of this at least.
    untorn: u64,
}

impl Mood {
    fn pick(rng: &mut Rng, changes: usize, untorn: u64) -> Self {
        let kept_first = if rng.chance(30) {
            rng.below(changes as u64 + 1) as usize
        } else {
            0
        };
        Self {
            keep_percent: rng.pick(&[0, 10, 50, 50, 90, 100]),
            tear_percent: rng.pick(&[0, 20, 60]),
            kept_first,
            untorn,
        }
    }

    fn fate(&self, rng: &mut Rng, position: usize, atomic: bool) -> Fate {
        if position < self.kept_first {
            Fate::Kept
        } else if !atomic && rng.chance(self.tear_percent) {
            Fate::Torn {
                unit: rng.pick(&[SECTOR_BYTES, 4096]).max(self.untorn),
                prefix: rng.chance(50),
            }
        } else if rng.chance(self.keep_percent) {
            Fate::Kept
        } else {
            Fate::Dropped
        }
    }
}

/// What a crash makes of one write.
enum Fate {
    Kept,
    Dropped,
    /// Some units survive: the first ones, or any.
    Torn {
        unit: u64,
        prefix: bool,
    },
}

impl Fate {
    fn count(&self, losses: &mut Losses) {
        *match self {
            Fate::Kept => &mut losses.writes_kept,
            Fate::Dropped => &mut losses.writes_lost,
            Fate::Torn { .. } => &mut losses.writes_torn,
        } += 1;
    }

    /// Applies what survives of a write, up to `limit`.
    fn apply(self, rng: &mut Rng, content: &mut Content, offset: u64, image: &[u8], limit: u64) {
        let room = limit.saturating_sub(offset).min(image.len() as u64);
        let image = &image[..room as usize];
        if image.is_empty() {
            return;
        }
        match self {
            Fate::Dropped => {}
            Fate::Kept => content.write(image, offset),
            Fate::Torn { unit, prefix } => {
                let end = offset + room;
                let units = offset / unit..end.div_ceil(unit);
                let prefix_end = units.start + rng.below(units.end - units.start + 1);
                for number in units {
                    let survives = if prefix {
                        number < prefix_end
                    } else {
                        rng.chance(50)
                    };
                    if survives {
                        let from = (number * unit).max(offset);
                        let to = ((number + 1) * unit).min(end);
                        let bytes = &image[(from - offset) as usize..(to - offset) as usize];
                        content.write(bytes, from);
                    }
                }
                // The length may have been written though the bytes were not.
                if end > content.length() && rng.chance(30) {
                    content.set_length(end);
                }
            }
        }
    }
}
