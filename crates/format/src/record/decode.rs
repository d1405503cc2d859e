//! Reading records.

use super::*;
use crate::codec::{Reader, get_shared_key, increment, unpack};
use crate::tree_page::CELL_OVERFLOW;
use std::collections::HashMap;

fn get_row(r: &mut Reader<'_>, last: &mut (Vec<u8>, Vec<u8>)) -> Result<Row, Corrupt> {
    let flags = r.u8()?;
    if flags & ROW_NEXT_KEY != 0 {
        if !increment(&mut last.0) {
            return Err(r.corrupt("the key has no successor"));
        }
        r.unpacks(last.0.len())?;
    } else {
        get_shared_key(r, &mut last.0)?;
    }
    let len = r.varint_max(1 << 17, "value length")? as usize;
    let mut value = Vec::with_capacity(len);
    unpack(r, len, &last.1, &mut value)?;
    last.1.clone_from(&value);
    Ok(Row {
        flags: flags & !ROW_NEXT_KEY,
        key: last.0.clone(),
        value,
    })
}

#[inline]
pub(super) fn get_page(r: &mut Reader<'_>) -> Result<PageId, Corrupt> {
    let space = r.varint_max(u64::from(u32::MAX), "tablespace")?;
    let page = r.varint_max(u64::from(u32::MAX), "page")?;
    Ok(PageId::new(SpaceId(space as u32), PageNo(page as u32)))
}

#[inline]
pub(super) fn get_u16v(r: &mut Reader<'_>, what: &str) -> Result<u16, Corrupt> {
    Ok(r.varint_max(u64::from(u16::MAX), what)? as u16)
}

#[inline]
pub(super) fn get_u32v(r: &mut Reader<'_>, what: &str) -> Result<u32, Corrupt> {
    Ok(r.varint_max(u64::from(u32::MAX), what)? as u32)
}

fn get_high(r: &mut Reader<'_>) -> Result<Option<Vec<u8>>, Corrupt> {
    Ok(match r.u8()? {
        0 => None,
        1 => Some(r.bytes()?.to_vec()),
        other => return Err(r.corrupt(format!("{other} is neither no fence nor a fence"))),
    })
}

fn get_packed(r: &mut Reader<'_>, reference: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let len = r.varint_max(1 << 20, "packed length")? as usize;
    let mut out = Vec::new();
    unpack(r, len, reference, &mut out)?;
    Ok(out)
}

fn get_diff(r: &mut Reader<'_>) -> Result<Diff, Corrupt> {
    let prefix = r.varint_max(1 << 20, "shared prefix")? as usize;
    let suffix = r.varint_max(1 << 20, "shared suffix")? as usize;
    let old = get_packed(r, &[])?;
    let new = get_packed(r, &old)?;
    Ok(Diff {
        prefix,
        suffix,
        old,
        new,
    })
}

fn get_rows(r: &mut Reader<'_>) -> Result<Vec<Row>, Corrupt> {
    let count = r.varint_max(1 << 16, "number of rows")?;
    let mut last = (Vec::new(), Vec::new());
    (0..count).map(|_| get_row(r, &mut last)).collect()
}

/// An undo of a kind, with a whole value packed against the reference.
pub(super) fn get_undo(r: &mut Reader<'_>, kind: u8, reference: &[u8]) -> Result<Undo, Corrupt> {
    Ok(match kind {
        0 => Undo::Insert,
        1 => Undo::Update {
            flags: r.u8()?,
            diff: get_diff(r)?,
        },
        2 => Undo::Restore {
            flags: r.u8()?,
            value: get_packed(r, reference)?,
        },
        3 => Undo::Mark,
        4 => Undo::Revive,
        other => return Err(r.corrupt(format!("{other} is no kind of undo"))),
    })
}

pub(super) struct RowHead {
    pub trx: TrxRef,
    pub page: PageId,
    pub tree: TreeId,
    pub slot: u16,
}

