//! Redo records as text.

use super::show;
use inkstone_format::PageId;
use inkstone_format::overflow::LongValue;
use inkstone_format::record::{Diff, Record, Row, TrxRef, Undo, UndoEntry};
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW};

/// How much of keys and values is shown.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    pub limit: Option<usize>,
}

/// Name of a record by its kind byte: an insert that is coded against the one before it has its
/// own.
pub fn name(kind: u8, record: &Record) -> &'static str {
    if (0x40..0x80).contains(&kind) {
        "LEAF_INSERT"
    } else {
        record.name()
    }
}

fn flags(flags: u8) -> &'static str {
    match (flags & CELL_DELETED != 0, flags & CELL_OVERFLOW != 0) {
        (false, false) => "",
        (true, false) => " [deleted]",
        (false, true) => " [long]",
        (true, true) => " [deleted long]",
    }
}

fn trx(trx: TrxRef) -> String {
    match trx.first {
        Some(id) => format!("trx {id} begins in slot {}", trx.slot),
        None => format!("trx slot {}", trx.slot),
    }
}

impl Show {
    fn bytes(self, bytes: &[u8]) -> String {
        show::bytes(bytes, self.limit)
    }

    fn value(self, row_flags: u8, value: &[u8]) -> String {
        match super::page::long_value(value) {
            Some((length, first)) if row_flags & CELL_OVERFLOW != 0 => {
                format!("{length} bytes from page {first} on")
            }
            _ if row_flags & CELL_OVERFLOW != 0 => match LongValue::parse(value) {
                Some(long) => super::page::parts_text(&long, &self.bytes(long.inline)),
                None => self.bytes(value),
            },
            _ => self.bytes(value),
        }
    }

    fn row(self, row: &Row) -> String {
        format!(
            "key {} value {}{}",
            self.bytes(&row.key),
            self.value(row.flags, &row.value),
            flags(row.flags)
        )
    }

    /// One row in the line, several below it.
    fn rows(self, rows: &[Row]) -> String {
        if let [row] = rows {
            return self.row(row);
        }
        let shown = self.limit.map_or(rows.len(), |_| rows.len().min(4));
        let mut out = format!("{} rows", rows.len());
        for row in &rows[..shown] {
            out += &format!("\n      {}", self.row(row));
        }
        if shown < rows.len() {
            out += &format!(
                "\n      .. and {} more (--full shows them)",
                rows.len() - shown
            );
        }
        out
    }

    fn diff(self, diff: &Diff) -> String {
        format!(
            "at {}: {} becomes {} ({} bytes after it stay)",
            diff.prefix,
            self.bytes(&diff.old),
            self.bytes(&diff.new),
            diff.suffix
        )
    }

    fn undo(self, undo: &Undo) -> String {
        match undo {
            Undo::Insert => "remove the row".to_owned(),
            Undo::Update { flags: f, diff } => format!("value {}{}", self.diff(diff), flags(*f)),
            Undo::Restore { flags: f, value } => {
                format!("value back to {}{}", self.value(*f, value), flags(*f))
            }
            Undo::Mark => "clear the delete mark".to_owned(),
            Undo::Revive => "set the delete mark again".to_owned(),
        }
    }

    fn entry(self, entry: &UndoEntry) -> String {
        format!(
            "tablespace {} tree {} key {}: {}",
            entry.space,
            entry.tree,
            self.bytes(&entry.key),
            self.undo(&entry.undo)
        )
    }

    /// What the record says, without its name; several lines for several rows.
    pub fn record(self, record: &Record) -> String {
        match record.page() {
            Some(page) => format!("page {page} {}", self.on_page(page, record)),
            None => self.without_page(record),
        }
    }

    fn on_page(self, page: PageId, record: &Record) -> String {
        match record {
            Record::TreeInit { init, .. } => format!(
                "tree {} level {} low {} high {}",
                init.tree,
                init.level,
                self.bytes(&init.low),
                self.fence(init.high.as_deref())
            ),
            Record::PageInit { page_type, .. } => {
                match inkstone_format::header::PageType::from_u8(*page_type) {
                    Some(kind) => format!("type {kind:?}"),
                    None => format!("type {page_type}"),
                }
            }
            Record::PageFree { .. } => String::new(),
            Record::Bytes { offset, bytes, .. } => {
                format!("offset {offset} bytes {}", self.bytes(bytes))
            }
            Record::Bits {
                first, count, set, ..
            } => {
                let from = page.page.0.saturating_sub(1) + first;
                let what = if *set { "allocated" } else { "free" };
                format!("pages {from}..{} are {what}", from + count)
            }
            Record::LeafCells { slot, rows, .. } => format!("slot {slot} {}", self.rows(rows)),
            Record::InnerCells { slot, children, .. } => {
                let children = children
                    .iter()
                    .map(|(key, child)| format!("key {} child {child}", self.bytes(key)));
                format!("slot {slot} {}", children.collect::<Vec<_>>().join(", "))
            }
            Record::Remove { slot, count, .. } => format!("slot {slot} count {count}"),
            Record::SetHigh { keep, high, .. } => {
                format!("keep {keep} slots, high {}", self.fence(high.as_deref()))
            }
            _ => self.row_change(record),
        }
    }

    fn fence(self, fence: Option<&[u8]>) -> String {
        fence.map_or("no bound".to_owned(), |fence| self.bytes(fence))
    }

