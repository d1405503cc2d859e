//! The undo file: the versions of transactions that are large or old, so that the log before them
//! need not be kept, and a later run finds them again.
//!
//! Such a transaction has *logged* versions: they lie in segments of their own, and its row records
//! name their addresses. When a segment is saved, its bytes stand in the undo file as they lay in
//! memory, and a list of the transaction's segments stands there too, which a record in the log
//! names (UNDO_SAVED). The segments that the list lacks are made anew of the row records.
//!
//! # Promises
//!
//! 1. What a record in the log may name stays: an extent is given back when the log that makes it
//!    needless is durable. Tested by `an_extent_is_kept_until_the_log_is_durable`.
//! 2. [`VersionStore::save`] returns a list when it and all segments that it names survive power
//!    loss. A failed sync has poisoned the engine. Tested by
//!    `a_saved_segment_is_read_by_a_later_store`.
//!
//! ```text
//! list: for each segment
//! bytes  0..8   number              16..20  bytes in use
//!        8..16  offset in the file  20..24  CRC-32C of them
//! ```
//!
//! Each version has a checksum; that of all tells of versions that are not there.
//!
//! # What cannot be read
//!
//! A transaction whose saved undo is gone or damaged cannot be rolled back: opening refuses it, as
//! far as a look at the file's length and the lists tells. A rollback that finds it later fails:
//! its rows stay locked, and its log is kept, until a read succeeds. `salvage` passes over it
//! ([`VersionStore::lost_undo`]): rows whose undo is lost stay as they are.

use super::entry::NewVersion;
use super::segment::{Place, Segment};
use super::spill::{Extent, SpillFile};
use super::{TouchedSegments, UNIT, VersionStore, VersionView};
use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::record::UndoList;
use inkstone_format::{Lsn, SpaceId, VersionAddress};
use inkstone_io::File;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Name of the file in the database's directory.
pub(crate) const UNDO_FILE: &str = "undo";
/// Bytes of the list for each segment.
const LISTED_BYTES: usize = 24;
/// Segments for which a list has room beyond those that there are.
const LISTED_AHEAD: usize = 4;

/// Saving, and what waits to be given back.
#[derive(Debug, Default)]
pub(super) struct Saving {
    one_at_a_time: Mutex<Saver>,
    given_up: Mutex<GivenUp>,
}

/// What the one thread needs that saves.
#[derive(Debug, Default)]
struct Saver {
    /// Whether the file's name is durable.
    name_is_durable: bool,
    /// As in [`GivenUp`].
    held: Option<Lsn>,
}

/// What waits to be given back.
#[derive(Debug, Default)]
struct GivenUp {
    /// Extents that the log may name until it is durable up to an LSN.
    extents: Vec<(Lsn, Extent)>,
    /// While the file is copied: those of later LSNs stay ([`super::undo_copy`]).
    held: Option<Lsn>,
}

impl Saving {
    /// Has what the log may name behind an LSN stay as it is; `None`: no longer. What was so
    /// before.
    pub fn hold(&self, at: Option<Lsn>) -> Option<Lsn> {
        self.one_at_a_time.lock().held = at;
        std::mem::replace(&mut self.given_up.lock().held, at)
    }
}

/// Whether an extent that the log names up to `lsn` may be written to, beside a copy.
fn may_change(held: Option<Lsn>, lsn: Lsn) -> bool {
    held.is_none_or(|held| lsn <= held)
}

/// A segment that a list names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedSegment {
    number: u64,
    offset: u64,
    bytes: u32,
    checksum: u32,
}

/// What the undo file has of a transaction: the list, and what it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub list: UndoList,
    pub segments: Vec<SavedSegment>,
}

impl SavedSegment {
    fn extent(&self) -> Extent {
        Extent {
            offset: self.offset,
            length: u64::from(self.bytes),
        }
    }
}

