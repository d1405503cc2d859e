//! Which versions each key had, their writers, and their order.
//!
//! A version has the number of the element that was new in it. The order of a list's versions is
//! the longest one that was seen; each other must be a beginning of it. A row is born and dies. Of
//! a register it is known that what a transaction read precedes what the same one then wrote.

use super::check::{Anomaly, Class};
use super::walk::{Fate, Walked};
use super::{End, History, Key, Outcome, Value};
use std::collections::{HashMap, HashSet};

/// A version's number: the element that was new in it.
pub(super) type Version = u64;

/// Before the first version: the key is not there.
pub(super) const NOTHING: Version = 0;

/// Set in the version of a row that is deleted.
const DEAD: Version = 1 << 63;

/// Not a transaction: the writer of what was there at first.
pub(super) const INITIAL: usize = 0;

/// A writer and what became of the version.
pub(super) type Writer = (usize, Fate);

#[derive(Debug, Default)]
pub(super) struct Versions {
    writers: HashMap<(Key, Version), Writer>,
    /// Versions that come after one; of a list or row at most the next.
    next: HashMap<(Key, Version), Vec<Version>>,
    /// Rows that have been deleted, perhaps.
    deleted: HashSet<Key>,
}

/// The version that a write makes.
pub(super) fn written_version(key: Key, value: &Value) -> Version {
    match key {
        Key::Row { id, .. } if value.is_empty() => id | DEAD,
        _ => value.last().copied().unwrap_or(NOTHING),
    }
}

/// A version for people.
pub(super) fn show(version: Version) -> String {
    match version {
        NOTHING => "nothing".to_owned(),
        dead if dead & DEAD != 0 => "deleted".to_owned(),
        version => version.to_string(),
    }
}

impl Versions {
    /// Gathers the versions of a history; `walked` are its transactions, number `i` is node
    /// `i + 1`.
    pub fn of(history: &History, walked: &[Walked], out: &mut Vec<Anomaly>) -> Self {
        let mut versions = Self::default();
        for (&key, value) in &history.initial {
            for &element in value {
                versions.wrote(key, element, (INITIAL, Fate::Last), out);
            }
        }
        for (at, txn) in walked.iter().enumerate() {
            for written in &txn.writes {
                let version = written_version(written.key, &written.value);
                let writer = (at + 1, written.fate);
                if version & DEAD != 0 {
                    versions.deleted(history, written.key, version, writer, out);
                } else {
                    versions.wrote(written.key, version, writer, out);
                }
            }
        }
        versions.order_lists(history, walked, out);
        versions.order_registers(history, walked);
        versions.order_rows();
        versions
    }

    fn wrote(&mut self, key: Key, version: Version, writer: Writer, out: &mut Vec<Anomaly>) {
        if let Some((other, _)) = self.writers.insert((key, version), writer) {
            let text = format!("{} of {key} was written twice", show(version));
            out.push(Anomaly::of(Class::Duplicate, vec![other, writer.0], text));
        }
    }

    /// A row's deletion. It may be undone and done again by others; the one that lasts counts.
    fn deleted(
        &mut self,
        history: &History,
        key: Key,
        version: Version,
        writer: Writer,
        out: &mut Vec<Anomaly>,
    ) {
        let outcome = |(txn, _): Writer| &history.txns[txn - 1].outcome;
        if writer.1 == Fate::Undone || matches!(outcome(writer), Outcome::Aborted(_)) {
            return;
        }
        let other = self.writers.get(&(key, version)).copied();
        match other.map(outcome) {
            Some(Outcome::Unknown) => {
                self.writers.insert((key, version), writer);
            }
            Some(_) if *outcome(writer) == Outcome::Unknown => {}
            _ => self.wrote(key, version, writer, out),
        }
        self.deleted.insert(key);
    }

    /// The writer of a version. Nothing, and what was there at first, is [`INITIAL`]'s.
    pub fn writer(&self, key: Key, version: Version) -> Option<Writer> {
        if version == NOTHING {
            return Some((INITIAL, Fate::Last));
        }
        self.writers.get(&(key, version)).copied()
    }

    /// Versions known to come right after one, or (of a register) somewhere after it.
    pub fn next(&self, key: Key, version: Version) -> &[Version] {
        self.next.get(&(key, version)).map_or(&[], |next| next)
    }

    /// All versions known to come after one.
    pub fn all_after(&self, key: Key, version: Version) -> Vec<Version> {
        let mut after = self.next(key, version).to_vec();
        let mut seen: HashSet<Version> = after.iter().copied().collect();
        let mut at = 0;
        while at < after.len() {
            for &next in self.next(key, after[at]) {
                if seen.insert(next) {
                    after.push(next);
                }
            }
            at += 1;
        }
        after
    }

