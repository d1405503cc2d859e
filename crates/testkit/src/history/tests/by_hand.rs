//! For each class a history that shows it, and one that is nearly the same and does not.

use super::*;
use Isolation::{ReadCommitted, RepeatableRead, Serializable};

/// The class is found in the first history, at the levels that forbid it as a violation, and not in
/// the second.
fn case(class: Class, bad: Vec<Txn>, good: Vec<Txn>) {
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        let bad = history(level, bad.clone());
        let found = classes(&bad);
        assert!(found.contains(&class), "{level:?}: {found:?}");
        let forbidden = super::super::forbidden(Some(level), class);
        let named = format!("{}:", class.name());
        let violations = violations(&bad);
        let reported = violations.iter().any(|text| text.starts_with(&named));
        assert_eq!(reported, forbidden, "{level:?}: {violations:?}");
        let good = history(level, good.clone());
        assert_eq!(
            violations_and(&good, class),
            Vec::<String>::new(),
            "{level:?}"
        );
    }
}

fn violations_and(history: &History, class: Class) -> Vec<String> {
    let anomalies = check(history).anomalies.into_iter();
    let mut found = violations(history);
    found.extend(
        anomalies
            .filter(|a| a.class == class)
            .map(|a| a.to_string()),
    );
    found
}

#[test]
fn g0_dirty_write() {
    case(
        Class::G0,
        vec![
            txn(vec![write(X, &[1]), write(Y, &[4, 3])]),
            txn(vec![write(X, &[1, 2]), write(Y, &[4])]),
        ],
        vec![
            txn(vec![write(X, &[1]), write(Y, &[3])]),
            txn(vec![write(X, &[1, 2]), write(Y, &[3, 4])]),
        ],
    );
}

#[test]
fn g1a_aborted_read() {
    let reads = || txn(vec![read(X, &[1])]);
    case(
        Class::G1a,
        vec![aborted(vec![write(X, &[1])]), reads()],
        vec![txn(vec![write(X, &[1])]), reads()],
    );
    let undoes = |after| {
        let undone = [Action::Savepoint, write(X, &[1]), Action::RollBack];
        txn(undone.into_iter().chain(after).collect())
    };
    case(
        Class::G1a,
        vec![undoes(vec![]), reads()],
        vec![undoes(vec![write(X, &[2])]), txn(vec![read(X, &[2])])],
    );
}

#[test]
fn g1b_intermediate_read() {
    let writes = || txn(vec![write(X, &[1]), write(X, &[1, 2])]);
    case(
        Class::G1b,
        vec![writes(), txn(vec![read(X, &[1])])],
        vec![writes(), txn(vec![read(X, &[1, 2])])],
    );
    let sets = || txn(vec![write(R, &[1]), write(R, &[2])]);
    case(
        Class::G1b,
        vec![sets(), txn(vec![read(R, &[1])])],
        vec![sets(), txn(vec![read(R, &[2])])],
    );
}

#[test]
fn g1c_circular_information_flow() {
    case(
        Class::G1c,
        vec![
            txn(vec![write(X, &[1]), read(Y, &[2])]),
            txn(vec![write(Y, &[2]), read(X, &[1])]),
        ],
        vec![
            txn(vec![write(X, &[1]), read(Y, &[])]),
            txn(vec![write(Y, &[2]), read(X, &[1])]),
        ],
    );
}

#[test]
fn g_single_read_skew() {
    let writes = || txn(vec![write(X, &[1]), write(Y, &[2])]);
    for (x, y) in [(&[][..], &[2][..]), (&[1], &[])] {
        case(
            Class::GSingle,
            vec![writes(), txn(vec![read(X, x), read(Y, y)])],
            vec![writes(), txn(vec![read(X, &[1]), read(Y, &[2])])],
        );
    }
    // Through a register, whose order is known because the writer had read it first.
    case(
        Class::GSingle,
        vec![
            txn(vec![read(R, &[]), write(R, &[1]), write(Y, &[2])]),
            txn(vec![read(R, &[]), read(Y, &[2])]),
        ],
        vec![
            txn(vec![read(R, &[]), write(R, &[1]), write(Y, &[2])]),
            txn(vec![read(R, &[]), read(Y, &[])]),
        ],
    );
}

