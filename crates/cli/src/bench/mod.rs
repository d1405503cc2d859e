//! stub
use clap::Subcommand;
use crate::failure::Result;
use crate::output::Output;
#[derive(Debug, Subcommand)]
pub enum Workload { /// x
 X }
pub fn run(_: &Workload, _: &Output) -> Result<()> { Ok(()) }
