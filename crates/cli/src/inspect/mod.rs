//! `inspect`: pages, log, catalog and control file, read straight from the files.
//!
//! Nothing here opens the database, takes its lock or changes a byte, so it may also be used on a
//! database that is in use or that does not open any more. What is only in memory or in the log
//! is then not in the pages that it shows.

mod catalog;
mod control;
mod log;
mod page;
pub mod read;
mod records;
pub mod show;

use crate::failure::Result;
use clap::Subcommand;
use inkstone_bench::output::Output;

/// What to look at.
#[derive(Debug, Subcommand)]
pub enum What {
    /// One page: header, checksum, and all that it holds
    Page(page::PageArguments),
    /// The redo log, each mini-transaction decoded record by record
    Log(log::LogArguments),
    /// Which tables there are, and where
    Catalog(catalog::CatalogArguments),
    /// Both copies of the control file
    Control(control::ControlArguments),
}

/// `inkstone inspect`.
pub fn run(what: &What, output: &Output) -> Result<()> {
    match what {
        What::Page(arguments) => page::run(arguments, output),
        What::Log(arguments) => log::run(arguments, output),
        What::Catalog(arguments) => catalog::run(arguments, output),
        What::Control(arguments) => control::run(arguments, output),
    }
}