fn encode(segments: &[SavedSegment]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(segments.len() * LISTED_BYTES);
    for segment in segments {
        bytes.extend_from_slice(&segment.number.to_le_bytes());
        bytes.extend_from_slice(&segment.offset.to_le_bytes());
        bytes.extend_from_slice(&segment.bytes.to_le_bytes());
        bytes.extend_from_slice(&segment.checksum.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Vec<SavedSegment> {
    let u64_at = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("eight"));
    let u32_at = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("four"));
    bytes
        .chunks_exact(LISTED_BYTES)
        .map(|b| SavedSegment {
            number: u64_at(b, 0),
            offset: u64_at(b, 8),
            bytes: u32_at(b, 16),
            checksum: u32_at(b, 20),
        })
        .collect()
}

/// What is said of undo that is not there.
fn unreadable(path: &Path, offset: u64, what: &str) -> Error {
    let detail = format!(
        "{what}, and an unfinished transaction cannot be rolled back without it: restore a backup, \
         or salvage the rest (inkstone recover --salvage)"
    );
    Error::corrupt_file(path, offset, detail)
}

/// A full disk is told with what it has no room for.
fn no_room(error: Error, bytes: u64) -> Error {
    match error {
        Error::DiskFull { what } => Error::DiskFull {
            what: format!("{bytes} bytes of undo in {what}"),
        },
        other => other,
    }
}

/// Reads a list that the log names, of a file of so many bytes.
fn read_list(file: &dyn File, len: u64, list: UndoList) -> Result<Vec<SavedSegment>> {
    let corrupt = |what: &str| {
        let what = format!("the list of a transaction's versions {what}");
        unreadable(file.path(), list.offset, &what)
    };
    let failed = |e| Error::io("read", file.path(), e);
    if u64::from(list.bytes) > len.saturating_sub(list.offset) {
        return Err(corrupt("lies beyond the end of the file"));
    }
    let mut bytes = vec![0; list.bytes as usize];
    file.read_at(&mut bytes, list.offset).map_err(failed)?;
    if crc32c::crc32c(&bytes) != list.checksum {
        return Err(corrupt("does not match its checksum"));
    }
    if !bytes.len().is_multiple_of(LISTED_BYTES) {
        return Err(corrupt("ends within a segment"));
    }
    let segments = decode(&bytes);
    let is_logged = |s: &SavedSegment| VersionAddress::of(s.number, 0).is_logged() && s.bytes > 0;
    if segments.iter().all(is_logged) {
        Ok(segments)
    } else {
        Err(corrupt("names what is no segment of logged versions"))
    }
}

/// What is about to be saved of a transaction: segments that are sealed, and never changed again.
#[derive(Debug)]
pub(crate) struct ToSave {
    segments: Vec<Arc<Segment>>,
    /// Where their list is to go, once the log is durable up to an LSN.
    room: Option<Room>,
}

/// Space that the log may name until it is durable up to an LSN.
type Room = (Lsn, Extent);

impl ToSave {
    /// The log must be durable up to here before it is saved.
    pub(crate) fn after(&self) -> Lsn {
        self.room.map_or(Lsn(0), |(lsn, _)| lsn)
    }
}

/// A list that was saved, and where: nowhere if nothing of the transaction is left to undo.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SavedList {
    pub list: UndoList,
    extent: Option<Extent>,
}

/// What a transaction has of the undo file beside its segments.
#[derive(Debug, Default)]
pub(super) struct UndoSpace {
    /// For its next segments.
    ahead: Vec<Extent>,
    /// For its next lists, the one first that has waited longest.
    lists: Vec<Room>,
    /// Bytes that each of those has, at least.
    list_bytes: u64,
    /// The list that the log names.
    named: Option<Extent>,
}

impl UndoSpace {
    fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.lists.is_empty() && self.named.is_none()
    }

    /// Space for a segment of so many bytes, if there is any.
    pub fn take_ahead(&mut self, bytes: u64) -> Option<Extent> {
        let fitting = self.ahead.iter().position(|e| e.length >= bytes)?;
        Some(self.ahead.swap_remove(fitting))
    }
}

impl TouchedSegments {
    /// Whether the transaction's versions are logged ones from now on.
    pub(crate) fn log_versions(&mut self, logged: bool) {
        self.logged = logged;
    }

    /// The segments of logged versions, but for the `undone` newest, of which nothing is left to
    /// undo.
    pub(super) fn logged(&self, undone: usize) -> Vec<Arc<Segment>> {
        let all = self.segments.iter().map(|(segment, _)| segment);
        let mut logged: Vec<_> = all.filter(|s| s.is_logged()).cloned().collect();
        logged.truncate(logged.len().saturating_sub(undone));
        logged
    }
}