    fn row_change(self, record: &Record) -> String {
        match record {
            Record::RowsInsert {
                trx: t,
                tree,
                slot,
                rows,
                ..
            } => format!(
                "slot {slot} {}",
                with_owner(&self.rows(rows), &format!("tree {tree}, {}", trx(*t)))
            ),
            Record::RowUpdate {
                trx: t,
                tree,
                slot,
                key,
                flags: f,
                diff,
                ..
            } => format!(
                "slot {slot} key {} value {}{} (tree {tree}, {})",
                self.bytes(key),
                self.diff(diff),
                flags(*f),
                trx(*t)
            ),
            Record::RowMark {
                trx: t,
                tree,
                slot,
                key,
                ..
            } => format!(
                "slot {slot} key {} (tree {tree}, {})",
                self.bytes(key),
                trx(*t)
            ),
            Record::RowRevive {
                trx: t,
                tree,
                slot,
                flags: f,
                key,
                value,
                ..
            } => format!(
                "slot {slot} key {} value {}{} (tree {tree}, {})",
                self.bytes(key),
                self.value(*f, value),
                flags(*f),
                trx(*t)
            ),
            Record::RowUndo {
                trx_slot,
                slot,
                undo,
                ..
            } => format!("slot {slot} {} (trx slot {trx_slot})", self.undo(undo)),
            Record::RowRestore {
                slot,
                version,
                undo,
                ..
            } => {
                let version = version.map_or_else(String::new, |v| format!(", version {v}"));
                format!("slot {slot} {}{version}", self.undo(undo))
            }
            Record::RowsMark {
                version,
                slot,
                count,
                ..
            } => match version {
                Some(version) => format!("slots {slot}+{count} deleted, version {version}"),
                None => format!("slots {slot}+{count} are there again"),
            },
            Record::SetVersions { versions, .. } => {
                let set = versions
                    .iter()
                    .filter(|(_, version)| version.is_some())
                    .count();
                format!("{set} set, {} cleared", versions.len() - set)
            }
            _ => String::new(),
        }
    }

    fn without_page(self, record: &Record) -> String {
        match record {
            Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => {
                format!("trx slot {trx_slot}")
            }
            Record::Prepare { trx_slot, xid } => {
                format!("trx slot {trx_slot} xid {}", self.bytes(xid))
            }
            Record::UndoMoved {
                trx_slot,
                addresses,
            } => {
                let rows: u64 = addresses.iter().map(|&(_, rows)| u64::from(rows)).sum();
                format!("trx slot {trx_slot}: {rows} changes have versions of their own")
            }
            Record::BulkInsert {
                trx_slot,
                address,
                space,
                tree,
                from,
            } => format!(
                "trx slot {trx_slot}: rows of tree {tree} in tablespace {space} from {} on have \
                 version {address:#x?}",
                self.bytes(from)
            ),
            Record::BulkDelete {
                trx_slot,
                address,
                space,
                tree,
                from,
                to,
            } => {
                let to = to
                    .as_deref()
                    .map_or_else(|| "the end".to_owned(), |to| self.bytes(to).to_string());
                format!(
                    "trx slot {trx_slot}: deletes rows of tree {tree} in tablespace {space} from \
                     {} to {to}, with version {address:#x?}",
                    self.bytes(from)
                )
            }
            Record::UndoSaved {
                trx_slot,
                trx,
                since,
                changes,
                xid,
                list,
            } => {
                let xid = xid.as_ref().map(|x| format!(" xid {}", self.bytes(x)));
                format!(
                    "trx {trx} slot {trx_slot}{}, about {changes} changes up to LSN {since}; list of \
                     {} bytes at {} of the undo file",
                    xid.unwrap_or_default(),
                    list.bytes,
                    list.offset
                )
            }
            Record::UndoCopy {
                trx_slot,
                trx,
                first,
                last,
                xid,
                entries,
            } => {
                let part = match (first, last) {
                    (true, true) => "whole",
                    (true, false) => "first part",
                    (false, true) => "last part",
                    (false, false) => "part",
                };
                let xid = xid.as_ref().map(|x| format!(" xid {}", self.bytes(x)));
                let mut out = format!(
                    "trx {trx} slot {trx_slot}{} {part}, {} entries",
                    xid.unwrap_or_default(),
                    entries.len()
                );
                let shown = self.limit.map_or(entries.len(), |_| entries.len().min(4));
                for entry in &entries[..shown] {
                    out += &format!("\n      {}", self.entry(entry));
                }
                if shown < entries.len() {
                    out += &format!("\n      .. and {} more", entries.len() - shown);
                }
                out
            }
            Record::FileCreate { space } | Record::FileDelete { space } => {
                format!("tablespace {space}")
            }
            Record::Epoch {
                epoch,
                end_of_previous,
            } => format!("{epoch}, the log before ended at {end_of_previous}"),
            Record::Checkpoint {
                checkpoint,
                scan_start,
            } => format!("LSN {checkpoint}, recovery reads from {scan_start}"),
            Record::Unknown { kind, body } => format!("kind {kind:02x} {}", self.bytes(body)),
            _ => String::new(),
        }
    }
}

/// Puts `owner` at the end of the first line.
fn with_owner(text: &str, owner: &str) -> String {
    match text.split_once('\n') {
        Some((first, rest)) => format!("{first} ({owner})\n{rest}"),
        None => format!("{text} ({owner})"),
    }
}
