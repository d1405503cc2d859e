//! Taking records apart without making values of them: what the scan of the log needs of a record,
//! and the bytes from which the record itself can be made later, alone.
//!
//! # Promises
//! 1. A frame that [`Decoder`](super::Decoder) accepts is accepted, one that it refuses is refused
//!    with the same error, and [`decode_one`] makes of each record's bytes the record that the
//!    decoder gives. A frame with rows of two transactions, which is no frame of this format, is
//!    refused. Tested by `skimming_gives_what_decoding_gives`, `each_kind_is_skimmed_as_decoded`.
//!
//! Frames may be skimmed by several threads, a batch each: see [`Skimmer::skim`].

use super::decode::{RowHead, get_page, get_plain, get_row_head, get_u16v, get_u32v};
use super::encode::put_row_head;
use super::*;
use crate::IdHash;
use crate::codec::{
    Reader, get_shared_key, increment, put_literal, put_shared_key, put_varint, skip_packed, unpack,
};
use crate::tree_page::CELL_OVERFLOW;
use std::collections::HashMap;

/// A record without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skimmed {
    /// Kind of the record as it stands in the bytes that were kept.
    pub kind: u8,
    /// The page that it changes.
    pub page: Option<PageId>,
    /// The slot of its transaction.
    pub slot: Option<u32>,
    /// The transaction's id, in the first record of its rows.
    pub first: Option<TrxId>,
    /// Where its bytes begin in the bytes that were kept.
    pub from: u32,
    /// Where they end.
    pub to: u32,
}

/// As [`Record::initialises_page`], of a record of a kind.
pub fn initialises_page(kind: u8) -> bool {
    matches!(kind, 0x01..=0x03)
}

impl Skimmed {
    /// As [`Record::initialises_page`].
    pub fn initialises_page(&self) -> bool {
        initialises_page(self.kind)
    }

    /// Whether it is a change of rows with its undo, and names no version.
    pub fn is_plain_row(&self) -> bool {
        matches!(self.kind, 0x10..=0x13)
    }

    /// The slot whose context it may change.
    fn context_slot(&self) -> Option<u32> {
        self.slot
            .filter(|_| matches!(self.kind, 0x10..=0x17 | 0x20 | 0x21))
    }

    /// Whether it is the end of its transaction.
    pub fn ends(&self) -> bool {
        matches!(self.kind, 0x20 | 0x21)
    }
}

/// Why a frame was not skimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkimError {
    /// It needs what a transaction had inserted before the batch.
    Earlier {
        /// The transaction's slot.
        trx_slot: u32,
    },
    /// As the decoder says.
    Decode(DecodeError),
}

impl From<Corrupt> for SkimError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Decode(corrupt.into())
    }
}

/// Skims frames in log order, keeping the context of each transaction.
///
/// One whose frames do not begin where all contexts are known is a *part*: it tells the caller
/// which frames it cannot skim ([`SkimError::Earlier`]), and what it knows at its end is handed on
/// ([`Skimmer::hand_on`]) to the one that has read everything before.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Known, or known to be none (`Context::is_known`).
    contexts: HashMap<u32, Context, IdHash>,
    /// What is known begins with the first frame: a slot without a context has none.
    is_whole: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    last_value: Vec<u8>,
}

impl Skimmer {
    /// One that has read all that matters.
    pub fn whole() -> Self {
        Self {
            is_whole: true,
            ..Self::default()
        }
    }

    /// Appends the records of a frame to `records`, and their bytes to `bytes`. After an error
    /// both may have some of the frame's, which do not count.
    ///
    /// A frame has the rows of one transaction only: so the frames that a part could not skim
    /// touch no context but those of the slots that it named.
    pub fn skim(
        &mut self,
        payload: &[u8],
        bytes: &mut Vec<u8>,
        records: &mut Vec<Skimmed>,
    ) -> Result<(), SkimError> {
        let mut r = Reader::new(payload);
        let mut of_frame = None;
        while !r.is_empty() {
            let (from, begin) = (bytes.len(), r.offset());
            let kind = r.u8()?;
            let mut skimmed = Skimmed {
                kind,
                page: None,
                slot: None,
                first: None,
                from: from as u32,
                to: 0,
            };
            if matches!(kind, 0x40..0x80) {
                self.contextual(&mut r, of_frame, &mut skimmed, bytes)?;
            } else {
                self.plain(&mut r, &mut skimmed)?;
                bytes.extend_from_slice(&payload[begin..r.offset()]);
            }
            skimmed.to = bytes.len() as u32;
            if let Some(slot) = skimmed.context_slot() {
                of_one(&r, of_frame, slot)?;
                of_frame = Some(slot);
            }
            records.push(skimmed);
        }
        Ok(())
    }

