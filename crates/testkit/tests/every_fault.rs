//! A sample of `cargo xtask faults`: operations on the disk fail, and bytes on it change.

use inkstone_io::sim::{Fault, OpKind};
use inkstone_testkit::faults::damage::{self, Finding, Part, What};
use inkstone_testkit::faults::every::{self, Case, Consequence, Series};
use inkstone_testkit::faults::report::{Budget, Report};
use inkstone_testkit::faults::salvaged;
use inkstone_testkit::faults::work::{self, Life};
use std::process::Command;

fn sampled(stride: u64) -> Report {
    Report::new(Budget {
        time: None,
        stride,
        cases: u64::MAX,
        keep_going: true,
    })
}

#[test]
fn operations_that_fail_lose_nothing() {
    let starts = work::starts().unwrap();
    let mut report = sampled(37);
    for kind in OpKind::ALL {
        report.kind(&starts, kind);
    }
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

/// Of a torn page there is one copy, which is read twice: to see whether it is whole, and to be put
/// in place. What the second read gave was not looked at; and a header of copies, or a page in
/// place, that was read as it had been before counted as what is there.
#[test]
fn a_copy_that_is_misread_is_not_put_in_place() {
    let starts = work::starts().unwrap();
    let mut broken = Vec::new();
    let faults = [(Fault::FlippedBit, 4), (Fault::WrongPlace, 4)];
    for (fault, times) in faults.into_iter().chain([(Fault::Stale, 1)]) {
        let series = Series {
            life: Life::AfterTear,
            kind: OpKind::Read,
            fault,
            times,
        };
        for nth in 1..160 {
            broken.extend(every::run(&starts, Case { series, nth }).err());
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn damage_is_found_or_repaired() {
    let starts = work::starts().unwrap();
    let mut report = sampled(41);
    report.damage(&starts, &damage::IN_PLACE);
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

#[test]
fn damage_of_placed_tables_is_found_or_harmless() {
    let starts = work::starts().unwrap();
    let mut report = sampled(41);
    report.damage(&starts, &damage::PLACED);
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

/// With `damage_is_found_or_repaired`, more of the kind: every page of a closed database.
#[test]
fn what_is_undamaged_is_salvaged() {
    let starts = work::starts().unwrap();
    let all = damage::all(&starts, Life::Work).unwrap();
    // A page of zeroes is none that verifying finds fault with, once it is free.
    let hit = all.iter().filter(|damage| match damage.what {
        What::Zeroed(_) => true,
        What::FlippedBit(at) => at % 4096 == 1500,
        _ => false,
    });
    let pages = hit.filter(|damage| matches!(damage.part(), Part::Catalog | Part::Data));
    let mut broken = Vec::new();
    let mut count = 0;
    for damage in pages {
        count += 1;
        broken.extend(damage::run(&starts, damage).err());
    }
    assert!(count > 20, "{count}");
    assert!(
        broken.is_empty(),
        "{} of {count}: {broken:#?}",
        broken.len()
    );
}

/// With `damage_is_found_or_repaired`, more of the kind: the file that has what undoes a
/// transaction and a prepared one, after a kill.
#[test]
fn a_damaged_undo_file_is_refused_and_the_rest_salvaged() {
    let starts = work::starts().unwrap();
    let all = damage::all(&starts, Life::AfterKill).unwrap();
    let undo = all.iter().filter(|damage| damage.part() == Part::Undo);
    let (mut broken, mut found, mut count) = (Vec::new(), 0, 0);
    for damage in undo.enumerate().filter(|(n, damage)| {
        let is_bit = matches!(damage.what, What::FlippedBit(_));
        !is_bit || n % 9 == 0
    }) {
        count += 1;
        match damage::run(&starts, damage.1) {
            Ok(Finding::NoneLeft) => {}
            Ok(_) => found += 1,
            Err(text) => broken.push(text),
        }
    }
    assert!(found > 20, "{found} of {count}: {broken:#?}");
    assert!(
        broken.is_empty(),
        "{} of {count}: {broken:#?}",
        broken.len()
    );
}

#[test]
fn a_whole_database_is_left_as_it_is() {
    let starts = work::starts().unwrap();
    let lives = Life::ALL.into_iter().zip(&starts);
    for (_, start) in lives.filter(|(life, _)| !life.is_creation()) {
        salvaged::leaves_alone(start).unwrap();
    }
}

#[test]
fn files_that_fail_for_as_long_as_it_lasts_lose_nothing() {
    let starts = work::starts().unwrap();
    let mut report = sampled(13);
    report.lasting(&starts);
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

#[test]
fn more_tables_than_handles_lose_nothing() {
    let mut report = sampled(5);
    report.handles();
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

#[test]
fn what_is_around_the_process_may_change() {
    let starts = work::starts().unwrap();
    let mut report = sampled(1);
    report.around(&starts);
    assert!(report.is_clean(), "{report}{:#?}", report.broken);
}

#[test]
fn real_processes_keep_to_their_budgets() {
    for case in ["descriptors/64/150", "loser/60000"] {
        let case = format!("processes/{case}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_faults"));
        let output = command.args(["--case", &case]).output().unwrap();
        let (said, errors) = (output.stdout, output.stderr);
        let said = [said, errors].concat();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
}

/// Opening wrote the last block of the log again, with bytes that it had read for that purpose and
/// not verified: wrong bytes, read once, became wrong bytes on disk, in durable log.
#[test]
fn a_wrong_read_of_the_logs_last_block_is_not_written_back() {
    every_read(Life::Work, Fault::WrongPlace);
}

/// A tablespace whose header could not be read at first, and could at the second look, stayed out
/// of use, and changes of unfinished and prepared transactions in it were not undone.
#[test]
fn a_wrong_read_of_a_tablespace_header_forgets_no_undo() {
    every_read(Life::AfterKill, Fault::FlippedBit);
}

fn every_read(life: Life, fault: Fault) {
    let starts = work::starts().unwrap();
    let (kind, times) = (OpKind::Read, 1);
    let series = Series {
        life,
        kind,
        fault,
        times,
    };
    for nth in 1.. {
        match every::run(&starts, Case { series, nth }) {
            Ok(Consequence::NoSuchOperation) => return assert!(nth > 50),
            Ok(_) => {}
            Err(broken) => panic!("{}", broken.text),
        }
    }
}

/// With `damage_is_found_or_repaired`, more of the kind: the file from which opening begins.
#[test]
fn nonsense_under_a_checksum_that_fits_is_an_error() {
    let starts = work::starts().unwrap();
    let all = damage::all(&starts, Life::Work).unwrap();
    let of_control = |damage: &&damage::Damage| {
        matches!(damage.what, What::Forged(_)) && damage.part() == Part::Control
    };
    let (mut broken, mut refused) = (Vec::new(), 0);
    for damage in all.iter().filter(of_control) {
        match damage::run(&starts, damage) {
            Ok(finding) => refused += u64::from(finding == Finding::OnOpening),
            Err(text) => broken.push(text),
        }
    }
    assert!(refused > 20, "{refused}");
    assert!(broken.is_empty(), "{}: {broken:#?}", broken.len());
}
