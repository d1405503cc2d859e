//! `inspect catalog`: the catalog's tree, read from its file.

use super::read::{Directory, tablespace_path};
use crate::failure::{Failure, Result};
use clap::Args;
use inkstone::Error;
use inkstone::internals::catalog::{CATALOG_SPACE, CATALOG_TREE, TableDefinition};
use inkstone_bench::output::{Output, TextTable, bytes, count};
use inkstone_format::header::{PageType, check_page, page_type};
use inkstone_format::space::root;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Corrupt, PageId, PageNo};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `inspect catalog`.
#[derive(Args, Debug)]
#[command(long_about = "\
Show which tables there are: tablespace, file, trees and the root page of each.

The catalog is read from its file, without opening the database and without changing anything. If the \
database was not closed in order (it was killed, or is in use), what was created, dropped or renamed \
last may be in the log only; the output says so. `recover` or `stat` bring it up to date.")]
pub struct CatalogArguments {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Levels that a tree can have at most.
const HEIGHT_MAX: usize = 64;

pub fn run(arguments: &CatalogArguments, output: &Output) -> Result<()> {
    let directory = Directory::open(&arguments.directory)?;
    let catalog = Walk {
        directory: &directory,
    };
    let header = catalog.page(PageNo(0))?;
    let root_page = root(&header, CATALOG_TREE)
        .ok_or_else(|| catalog.corrupt(PageNo(0), Corrupt::at(64, "no root of the catalog")))?;
    let mut tables = Vec::new();
    catalog.walk(root_page, HEIGHT_MAX, &mut tables)?;
    let clean = directory.control.clean_shutdown;
    if !clean {
        output.text("not closed in order: what changed last may be in the log only (see --help)");
    }
    let mut text = TextTable::new([
        "table",
        "space",
        "file",
        "size",
        "pages",
        "trees (root page)",
    ]);
    let mut list = Vec::new();
    for table in &tables {
        let path = tablespace_path(&directory.path, table.space);
        let size = directory.space_bytes(table.space).ok();
        let pages = directory.space_pages(table.space).ok();
        let header = pages.and_then(|_| directory.read_pages(table.space, 0, 1).ok());
        let roots = table.trees.iter().map(|(id, name)| {
            let page = header.as_deref().and_then(|page| root(page, *id));
            (id.0, name.clone(), page.map(|page| page.0))
        });
        let roots: Vec<_> = roots.collect();
        let shown: Vec<String> = roots
            .iter()
            .map(|(_, name, page)| match page {
                Some(page) => format!("{name} ({page})"),
                None => format!("{name} (?)"),
            })
            .collect();
        text.row([
            table.name.clone(),
            table.space.to_string(),
            path.file_name()
                .map_or(String::new(), |n| n.to_string_lossy().into_owned()),
            size.map_or("missing".to_owned(), bytes),
            pages.map_or(String::new(), count),
            shown.join(", "),
        ]);
        list.push(json!({
            "table": table.name,
            "space": table.space.0,
            "file": path.display().to_string(),
            "bytes": size,
            "pages": pages,
            "trees": roots.iter().map(|(id, name, page)| {
                let layout = table.layouts.iter().find(|(tree, _)| tree.0 == *id);
                let layout = layout.map(|(_, layout)| layout);
                json!({ "tree": id, "name": name, "root": page, "layout": layout })
            }).collect::<Vec<_>>(),
        }));
    }
    text.print(output);
    output.json(&json!({ "clean_shutdown": clean, "tables": list }));
    Ok(())
}

/// Reads the catalog's tree page by page.
struct Walk<'d> {
    directory: &'d Directory,
}

impl Walk<'_> {
    fn corrupt(&self, page: PageNo, corrupt: Corrupt) -> Failure {
        let file = tablespace_path(&self.directory.path, CATALOG_SPACE);
        Failure::Engine(Error::corrupt_page(
            &file,
            PageId::new(CATALOG_SPACE, page),
            corrupt,
        ))
    }

    fn page(&self, page: PageNo) -> Result<Vec<u8>> {
        let bytes = self
            .directory
            .read_pages(CATALOG_SPACE, u64::from(page.0), 1)?;
        check_page(&bytes, PageId::new(CATALOG_SPACE, page)).map_err(|c| self.corrupt(page, c))?;
        Ok(bytes)
    }

    fn walk(&self, page: PageNo, depth: usize, tables: &mut Vec<TableDefinition>) -> Result<()> {
        let bytes = self.page(page)?;
        let kind = page_type(&bytes);
        if depth == 0 || !matches!(kind, Some(PageType::Leaf | PageType::Inner)) {
            return Err(self.corrupt(
                page,
                Corrupt::at(12, "this is no page of the catalog's tree"),
            ));
        }
        let tree = TreePage(&bytes);
        tree.check().map_err(|c| self.corrupt(page, c))?;
        for slot in 0..tree.count() {
            if !tree.is_leaf() {
                self.walk(tree.child(slot), depth - 1, tables)?;
                continue;
            }
            let cell = tree.cell(slot);
            if cell.is_deleted() {
                continue;
            }
            let value = self.value(&cell)?;
            let table = TableDefinition::decode(&tree.key(slot), &value);
            tables.push(table.map_err(|c| self.corrupt(page, c))?);
        }
        Ok(())
    }

    /// A definition; a long one lies in a chain of pages.
    fn value(&self, cell: &inkstone_format::tree_page::Cell<'_>) -> Result<Vec<u8>> {
        let Some((length, first)) = cell
            .is_overflow()
            .then(|| super::page::long_value(cell.value))
            .flatten()
        else {
            return Ok(cell.value.to_vec());
        };
        let (mut value, mut next) = (Vec::new(), PageNo(first));
        while next != PageNo(0) && (value.len() as u64) < length {
            let page = self.page(next)?;
            let word =
                |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap_or([0; 4]));
            let end = 32 + word(28) as usize;
            let part = page.get(32..end).filter(|part| !part.is_empty());
            let part =
                part.ok_or_else(|| self.corrupt(next, Corrupt::at(28, "impossible length")))?;
            value.extend_from_slice(part);
            next = PageNo(word(24));
        }
        Ok(value)
    }
}