fn get_logged(r: &mut Reader<'_>) -> Result<VersionAddress, Corrupt> {
    Ok(VersionAddress::from_log(
        r.varint_max(u64::MAX >> 1, "version address")?,
    ))
}

fn get_version(r: &mut Reader<'_>) -> Result<LoggedVersion, Corrupt> {
    let version = LoggedVersion {
        address: get_logged(r)?,
        previous: get_logged(r)?,
    };
    if version.address.is_logged() {
        Ok(version)
    } else {
        Err(r.corrupt("a version without an address"))
    }
}

#[inline]
pub(super) fn get_row_head(r: &mut Reader<'_>, kind: u8) -> Result<RowHead, Corrupt> {
    let version = match kind & WITH_VERSION {
        0 => None,
        _ => Some(get_version(r)?),
    };
    let word = r.varint_max(u64::from(u32::MAX) * 2 + 1, "transaction slot")?;
    let first = if word & 1 != 0 {
        Some(TrxId(r.varint()?))
    } else {
        None
    };
    let trx = TrxRef {
        slot: (word >> 1) as u32,
        first,
        version,
    };
    let page = get_page(r)?;
    let tree = TreeId(get_u32v(r, "tree")?);
    Ok(RowHead {
        trx,
        page,
        tree,
        slot: get_u16v(r, "slot")?,
    })
}

/// The one record of these bytes, which needs no context: a part of a frame, or what
/// [`Skimmer`](super::Skimmer) kept of it.
pub fn decode_one(bytes: &[u8]) -> Result<Record, Corrupt> {
    let mut r = Reader::new(bytes);
    let record = match r.u8()? {
        kind @ (0x10 | 0x14) => get_rows_insert(kind, &mut r)?,
        kind => get_plain(kind, &mut r)?,
    };
    if r.is_empty() {
        Ok(record)
    } else {
        Err(r.corrupt("more than a record"))
    }
}

fn get_rows_insert(kind: u8, r: &mut Reader<'_>) -> Result<Record, Corrupt> {
    let RowHead {
        trx,
        page,
        tree,
        slot,
    } = get_row_head(r, kind)?;
    let rows = get_rows(r)?;
    if rows.is_empty() {
        return Err(r.corrupt("an insert of no rows"));
    }
    Ok(Record::RowsInsert {
        page,
        trx,
        tree,
        slot,
        rows,
    })
}

/// Why a frame could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A contextual record of a transaction whose earlier records were not read. Harmless before
    /// the checkpoint, corruption after it.
    NoContext {
        /// The transaction's slot.
        trx_slot: u32,
    },
    /// The bytes are no records.
    Corrupt(Corrupt),
}

impl From<Corrupt> for DecodeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// Decodes frames in log order, keeping the context of each transaction.
#[derive(Default)]
pub struct Decoder {
    contexts: HashMap<u32, Context>,
}

impl Decoder {
    pub(super) fn contexts(&self) -> &HashMap<u32, Context> {
        &self.contexts
    }

