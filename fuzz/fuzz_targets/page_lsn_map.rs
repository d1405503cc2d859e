#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inkstone_testkit::fuzz::run("page_lsn_map", data));