impl VersionStore {
    /// Seals the segment of logged versions that the transaction appends to, if there is one, and
    /// names all of them, but for the `undone` newest. The caller has the transaction's latch.
    pub(crate) fn seal_logged(&self, touched: &mut TouchedSegments, undone: usize) -> ToSave {
        if let Some((last, _)) = touched.segments.last()
            && last.is_logged()
            && !last.is_sealed()
        {
            self.seal(last);
        }
        let lists = &mut touched.undo_space.lists;
        let room = (!lists.is_empty()).then(|| lists.remove(0));
        ToSave {
            segments: touched.logged(undone),
            room,
        }
    }

    /// Takes space in the undo file for so many bytes of versions that a transaction is about to
    /// make, and for the lists of all its segments: what it has written can be saved, and so be
    /// rolled back, on a disk that is full by then. To be called with no page latched.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: the transaction has what it had before.
    pub(crate) fn reserve_undo(&self, touched: &mut TouchedSegments, bytes: u64) -> Result<()> {
        let unit = self.logged_segment_bytes() as u64;
        // A division by row takes as long as the rest of this.
        let wanted = if bytes <= unit {
            bytes.min(1) as usize
        } else {
            bytes.div_ceil(unit) as usize
        };
        let listed = touched.segments.len() + wanted + LISTED_AHEAD;
        let list_bytes = (listed * LISTED_BYTES) as u64;
        let space = &touched.undo_space;
        if space.ahead.len() >= wanted && space.list_bytes >= list_bytes {
            return Ok(());
        }
        self.reserve_more_undo(touched, wanted, list_bytes)
    }

    #[cold]
    fn reserve_more_undo(
        &self,
        touched: &mut TouchedSegments,
        wanted: usize,
        list_bytes: u64,
    ) -> Result<()> {
        let unit = self.logged_segment_bytes() as u64;
        let space = &mut touched.undo_space;
        let missing = wanted.saturating_sub(space.ahead.len()) as u64 * unit;
        let mut file = self.undo.lock();
        let mut shorter = Vec::new();
        if space.list_bytes < list_bytes {
            // A list is written while the log names the one before.
            let of_list = |error| no_room(error, 4 * list_bytes + missing);
            let extent = file.reserve(2 * list_bytes).map_err(of_list)?;
            let other = match file.reserve(2 * list_bytes) {
                Ok(other) => other,
                Err(error) => {
                    file.release(extent);
                    return Err(of_list(error));
                }
            };
            space.list_bytes = extent.length;
            let both = vec![(Lsn(0), extent), (Lsn(0), other)];
            shorter = std::mem::replace(&mut space.lists, both);
        }
        let mut reserved = Ok(());
        while reserved.is_ok() && space.ahead.len() < wanted {
            reserved = file.reserve(unit).map(|extent| space.ahead.push(extent));
        }
        drop(file);
        for (lsn, extent) in shorter {
            self.give_up_extent(extent, lsn);
        }
        reserved.map_err(|error| no_room(error, missing))
    }

    /// Space for one segment of logged versions.
    pub(super) fn reserve_segment(&self, bytes: u64) -> Result<Extent> {
        let reserved = self.undo.lock().reserve(bytes);
        reserved.map_err(|error| no_room(error, bytes))
    }

    /// What was sealed was not saved, or its list has no place.
    pub(crate) fn keep_room(&self, touched: &mut TouchedSegments, saving: ToSave) {
        if let Some((lsn, extent)) = saving.room {
            self.keep_list(&mut touched.undo_space, lsn, extent);
        }
    }

    fn keep_list(&self, space: &mut UndoSpace, lsn: Lsn, extent: Extent) {
        if extent.length >= space.list_bytes {
            space.lists.push((lsn, extent));
        } else {
            self.give_up_extent(extent, lsn);
        }
    }

    /// The log names a list of the transaction, up to `end`, and no longer the one before.
    pub(crate) fn list_named(
        &self,
        touched: &mut TouchedSegments,
        saving: ToSave,
        saved: SavedList,
        end: Lsn,
    ) {
        let space = &mut touched.undo_space;
        if let Some((lsn, extent)) = saving.room
            && saved.extent != Some(extent)
        {
            self.keep_list(space, lsn, extent);
        }
        if let Some(before) = std::mem::replace(&mut space.named, saved.extent) {
            self.keep_list(space, end, before);
        }
    }