    /// Decodes all records of a frame's payload.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Vec<Record>, DecodeError> {
        let mut r = Reader::new(payload);
        let mut records = Vec::new();
        while !r.is_empty() {
            records.push(self.next(&mut r)?);
        }
        Ok(records)
    }

    /// As [`Decoder::decode`], to show a log: each record with its kind byte, up to the first one
    /// that cannot be decoded, and why not.
    pub fn decode_prefix(&mut self, payload: &[u8]) -> (Vec<(u8, Record)>, Option<DecodeError>) {
        let mut r = Reader::new(payload);
        let mut records = Vec::new();
        while !r.is_empty() {
            let kind = payload[r.offset()];
            match self.next(&mut r) {
                Ok(record) => records.push((kind, record)),
                Err(error) => return (records, Some(error)),
            }
        }
        (records, None)
    }

    fn next(&mut self, r: &mut Reader<'_>) -> Result<Record, DecodeError> {
        let kind = r.u8()?;
        match kind {
            0x40..0x80 => self.contextual_insert(kind, r),
            0x10 | 0x14 => {
                let record = get_rows_insert(kind, r)?;
                if let Record::RowsInsert {
                    page,
                    trx,
                    tree,
                    slot,
                    rows,
                } = &record
                    && let Some(last) = rows.last()
                {
                    let context = self.contexts.entry(trx.slot).or_default();
                    let last_slot = slot.wrapping_add(rows.len() as u16).wrapping_sub(1);
                    context.set(*page, *tree, last_slot, &last.key, &last.value);
                    context.set_version(trx.version.filter(|_| rows.len() == 1));
                }
                Ok(record)
            }
            _ => {
                let record = get_plain(kind, r)?;
                match &record {
                    Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => {
                        self.contexts.remove(trx_slot);
                    }
                    // A slot used again: what is known belongs to its last user.
                    Record::RowUpdate { trx, .. }
                    | Record::RowMark { trx, .. }
                    | Record::RowRevive { trx, .. }
                        if trx.first.is_some() =>
                    {
                        self.contexts.remove(&trx.slot);
                    }
                    _ => {}
                }
                Ok(record)
            }
        }
    }

    fn contextual_insert(&mut self, kind: u8, r: &mut Reader<'_>) -> Result<Record, DecodeError> {
        let trx_slot = get_u32v(r, "transaction slot")?;
        let context = self.contexts.get_mut(&trx_slot).filter(|c| c.known);
        let context = context.ok_or(DecodeError::NoContext { trx_slot })?;
        let same_page = kind & SAME_PAGE != 0;
        let (page, tree) = if same_page {
            (context.page, context.tree)
        } else {
            (get_page(r)?, TreeId(get_u32v(r, "tree")?))
        };
        let slot = match (kind & NEXT_SLOT != 0, same_page) {
            (true, true) => context.slot.wrapping_add(1),
            (true, false) => 0,
            (false, _) => get_u16v(r, "slot")?,
        };
        let mut key = std::mem::take(&mut context.key);
        if kind & NEXT_KEY == 0 {
            get_shared_key(r, &mut key)?;
        } else if !increment(&mut key) {
            return Err(r.corrupt("the key has no successor").into());
        } else {
            r.unpacks(key.len())?;
        }
        let value = get_context_value(kind >> VALUE_SHIFT & 3, r, &context.value)?;
        let flags = if kind & OVERFLOW != 0 {
            CELL_OVERFLOW
        } else {
            0
        };
        let version = context.next_version.map(|address| LoggedVersion {
            address,
            previous: VersionAddress(0),
        });
        context.set(page, tree, slot, &key, &value);
        context.set_version(version);
        let trx = TrxRef {
            slot: trx_slot,
            first: None,
            version,
        };
        Ok(Record::RowsInsert {
            page,
            trx,
            tree,
            slot,
            rows: vec![Row { flags, key, value }],
        })
    }
}

fn get_context_value(mode: u8, r: &mut Reader<'_>, reference: &[u8]) -> Result<Vec<u8>, Corrupt> {
    Ok(match mode {
        VALUE_SAME => {
            r.unpacks(reference.len())?;
            reference.to_vec()
        }
        VALUE_RAW => r.take(reference.len())?.to_vec(),
        VALUE_PACKED => {
            let mut value = Vec::with_capacity(reference.len());
            unpack(r, reference.len(), reference, &mut value)?;
            value
        }
        _ => get_packed(r, reference)?,
    })
}