    /// Hands what is known on to the one that has read everything before, and forgets it.
    pub fn hand_on(&mut self, to: &mut Self) {
        for (slot, context) in self.contexts.drain() {
            if context.known || !to.is_whole {
                drop(to.contexts.insert(slot, context));
            } else {
                drop(to.contexts.remove(&slot));
            }
        }
    }

    fn forget(&mut self, slot: u32) {
        if self.is_whole {
            drop(self.contexts.remove(&slot));
        } else {
            self.contexts.entry(slot).or_default().clear();
        }
    }

    fn plain(&mut self, r: &mut Reader<'_>, skimmed: &mut Skimmed) -> Result<(), SkimError> {
        let kind = skimmed.kind;
        match kind {
            0x10..=0x17 => {
                let head = get_row_head(r, kind)?;
                skimmed.page = Some(head.page);
                (skimmed.slot, skimmed.first) = (Some(head.trx.slot), head.trx.first);
                self.row(r, kind, &head)?;
            }
            0x20 | 0x21 => {
                let ended = get_u32v(r, "transaction slot")?;
                skimmed.slot = Some(ended);
                self.forget(ended);
            }
            0x04 => {
                skimmed.page = Some(get_page(r)?);
                get_u32v(r, "offset")?;
                skip_sized(r, 0)?;
            }
            0x06 => {
                skimmed.page = Some(get_page(r)?);
                get_u16v(r, "slot")?;
                self.rows(r)?;
            }
            kind => {
                let record = get_plain(kind, r)?;
                (skimmed.page, skimmed.slot) = (record.page(), slot_of(&record));
            }
        }
        Ok(())
    }

    /// What follows the head of a row record.
    fn row(&mut self, r: &mut Reader<'_>, kind: u8, head: &RowHead) -> Result<(), SkimError> {
        match kind & !WITH_VERSION {
            0x10 => {
                let count = self.rows(r)?;
                if count == 0 {
                    return Err(r.corrupt("an insert of no rows").into());
                }
                let context = self.contexts.entry(head.trx.slot).or_default();
                let last_slot = head.slot.wrapping_add(count as u16).wrapping_sub(1);
                context.set(head.page, head.tree, last_slot, &self.key, &self.value);
                context.set_version(head.trx.version.filter(|_| count == 1));
                return Ok(());
            }
            0x11 => {
                r.bytes()?;
                r.u8()?;
                r.u8()?;
                skip_diff(r)?;
            }
            0x12 => drop(r.bytes()?),
            _ => {
                r.u8()?;
                r.bytes()?;
                skip_sized(r, 0)?;
            }
        }
        // A slot used again: what is known belongs to its last user.
        if head.trx.first.is_some() {
            self.forget(head.trx.slot);
        }
        Ok(())
    }

    /// Reads rows; key and value are the last one's then. How many there are.
    fn rows(&mut self, r: &mut Reader<'_>) -> Result<usize, SkimError> {
        let count = r.varint_max(1 << 16, "number of rows")? as usize;
        self.key.clear();
        self.value.clear();
        for _ in 0..count {
            let flags = r.u8()?;
            if flags & ROW_NEXT_KEY == 0 {
                get_shared_key(r, &mut self.key)?;
            } else if increment(&mut self.key) {
                r.unpacks(self.key.len())?;
            } else {
                return Err(r.corrupt("the key has no successor").into());
            }
            let len = r.varint_max(1 << 17, "value length")? as usize;
            std::mem::swap(&mut self.value, &mut self.last_value);
            self.value.clear();
            unpack(r, len, &self.last_value, &mut self.value)?;
        }
        Ok(count)
    }

