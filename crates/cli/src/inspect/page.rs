//! `inspect page`.

use super::read::{Directory, tablespace_path};
use super::show;
use crate::failure::Result;
use clap::Args;
use inkstone_bench::output::Output;
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::header::{
    PAGE_TYPE_AT, PageType, check_page, is_zero, page_id, page_lsn, page_type,
};
use inkstone_format::image::{Codec, UNIT_LEN};
use inkstone_format::overflow::{LongValue, parse_reference};
use inkstone_format::place_map::Place;
use inkstone_format::space::{self, TREES_MAX};
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, CELL_VERSIONED, TreePage};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `inspect page`.
#[derive(Args, Debug)]
#[command(long_about = "\
Show one page as it lies in its file: whether its checksum is right, its header, and what it holds (a \
tree page's fences and slots, a tablespace's trees, a space map's allocated pages, a part of a long \
value).

The page is read from the file, without opening the database: changes that are still in the log only \
are not in it. A page that is damaged is shown as far as it can be understood. The exit code is 0 also \
then; `verify` is the check.")]
pub struct PageArguments {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Tablespace and page number, as in 1:3; `inspect catalog` shows the tablespaces
    #[arg(value_name = "SPACE:PAGE", value_parser = parse_page_id)]
    page: PageId,
    /// Show keys and values whole
    #[arg(long)]
    full: bool,
    /// Also show the bytes of the page
    #[arg(long)]
    dump: bool,
}

/// Parses `SPACE:PAGE`.
pub fn parse_page_id(text: &str) -> Result<PageId, String> {
    let wrong = || "expected SPACE:PAGE, as in 1:3".to_owned();
    let (space, page) = text.split_once(':').ok_or_else(wrong)?;
    Ok(PageId::new(
        SpaceId(space.parse().map_err(|_| wrong())?),
        PageNo(page.parse().map_err(|_| wrong())?),
    ))
}

pub fn run(arguments: &PageArguments, output: &Output) -> Result<()> {
    let directory = Directory::open(&arguments.directory)?;
    let id = arguments.page;
    let page = directory.read_pages(id.space, u64::from(id.page.0), 1)?;
    let file = tablespace_path(&directory.path, id.space);
    let sound = check_page(&page, id);
    let shown = PageView {
        page: &page,
        limit: (!arguments.full).then_some(show::SHORT),
    };
    let kind = page_type(&page);
    let place = directory.place(id)?;
    let (from, to) = lies_at(id, page.len() as u64, place.as_ref());
    output.text(format!(
        "page {id} of {}, bytes {from} to {to}",
        file.display()
    ));
    if let Some(place) = &place {
        output.text(format!("placed    {}", shown_codec(place.codec)));
    }
    output.text(match (&sound, is_zero(&page)) {
        (Ok(()), _) => "checksum  right".to_owned(),
        (Err(_), true) => "never written: all zeroes".to_owned(),
        (Err(corrupt), false) => format!("DAMAGED   {corrupt}"),
    });
    output.text(format!("page      {}", page_id(&page)));
    let type_name = kind.map_or_else(
        || format!("unknown ({})", page[PAGE_TYPE_AT]),
        |k| format!("{k:?}"),
    );
    output.text(format!("type      {type_name}"));
    let lsn = page_lsn(&page);
    output.text(format!(
        "page LSN  {lsn} (checkpoint LSN {})",
        directory.control.checkpoint_lsn
    ));
    let least = directory.page_lsns()?.newer_than(id, Lsn(0));
    output.text(match least {
        _ if place.is_some() => "expected  just this LSN, says the place map".to_owned(),
        Some(least) if least > lsn => format!("STALE     it was written with LSN {least} or more"),
        Some(least) => format!("expected  LSN {least} or more, says the page LSN map"),
        None => "expected  any LSN: the page LSN map does not know the page".to_owned(),
    });
    let content = shown.content(kind, output);
    if arguments.dump {
        output.text("");
        for line in show::dump(&page) {
            output.text(line);
        }
    }
    output.json(&json!({
        "file": file.display().to_string(),
        "asked_for": id.to_string(),
        "page": page_id(&page).to_string(),
        "checksum_ok": sound.is_ok(),
        "damage": sound.err().map(|c| c.to_string()),
        "type": type_name,
        "page_lsn": lsn.0,
        "page_lsn_least": least.map(|lsn| lsn.0),
        "bytes_from": from,
        "bytes_to": to,
        "codec": place.map(|place| shown_codec(place.codec)),
        "content": content,
        "bytes": arguments.dump.then(|| show::hex(&page)),
    }));
    Ok(())
}

/// The part of its file that has a page, or its image.
fn lies_at(id: PageId, page_size: u64, place: Option<&Place>) -> (u64, u64) {
    match place {
        Some(place) => {
            let from = u64::from(place.unit) * UNIT_LEN as u64;
            (from, from + u64::from(place.length))
        }
        None => {
            let from = u64::from(id.page.0) * page_size;
            (from, from + page_size)
        }
    }
}

fn shown_codec(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "as it is",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

struct PageView<'p> {
    page: &'p [u8],
    limit: Option<usize>,
}

impl PageView<'_> {
    fn content(&self, kind: Option<PageType>, output: &Output) -> Value {
        match kind {
            Some(PageType::Leaf | PageType::Inner) => self.tree(output),
            Some(PageType::SpaceHeader) => self.space_header(output),
            Some(PageType::SpaceMap) => self.space_map(output),
            Some(PageType::Overflow) => self.overflow(output),
            Some(PageType::Free) | None => Value::Null,
        }
    }

    fn tree(&self, output: &Output) -> Value {
        let tree = TreePage(self.page);
        if let Err(corrupt) = tree.check() {
            output.text(format!("the tree page cannot be understood: {corrupt}"));
            return json!({ "damage": corrupt.to_string() });
        }
        let fence = |fence: Option<&[u8]>| {
            fence.map_or("no bound".to_owned(), |f| show::bytes(f, self.limit))
        };
        output.text(format!("tree      {}, level {}", tree.tree(), tree.level()));
        output.text(format!("low       {}", fence(Some(tree.low()))));
        output.text(format!("high      {}", fence(tree.high())));
        output.text(format!(
            "prefix    {}",
            show::bytes(tree.prefix(), self.limit)
        ));
        output.text(format!(
            "slots     {}; {} bytes in use, {} free ({} of them in one piece)",
            tree.count(),
            tree.used(),
            tree.free(),
            tree.contiguous_free()
        ));
        output.text("");
        let slots: Vec<Value> = (0..tree.count())
            .map(|slot| self.slot(tree, slot, output))
            .collect();
        json!({
            "tree": tree.tree().0,
            "level": tree.level(),
            "low": show::hex(tree.low()),
            "high": tree.high().map(show::hex),
            "prefix": show::hex(tree.prefix()),
            "used_bytes": tree.used(),
            "free_bytes": tree.free(),
            "contiguous_free_bytes": tree.contiguous_free(),
            "slots": slots,
        })
    }

    fn slot(&self, tree: TreePage<'_>, slot: usize, output: &Output) -> Value {
        let (cell, key) = (tree.cell(slot), tree.key(slot));
        if !tree.is_leaf() {
            let child = tree.child(slot);
            output.text(format!(
                "slot {slot:<4} child {child:<8} key {}",
                show::bytes(&key, self.limit)
            ));
            return json!({ "slot": slot, "key": show::hex(&key), "child": child.0 });
        }
        let names = [
            (CELL_DELETED, "deleted"),
            (CELL_OVERFLOW, "long"),
            (CELL_VERSIONED, "versioned"),
        ];
        let flags: Vec<&str> = names
            .iter()
            .filter(|(flag, _)| cell.flags & flag != 0)
            .map(|(_, name)| *name)
            .collect();
        let long = cell.is_overflow().then(|| long_value(cell.value)).flatten();
        let parts = (cell.is_overflow() && long.is_none()).then(|| LongValue::parse(cell.value));
        let parts = parts.flatten();
        let value = match (long, &parts) {
            (Some((length, first)), _) => format!("{length} bytes from page {first} on"),
            (None, Some(value)) => parts_text(value, &show::bytes(value.inline, self.limit)),
            (None, None) => show::bytes(cell.value, self.limit),
        };
        let mut line = format!(
            "slot {slot:<4} key {} value {value}",
            show::bytes(&key, self.limit)
        );
        if !flags.is_empty() {
            line += &format!(" [{}]", flags.join(" "));
        }
        if let Some(version) = cell.version {
            line += &format!(" version {:x}", version.0);
        }
        output.text(line);
        json!({
            "slot": slot,
            "key": show::hex(&key),
            "value": show::hex(self.shortened(cell.value)),
            "value_bytes": cell.value.len(),
            "flags": flags,
            "version": cell.version.map(|v| v.0),
            "long_value": long.map(|(length, first)| json!({ "bytes": length, "first_page": first })),
            "parts": parts.map(|value| (value.parts.iter())
                .map(|part| json!({
                    "at": part.at, "bytes": part.length, "first_page": part.first.0,
                }))
                .collect::<Vec<_>>()),
        })
    }

    fn shortened<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..self.limit.unwrap_or(bytes.len()).min(bytes.len())]
    }

    fn space_header(&self, output: &Output) -> Value {
        let uuid = show::uuid(&space::uuid(self.page));
        let maps = 1 + u64::from(space::more_maps(self.page));
        let trees: Vec<(u32, PageNo)> = (0..TREES_MAX)
            .filter_map(|tree| Some((tree, space::root(self.page, TreeId(tree))?)))
            .collect();
        output.text(format!("database  {uuid}"));
        output.text(format!("page size {}", space::page_size(self.page)));
        output.text(format!("maps      {maps}"));
        for (tree, root) in &trees {
            output.text(format!("tree {tree:<4} root page {root}"));
        }
        json!({
            "uuid": uuid,
            "page_size": space::page_size(self.page),
            "space_maps": maps,
            "trees": trees.iter().map(|(t, r)| json!({ "tree": t, "root": r.0 })).collect::<Vec<_>>(),
        })
    }

    /// The allocated pages as ranges.
    fn space_map(&self, output: &Output) -> Value {
        let base = u64::from(page_id(self.page).page.0.saturating_sub(1));
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let set = (0..map_pages(self.page.len())).filter(|n| bit(self.page, *n));
        for n in set.map(u64::from) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == base + n => *last = base + n,
                _ => ranges.push((base + n, base + n)),
            }
        }
        let count: u64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
        let shown: Vec<String> = ranges
            .iter()
            .map(|(first, last)| {
                if first == last {
                    first.to_string()
                } else {
                    format!("{first}-{last}")
                }
            })
            .collect();
        output.text(format!("allocated {count} pages: {}", shown.join(" ")));
        json!({ "first_page": base, "allocated": count, "ranges": ranges })
    }

    fn overflow(&self, output: &Output) -> Value {
        let word =
            |at: usize| u32::from_le_bytes(self.page[at..at + 4].try_into().unwrap_or([0; 4]));
        let (next, length) = (word(24), word(28));
        let end = (32 + length as usize).min(self.page.len());
        let bytes = &self.page[32..end];
        output.text(format!(
            "next page {next}{}",
            if next == 0 { " (the last part)" } else { "" }
        ));
        output.text(format!(
            "bytes     {length}: {}",
            show::bytes(bytes, self.limit)
        ));
        json!({ "next_page": next, "length": length, "value": show::hex(self.shortened(bytes)) })
    }
}

/// A value with parts in pages of their own.
pub fn parts_text(value: &LongValue<'_>, inline: &str) -> String {
    let parts = value.parts.iter().map(|part| {
        let (at, length, first) = (part.at, part.length, part.first);
        format!(", at {at} {length} bytes from page {first} on")
    });
    format!("{inline}{}", parts.collect::<String>())
}

/// Length and first page in a cell's reference to a long value.
pub fn long_value(reference: &[u8]) -> Option<(u64, u32)> {
    let (length, first) = parse_reference(reference)?;
    Some((length, first.0))
}