#[test]
fn torn_statement_or_snapshot() {
    let writes = || txn(vec![write(X, &[1]), write(Y, &[2])]);
    let bad = history(
        ReadCommitted,
        vec![writes(), txn(vec![scan_lists(&[1], &[])])],
    );
    assert!(violations(&bad)[0].starts_with("torn snapshot:"));
    let good = history(
        ReadCommitted,
        vec![writes(), txn(vec![scan_lists(&[1], &[2])])],
    );
    assert!(violations(&good).is_empty());
    // A transaction that is rolled back in the end was promised its snapshot too.
    let reads = |y: &[u64]| aborted(vec![read(X, &[1]), read(Y, y)]);
    let bad = history(RepeatableRead, vec![writes(), reads(&[])]);
    assert!(violations(&bad)[0].starts_with("torn snapshot:"));
    assert!(violations(&history(RepeatableRead, vec![writes(), reads(&[2])])).is_empty());
}

#[test]
fn lost_update() {
    let update = |before: &[u64], after| txn(vec![read(R, before), write(R, &[after])]);
    case(
        Class::LostUpdate,
        vec![update(&[], 1), update(&[], 2)],
        vec![update(&[], 1), update(&[1], 2)],
    );
}

#[test]
fn long_fork() {
    let writers = || [txn(vec![write(X, &[1])]), txn(vec![write(Y, &[2])])];
    let reader = |x: &[u64], y: &[u64]| txn(vec![read(X, x), read(Y, y)]);
    let with = |readers: [Txn; 2]| writers().into_iter().chain(readers).collect();
    case(
        Class::GNonadjacent,
        with([reader(&[1], &[]), reader(&[], &[2])]),
        with([reader(&[1], &[]), reader(&[1], &[2])]),
    );
}

#[test]
fn g2_write_skew() {
    let skew = |seen: Key, made: Key, element| txn(vec![read(seen, &[]), write(made, &[element])]);
    case(
        Class::G2Item,
        vec![skew(X, Y, 2), skew(Y, X, 1)],
        vec![skew(X, Y, 2), txn(vec![read(Y, &[2]), write(X, &[1])])],
    );
    let predicate = |seen: &[u64], made| txn(vec![scan_rows(seen), write(row(made), &[made])]);
    case(
        Class::G2,
        vec![predicate(&[], 1), predicate(&[], 2)],
        vec![predicate(&[], 1), predicate(&[1], 2)],
    );
}

#[test]
fn a_deleted_row_is_read_after_its_deletion() {
    let born = || txn(vec![write(row(1), &[1])]);
    let dies = || txn(vec![scan_rows(&[1]), write(row(1), &[]), write(X, &[9])]);
    let late = |ids: &[u64]| txn(vec![read(X, &[9]), scan_rows(ids)]);
    case(
        Class::GSingle,
        vec![born(), dies(), late(&[1])],
        vec![born(), dies(), late(&[])],
    );
}

#[test]
fn internal() {
    case(
        Class::Internal,
        vec![txn(vec![write(X, &[1]), read(X, &[])])],
        vec![txn(vec![write(X, &[1]), read(X, &[1])])],
    );
    let undone = |after: &[u64]| {
        let steps = vec![Action::Savepoint, write(X, &[1]), Action::RollBack];
        let reads = [write(X, &[2]), read(X, after)];
        txn(steps.into_iter().chain(reads).collect())
    };
    case(Class::Internal, vec![undone(&[1, 2])], vec![undone(&[2])]);
}

#[test]
fn reads_that_do_not_repeat() {
    let reads = |again: &[u64]| txn(vec![scan_rows(&[]), scan_rows(again)]);
    let writes = || txn(vec![write(row(1), &[1])]);
    for (level, class) in [
        (ReadCommitted, Class::FuzzyRead),
        (RepeatableRead, Class::NotRepeatable),
        (Serializable, Class::NotRepeatable),
    ] {
        let phantom = history(level, vec![writes(), reads(&[1])]);
        assert!(classes(&phantom).contains(&class));
        assert!(classes(&history(level, vec![writes(), reads(&[])])).is_empty());
    }
}

#[test]
fn impossible_lists() {
    let writes = || vec![txn(vec![write(X, &[1])]), txn(vec![write(X, &[1, 2])])];
    let with = |value: &[u64]| {
        let mut txns = writes();
        txns.push(txn(vec![read(X, value)]));
        txns
    };
    case(Class::IncompatibleOrder, with(&[2]), with(&[1]));
    case(Class::Unwritten, with(&[1, 2, 3]), with(&[1, 2]));
    case(Class::Duplicate, with(&[1, 2, 2]), with(&[1, 2]));
}

