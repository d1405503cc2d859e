//! One operation of the engine, many times: what `cargo xtask counts` runs under valgrind.

use clap::Parser;
use inkstone::internals::options::IoBackend;
use inkstone_testkit::operations::{Bench, Client, Operation};
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
    let arguments = Arguments::parse();
    let done = tempfile::tempdir().map_err(|error| error.to_string());
    let done = done.and_then(|directory| {
        // valgrind knows no io_uring.
        Bench::new(directory.path(), arguments.rows, IoBackend::Posix)
            .and_then(|bench| bench.run(arguments.operation, arguments.times, Client::ALONE))
            .map_err(|error| error.to_string())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operations: {error}");
            ExitCode::FAILURE
        }
    }
}