    /// The version that a reader saw; `None` if a row was not there, and it cannot be told whether
    /// it was not there yet or no longer.
    pub fn read_version(&self, key: Key, value: &Value) -> Option<Version> {
        let Key::Row { id, .. } = key else {
            return Some(value.last().copied().unwrap_or(NOTHING));
        };
        let at_first = matches!(self.writers.get(&(key, id)), Some((INITIAL, _)));
        match (value.is_empty(), self.deleted.contains(&key), at_first) {
            (false, _, _) => value.last().copied(),
            (true, false, _) => Some(NOTHING),
            (true, true, true) => Some(id | DEAD),
            (true, true, false) => None,
        }
    }

    fn order_lists(&mut self, history: &History, walked: &[Walked], out: &mut Vec<Anomaly>) {
        let reads = walked.iter().flat_map(|txn| &txn.reads);
        let values = reads.map(|read| &read.value).chain(history.last.values());
        let elements: HashSet<u64> = values.flatten().copied().collect();
        let mut seen: HashMap<Key, Vec<(usize, &Value)>> = HashMap::new();
        let last = history.txns.len() + 1;
        let mut see = |key: &Key, node: usize, value| {
            if let Key::List(_) = key {
                seen.entry(*key).or_default().push((node, value));
            }
        };
        for (key, value) in &history.initial {
            see(key, INITIAL, value);
        }
        for (key, value) in &history.last {
            see(key, last, value);
        }
        for (at, txn) in walked.iter().enumerate() {
            for read in &txn.reads {
                see(&read.key, at + 1, &read.value);
            }
            let mut made = txn.writes.iter().flat_map(|written| written.value.last());
            let stands = match history.txns[at].outcome {
                Outcome::Committed { .. } => true,
                Outcome::Aborted(_) => false,
                // It has committed if anything of it was seen.
                Outcome::Unknown => made.any(|element| elements.contains(element)),
            };
            for written in txn
                .writes
                .iter()
                .filter(|w| stands && w.fate != Fate::Undone)
            {
                see(&written.key, at + 1, &written.value);
            }
        }
        for (key, values) in seen {
            let Some(&(longest_by, longest)) = values.iter().max_by_key(|(_, v)| v.len()) else {
                continue;
            };
            if let Some(other) = values.iter().find(|(_, v)| !longest.starts_with(v)) {
                let text = format!(
                    "{key} was {longest:?}, and also {:?}: neither can have become the other",
                    other.1
                );
                let nodes = vec![longest_by, other.0];
                out.push(Anomaly::of(Class::IncompatibleOrder, nodes, text));
            }
            let mut elements = HashSet::new();
            if let Some(twice) = longest.iter().find(|e| !elements.insert(**e)) {
                let text = format!("{key} holds {twice} twice: {longest:?}");
                out.push(Anomaly::of(Class::Duplicate, vec![longest_by], text));
                continue;
            }
            let mut before = NOTHING;
            for &version in longest {
                self.next.insert((key, before), vec![version]);
                before = version;
            }
        }
    }

    fn order_registers(&mut self, history: &History, walked: &[Walked]) {
        let mut pairs = Vec::new();
        for (at, txn) in walked.iter().enumerate() {
            if matches!(history.txns[at].outcome, Outcome::Aborted(_)) {
                continue;
            }
            for written in txn.writes.iter().filter(|w| w.fate == Fate::Last) {
                let (Key::Register(_), key) = (written.key, written.key) else {
                    continue;
                };
                let version = written_version(key, &written.value);
                let first = history.initial.get(&key);
                let first = first.map_or(NOTHING, |value| written_version(key, value));
                pairs.push((key, first, version));
                if let Some(read) = &written.read_before {
                    pairs.push((key, written_version(key, read), version));
                }
                // Of a commit that may have been none nothing follows from what is there.
                if let (Outcome::Committed { .. }, End::Quiet, Some(last)) = (
                    &history.txns[at].outcome,
                    history.end,
                    history.last.get(&key),
                ) {
                    pairs.push((key, version, written_version(key, last)));
                }
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        for (key, before, after) in pairs.into_iter().filter(|(_, a, b)| a != b) {
            self.next.entry((key, before)).or_default().push(after);
        }
    }

    fn order_rows(&mut self) {
        for (&(key, version), &(_, fate)) in &self.writers {
            let Key::Row { id, .. } = key else { continue };
            if fate == Fate::Undone {
                continue;
            }
            let before = if version == id { NOTHING } else { id };
            self.next.insert((key, before), vec![version]);
        }
    }
}
