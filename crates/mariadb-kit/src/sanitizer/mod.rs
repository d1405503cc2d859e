//! `--sanitize`: the handler built with AddressSanitizer and UndefinedBehaviorSanitizer, in a stock
//! server that loads the former's runtime before anything else.
//!
//! The server and the engine are not instrumented. All their memory still comes from
//! AddressSanitizer's allocator, and what they have the C library do (`memcpy`, `strlen`, ...) is
//! checked; so the handler's own code is checked fully, and memory that crosses the C boundary is
//! checked where either side copies it.
//!
//! Reports go to files, one for each process, and are judged at the end: a report counts whatever
//! the server made of it.

mod reports;

use super::apt::output;
use super::plugin::{Plugin, compiler};
use super::server::{Server, run_folder};
use super::tree::Tree;
use inkstone_testkit::build::{Result, root};
use reports::Reports;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the handler is compiled with besides.
pub const COMPILE: [&str; 5] = [
    "-fsanitize=address,undefined",
    // The server's headers must be those that the stock server was built with: else they mark
    // memory as gone that the server goes on to use.
    "-U__SANITIZE_ADDRESS__",
    // A first report must not hide the others.
    "-fsanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-O1",
];

/// What it is linked with besides. Each library has a runtime of its own for undefined behaviour:
/// as shared libraries the two runtimes share a function, and then that one does not learn where
/// its reports go.
pub const LINK: [&str; 3] = [
    "-fsanitize=address,undefined",
    "-static-libubsan",
    "-Wl,--exclude-libs,libubsan.a",
];

/// Functions of `probe.cc`, each with what its report must say.
const PROBES: [(&str, &str); 3] = [
    ("probe_overflow", "signed integer overflow"),
    ("probe_copy", "heap-buffer-overflow"),
    ("probe_read", "heap-buffer-overflow"),
];

/// AddressSanitizer's runtime, and where reports go in this run of the command.
pub struct Sanitizer {
    runtime: PathBuf,
    reports: Reports,
}

impl Sanitizer {
    /// Finds the compiler's runtime.
    pub fn begin(compiler: &Path) -> Result<Self> {
        Ok(Self {
            runtime: runtime(compiler, "libasan.so")?,
            reports: Reports::begin(&run_folder("reports"))?,
        })
    }

    /// The runtime that the server must load before any other library.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Environment of a server that loads the plugin.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let common = "symbolize=1:print_stacktrace=1:disable_coredump=1";
        vec![
            ("LD_PRELOAD", self.runtime.display().to_string()),
            (
                "ASAN_OPTIONS",
                format!(
                    // The server leaves memory to the end of the process.
                    "log_path={}:{common}:detect_leaks=0:abort_on_error=1:strict_string_checks=1:\
                     detect_stack_use_after_return=1:quarantine_size_mb=64",
                    self.reports.of("address").display()
                ),
            ),
            (
                "UBSAN_OPTIONS",
                format!(
                    "log_path={}:{common}:report_error_type=1",
                    self.reports.of("undefined").display()
                ),
            ),
        ]
    }

    /// Shows that mistakes in a plugin are reported: each of `probe.cc` must be. A check that could
    /// not fail would be worth nothing.
    pub fn prove(&self, tree: &Tree, plugin: &Plugin) -> Result<()> {
        build_probe(tree, plugin)?;
        let mut server = Server::temporary(tree, "probe").with_plugin(plugin);
        for (function, expected) in PROBES {
            server.start()?;
            server.sql(&format!(
                "CREATE OR REPLACE FUNCTION {function} RETURNS INTEGER SONAME 'probe.so'"
            ))?;
            // A server that AddressSanitizer ends gives no answer.
            let _ = server.sql(&format!("SELECT {function}()"));
            server.kill();
            let found = self.reports.take()?;
            if !found.contains(expected) || !found.contains(function) {
                return Err(format!(
                    "the sanitizers do not report the mistake of {function} ({expected}), so they would \
                     not report others; they say: {found:?}"
                ));
            }
        }
        server.remove();
        eprintln!(
            "the sanitizers report each mistake of {}",
            probe().display()
        );
        Ok(())
    }

    /// Prints the reports; any makes the result a failure.
    pub fn finish(&self, result: Result<ExitCode>) -> Result<ExitCode> {
        match self.reports.print()? {
            0 => result,
            _ => result.and(Ok(ExitCode::FAILURE)),
        }
    }
}

/// The file of a runtime, as the compiler knows it.
fn runtime(compiler: &Path, name: &str) -> Result<PathBuf> {
    let printed = output(Command::new(compiler).arg(format!("-print-file-name={name}")))?;
    let path = PathBuf::from(printed.trim());
    // The compiler repeats a name that it does not know.
    path.canonicalize()
        .ok()
        .filter(|_| path.is_absolute())
        .ok_or_else(|| {
            format!(
                "{} has no {name}: --sanitize needs gcc's",
                compiler.display()
            )
        })
}

fn probe() -> PathBuf {
    root().join("crates/mariadb-kit/src/sanitizer/probe.cc")
}

fn build_probe(tree: &Tree, plugin: &Plugin) -> Result<()> {
    let mut compiler = compiler(tree, true);
    compiler.args(LINK).arg("-shared").arg(probe());
    compiler.arg("-o").arg(plugin.folder().join("probe.so"));
    output(&mut compiler).map(drop)
}
