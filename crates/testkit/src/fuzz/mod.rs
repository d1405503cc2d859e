//! Fuzz targets: functions that take any bytes and must not panic, hang or allocate without bound.
//!
//! Each target lives here, in the library, so that three users share it: libFuzzer (`fuzz/`, built
//! by `cargo xtask fuzz` with coverage and AddressSanitizer), the tests of every change (all seeds,
//! all inputs that ever failed, and random bytes), and the repetition of one input by hand.
//!
//! | module | target | what the bytes are |
//! |---|---|---|
//! | [`page`] | `page`, `edits` | a tree page; changes of a page, beside a model of it |
//! | [`records`] | `records`, `apply` | payloads of frames; redo records and the page they meet |
//! | [`blocks`] | `control`, `doublewrite`, `space`, `segment`, `page_lsn_map` | blocks with a checksum, which is made to fit |
//! | [`log`] | `frames`, `log` | log as it lies on disk; frames that are written, damaged and read |
//! | [`values`] | `fields`, `codec`, `catalog` | typed keys, packed values, table definitions |
//! | [`model`] | `model` | work on a database, with crashes, beside the reference model |
//! | [`damage`] | `damage` | changes of the files of a database, which is then opened and read |
//! | [`input`] | | bytes as a sequence of choices |
//! | [`campaign`] | | libFuzzer over all targets, and the inputs that are kept |
//!
//! What a target asserts is a promise of the code that it calls. It never asserts on what a fuzzer
//! can forge: with comparisons traced, a checksum is found in seconds.

pub mod blocks;
pub mod campaign;
pub mod damage;
pub mod input;
pub mod log;
pub mod model;
pub mod page;
pub mod records;
pub mod values;

/// A function for fuzzers, and what its runs may take.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also of its program (the table in `fuzz/Cargo.toml`).
    pub name: &'static str,
    /// What the bytes mean and what is checked, in a line.
    pub about: &'static str,
    /// Runs an input. A panic is a finding.
    pub run: fn(&[u8]),
    /// Inputs made from real structures, with names.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
    /// The longest input that is worth trying, bytes.
    pub input_max: usize,
    /// The largest single allocation that a run may make, MiB.
    pub allocation_max_mib: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    page::PAGE,
    page::EDITS,
    records::RECORDS,
    records::APPLY,
    blocks::CONTROL,
    blocks::DOUBLEWRITE,
    blocks::SPACE,
    blocks::SEGMENT,
    blocks::PAGE_LSN_MAP,
    log::FRAMES,
    log::LOG,
    values::FIELDS,
    values::CODEC,
    values::CATALOG,
    model::MODEL,
    damage::DAMAGE,
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs an input of a target.
///
/// # Panics
/// If there is no such target, or if the input shows a bug.
pub fn run(name: &str, data: &[u8]) {
    let target = find(name).unwrap_or_else(|| panic!("there is no fuzz target {name}"));
    (target.run)(data);
}
