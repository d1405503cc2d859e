//! Long campaigns: `sim --seed S --runs N [--keep-going] [--trace] [--cycles C]`, and with
//! `--fault KIND --nth K --error E --times T` a run in which an operation on the disk fails.
//! `--mutant NAME` switches a deliberate bug on.

use inkstone_io::sim::{Fault, OpKind};
use inkstone_testkit::campaign;
use inkstone_testkit::driver::{Marks, Plan};
use inkstone_testkit::faults;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let text = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        text(name).map_or(default, |text| text.parse().expect("a number"))
    };
    if let Some(name) = text("--mutant") {
        inkstone::mutants::switch_on(&name).expect("a mutant");
    }
    let (seed, runs) = (number("--seed", 1), number("--runs", 100));
    let (begin, mut marks, mut failed) = (Instant::now(), Marks::default(), 0);
    for seed in seed..seed + runs {
        let (seen, result) = match text("--fault") {
            Some(kind) => {
                let kinds = OpKind::ALL.into_iter();
                let mut kind = kinds.filter(|k| format!("{k:?}").eq_ignore_ascii_case(&kind));
                let fault = match text("--error").as_deref() {
                    Some("Enospc") => Fault::Enospc,
                    Some("ShortWrite") => Fault::ShortWrite,
                    _ => Fault::Eio,
                };
                let kind = kind.next_back().expect("a kind of operation");
                let (nth, times) = (number("--nth", 1), number("--times", 1));
                faults::run(seed, kind, nth, fault, times, flag("--trace"))
            }
            None => campaign::run(Plan {
                trace: flag("--trace"),
                cycles: number("--cycles", 5),
                ..Plan::of_seed(seed)
            }),
        };
        marks.merge(&seen);
        marks.add("runs", 1);
        if let Err(text) = result {
            failed += 1;
            println!("FAILED seed {seed}: {text}");
            if !flag("--keep-going") {
                break;
            }
        }
    }
    for (name, count) in &marks.0 {
        println!("{count:>12}  {name}");
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{failed} failed, {seconds:.1} s");
    std::process::exit(i32::from(failed > 0));
}
