//! Every target: its work has its name, and is in `crates/testkit/src/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    inkstone_testkit::fuzz::run(env!("CARGO_BIN_NAME"), data)
});
