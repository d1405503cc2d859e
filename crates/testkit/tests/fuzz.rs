//! Every fuzz target with all its seeds, with all inputs that once failed, and with random bytes.

use inkstone_testkit::Rng;
use inkstone_testkit::fuzz::campaign::kept_inputs;
use inkstone_testkit::fuzz::{TARGETS, Target};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long each target gets random bytes, seconds; `INKSTONE_FUZZ_SECONDS` says otherwise.
const RANDOM_SECONDS: u64 = 2;
/// The seed of the random bytes; `INKSTONE_FUZZ_SEED` says otherwise.
const SEED: u64 = 1;
/// How much longer than its random bytes a target may take before it counts as hanging.
const HANGS: Duration = Duration::from_secs(120);
/// Tells a process that runs a target which one, and where it is to keep its last input.
const CHILD: (&str, &str) = ("INKSTONE_FUZZ_CHILD", "INKSTONE_FUZZ_LAST");

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is {text}, no number")),
        Err(_) => otherwise,
    }
}

/// The targets that `INKSTONE_FUZZ_TARGETS` names, with commas between them; or all.
fn targets() -> Vec<&'static Target> {
    let named = std::env::var("INKSTONE_FUZZ_TARGETS");
    let named: Vec<&str> = named.iter().flat_map(|names| names.split(',')).collect();
    for name in &named {
        assert!(
            inkstone_testkit::fuzz::find(name).is_some(),
            "there is no fuzz target {name}"
        );
    }
    TARGETS
        .iter()
        .filter(|target| named.is_empty() || named.contains(&target.name))
        .collect()
}

/// Where a process keeps its last input, so that it outlives an abort.
struct Last(File);

impl Last {
    fn run(&self, target: &Target, bytes: &[u8]) {
        self.0.write_all_at(bytes, 0).unwrap();
        self.0.set_len(bytes.len() as u64).unwrap();
        (target.run)(bytes);
    }
}

/// The target that this process is to run, if another one of this program has started it.
fn told() -> Option<(&'static Target, Last)> {
    let name = std::env::var(CHILD.0).ok()?;
    let last = std::env::var_os(CHILD.1).expect("a file for the last input");
    let target = inkstone_testkit::fuzz::find(&name).expect("a target");
    Some((target, Last(File::create(last).unwrap())))
}

/// Runs a test of this program for each target in a process of its own. One that panics, aborts or
/// hangs fails the test, which shows the input.
fn each_target_alone(test: &str, at_most: Duration) {
    for target in targets() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{}-{test}-{}", target.name, std::process::id());
        let (last, output) = (folder.join(&name), folder.join(format!("{name}.log")));
        let log = File::create(&output).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD.0, target.name)
            .env(CHILD.1, &last)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let status = wait(child.unwrap(), at_most);
        let said = std::fs::read(&output).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        if !status.is_some_and(|status| status.success()) {
            fails(target, status, &last, &said);
        }
        for line in said.lines().filter(|line| line.starts_with(target.name)) {
            println!("{line}");
        }
        std::fs::remove_file(&last).unwrap();
        std::fs::remove_file(&output).unwrap();
    }
}

/// How a process ended; `None` if it did not, and was killed.
fn wait(mut child: Child, at_most: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < at_most {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn fails(target: &Target, status: Option<ExitStatus>, last: &Path, said: &str) -> ! {
    let bytes = std::fs::read(last).unwrap_or_default();
    let kept = kept_inputs(target).unwrap();
    let name = kept.iter().find(|(_, kept)| *kept == bytes);
    let name = name.map_or("random bytes", |(name, _)| name);
    let how = status.map_or("hangs".to_owned(), |status| status.to_string());
    let tail: Vec<&str> = said.lines().rev().take(40).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    panic!(
        "target {}: {how}\n{}\ninput ({name}): {bytes:02x?}\n  it lies in {}\n  repeat: \
         cargo xtask fuzz --target {0} --input FILE\n  keep:   in fuzz/regressions/{0}/",
        target.name,
        tail.join("\n"),
        last.display()
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
    let Some((target, last)) = told() else {
        return each_target_alone("kept_inputs_do_not_fail", 2 * HANGS);
    };
    let inputs = kept_inputs(target).unwrap();
    assert!(!inputs.is_empty(), "{} has no seeds", target.name);
    let begin = Instant::now();
    for (name, bytes) in &inputs {
        assert!(bytes.len() <= target.input_max, "{name} is too long");
        last.run(target, bytes);
    }
    let (count, time) = (inputs.len(), begin.elapsed());
    println!("\n{}: {count} inputs in {time:?}", target.name);
}

/// Random bytes alone, and kept inputs with some bytes changed.
#[test]
fn random_bytes_do_not_fail() {
    let seconds = Duration::from_secs(number("INKSTONE_FUZZ_SECONDS", RANDOM_SECONDS));
    let Some((target, last)) = told() else {
        return each_target_alone("random_bytes_do_not_fail", seconds + HANGS);
    };
    let seed = number("INKSTONE_FUZZ_SEED", SEED);
    let (kept, mut rng) = (kept_inputs(target).unwrap(), Rng::new(seed));
    let (begin, mut runs) = (Instant::now(), 0);
    while begin.elapsed() < seconds {
        runs += 1;
        let mut bytes: Vec<u8> = if runs % 4 == 0 {
            let length = rng.skewed(target.input_max as u64);
            (0..length).map(|_| rng.next() as u8).collect()
        } else {
            kept[rng.below(kept.len() as u64) as usize].1.clone()
        };
        for _ in 0..rng.below(4) {
            if let Some(at) = bytes.len().checked_sub(1) {
                let at = rng.below(at as u64 + 1) as usize;
                let any = rng.next() as u8;
                bytes[at] = rng.pick(&[0, 1, 0x7f, 0x80, 0xff, any]);
            }
        }
        last.run(target, &bytes);
    }
    println!("\n{}: {runs} random inputs of seed {seed}", target.name);
}

/// The tests above see every end that a process can come to.
#[test]
fn an_abort_and_a_hang_are_seen() {
    let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
    let long = Duration::from_secs(60);
    assert!(wait(shell("true"), long).is_some_and(|status| status.success()));
    assert!(wait(shell("kill -6 $$"), long).is_some_and(|status| !status.success()));
    let short = Duration::from_millis(100);
    assert!(wait(shell("exec sleep 60"), short).is_none());
}
