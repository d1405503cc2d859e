//! Operations on the disk fail, and bytes on it change: the engine gives an error or stops, and
//! loses nothing.
//!
//! [`every`] is complete over a fixed piece of work, [`damage`] over the bytes that it leaves, what
//! is undamaged of which can be [`salvaged`];
//! [`huge`] has files of terabytes and page numbers near the end; in [`lasting`] whole files fail
//! for as long as it lasts, in [`full`] the disk is full under tables larger than the pool, in
//! [`unused`] under a database that rests, in [`handles`] there are more tables than handles, in
//! [`around`] the control file is replaced or memory is limited from outside, in [`processes`] real
//! ones have budgets; the functions here let one operation of a random run fail. [`known`] are the
//! known bugs that are not fixed yet.

mod after;
pub mod around;
pub mod damage;
pub mod every;
pub mod figure;
pub mod forged;
pub mod full;
pub mod handles;
pub mod huge;
pub mod known;
pub mod lasting;
pub mod processes;
pub mod report;
pub mod salvaged;
pub mod session;
mod trial;
pub mod unused;
pub mod work;

use crate::campaign::{repeat_fault_line, watched};
use crate::driver::{Features, Marks, Plan};
use crate::schedule;
use inkstone_io::sim::{Fault, FaultRule, OpKind};

/// The plan in which the `nth` operation of a kind fails.
pub fn plan(seed: u64, kind: OpKind, nth: u64, fault: Fault, times: u64) -> Plan {
    Plan {
        cycles: 2,
        features: Features {
            heavy: false,
            giant: false,
            ..Features::of_seed(seed)
        },
        steps_max: 120,
        fault: Some(FaultRule {
            kind: Some(kind),
            path_contains: String::new(),
            nth,
            times,
            fault,
        }),
        ..Plan::of_seed(seed)
    }
}

/// Runs it.
pub fn run(
    seed: u64,
    kind: OpKind,
    nth: u64,
    fault: Fault,
    times: u64,
    trace: bool,
) -> (Marks, Result<(), String>) {
    let plan = Plan {
        trace,
        ..plan(seed, kind, nth, fault, times)
    };
    let line = repeat_fault_line(seed, kind, nth, fault, times);
    let (marks, result) = watched(&line, || schedule::run(plan));
    let result = result.map_err(|text| {
        format!("seed {seed}, operation {nth} of {kind:?} fails with {fault:?}: {text}\n  repeat: {line}")
    });
    (marks, result)
}