    /// The transaction has ended before what was saved of it was named.
    pub(crate) fn give_up_saved(&self, saving: ToSave, saved: SavedList, end: Lsn) {
        let room = saving.room.map(|(_, extent)| extent);
        if let Some(extent) = room {
            self.give_up_extent(extent, end);
        }
        if let Some(extent) = saved.extent.filter(|extent| room != Some(*extent)) {
            self.give_up_extent(extent, end);
        }
    }

    /// The transaction has ended, as the log says up to `end`.
    pub(crate) fn give_up_space(&self, touched: &mut TouchedSegments, end: Lsn) {
        if touched.undo_space.is_empty() {
            return;
        }
        let space = std::mem::take(&mut touched.undo_space);
        if !space.ahead.is_empty() {
            let mut file = self.undo.lock();
            // No record names it.
            for extent in space.ahead {
                file.release(extent);
            }
        }
        let lists = space.lists.into_iter().map(|(_, extent)| extent);
        for extent in lists.chain(space.named) {
            self.give_up_extent(extent, end);
        }
    }

    /// Makes segments, and a list of them, durable in the undo file. `None`: the transaction has
    /// ended meanwhile, and its segments are gone.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: nothing was saved; the segments stay where they are. A
    /// failed sync poisons.
    pub(crate) fn save(&self, wanted: &ToSave, poison: &Poison) -> Result<Option<SavedList>> {
        let mut saver = self.saving.one_at_a_time.lock();
        let mut listed = Vec::with_capacity(wanted.segments.len());
        for segment in &wanted.segments {
            let Some(place) = self.move_to_undo_file(segment)? else {
                return Ok(None);
            };
            listed.push(SavedSegment {
                number: segment.number,
                offset: place.extent.offset,
                bytes: place.bytes as u32,
                checksum: place.checksum,
            });
        }
        if listed.is_empty() {
            // Nothing of it is left to undo.
            return Ok(Some(SavedList::default()));
        }
        let bytes = encode(&listed);
        let room = wanted.room.filter(|(lsn, _)| may_change(saver.held, *lsn));
        let room = room.map(|(_, extent)| extent);
        let room = room.filter(|extent| extent.length >= bytes.len() as u64);
        let (file, extent) = match room {
            Some(extent) => (self.undo.lock().write_to(extent, &bytes)?, extent),
            None => self.undo.lock().write(&bytes)?,
        };
        let blocks = Extent {
            length: bytes.len() as u64,
            ..extent
        };
        self.counters
            .add(Counter::UndoBytesSaved, blocks.whole_blocks().length);
        let path = file.path().to_owned();
        let synced = if mutants::on(Mutant::UndoSavedUnsynced) {
            Ok(())
        } else {
            poison.begin_sync().end(&path, file.sync())
        };
        if synced.is_ok() && !saver.name_is_durable {
            let directory = &self.directory_handle;
            poison
                .begin_sync()
                .end(directory.path(), directory.sync())?;
            saver.name_is_durable = true;
        }
        synced?;
        Ok(Some(SavedList {
            list: UndoList {
                offset: extent.offset,
                bytes: bytes.len() as u32,
                checksum: crc32c::crc32c(&bytes),
            },
            extent: Some(extent),
        }))
    }

    /// Where a sealed segment lies in the undo file, once it does; `None` if it has retired.
    fn move_to_undo_file(&self, segment: &Arc<Segment>) -> Result<Option<Place>> {
        let mut file = self.undo.lock();
        if segment.place().is_none() {
            self.spill_segment(segment, &mut file)?;
        }
        Ok(segment.place())
    }

    /// An extent is not needed once the log is durable up to `lsn`.
    pub(super) fn give_up_extent(&self, extent: Extent, lsn: Lsn) {
        self.saving.given_up.lock().extents.push((lsn, extent));
    }

    /// Gives back what only log named that is durable now, or has ended before it.
    pub(crate) fn reclaim(&self, durable: Lsn) {
        let mut given_up = self.saving.given_up.lock();
        let GivenUp { extents, held } = &mut *given_up;
        if extents.is_empty() {
            return;
        }
        let early = mutants::on(Mutant::UndoCutEarly);
        let mut file = self.undo.lock();
        extents.retain(|&(lsn, extent)| {
            let is_over = lsn <= durable && may_change(*held, lsn) || early;
            if is_over {
                file.release(extent.whole_blocks());
            }
            !is_over
        });
    }

    /// Bytes in use in the undo file.
    pub fn undo_file_bytes(&self) -> u64 {
        self.undo.lock().used_bytes()
    }

