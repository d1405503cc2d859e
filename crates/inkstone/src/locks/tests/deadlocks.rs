//! Which transaction of a circle is rolled back.

use super::*;

#[test]
fn a_deadlock_through_any_blocker_is_found() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    (0..9).for_each(|_| c.0.add_cost());
    assert!(f.lock(&mut a, b"k", S) && f.lock(&mut b, b"k", S) && f.lock(&mut c, b"l", X));
    let first = f.queue(&mut c, b"k", X);
    let second = f.queue(&mut b, b"l", X);
    assert!(b.0.is_doomed(), "of two, the one that changed less");
    assert!(matches!(
        f.table.wait(second, soon(), &mut || Ok(())),
        Err(Error::Deadlock)
    ));
    f.end(&b.0, &mut b.1);
    f.end(&a.0, &mut a.1);
    f.table.wait(first, soon(), &mut || Ok(())).unwrap();
}

/// Two wait for each other, one of them in a queue behind a third one: that is no victim.
fn third_is_spared(third_mode: LockMode, second_mode: LockMode) {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    (0..9).for_each(|_| a.0.add_cost());
    (0..5).for_each(|_| b.0.add_cost());
    assert!(f.lock(&mut a, b"k", X) && f.lock(&mut b, b"l", X));
    let third = f.queue(&mut c, b"k", third_mode);
    let second = f.queue(&mut b, b"k", second_mode);
    let first = f.queue(&mut a, b"l", X);
    assert!(b.0.is_doomed() && !c.0.is_doomed());
    assert!(matches!(
        f.table.wait(second, soon(), &mut || Ok(())),
        Err(Error::Deadlock)
    ));
    f.end(&b.0, &mut b.1);
    f.table.wait(first, soon(), &mut || Ok(())).unwrap();
    f.end(&a.0, &mut a.1);
    f.table.wait(third, soon(), &mut || Ok(())).unwrap();
    f.end(&c.0, &mut c.1);
}

/// Once the waiter between the two in the queue was found first, and was rolled back beside one of
/// them.
#[test]
fn of_a_deadlock_of_two_no_third_one_is_the_victim() {
    third_is_spared(S, X);
}

/// The same where the one between them wants the row alone, and the one behind it shared.
#[test]
fn no_bystander_that_wants_more_is_the_victim() {
    third_is_spared(X, S);

    // Where the one in front holds the row shared, the one between is part of the circle.
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    (0..9).for_each(|_| a.0.add_cost());
    (0..5).for_each(|_| b.0.add_cost());
    assert!(f.lock(&mut a, b"k", S) && f.lock(&mut b, b"l", X));
    let third = f.queue(&mut c, b"k", X);
    let second = f.queue(&mut b, b"k", S);
    let first = f.queue(&mut a, b"l", X);
    assert!(c.0.is_doomed() && !b.0.is_doomed());
    drop((first, second, third));
}

/// Lets transactions with these weights wait in a circle, one after the other; returns which one
/// was the victim.
fn run_circle(weights: &[u64]) -> usize {
    let f = fixture();
    let n = weights.len();
    let mut trx: Vec<_> = weights.iter().map(|_| f.begin()).collect();
    for (i, (trx, &weight)) in trx.iter_mut().zip(weights).enumerate() {
        (0..weight).for_each(|_| trx.0.add_cost());
        assert!(f.lock(trx, &[i as u8], X));
    }
    let waits: Vec<_> = (0..n)
        .map(|i| f.queue(&mut trx[i], &[((i + 1) % n) as u8], X))
        .collect();
    let text = f.table.graph().latest_deadlock().unwrap();
    assert!(
        text.contains(&format!("deadlock of {n} transactions")),
        "{text}"
    );
    assert_eq!(f.counters.get(Counter::Deadlocks), 1);
    drop(waits);
    let victims: Vec<_> = (0..n).filter(|&i| trx[i].0.is_doomed()).collect();
    assert_eq!(victims.len(), 1, "one victim is enough");
    victims[0]
}

#[test]
fn the_cheapest_of_a_circle_is_the_victim() {
    assert_eq!(run_circle(&[5, 3]), 1);
    assert_eq!(run_circle(&[1, 3]), 0);
    assert_eq!(run_circle(&[4, 9, 4]), 2, "of equals the closing one");
    assert_eq!(run_circle(&[4, 4, 9]), 1, "or the youngest");
    assert_eq!(run_circle(&[4, 2, 7, 3]), 1);
    assert_eq!(run_circle(&[0, 0, 0, 0]), 3);
}
