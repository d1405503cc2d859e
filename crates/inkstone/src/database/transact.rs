//! A transaction that is repeated as often as others are in its way.

use super::Database;
use crate::mvcc::Isolation;
use crate::paranoid::paranoid;
use crate::sync::{random_bits, thread};
use crate::{Error, Result, Transaction};
use std::time::Duration;

/// The longest pause behind the first attempt; it doubles from attempt to attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How [`Database::transact_with`] goes on.
///
/// ```
/// use inkstone::TransactOptions;
/// let options = TransactOptions::new().attempts(3);
/// assert_eq!(options.attempts, 3);
/// assert_eq!(TransactOptions::default().attempts, 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactOptions {
    /// How often the transaction is begun at most, the first time too. With 1, or 0, it is not
    /// repeated.
    pub attempts: u32,
}

impl Default for TransactOptions {
    fn default() -> Self {
        Self { attempts: 64 }
    }
}

impl TransactOptions {
    /// Up to 64 attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many attempts, the first one too.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }
}

/// How an attempt ended.
enum Attempt<T, E> {
    Over(Result<T, E>),
    /// Another transaction came first: this one is rolled back, and may be repeated.
    Conflict(E),
}

impl Database {
    /// Runs `work` in a transaction, commits it, and repeats both from the beginning while other
    /// transactions are in the way.
    ///
    /// ```
    /// use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let counters = db.create_table("counters", &[])?;
    /// let visits = db.transact(Isolation::RepeatableRead, |txn| {
    ///     let old = txn.get(&counters, b"visits")?;
    ///     let visits = old.map_or(0, |old| u64::from_be_bytes(old.try_into().unwrap())) + 1;
    ///     txn.upsert(&counters, b"visits", &visits.to_be_bytes())?;
    ///     Ok::<u64, Error>(visits)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// The error may be the program's own, or anything that an [`Error`] turns into, such as
    /// `Box<dyn Error>`:
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NoMoney,
    ///     Database(inkstone::Error),
    /// }
    ///
    /// impl From<inkstone::Error> for Refused {
    ///     fn from(error: inkstone::Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default()).unwrap();
    /// # let accounts = db.create_table("accounts", &[]).unwrap();
    /// let bought = db.transact(Isolation::RepeatableRead, |txn| {
    ///     txn.insert(&accounts, b"order", b"1")?;
    ///     match txn.get(&accounts, b"Ada")? {
    ///         None => Err(Refused::NoMoney), // the order is rolled back
    ///         Some(_) => Ok(()),
    ///     }
    /// });
    /// assert!(matches!(bought, Err(Refused::NoMoney)));
    /// ```
    ///
    /// - **What is repeated**: whatever [`Error::is_retryable`] says, of `work` or the commit
    ///   ([`Error::Deadlock`], [`Error::WriteConflict`], [`Error::TableChanged`]). `work` may turn
    ///   such an error into one of its own: the transaction knows. All other errors are returned at
    ///   once, [`Error::LockTimeout`] too: it has waited already; and [`Error::DuplicateKey`], also
    ///   of a row that was inserted after the snapshot.
    /// - **How often**: 64 attempts, or as [`transact_with`](Self::transact_with) says; then the
    ///   last error is returned.
    /// - **How long**: behind attempt n it pauses for a random time of up to 2^(n - 1) x 100
    ///   microseconds, at most 20 ms: over all 64 attempts 0.6 s on average, 1.2 s at most, and
    ///   what `work` and its waits for locks take.
    ///
    /// Where `work` fails or panics, what it has done is rolled back. It may run more than once:
    /// what it does outside of the transaction is not taken back.
    ///
    /// Rows that many clients change all the time: at
    /// [`ReadCommitted`](Isolation::ReadCommitted) a transaction that begins with
    /// [`get_locking`](Transaction::get_locking) waits for its turn, and is not repeated.
    ///
    /// # Errors
    /// Those of `work`, of [`begin`](Self::begin) and of [`Transaction::commit`].
    pub fn transact<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        work: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with(isolation, &TransactOptions::new(), work)
    }

    /// As [`transact`](Self::transact), with another number of attempts.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options, TransactOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let once = TransactOptions::new().attempts(1);
    /// db.transact_with(Isolation::Serializable, &once, |txn| {
    ///     txn.insert(&table, b"key", b"value")
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        options: &TransactOptions,
        mut work: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..options.attempts {
            if let Attempt::Over(result) = self.attempt(isolation, &mut work) {
                return result;
            }
            thread::sleep(up_to(pause));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        match self.attempt(isolation, &mut work) {
            Attempt::Over(result) => result,
            Attempt::Conflict(error) => Err(error),
        }
    }

    fn attempt<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        work: &mut impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Attempt<T, E> {
        let txn = match self.begin(isolation) {
            Ok(txn) => txn,
            Err(error) => return Attempt::Over(Err(error.into())),
        };
        let worked = work(&txn);
        let had_conflict = txn.had_conflict();
        let value = match worked {
            Ok(value) => value,
            // Dropped, the transaction is rolled back.
            Err(error) if had_conflict => return Attempt::Conflict(error),
            Err(error) => return Attempt::Over(Err(error)),
        };
        paranoid!(
            had_conflict || !txn.is_over(),
            "a transaction without a conflict is over before its commit"
        );
        match txn.commit() {
            Ok(()) => Attempt::Over(Ok(value)),
            // It was rolled back as a deadlock's victim, and `work` did not say so.
            Err(error @ Error::TransactionState(_)) if had_conflict => {
                Attempt::Conflict(error.into())
            }
            Err(error) if error.is_retryable() => Attempt::Conflict(error.into()),
            Err(error) => Attempt::Over(Err(error.into())),
        }
    }
}

/// A random time, so that two transactions in each other's way do not meet again.
fn up_to(longest: Duration) -> Duration {
    let share = (random_bits() >> 32) as u32;
    let pause = longest.mul_f64(f64::from(share) / f64::from(u32::MAX));
    paranoid!(pause <= longest, "{pause:?} is longer than {longest:?}");
    pause
}
