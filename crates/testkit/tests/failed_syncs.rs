//! After a failed sync the next process must not trust the page cache. See
//! docs/decisions/0012.

use inkstone::internals::options::FlushMethod;
use inkstone_testkit::campaign::watched;
use inkstone_testkit::driver::Marks;
use inkstone_testkit::failed_sync::restart::{Case, run};

const METHODS: [FlushMethod; 3] = [
    FlushMethod::Fsync,
    FlushMethod::ODsync,
    FlushMethod::ODirect,
];

/// Cases for each kind of file; more with `INKSTONE_SEEDS`.
fn seeds() -> u64 {
    std::env::var("INKSTONE_SEEDS").map_or(84, |text| text.parse().expect("a number"))
}

/// Runs a case for each kind of file.
fn campaign(keeps_cache: bool, methods: &[FlushMethod], seeds: u64) {
    // Log, all tablespaces, the catalog alone, page copies, control file, any.
    for file in ["log/", ".ink", "catalog.ink", "doublewrite", "control", ""] {
        let mut marks = Marks::default();
        for seed in 0..seeds {
            let case = Case {
                seed,
                file,
                nth: 1 + seed / 6 % 7,
                flush_method: methods[(seed % 3) as usize % methods.len()],
                log_file_buffering: seed / 3 % 2 == 0,
                keeps_cache,
            };
            let name = format!("{case:?}");
            let (seen, result) = watched(&name, || run(case));
            marks.merge(&seen);
            result.unwrap_or_else(|text| panic!("{name}: {text}"));
        }
        println!("{file}: {marks:?}");
        for mark in ["poisoned", "failed opens", "crashes while opening", "kills"] {
            assert!(marks.get(mark) > 0, "{file}: no {mark} in {marks:?}");
        }
    }
}

#[test]
fn what_only_the_page_cache_has_is_not_trusted() {
    campaign(false, &METHODS, seeds());
}

/// With unbuffered data files nothing rests on the file system taking an advice.
#[test]
fn unbuffered_files_need_no_advice() {
    campaign(true, &[FlushMethod::ODirect], seeds() / 3);
}
