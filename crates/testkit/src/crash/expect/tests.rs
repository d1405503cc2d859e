//! Each kind of violation is found, and what may be is not one.

use super::*;

/// A load whose first transactions have the endings that a test asks for.
fn sequences(load: &Load, ending: Ending) -> impl Iterator<Item = u64> {
    (0..4000).filter(move |&sequence| load.plan(id(0, sequence)).ending == ending)
}

fn id(client: u32, sequence: u64) -> TxnId {
    TxnId { client, sequence }
}

fn load() -> Load {
    // One that prepares and does DDL, and leaves durability to the database.
    (0..)
        .map(Load::of_seed)
        .find(|load| {
            let plans = |n| (0..400).map(move |s| load.plan(id(n, s)));
            load.ddl
                && plans(0).all(|plan| plan.durability.is_none())
                && plans(0).any(|plan| plan.ending == Ending::Prepare(Decision::Leave))
                && plans(0).any(|plan| plan.ending == Ending::Prepare(Decision::Rollback))
        })
        .unwrap()
}

fn life(durability: Durability, power_lost: bool, acks: &[Ack]) -> Life {
    Life {
        acks: acks.to_vec(),
        durability,
        power_lost,
        clients: 2,
    }
}

fn found(ids: &[TxnId]) -> Observed {
    Observed {
        present: ids.iter().copied().collect(),
        complete: true,
        ..Observed::default()
    }
}

fn verdict(life: &Life, found: &Observed) -> Vec<String> {
    Expectation::new(load()).check(life, found).1
}

/// Three commits in a row of client 0 and one of client 1.
fn commits() -> [TxnId; 4] {
    let load = load();
    let mut own = sequences(&load, Ending::Commit);
    let mut take = || id(0, own.next().unwrap());
    let three = [take(), take(), take()];
    let other = (0..).map(|s| id(1, s));
    let other = other
        .into_iter()
        .find(|&it| load.plan(it).ending == Ending::Commit);
    [three[0], three[1], three[2], other.unwrap()]
}

#[test]
fn a_promised_commit_must_be_there() {
    let [a, b, ..] = commits();
    let acks = [Ack::Committed(a), Ack::Committed(b)];
    for (durability, power_lost) in [
        (Durability::Sync, true),
        (Durability::Sync, false),
        (Durability::Write, false),
    ] {
        let life = life(durability, power_lost, &acks);
        assert!(verdict(&life, &found(&[a, b])).is_empty());
        let wrong = verdict(&life, &found(&[a]));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("is lost: its durability"), "{wrong:?}");
    }
    for (durability, power_lost) in [(Durability::Write, true), (Durability::Lazy, false)] {
        let life = life(durability, power_lost, &acks);
        for kept in [&[a, b][..], &[a], &[]] {
            assert!(verdict(&life, &found(kept)).is_empty());
        }
    }
}

#[test]
fn what_survives_is_a_prefix() {
    let [a, b, c, other] = commits();
    let lazy = |acks: &[Ack]| life(Durability::Lazy, true, acks);
    // Of one client.
    let acks = [Ack::Committed(a), Ack::Committed(b), Ack::Committed(c)];
    let wrong = verdict(&lazy(&acks), &found(&[a, c]));
    assert!(wrong.len() == 1 && wrong[0].contains("a later commit is there"));
    // Of another client: `other` was acknowledged before `b` began, at the latest when `a` was
    // heard.
    let acks = [Ack::Committed(other), Ack::Committed(a), Ack::Committed(b)];
    let wrong = verdict(&lazy(&acks), &found(&[a, b]));
    assert!(
        wrong.len() == 1 && wrong[0].contains("client: 1"),
        "{wrong:?}"
    );
    // `b` may have begun before `other` was acknowledged.
    let acks = [Ack::Committed(a), Ack::Committed(other), Ack::Committed(b)];
    assert!(verdict(&lazy(&acks), &found(&[a, b])).is_empty());
}