    /// An insert that is coded against its transaction's context: it is kept in full.
    fn contextual(
        &mut self,
        r: &mut Reader<'_>,
        of_frame: Option<u32>,
        skimmed: &mut Skimmed,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SkimError> {
        let kind = skimmed.kind;
        let trx_slot = get_u32v(r, "transaction slot")?;
        of_one(r, of_frame, trx_slot)?;
        let context = match self.contexts.get_mut(&trx_slot) {
            Some(context) if context.known => context,
            None if !self.is_whole => return Err(SkimError::Earlier { trx_slot }),
            _ => return Err(SkimError::Decode(DecodeError::NoContext { trx_slot })),
        };
        let same_page = kind & SAME_PAGE != 0;
        let (page, tree) = if same_page {
            (context.page, context.tree)
        } else {
            let page = get_page(r)?;
            (page, TreeId(get_u32v(r, "tree")?))
        };
        let at = match (kind & NEXT_SLOT != 0, same_page) {
            (true, true) => context.slot.wrapping_add(1),
            (true, false) => 0,
            (false, _) => get_u16v(r, "slot")?,
        };
        if kind & NEXT_KEY == 0 {
            get_shared_key(r, &mut context.key)?;
        } else if !increment(&mut context.key) {
            return Err(r.corrupt("the key has no successor").into());
        } else {
            r.unpacks(context.key.len())?;
        }
        get_context_value(kind >> VALUE_SHIFT & 3, r, &context.value, &mut self.value)?;
        let flags = match kind & OVERFLOW {
            0 => 0,
            _ => CELL_OVERFLOW,
        };
        let version = context.next_version.map(|address| LoggedVersion {
            address,
            previous: VersionAddress(0),
        });
        (context.page, context.tree, context.slot) = (page, tree, at);
        context.value.clear();
        if self.value.len() <= CONTEXT_VALUE_MAX {
            context.value.extend_from_slice(&self.value);
        }
        context.set_version(version);
        (skimmed.page, skimmed.slot) = (Some(page), Some(trx_slot));
        skimmed.kind = 0x10 | version.map_or(0, |_| WITH_VERSION);
        let trx = TrxRef {
            slot: trx_slot,
            first: None,
            version,
        };
        put_row_head(bytes, 0x10, page, trx, tree, at);
        bytes.extend_from_slice(&[1, flags]);
        put_shared_key(bytes, &context.key, &[]);
        put_varint(bytes, self.value.len() as u64);
        put_literal(bytes, &self.value);
        Ok(())
    }
}

fn get_context_value(
    mode: u8,
    r: &mut Reader<'_>,
    reference: &[u8],
    value: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    value.clear();
    match mode {
        VALUE_SAME => {
            r.unpacks(reference.len())?;
            value.extend_from_slice(reference);
            Ok(())
        }
        VALUE_RAW => {
            value.extend_from_slice(r.take(reference.len())?);
            Ok(())
        }
        VALUE_PACKED => unpack(r, reference.len(), reference, value),
        _ => {
            let len = r.varint_max(1 << 20, "packed length")? as usize;
            unpack(r, len, reference, value)
        }
    }
}

/// What is said of a frame that has the rows of several transactions.
const OF_SEVERAL: &str = "rows of the transactions in slots";

/// A frame has the rows of one transaction only.
fn of_one(r: &Reader<'_>, of_frame: Option<u32>, slot: u32) -> Result<(), Corrupt> {
    match of_frame.filter(|other| *other != slot) {
        Some(other) => Err(r.corrupt(format!("{OF_SEVERAL} {other} and {slot}"))),
        None => Ok(()),
    }
}

/// The slot that a record names, but for those of rows and ends.
fn slot_of(record: &Record) -> Option<u32> {
    match record {
        Record::RowUndo { trx_slot, .. }
        | Record::Prepare { trx_slot, .. }
        | Record::UndoCopy { trx_slot, .. }
        | Record::UndoMoved { trx_slot, .. }
        | Record::BulkInsert { trx_slot, .. }
        | Record::BulkDelete { trx_slot, .. }
        | Record::UndoSaved { trx_slot, .. } => Some(*trx_slot),
        _ => None,
    }
}

/// A packed value behind its length, which is returned.
fn skip_sized(r: &mut Reader<'_>, reference: usize) -> Result<usize, Corrupt> {
    let len = r.varint_max(1 << 20, "packed length")? as usize;
    skip_packed(r, len, reference)?;
    Ok(len)
}

fn skip_diff(r: &mut Reader<'_>) -> Result<(), Corrupt> {
    r.varint_max(1 << 20, "shared prefix")?;
    r.varint_max(1 << 20, "shared suffix")?;
    let old = skip_sized(r, 0)?;
    skip_sized(r, old).map(drop)
}

/// Panics if skimming these frames in batches of so many gives something else than decoding them:
/// for tests and fuzz targets.
#[doc(hidden)]
pub fn check_against_decoder(payloads: &[&[u8]], batch: usize) {
    let (mut decoder, mut whole) = (Decoder::default(), Skimmer::whole());
    for batch in payloads.chunks(batch.max(1)) {
        let mut part = Skimmer::default();
        for payload in batch {
            let (expected, error) = decoder.decode_prefix(payload);
            let expected: Vec<Record> = expected.into_iter().map(|(_, record)| record).collect();
            let (mut bytes, mut records) = (Vec::new(), Vec::new());
            let mut found = part.skim(payload, &mut bytes, &mut records);
            if let Err(SkimError::Earlier { .. }) = found {
                (bytes, records) = (Vec::new(), Vec::new());
                found = whole.skim(payload, &mut bytes, &mut records);
            }
            if slots(&expected, &error) > 1 {
                let refused = matches!(found, Err(SkimError::Decode(DecodeError::Corrupt(_))));
                assert!(refused, "rows of several transactions: {found:?}");
                return;
            }
            match (error, found) {
                (None, Ok(())) => check_records(&expected, &bytes, &records),
                // Of a record that cannot be decoded the slot may be known: another transaction's.
                (
                    Some(DecodeError::Corrupt(_)),
                    Err(SkimError::Decode(DecodeError::Corrupt(found))),
                ) if found.detail.starts_with(OF_SEVERAL) => {
                    return;
                }
                (Some(expected), Err(SkimError::Decode(found))) => {
                    assert_eq!(expected, found);
                    // Nothing is read behind it.
                    if let DecodeError::Corrupt(_) = found {
                        return;
                    }
                }
                (expected, found) => panic!("decoded {expected:?}, skimmed {found:?}"),
            }
        }
        part.hand_on(&mut whole);
        check_contexts(&decoder, &whole);
    }
}

/// Both know the same.
fn check_contexts(decoder: &Decoder, whole: &Skimmer) {
    let known = |context: &&Context| context.known;
    let expected = decoder.contexts().values().filter(known).count();
    assert_eq!(expected, whole.contexts.values().filter(known).count());
    assert_eq!(expected, whole.contexts.len());
    for (slot, found) in &whole.contexts {
        let expected = &decoder.contexts()[slot];
        assert_eq!(format!("{expected:?}"), format!("{found:?}"));
    }
}

/// The slot whose rows or end a record is, and its first record's id.
fn row_slot(record: &Record) -> Option<(u32, Option<TrxId>)> {
    match record {
        Record::RowsInsert { trx, .. }
        | Record::RowUpdate { trx, .. }
        | Record::RowMark { trx, .. }
        | Record::RowRevive { trx, .. } => Some((trx.slot, trx.first)),
        Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => Some((*trx_slot, None)),
        _ => None,
    }
}

/// How many slots' rows and ends these are.
fn slots(records: &[Record], error: &Option<DecodeError>) -> usize {
    let mut slots: Vec<_> = records
        .iter()
        .filter_map(row_slot)
        .map(|(slot, _)| slot)
        .collect();
    if let Some(DecodeError::NoContext { trx_slot }) = error {
        slots.push(*trx_slot);
    }
    slots.sort_unstable();
    slots.dedup();
    slots.len()
}

fn check_records(expected: &[Record], bytes: &[u8], records: &[Skimmed]) {
    assert_eq!(expected.len(), records.len());
    for (expected, skimmed) in expected.iter().zip(records) {
        let kept = &bytes[skimmed.from as usize..skimmed.to as usize];
        assert_eq!(decode_one(kept).as_ref(), Ok(expected), "{kept:02x?}");
        assert_eq!(skimmed.page, expected.page());
        assert_eq!(skimmed.initialises_page(), expected.initialises_page());
        let row = row_slot(expected);
        let slot = row.map(|(slot, _)| slot).or_else(|| slot_of(expected));
        let first = row.and_then(|(_, first)| first);
        assert_eq!((skimmed.slot, skimmed.first), (slot, first));
        let ends = matches!(expected, Record::Commit { .. } | Record::RollbackEnd { .. });
        assert_eq!(skimmed.ends(), ends);
        let versioned = match expected {
            Record::RowsInsert { trx, .. }
            | Record::RowUpdate { trx, .. }
            | Record::RowMark { trx, .. }
            | Record::RowRevive { trx, .. } => trx.version.is_some(),
            _ => false,
        };
        let is_row = row.is_some() && expected.page().is_some();
        assert_eq!(skimmed.is_plain_row(), is_row && !versioned);
    }
}
