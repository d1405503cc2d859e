//! Locks beside models of them.

use super::*;
use proptest::prelude::*;

const KEYS: u8 = 26;

#[derive(Clone, Debug)]
enum Step {
    Lock(usize, Bound<u8>, Bound<u8>, LockMode),
    Access(usize, u8, LockMode),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bound = || {
        prop_oneof![
            4 => (0..12_u8).prop_map(Bound::Included),
            4 => (0..12_u8).prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    let mode = || prop_oneof![3 => Just(S), 1 => Just(X)];
    prop_oneof![
        6 => (0..4_usize, bound(), bound(), mode()).prop_map(|(t, l, h, m)| Step::Lock(t, l, h, m)),
        4 => (0..4_usize, 0..KEYS, mode()).prop_map(|(t, k, m)| Step::Access(t, k, m)),
        1 => (0..4_usize).prop_map(Step::End),
    ]
}

/// Keys of the model: 2n + 1 stands for key [n], 2n + 2 for [n, 0], which lies between [n] and
/// [n + 1], and 0 for the empty key.
fn model_key(k: u8) -> Vec<u8> {
    match k {
        0 => vec![],
        k if k % 2 == 1 => vec![k / 2],
        k => vec![k / 2 - 1, 0],
    }
}

fn model_range(low: Bound<u8>, high: Bound<u8>) -> Vec<u8> {
    let above = |k: u8| match low {
        Bound::Included(n) => k > 2 * n,
        Bound::Excluded(n) => k > 2 * n + 1,
        Bound::Unbounded => true,
    };
    let below = |k: u8| match high {
        Bound::Included(n) => k <= 2 * n + 1,
        Bound::Excluded(n) => k < 2 * n + 1,
        Bound::Unbounded => true,
    };
    (0..KEYS).filter(|&k| above(k) && below(k)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn ranges_match_a_model(steps in proptest::collection::vec(step(), 1..60)) {
        let f = fixture();
        let mut trx: Vec<_> = (0..4).map(|_| f.begin()).collect();
        // Per transaction, the strongest mode on each key.
        let mut model = vec![[None::<LockMode>; KEYS as usize]; 4];
        let in_way = |model: &Vec<[Option<LockMode>; KEYS as usize]>, me: usize, keys: &[u8], mode: LockMode| {
            let of = |t: usize| keys.iter().any(|&k| model[t][k as usize].is_some_and(|m| m.conflicts(mode)));
            (0..4).filter(|&t| t != me && of(t)).collect::<Vec<_>>()
        };
        for step in steps {
            match step {
                Step::Lock(t, low, high, mode) => {
                    let (l, h) = (low.map(|n| [n]), high.map(|n| [n]));
                    let (l, h) = (l.as_ref().map(|k| &k[..]), h.as_ref().map(|k| &k[..]));
                    let keys = model_range(low, high);
                    let expected = in_way(&model, t, &keys, mode);
                    let locked = f.lock_range(&mut trx[t], l, h, mode);
                    prop_assert_eq!(locked, expected.is_empty());
                    if locked {
                        for k in keys {
                            let strongest = &mut model[t][k as usize];
                            *strongest = (*strongest).max(Some(mode));
                        }
                    }
                }
                Step::Access(t, k, mode) => {
                    let free = f.is_free(&trx[t], &model_key(k), Access::Row(mode));
                    prop_assert_eq!(free, in_way(&model, t, &[k], mode).is_empty());
                }
                Step::End(t) => {
                    let (me, held) = &mut trx[t];
                    f.end(me, held);
                    trx[t] = f.begin();
                    model[t] = [None; KEYS as usize];
                }
            }
        }
        for (me, held) in &mut trx {
            f.end(me, held);
        }
        prop_assert_eq!(f.table.counts(), (0, 0));
    }

    /// Joined or not: what a transaction has locked stays locked, and no two have conflicting
    /// locks.
    #[test]
    fn joined_locks_cover_no_less(
        steps in proptest::collection::vec((0..3_usize, 0..200_u8, 0..8_u8), 50..300)
    ) {
        let f = fixture_of(2000);
        let mut trx: Vec<_> = (0..3).map(|_| f.begin()).collect();
        let mut model = vec![std::collections::BTreeMap::<u8, LockMode>::new(); 3];
        let key = |n: u8| [&[n][..], &[7; 40]].concat();
        let count = steps.len();
        for (step, (t, n, what)) in steps.into_iter().enumerate() {
            let mode = if what % 2 == 0 { S } else { X };
            match what {
                0 if n % 8 == 0 => {
                    let (me, held) = &mut trx[t];
                    f.end(me, held);
                    trx[t] = f.begin();
                    model[t].clear();
                }
                1 => f.lock_gap(&mut trx[t], &key(n), &key(n + 1)),
                2 => {
                    let unlocked = f.table.unlock_row(&trx[t].0, row(&key(n)));
                    if unlocked {
                        model[t].remove(&n);
                    }
                }
                _ => if f.lock(&mut trx[t], &key(n), mode) {
                    let had = model[t].entry(n).or_insert(mode);
                    *had = (*had).max(mode);
                },
            }
            let has = |t: usize, n: u8, mode| f.table.change(PLACE, |locks| {
                locks.owner(trx[t].0.id()).is_some_and(|owner| owner.has_row(&key(n), mode))
            });
            let checked = if step % 50 == 0 || step + 1 == count { 0..=255 } else { n..=n };
            for n in checked {
                for (t, model) in model.iter().enumerate() {
                    let least = model.get(&n).copied();
                    prop_assert!(least.is_none_or(|mode| has(t, n, mode)), "{t} lost {n}");
                    let others = (0..3).filter(|&u| u != t).any(|u| has(u, n, S));
                    prop_assert!(!(has(t, n, X) && others), "{n} is locked twice");
                }
            }
        }
        for (me, held) in &mut trx {
            f.end(me, held);
        }
        prop_assert_eq!(f.table.counts(), (0, 0));
    }

    #[test]
    fn points_match_a_model(
        steps in proptest::collection::vec((0..4_u8, proptest::collection::vec(0..3_u8, 0..6), 0..90_usize), 1..400)
    ) {
        use points::{Point, PointSet};
        let mut set = PointSet::default();
        let mut model = std::collections::BTreeMap::new();
        for (what, mut key, more) in steps {
            key.extend(vec![7; more]);
            let point = Point { mode: if what == 1 { S } else { X }, kept: [None, Some(S), Some(X)][usize::from(what % 3)] };
            match what {
                3 => prop_assert_eq!(set.remove(&key), model.remove(&key).is_some()),
                _ => prop_assert_eq!(set.set(&key, point), model.insert(key.clone(), point).is_none()),
            }
            prop_assert_eq!(set.get(&key), model.get(&key).copied());
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.bytes(), set.counted_bytes());
        }
        let found: Vec<_> = set.iter().map(|(key, point)| (key.to_vec(), point)).collect();
        prop_assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
        for key in model.keys() {
            let interval = Interval::of_keys(key, key);
            prop_assert_eq!(set.conflicts_in(&interval, S), model[key].mode == X);
            prop_assert!(set.conflicts_in(&interval, X));
            let behind = Interval::new(Bound::Excluded(key), Bound::Unbounded).unwrap();
            prop_assert_eq!(set.conflicts_in(&behind, X), model.range(key.clone()..).count() > 1);
        }
    }
}
