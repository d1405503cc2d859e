//! One operation of the engine, many times: what `cargo xtask counts` runs under valgrind.

use clap::Parser;
use inkstone::internals::options::IoBackend;
use inkstone_bench::Result;
use inkstone_bench::database::WorkDirectory;
use inkstone_bench::operations::{Bench, Client, Operation};
use std::process::ExitCode;

/// Does an operation of the engine many times.
#[derive(Parser)]
struct Arguments {
    /// The operation
    #[arg(value_enum)]
    operation: Operation,
    /// How many times
    #[arg(long, default_value_t = 2000)]
    times: u64,
    /// Rows of the table
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operations: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let directory = WorkDirectory::fresh_in(&std::env::temp_dir(), "operations")?;
    // valgrind knows no io_uring.
    let bench = Bench::new(directory.path(), arguments.rows, IoBackend::Posix)?;
    Ok(bench.run(arguments.operation, arguments.times, Client::ALONE)?)
}
