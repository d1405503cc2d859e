//! Random serial histories show nothing; with something put in, it is found.

use super::*;
use crate::Rng;

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// One transaction after the other.
fn serial(rng: &mut Rng, level: Isolation) -> History {
    let (mut now, mut clock, mut element) = (State::new(), 0, 0);
    let mut tick = || {
        clock += 1;
        clock
    };
    let mut txns = Vec::new();
    for client in 0..rng.from_to(5, 40) as u32 {
        let begin = tick();
        let (mut state, mut ops) = (now.clone(), Vec::new());
        for _ in 0..rng.from_to(1, 5) {
            element += 1;
            for action in step(rng, &mut state, element) {
                ops.push(Op { at: tick(), action });
            }
        }
        let outcome = if rng.chance(20) {
            Outcome::Aborted("rollback".to_owned())
        } else {
            now = state;
            Outcome::Committed {
                at: tick(),
                durability: Durability::Sync,
            }
        };
        let client = client % 3;
        txns.push(Txn {
            client,
            level,
            begin,
            ops,
            outcome,
        });
    }
    History {
        initial: State::new(),
        txns,
        end: End::Quiet,
        last: now,
    }
}

fn step(rng: &mut Rng, state: &mut State, element: u64) -> Vec<Action> {
    let key = match rng.below(3) {
        0 => Key::Register(rng.below(2) as u32),
        1 => row(element),
        _ => Key::List(rng.below(3) as u32),
    };
    let mut value = state.get(&key).cloned().unwrap_or_default();
    let reads = match key {
        Key::Row { .. } => {
            let rows = state.range(row(0)..row(u64::MAX)).map(|(_, v)| v[0]);
            scan_rows(&rows.collect::<Vec<_>>())
        }
        _ => read(key, &value),
    };
    if rng.chance(40) {
        return vec![reads];
    }
    let first = state
        .range(row(0)..row(u64::MAX))
        .next()
        .map(|(&key, _)| key);
    if let (Key::Row { .. }, Some(first), true) = (key, first, rng.chance(40)) {
        state.remove(&first);
        return vec![reads, write(first, &[])];
    }
    if !matches!(key, Key::List(_)) {
        value.clear();
    }
    value.push(element);
    state.insert(key, value.clone());
    vec![reads, write(key, &value)]
}

#[test]
fn serial_histories_show_nothing() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        for level in LEVELS {
            let story = serial(&mut rng, level);
            let found: Vec<_> = check(&story).anomalies;
            assert!(found.is_empty(), "seed {seed}: {}", found[0]);
        }
    }
}

/// A list that was read with something in it.
fn list_reads(story: &mut History) -> Vec<&mut Vec<u64>> {
    let ops = story.txns.iter_mut().flat_map(|txn| &mut txn.ops);
    let lists = ops.filter_map(|op| match &mut op.action {
        Action::Read {
            key: Key::List(_),
            value,
            ..
        } if !value.is_empty() => Some(value),
        _ => None,
    });
    lists.collect()
}

/// Changes a history with `spoil`, which says whether it could: it must be a violation then.
fn always_found(spoil: impl Fn(&mut Rng, &mut History) -> bool) {
    let mut spoiled = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        for level in LEVELS {
            let mut story = serial(&mut rng, level);
            if spoil(&mut rng, &mut story) {
                spoiled += 1;
                assert!(
                    !violations(&story).is_empty(),
                    "seed {seed}, {level:?}: {story:?}"
                );
            }
        }
    }
    assert!(spoiled > 300, "too few to prove anything: {spoiled}");
}

fn any<T>(rng: &mut Rng, mut of: Vec<T>) -> Option<T> {
    let at = rng.below(of.len() as u64) as usize;
    (!of.is_empty()).then(|| of.swap_remove(at))
}

#[test]
fn a_stale_read_is_found() {
    always_found(|rng, story| {
        let read = any(rng, list_reads(story));
        read.and_then(|value| value.pop()).is_some()
    });
}

#[test]
fn a_read_of_what_was_rolled_back_is_found() {
    always_found(|rng, story| {
        let seen: Vec<u64> = story
            .last
            .iter()
            .filter(|(k, _)| matches!(k, Key::List(_)))
            .flat_map(|(_, v)| v.clone())
            .collect();
        let Some(element) = any(rng, seen) else {
            return false;
        };
        let wrote = |op: &Op| matches!(&op.action, Action::Write { value, .. } if value.last() == Some(&element));
        let Some(txn) = story.txns.iter_mut().find(|txn| txn.ops.iter().any(wrote)) else {
            return false;
        };
        txn.outcome = Outcome::Aborted("test".to_owned());
        true
    });
}

#[test]
fn a_lost_element_is_found() {
    always_found(|rng, story| {
        let lists = story
            .last
            .iter_mut()
            .filter(|(k, _)| matches!(k, Key::List(_)));
        let values: Vec<_> = lists.map(|(_, value)| value).collect();
        let Some(value) = any(rng, values) else {
            return false;
        };
        let at = rng.below(value.len() as u64) as usize;
        value.remove(at);
        true
    });
}

#[test]
fn a_lost_row_is_found() {
    always_found(|rng, story| {
        let rows = story.last.keys().filter(|k| matches!(k, Key::Row { .. }));
        let Some(key) = any(rng, rows.copied().collect()) else {
            return false;
        };
        story.last.remove(&key).is_some()
    });
}

#[test]
fn exchanged_elements_are_found() {
    always_found(|rng, story| {
        let mut reads = list_reads(story);
        reads.retain(|value| value.len() > 1);
        let Some(value) = any(rng, reads) else {
            return false;
        };
        value.swap(0, 1);
        true
    });
}