#[test]
fn what_did_not_commit_must_not_be_there() {
    let [a, b, c, _] = commits();
    let rolled_back = [Ack::Committed(a), Ack::RolledBack(b)];
    let life_of = |acks: &[Ack]| life(Durability::Sync, false, acks);
    let wrong = verdict(&life_of(&rolled_back), &found(&[a, b]));
    assert!(wrong[0].contains("did not commit"), "{wrong:?}");
    // Nothing was heard of a later one than the one under way.
    let wrong = verdict(&life_of(&[]), &found(&[id(0, c.sequence + 7)]));
    assert!(wrong.iter().any(|text| text.contains("did not commit")));
    // The one under way may be there, if it is one that commits.
    let load = load();
    let consecutive = sequences(&load, Ending::Commit)
        .find(|&s| load.plan(id(0, s + 1)).ending == Ending::Commit)
        .unwrap();
    let acks = [Ack::Committed(id(0, consecutive))];
    let both = found(&[id(0, consecutive), id(0, consecutive + 1)]);
    assert!(verdict(&life_of(&acks), &both).is_empty());
}

#[test]
fn prepared_transactions_stay_until_they_are_decided() {
    let load = load();
    let of = |decision| {
        id(
            0,
            sequences(&load, Ending::Prepare(decision)).next().unwrap(),
        )
    };
    let life_of = |acks: &[Ack]| life(Durability::Lazy, true, acks);
    let with = |present: &[TxnId], prepared: &[TxnId]| Observed {
        prepared: prepared.iter().copied().collect(),
        ..found(present)
    };
    let left = of(Decision::Leave);
    let acks = [Ack::Prepared(left)];
    assert!(verdict(&life_of(&acks), &with(&[], &[left])).is_empty());
    assert!(verdict(&life_of(&acks), &found(&[]))[0].contains("is lost"));
    assert!(verdict(&life_of(&acks), &found(&[left]))[0].contains("did not commit"));

    let committed = of(Decision::Commit);
    let acks = [Ack::Prepared(committed)];
    assert!(verdict(&life_of(&acks), &with(&[], &[committed])).is_empty());
    assert!(verdict(&life_of(&acks), &found(&[committed])).is_empty());
    let acks = [Ack::Prepared(committed), Ack::DecidedCommit(committed)];
    assert!(verdict(&life_of(&acks), &found(&[committed])).is_empty());
    let wrong = verdict(&life_of(&acks), &with(&[], &[committed]));
    assert!(wrong[0].contains("commit of prepared"), "{wrong:?}");

    let rolled_back = of(Decision::Rollback);
    let acks = [
        Ack::Prepared(rolled_back),
        Ack::DecidedRollback(rolled_back),
    ];
    // Its rollback need not be durable.
    assert!(verdict(&life_of(&acks), &with(&[], &[rolled_back])).is_empty());
    assert!(verdict(&life_of(&acks), &found(&[])).is_empty());
    assert!(verdict(&life_of(&acks), &found(&[rolled_back]))[0].contains("did not commit"));
}

#[test]
fn what_a_check_has_found_stays() {
    let [a, b, ..] = commits();
    let mut expectation = Expectation::new(load());
    let first = life(
        Durability::Lazy,
        true,
        &[Ack::Committed(a), Ack::Committed(b)],
    );
    assert!(expectation.check(&first, &found(&[a])).1.is_empty());
    let nothing = life(Durability::Lazy, true, &[]);
    assert!(expectation.check(&nothing, &found(&[a])).1.is_empty());
    let wrong = expectation.clone().check(&nothing, &found(&[])).1;
    assert!(wrong[0].contains("is gone"), "{wrong:?}");
    let wrong = expectation.check(&nothing, &found(&[a, b])).1;
    assert!(wrong[0].contains("did not commit"), "lost, and back again");
}

#[test]
fn ddl_is_durable_when_it_returns() {
    let load = load();
    let tables = |steps| {
        let schema = Schema::after(load.seed, steps);
        let show = |(name, trees): (&String, &crate::crash::schema::Trees)| {
            let trees = trees.iter().map(|(tree, rows)| format!(" {tree}={rows}"));
            name.clone() + &trees.collect::<String>()
        };
        Observed {
            tables: schema.tables.iter().map(show).collect(),
            ..found(&[])
        }
    };
    let heard = life(Durability::Lazy, true, &[Ack::Steps(1), Ack::Steps(2)]);
    assert!(verdict(&heard, &tables(2)).is_empty());
    assert!(verdict(&heard, &tables(3)).is_empty(), "under way");
    for steps in [0, 1, 4] {
        assert!(
            verdict(&heard, &tables(steps))[0].contains("DDL"),
            "{steps}"
        );
    }
}