    /// Bytes of the undo file, as far as is known.
    pub fn undo_file_length(&self) -> u64 {
        self.undo.lock().length()
    }

    /// Takes over what an earlier run has saved: the lists, and the segments that they name. With
    /// `lossy` what cannot be read is noted as lost, and is no part of the answer.
    pub(crate) fn adopt_saved(&self, lists: &[UndoList], lossy: bool) -> Result<Vec<Saved>> {
        let mut all = vec![Saved::default(); lists.len()];
        let named = || lists.iter().filter(|list| list.bytes > 0);
        let Some(first) = named().next() else {
            return Ok(all);
        };
        let file = match self.existing_undo_file(*first) {
            Err(error) if lossy => {
                self.note_lost(error);
                return Ok(all);
            }
            file => file?,
        };
        let failed = |e| Error::io("read", file.path(), e);
        let len = file.len().map_err(failed)?;
        let mut extents = Vec::new();
        for (list, all) in lists.iter().zip(&mut all) {
            if list.bytes == 0 {
                continue;
            }
            let mut segments = match read_list(&*file, len, *list) {
                Err(error) if lossy => {
                    self.note_lost(error);
                    continue;
                }
                segments => segments?,
            };
            let mut cut = None;
            segments.retain(|segment| {
                let whole = u64::from(segment.bytes) <= len.saturating_sub(segment.offset);
                if !whole {
                    cut = cut.or(Some(segment.offset));
                }
                whole
            });
            if let Some(offset) = cut {
                let what = format!("the file ends at byte {len}, within versions that it had");
                let error = unreadable(file.path(), offset, &what);
                if lossy {
                    self.note_lost(error);
                } else {
                    return Err(error);
                }
            }
            extents.push(Extent {
                offset: list.offset,
                length: u64::from(list.bytes),
            });
            extents.extend(segments.iter().map(SavedSegment::extent));
            *all = Saved {
                list: *list,
                segments,
            };
        }
        self.undo.lock().adopt(&extents)?;
        Ok(all)
    }

    fn existing_undo_file(&self, list: UndoList) -> Result<Arc<dyn File>> {
        let directory = &self.directory_handle;
        let exists = directory.exists(UNDO_FILE);
        if exists.map_err(|e| Error::io("open", &self.undo_path, e))? {
            self.undo.lock().file()
        } else {
            Err(unreadable(
                &self.undo_path,
                list.offset,
                "the file is missing",
            ))
        }
    }

    fn note_lost(&self, error: Error) {
        self.lost_undo.lock().push(error);
    }

    /// Whether anything of the undo file was passed over.
    pub(super) fn has_lost_undo(&self) -> bool {
        !self.lost_undo.lock().is_empty()
    }

    /// What of the undo file could not be read, and was passed over.
    pub(crate) fn lost_undo(&self) -> Vec<Error> {
        self.lost_undo.lock().clone()
    }

    /// Takes over the logged versions of a transaction that an earlier run has left: those that it
    /// has saved, and by segment the bytes of those that were made anew of the log.
    pub(crate) fn adopt(
        &self,
        trx: &Arc<TrxState>,
        saved: &Saved,
        rebuilt: RebuiltSegments,
    ) -> Result<TouchedSegments> {
        let mut segments = BTreeMap::new();
        if !saved.segments.is_empty() {
            let file = self.undo.lock().file()?;
            for place in &saved.segments {
                let (extent, bytes) = (place.extent().whole_blocks(), place.bytes as usize);
                let place_of = Place {
                    extent,
                    bytes,
                    checksum: place.checksum,
                };
                let segment = Segment::saved(place.number, trx, file.clone(), place_of);
                segments.insert(place.number, Arc::new(segment));
            }
        }
        for (number, rebuilt) in rebuilt.0 {
            let segment = Arc::new(Segment::rebuilt(number, trx, rebuilt.bytes));
            paranoid!(segment.is_logged(), "segment {number} was not logged");
            // It was taken in the earlier run, and has stayed in the file. If not, the log keeps
            // the segment.
            if let Ok(room) = self.undo.lock().reserve(segment.memory()) {
                segment.set_room(room);
            }
            segments.insert(number, segment);
        }
        for segment in segments.values() {
            self.enter_adopted(segment)?;
        }
        let named = Extent {
            offset: saved.list.offset,
            length: u64::from(saved.list.bytes),
        };
        let mut touched = TouchedSegments {
            segments: segments.into_values().map(|segment| (segment, 0)).collect(),
            logged: true,
            undo_space: UndoSpace {
                named: (named.length > 0).then(|| named.whole_blocks()),
                ..UndoSpace::default()
            },
        };
        // As above: without it a later list may have no space.
        let _ = self.reserve_undo(&mut touched, 0);
        Ok(touched)
    }

