//! How pages lie in their file: what `bench update` and `bench cold` compare.

use crate::failure::{Failure, Result};
use inkstone::internals::options::{Doublewrite, PageCompression, PagePlacement};
use inkstone::internals::store::space_file_name;
use inkstone::{Database, Options};
use std::path::{Path, PathBuf};

/// A database of one of them, with its table.
pub struct Loaded {
    pub directory: PathBuf,
    /// The table's.
    pub file: PathBuf,
    pub options: Options,
}

/// Options that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Layout {
    /// Each page at its own place, behind a copy
    InPlace,
    /// Each page at its own place, with doublewrite=off
    DoublewriteOff,
    /// Each image to free space
    Placed,
    /// The same, compressed with LZ4
    PlacedLz4,
    /// The same, compressed with Zstandard
    PlacedZstd,
}

impl Layout {
    fn over(self, mut options: Options) -> Options {
        (options.page_placement, options.page_compression) = match self {
            Self::InPlace | Self::DoublewriteOff => (PagePlacement::InPlace, PageCompression::None),
            Self::Placed => (PagePlacement::Placed, PageCompression::None),
            Self::PlacedZstd => (PagePlacement::Placed, PageCompression::Zstd),
            Self::PlacedLz4 => (PagePlacement::Placed, PageCompression::Lz4),
        };
        if self == Self::DoublewriteOff {
            options.doublewrite = Doublewrite::Off;
        }
        options
    }
}

/// The options of each layout; of none named, those that there are.
pub fn options_of(layouts: &[Layout], base: &Options) -> Vec<Options> {
    if layouts.is_empty() {
        return vec![base.clone()];
    }
    let each = layouts.iter().map(|layout| layout.over(base.clone()));
    each.collect()
}

/// The file of the table `t`.
pub fn file_of(db: &Database, directory: &Path) -> Result<PathBuf> {
    let definitions = db.definitions()?;
    let table = definitions.iter().find(|table| table.name == "t");
    let table = table.ok_or_else(|| Failure::Check("the table is gone".to_owned()))?;
    Ok(directory.join(space_file_name(table.space)))
}

/// What the options amount to.
pub fn name_of(options: &Options) -> String {
    match (options.page_placement, options.page_compression) {
        (PagePlacement::Placed, PageCompression::None) => "placed".to_owned(),
        (PagePlacement::Placed, compression) => format!("placed_{compression}"),
        (PagePlacement::InPlace, _) if options.doublewrite == Doublewrite::Off => {
            "doublewrite_off".to_owned()
        }
        (PagePlacement::InPlace, _) => "in_place".to_owned(),
    }
}

/// Bytes of a table's file, and of its place map.
pub fn file_bytes(file: &Path) -> u64 {
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    bytes(file) + bytes(&file.with_extension("places"))
}