/// Nothing later may be seen less of, at any level, once it was acknowledged.
#[test]
fn stale_reads() {
    let early = |txn| Txn {
        begin: 1,
        outcome: Outcome::Committed {
            at: 3,
            durability: Durability::Lazy,
        },
        ..txn
    };
    let late = |txn| Txn { begin: 4, ..txn };
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        let story = |seen: &[u64]| {
            let txns = vec![
                early(txn(vec![write(X, &[1])])),
                late(txn(vec![read(X, seen)])),
            ];
            history(level, txns)
        };
        assert!(!violations(&story(&[])).is_empty(), "{level:?}");
        assert!(violations(&story(&[1])).is_empty(), "{level:?}");
    }
}

#[test]
fn what_is_found_after_the_end() {
    let both = || txn(vec![write(X, &[1]), write(Y, &[2])]);
    let after = |x: &[u64], y: &[u64]| {
        let last = [(X, x.to_vec()), (Y, y.to_vec())];
        last.into_iter().filter(|(_, v)| !v.is_empty()).collect()
    };
    let story = |outcome: Outcome, end, last: State| {
        let txns = vec![Txn { outcome, ..both() }];
        violations(&History {
            end,
            last,
            ..history(RepeatableRead, txns)
        })
    };
    let committed = |durability| Outcome::Committed { at: 9, durability };
    // Half a transaction, and all or nothing of it.
    for outcome in [committed(Durability::Lazy), Outcome::Unknown] {
        assert!(!story(outcome.clone(), End::PowerLoss, after(&[1], &[])).is_empty());
        assert!(story(outcome.clone(), End::PowerLoss, after(&[], &[])).is_empty());
        assert!(story(outcome, End::PowerLoss, after(&[1], &[2])).is_empty());
    }
    let aborted = Outcome::Aborted("test".to_owned());
    assert!(!story(aborted, End::PowerLoss, after(&[1], &[2])).is_empty());
    // What each durability promises.
    for (durability, end, kept) in [
        (Durability::Sync, End::PowerLoss, true),
        (Durability::Write, End::PowerLoss, false),
        (Durability::Write, End::Kill, true),
        (Durability::Lazy, End::Kill, false),
        (Durability::Lazy, End::Quiet, true),
    ] {
        let lost = story(committed(durability), end, after(&[], &[]));
        assert_eq!(!lost.is_empty(), kept, "{durability:?} {end:?}: {lost:?}");
    }
}

/// A commit whose outcome was not told may have been none, also where nothing has crashed.
#[test]
fn a_commit_that_may_have_been_none() {
    let story = |outcome: Outcome, last: u64| {
        let later = Txn {
            outcome,
            begin: 4,
            ..txn(vec![read(R, &[1]), write(R, &[2])])
        };
        violations(&History {
            end: End::Quiet,
            last: [(R, vec![last])].into(),
            ..history(ReadCommitted, vec![txn(vec![write(R, &[1])]), later])
        })
    };
    let committed = Outcome::Committed {
        at: 9,
        durability: Durability::Sync,
    };
    for last in [1, 2] {
        let found = story(Outcome::Unknown, last);
        assert!(found.is_empty(), "{last}: {found:?}");
    }
    assert!(story(committed.clone(), 2).is_empty());
    assert!(!story(committed, 1).is_empty());
}

/// If a transaction survives a power loss, so do all those whose work it has seen.
#[test]
fn what_survives_is_a_prefix() {
    let txns = vec![
        txn(vec![write(X, &[1])]),
        txn(vec![read(X, &[1]), write(Y, &[2])]),
    ];
    let last: State = [(Y, vec![2])].into();
    let story = History {
        last,
        ..history(ReadCommitted, txns)
    };
    assert!(violations(&story)[0].starts_with("torn snapshot:"));
}

#[test]
fn a_report_names_transactions_keys_and_values() {
    let story = history(
        Serializable,
        vec![
            txn(vec![read(X, &[]), write(Y, &[2])]),
            txn(vec![read(Y, &[]), write(X, &[1])]),
        ],
    );
    let text = violations(&story).join("\n");
    for part in [
        "G2-item: ",
        "T0 read list 1 at nothing, T1 then wrote 1",
        "T1 read list 2 at nothing, T0 then wrote 2",
        "T0, client 0, Serializable, from 1: committed at 1000 (Lazy)",
        "makes list 2 [2]",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