    /// Shows the versions, the newest first, of the newest segment of logged versions, but for the
    /// `undone` newest. False: there is none. With `lossy` versions that cannot be read are noted
    /// as lost.
    pub(crate) fn last_logged(
        &self,
        touched: &TouchedSegments,
        undone: usize,
        lossy: bool,
        show: &mut dyn FnMut(VersionAddress, &VersionView<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some(segment) = touched.logged(undone).pop() else {
            return Ok(false);
        };
        let note = |error| self.note_lost(error);
        let lost: Option<&dyn Fn(Error)> = if lossy { Some(&note) } else { None };
        segment.backward(&self.undo_path, lost, show)?;
        Ok(true)
    }
}

impl VersionStore {
    /// Reads all logged versions, but for those of the `undone` newest segments.
    pub(crate) fn read_logged(&self, touched: &TouchedSegments, undone: usize) -> Result<()> {
        let mut segments = touched.logged(undone).into_iter();
        segments.try_for_each(|segment| segment.backward(&self.undo_path, None, &mut |_, _| Ok(())))
    }

    /// The tablespaces of all rows of logged versions. `go_on` is called now and then, and may end
    /// the search.
    pub(crate) fn spaces_logged(
        &self,
        touched: &TouchedSegments,
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<BTreeSet<SpaceId>> {
        let mut spaces = BTreeSet::new();
        for segment in touched.logged(0) {
            go_on()?;
            segment.backward(&self.undo_path, None, &mut |_, view| {
                spaces.insert(view.space);
                Ok(())
            })?;
        }
        Ok(spaces)
    }
}

/// Segments of one transaction that are made anew of the log, by number. A copy shares the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RebuiltSegments(BTreeMap<u64, Rebuilt>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rebuilt {
    bytes: Arc<Vec<u8>>,
    /// The start of the frame with its last record.
    last: Lsn,
}

impl RebuiltSegments {
    /// Puts a version where the log says that it was. Versions come in the order of their
    /// addresses.
    pub(crate) fn add(
        &mut self,
        address: VersionAddress,
        version: &NewVersion<'_>,
        lsn: Lsn,
    ) -> std::result::Result<(), String> {
        if !self.0.contains_key(&address.segment())
            && let Some(mut last) = self.0.last_entry()
        {
            // No more comes to it.
            Arc::make_mut(&mut last.get_mut().bytes).shrink_to_fit();
        }
        let rebuilt = self.0.entry(address.segment()).or_default();
        if version.previous == address {
            return Err(format!("version {address:#x?} leads to itself"));
        }
        let at = address.unit() * UNIT;
        if at < rebuilt.bytes.len() {
            return Err(format!("two versions have address {address:#x?}"));
        }
        let bytes = Arc::make_mut(&mut rebuilt.bytes);
        bytes.resize(at, 0);
        version.encode(bytes, address, 0);
        rebuilt.last = lsn;
        Ok(())
    }

    /// Bytes of all versions.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(|rebuilt| rebuilt.bytes.len()).sum()
    }

    /// Forgets the segments that were sealed at an LSN: the undo file has them.
    pub(crate) fn forget_before(&mut self, lsn: Lsn) {
        self.0.retain(|_, rebuilt| rebuilt.last >= lsn);
    }
}

impl VersionStore {
    /// Writes a sealed segment to the file that it belongs in, which the caller has latched.
    pub(super) fn spill_segment(&self, segment: &Segment, file: &mut SpillFile) -> Result<()> {
        let before = file.written_bytes();
        if let Some(change) = segment.spill(file)? {
            self.kept.fetch_add(segment.memory(), Ordering::Relaxed);
            self.charge(change);
        }
        let written = file.written_bytes() - before;
        let bytes = if segment.is_logged() {
            Counter::UndoBytesSaved
        } else {
            Counter::VersionBytesSpilled
        };
        self.counters.add(bytes, written);
        self.sealed.lock().in_memory.remove(&segment.number);
        self.counters.add(Counter::VersionSegmentsSpilled, 1);
        Ok(())
    }
}
