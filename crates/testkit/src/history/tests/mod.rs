//! The checker's own tests: histories made by hand, and serial ones into which something is put.

mod by_hand;
mod injected;

use super::{Action, Class, End, History, Key, Op, Outcome, Range, ScanKind, State, Txn, check};
use inkstone::{Durability, Isolation};
use std::collections::BTreeSet;

pub(super) const X: Key = Key::List(1);
pub(super) const Y: Key = Key::List(2);
pub(super) const R: Key = Key::Register(1);

pub(super) fn read(key: Key, value: &[u64]) -> Action {
    Action::Read {
        key,
        value: value.to_vec(),
        locking: false,
    }
}

pub(super) fn write(key: Key, value: &[u64]) -> Action {
    Action::Write {
        key,
        value: value.to_vec(),
    }
}

pub(super) fn row(id: u64) -> Key {
    Key::Row { range: 0, id }
}

pub(super) fn scan_rows(ids: &[u64]) -> Action {
    Action::Scan {
        range: Range::Rows(0),
        found: ids.iter().map(|&id| (row(id), vec![id])).collect(),
        kind: ScanKind::Plain,
    }
}

pub(super) fn scan_lists(x: &[u64], y: &[u64]) -> Action {
    let both = [(X, x.to_vec()), (Y, y.to_vec())];
    Action::Scan {
        range: Range::Lists(1, 3),
        found: both.into_iter().filter(|(_, v)| !v.is_empty()).collect(),
        kind: ScanKind::Plain,
    }
}

/// A transaction that overlaps with all others made so.
pub(super) fn txn(actions: Vec<Action>) -> Txn {
    let ops = actions.into_iter().map(|action| Op { at: 500, action });
    Txn {
        client: 0,
        level: Isolation::Serializable,
        begin: 1,
        ops: ops.collect(),
        outcome: Outcome::Committed {
            at: 1000,
            durability: Durability::Lazy,
        },
    }
}

pub(super) fn aborted(actions: Vec<Action>) -> Txn {
    Txn {
        outcome: Outcome::Aborted("test".to_owned()),
        ..txn(actions)
    }
}

/// After a power loss that took everything.
pub(super) fn history(level: Isolation, txns: Vec<Txn>) -> History {
    let at_level = |txn| Txn { level, ..txn };
    History {
        initial: State::new(),
        txns: txns.into_iter().map(at_level).collect(),
        end: End::PowerLoss,
        last: State::new(),
    }
}

pub(super) fn classes(history: &History) -> BTreeSet<Class> {
    check(history).classes()
}

pub(super) fn violations(history: &History) -> Vec<String> {
    check(history)
        .violations()
        .map(ToString::to_string)
        .collect()
}