pub(super) fn get_plain(kind: u8, r: &mut Reader<'_>) -> Result<Record, Corrupt> {
    Ok(match kind {
        0x01 => {
            let page = get_page(r)?;
            let tree = TreeId(get_u32v(r, "tree")?);
            let level = r.u8()?;
            let low = r.bytes()?.to_vec();
            let high = get_high(r)?;
            if low.len() + high.as_ref().map_or(0, Vec::len) > 1 << 14 {
                return Err(r.corrupt("fences longer than any key"));
            }
            Record::TreeInit {
                page,
                init: TreePageInit {
                    tree,
                    level,
                    low,
                    high,
                },
            }
        }
        0x02 => Record::PageInit {
            page: get_page(r)?,
            page_type: r.u8()?,
        },
        0x03 => Record::PageFree { page: get_page(r)? },
        0x04 => Record::Bytes {
            page: get_page(r)?,
            offset: get_u32v(r, "offset")?,
            bytes: get_packed(r, &[])?,
        },
        0x05 => Record::Bits {
            page: get_page(r)?,
            first: get_u32v(r, "first bit")?,
            count: get_u32v(r, "number of bits")?,
            set: r.u8()? != 0,
        },
        0x06 => Record::LeafCells {
            page: get_page(r)?,
            slot: get_u16v(r, "slot")?,
            rows: get_rows(r)?,
        },
        0x07 => {
            let (page, slot) = (get_page(r)?, get_u16v(r, "slot")?);
            let count = r.varint_max(1 << 16, "number of children")?;
            let mut key = Vec::new();
            let mut children = Vec::new();
            for _ in 0..count {
                get_shared_key(r, &mut key)?;
                children.push((key.clone(), PageNo(get_u32v(r, "child")?)));
            }
            Record::InnerCells {
                page,
                slot,
                children,
            }
        }
        0x08 => Record::Remove {
            page: get_page(r)?,
            slot: get_u16v(r, "slot")?,
            count: get_u16v(r, "count")?,
        },
        0x09 => Record::SetHigh {
            page: get_page(r)?,
            keep: get_u16v(r, "keep")?,
            high: get_high(r)?,
        },
        0x11 | 0x15 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r, kind)?;
            let key = r.bytes()?.to_vec();
            let (old_flags, flags) = (r.u8()?, r.u8()?);
            Record::RowUpdate {
                page,
                trx,
                tree,
                slot,
                key,
                old_flags,
                flags,
                diff: get_diff(r)?,
            }
        }
        0x12 | 0x16 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r, kind)?;
            Record::RowMark {
                page,
                trx,
                tree,
                slot,
                key: r.bytes()?.to_vec(),
            }
        }
        0x13 | 0x17 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r, kind)?;
            let flags = r.u8()?;
            let key = r.bytes()?.to_vec();
            Record::RowRevive {
                page,
                trx,
                tree,
                slot,
                flags,
                key,
                value: get_packed(r, &[])?,
            }
        }
        0x0a => {
            let page = get_page(r)?;
            let count = r.varint_max(1 << 16, "number of cells")?;
            let version = |r: &mut Reader<'_>| {
                let slot = get_u16v(r, "slot")?;
                Ok((slot, Some(get_logged(r)?).filter(|v| v.is_logged())))
            };
            let versions = (0..count)
                .map(|_| version(r))
                .collect::<Result<_, Corrupt>>()?;
            Record::SetVersions { page, versions }
        }
        0x0b => {
            let page = get_page(r)?;
            Record::RowsMark {
                page,
                version: Some(get_logged(r)?).filter(|v| v.is_logged()),
                slot: get_u16v(r, "slot")?,
                count: get_u16v(r, "number of rows")?,
            }
        }
        0x19 => {
            let (page, slot) = (get_page(r)?, get_u16v(r, "slot")?);
            let version = Some(get_logged(r)?).filter(|v| v.is_logged());
            let kind = r.u8()?;
            Record::RowRestore {
                page,
                slot,
                version,
                undo: get_undo(r, kind, &[])?,
            }
        }
        0x18 => {
            let page = get_page(r)?;
            let trx_slot = get_u32v(r, "transaction slot")?;
            let slot = get_u16v(r, "slot")?;
            let kind = r.u8()?;
            Record::RowUndo {
                page,
                trx_slot,
                slot,
                undo: get_undo(r, kind, &[])?,
            }
        }
        _ => get_without_page(kind, r)?,
    })
}

