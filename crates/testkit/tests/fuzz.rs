//! Every fuzz target with all its seeds, with all inputs that once failed, and with random bytes.

use inkstone_testkit::Rng;
use inkstone_testkit::fuzz::campaign::kept_inputs;
use inkstone_testkit::fuzz::{TARGETS, Target};
use std::time::{Duration, Instant};

/// How long each target gets random bytes.
const RANDOM: Duration = Duration::from_secs(2);

/// Runs an input; a panic names it. (An abort of the engine shows it as the last line of output.)
fn run(target: &Target, name: &str, bytes: &[u8]) {
    let result = std::panic::catch_unwind(|| (target.run)(bytes));
    assert!(
        result.is_ok(),
        "target {} fails with input {name}: {bytes:02x?}",
        target.name
    );
}

#[test]
fn each_target_is_in_the_table_of_programs() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let rows = manifest.split("[[bin]]").skip(1);
    let mut listed: Vec<&str> = rows
        .map(|row| row.split('"').nth(1).expect("a name in quotation marks"))
        .collect();
    let mut targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    listed.sort_unstable();
    targets.sort_unstable();
    assert_eq!(listed, targets);
}

#[test]
fn kept_inputs_do_not_fail() {
    for target in TARGETS {
        let inputs = kept_inputs(target).unwrap();
        assert!(!inputs.is_empty(), "{} has no seeds", target.name);
        let begin = Instant::now();
        for (name, bytes) in &inputs {
            assert!(bytes.len() <= target.input_max, "{name} is too long");
            run(target, name, bytes);
        }
        println!(
            "{}: {} inputs in {:?}",
            target.name,
            inputs.len(),
            begin.elapsed()
        );
    }
}

/// Random bytes alone, and seeds with some bytes changed.
#[test]
fn random_bytes_do_not_fail() {
    for target in TARGETS {
        let (seeds, mut rng) = ((target.seeds)(), Rng::new(1));
        let (begin, mut runs) = (Instant::now(), 0);
        while begin.elapsed() < RANDOM {
            runs += 1;
            let mut bytes: Vec<u8> = if runs % 4 == 0 {
                let length = rng.skewed(target.input_max as u64);
                (0..length).map(|_| rng.next() as u8).collect()
            } else {
                seeds[rng.below(seeds.len() as u64) as usize].1.clone()
            };
            for _ in 0..rng.below(4) {
                if let Some(at) = bytes.len().checked_sub(1) {
                    let at = rng.below(at as u64 + 1) as usize;
                    bytes[at] = rng.pick(&[0, 1, 0x7f, 0x80, 0xff, rng.clone().next() as u8]);
                }
            }
            run(target, &format!("random {runs}"), &bytes);
        }
        println!("{}: {runs} random inputs", target.name);
    }
}