fn get_without_page(kind: u8, r: &mut Reader<'_>) -> Result<Record, Corrupt> {
    Ok(match kind {
        0x20 => Record::Commit {
            trx_slot: get_u32v(r, "transaction slot")?,
        },
        0x21 => Record::RollbackEnd {
            trx_slot: get_u32v(r, "transaction slot")?,
        },
        0x22 => Record::Prepare {
            trx_slot: get_u32v(r, "transaction slot")?,
            xid: r.bytes()?.to_vec(),
        },
        0x23 | 0x24 => {
            let trx_slot = get_u32v(r, "transaction slot")?;
            let trx = TrxId(r.varint()?);
            let flags = r.u8()?;
            let xid = if flags & 4 != 0 {
                Some(r.bytes()?.to_vec())
            } else {
                None
            };
            let entries = match kind {
                0x23 => undo_copy::get_plain_entries(r)?,
                _ => undo_copy::get_entries(r)?,
            };
            Record::UndoCopy {
                trx_slot,
                trx,
                first: flags & 1 != 0,
                last: flags & 2 != 0,
                xid,
                entries,
            }
        }
        0x25 => {
            let trx_slot = get_u32v(r, "transaction slot")?;
            let count = r.varint_max(1 << 20, "number of versions")?;
            let (mut addresses, mut last) = (Vec::new(), 0u64);
            for _ in 0..count {
                last = last.wrapping_add(r.varint()?);
                let address = VersionAddress(last & !(1 << 63) | 1 << 63);
                addresses.push((address, get_u32v(r, "number of rows")?));
            }
            Record::UndoMoved {
                trx_slot,
                addresses,
            }
        }
        0x26 => Record::UndoSaved {
            trx_slot: get_u32v(r, "transaction slot")?,
            trx: TrxId(r.varint()?),
            since: Lsn(r.varint()?),
            changes: r.varint()?,
            xid: get_high(r)?,
            list: UndoList {
                offset: r.varint()?,
                bytes: get_u32v(r, "bytes of a list")?,
                checksum: u32::from_le_bytes(r.take(4)?.try_into().expect("four bytes")),
            },
        },
        0x27 => {
            let trx_slot = get_u32v(r, "transaction slot")?;
            let address = get_logged(r)?;
            if !address.is_logged() {
                return Err(r.corrupt("a bulk insert without an address"));
            }
            Record::BulkInsert {
                trx_slot,
                address,
                space: SpaceId(get_u32v(r, "tablespace")?),
                tree: TreeId(get_u32v(r, "tree")?),
                from: r.bytes()?.to_vec(),
            }
        }
        0x28 => Record::FileCreate {
            space: SpaceId(get_u32v(r, "tablespace")?),
        },
        0x29 => Record::FileDelete {
            space: SpaceId(get_u32v(r, "tablespace")?),
        },
        0x2a => {
            let trx_slot = get_u32v(r, "transaction slot")?;
            let address = get_logged(r)?;
            if !address.is_logged() {
                return Err(r.corrupt("a bulk delete without an address"));
            }
            Record::BulkDelete {
                trx_slot,
                address,
                space: SpaceId(get_u32v(r, "tablespace")?),
                tree: TreeId(get_u32v(r, "tree")?),
                from: r.bytes()?.to_vec(),
                to: get_high(r)?,
            }
        }
        0x80.. => {
            let body = r.bytes()?;
            let mut inner = Reader::new(body);
            match kind {
                0x80 => Record::Epoch {
                    epoch: inner.varint()?,
                    end_of_previous: Lsn(inner.varint()?),
                },
                0x81 => Record::Checkpoint {
                    checkpoint: Lsn(inner.varint()?),
                    scan_start: Lsn(inner.varint()?),
                },
                _ => Record::Unknown {
                    kind,
                    body: body.to_vec(),
                },
            }
        }
        _ => return Err(r.corrupt(format!("unknown record kind {kind:02x}"))),
    })
}
