//! Statements, marks and savepoints: places in a transaction to which it can be undone.
//!
//! A statement that panics leaves nothing. Tested by `a_statement_that_panics_leaves_nothing`.
//!
//! A statement may go back behind its own beginning, to a savepoint or mark that was set before it.
//! From then on it begins there: the version that was the last one when it began is undone, and
//! what is undone is never met on the way back. Checked by `Inner::check_active`.

use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::txn::rollback::leads_to;
use crate::txn::state::{Inner, Phase};
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::{TrxId, VersionAddress};

/// A place in a transaction to which it can be undone: see [`Transaction::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    transaction: TrxId,
    place: Place,
}

impl Mark {
    /// The mark as plain numbers, for callers in other languages.
    pub fn to_words(self) -> [u64; 4] {
        let Place {
            undo_last,
            undo_count,
            undo_log_bytes,
        } = self.place;
        [self.transaction.0, undo_last.0, undo_count, undo_log_bytes]
    }

    /// The inverse of [`Mark::to_words`].
    pub fn from_words([transaction, undo_last, undo_count, undo_log_bytes]: [u64; 4]) -> Self {
        Self {
            transaction: TrxId(transaction),
            place: Place {
                undo_last: VersionAddress(undo_last),
                undo_count,
                undo_log_bytes,
            },
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Savepoint {
    name: String,
    number: u64,
    pub place: Place,
}

/// A statement that is a closure, and goes on.
#[derive(Clone, Debug)]
pub(crate) struct ClosureStatement {
    /// Savepoints that it sets have a higher one.
    number: u64,
    /// Where it began, or has gone back to since.
    pub place: Place,
}

impl Savepoint {
    pub fn has_name_of(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its latest version entry there.
    pub undo_last: VersionAddress,
    /// How many changes it had made, and not undone.
    pub undo_count: u64,
    /// The log that undoing them may take.
    pub undo_log_bytes: u64,
}

impl Inner {
    /// Where it is now: a bulk insert ends here, as what comes later must be undone apart.
    pub fn place(&mut self) -> Place {
        if !mutants::on(Mutant::BulkOutlivesPlace) {
            self.bulks.clear();
        }
        self.place_of_row()
    }

    /// The same for the write of one row, which is undone before anything is added to a bulk.
    pub fn place_of_row(&self) -> Place {
        Place {
            undo_last: self.undo_last,
            undo_count: self.undo_count,
            undo_log_bytes: self.promise.need(),
        }
    }

    /// Savepoints and closures have one row of numbers: the later one has the higher.
    fn new_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn begin_closure(&mut self) -> u64 {
        let (number, place) = (self.new_number(), self.place());
        self.closures.push(ClosureStatement { number, place });
        number
    }

    /// Where it began, or has gone back to since.
    fn end_closure(&mut self, number: u64) -> Option<Place> {
        let at = self.closures.iter().rposition(|c| c.number == number);
        paranoid!(at.is_some(), "closure {number} is not going on");
        at.map(|at| self.closures.remove(at).place)
    }

    /// Statements that began behind a place which is gone back to begin there from now on.
    fn go_back(&mut self, to: Place) {
        if mutants::on(Mutant::StatementForgetsItWentBack) {
            return;
        }
        let closures = self.closures.iter_mut().map(|closure| &mut closure.place);
        for place in closures.chain(&mut self.statement) {
            if place.undo_count > to.undo_count {
                *place = to;
            }
        }
    }
}

impl Transaction {
    /// Undoes what was done since `place`. If that fails, the whole transaction is rolled back, as
    /// soon as that can be: it may not commit half a statement.
    pub(crate) fn undo_to(&self, inner: &mut Inner, place: Place) -> Result<()> {
        if inner.undo_count <= place.undo_count {
            return Ok(());
        }
        inner.go_back(place);
        let undone = crate::txn::rollback::undo_until(
            &self.core,
            &self.shared,
            inner,
            inner.undo_place.now(place.undo_last),
        );
        match undone {
            Ok(()) => {
                // What a bulk had of a table that was dropped was not counted.
                inner.undo_count = place.undo_count;
                inner.promise.undone_to(&self.core, place.undo_log_bytes);
                self.core.locks.changes_taken_back(&self.shared.state);
            }
            Err(_) => self.leave_to_purge(inner),
        }
        undone
    }

    /// Sets a savepoint; one of the same name is replaced.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"kept", b"")?;
    /// txn.savepoint("s")?;
    /// txn.insert(&table, b"undone", b"")?;
    /// txn.rollback_to_savepoint("s")?;
    /// assert_eq!(txn.range(&table, ..)?.count(), 1);
    /// txn.commit()?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn savepoint(&self, name: &str) -> Result<()> {
        let mut inner = self.active()?;
        inner.savepoints.retain(|s| s.name != name);
        let place = inner.place();
        let before = inner.savepoints.last();
        paranoid!(
            before.is_none_or(|before| before.place.undo_count <= place.undo_count),
            "savepoint {name} is set in front of {before:?}"
        );
        let number = inner.new_number();
        inner.savepoints.push(Savepoint {
            name: name.to_owned(),
            number,
            place,
        });
        Ok(())
    }

    /// Undoes everything since the savepoint, which stays; later ones are forgotten. Explicit locks
    /// stay; rows whose change was undone are free for other transactions; those that wait for them
    /// are woken.
    pub fn rollback_to_savepoint(&self, name: &str) -> Result<()> {
        let mut inner = self.active()?;
        let at = inner.savepoints.iter().position(|s| s.name == name);
        let at = at.ok_or_else(|| Error::NotFound(format!("savepoint {name}")))?;
        let place = inner.savepoints[at].place;
        inner.savepoints.truncate(at + 1);
        self.undo_to(&mut inner, place)
    }

    /// Forgets a savepoint and those set after it.
    pub fn release_savepoint(&self, name: &str) -> Result<()> {
        let mut inner = self.active()?;
        let at = inner.savepoints.iter().position(|s| s.name == name);
        let at = at.ok_or_else(|| Error::NotFound(format!("savepoint {name}")))?;
        inner.savepoints.truncate(at);
        Ok(())
    }

    /// The place where the transaction is now. Setting a mark costs nothing: a row's changes in
    /// several trees can be undone when one of them fails.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &["by_name"])?;
    /// # let by_name = table.tree("by_name")?;
    /// # let txn = db.begin(Isolation::RepeatableRead)?;
    /// # txn.insert(by_name, b"Ada", b"0")?;
    /// let mark = txn.mark()?;
    /// txn.insert(&table, b"1", b"Ada")?;
    /// if txn.insert(by_name, b"Ada", b"1").is_err() {
    ///     txn.rollback_to_mark(mark)?;
    /// }
    /// assert_eq!(txn.get(&table, b"1")?, None);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn mark(&self) -> Result<Mark> {
        let mut inner = self.active()?;
        Ok(Mark {
            transaction: self.shared.state.id(),
            place: inner.place(),
        })
    }

    /// Undoes everything since the mark; savepoints set since are forgotten, and marks set since
    /// are void, if anything was undone: to go back to one is an error
    /// ([`Error::TransactionState`]), and undoes nothing. Locks are as with
    /// [`rollback_to_savepoint`](Self::rollback_to_savepoint).
    pub fn rollback_to_mark(&self, mark: Mark) -> Result<()> {
        let mut inner = self.active()?;
        if mark.transaction != self.shared.state.id() {
            return Err(Error::TransactionState("another one than the mark's"));
        }
        let place = inner.undo_place.now(mark.place.undo_last);
        // Where nothing was ever undone each mark is on the way back.
        if inner.orphans && !leads_to(&self.core, &inner, place)? {
            return Err(Error::TransactionState(
                "no longer where the mark was set: it was rolled back to an earlier place since",
            ));
        }
        let kept = |s: &Savepoint| s.place.undo_count <= mark.place.undo_count;
        inner.savepoints.retain(kept);
        self.undo_to(&mut inner, mark.place)
    }

    /// Begins a statement. Its beginning is a place to go back to; at read committed, and below,
    /// its plain reads share a snapshot until [`end_statement`](Self::end_statement). (Without it
    /// each call is a statement.) If one is going on, it ends.
    pub fn begin_statement(&self) -> Result<()> {
        let mut inner = self.active()?;
        self.forget_statement(&mut inner);
        inner.statement = Some(inner.place());
        Ok(())
    }

    /// Undoes what the statement has changed, and forgets savepoints that it set. It goes on. If it
    /// has gone back behind its beginning, it goes on from there.
    /// [`Error::TransactionState`] if there is none.
    pub fn rollback_statement(&self) -> Result<()> {
        let mut inner = self.active()?;
        let Some(place) = inner.statement else {
            return Err(Error::TransactionState("in no statement; begin one"));
        };
        // Now: undoing may take its time.
        self.release_statement_locks(&mut inner);
        let kept = |s: &Savepoint| s.place.undo_count <= place.undo_count;
        inner.savepoints.retain(kept);
        self.undo_to(&mut inner, place)
    }

    /// Ends the statement that was begun last.
    pub fn end_statement(&self) -> Result<()> {
        let mut inner = self.active()?;
        self.forget_statement(&mut inner);
        Ok(())
    }

    /// Runs reads that are to see one snapshot, as those of a statement do, in a statement of its
    /// own if none is going on.
    pub(crate) fn with_one_snapshot<T>(&self, read: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let begins = !self.isolation().keeps_snapshot() && self.active()?.statement.is_none();
        if begins {
            self.begin_statement()?;
        }
        let result = read(self);
        if begins {
            // A deadlock's victim has ended, and its statement with it.
            let ended = self.end_statement();
            return result.and_then(|read| ended.map(|()| read));
        }
        result
    }

    fn forget_statement(&self, inner: &mut Inner) {
        inner.statement = None;
        self.release_statement_locks(inner);
        if !self.isolation().keeps_snapshot() {
            inner.snapshot = None;
        }
    }

    /// Runs a statement of several changes: if it fails or panics, its changes are undone,
    /// savepoints that it set are forgotten, and the transaction goes on. If it has gone back to a
    /// savepoint or mark that was set before it, the transaction goes on from there.
    pub fn statement<T>(&self, f: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let mut closure = UndoneWhenDropped {
            number: self.active()?.begin_closure(),
            transaction: Some(self),
        };
        let result = f(self);
        match &result {
            Ok(_) => closure.end(),
            Err(_) => closure.undo()?,
        }
        result
    }

    /// How far it has come: equal numbers mean that it has neither changed nor undone anything.
    pub(crate) fn progress(&self) -> Result<(u64, u64)> {
        let inner = self.active()?;
        Ok((self.changes(), inner.undo_count))
    }
}

/// What a statement of several changes has done, until it has ended: a program may catch its panic
/// and commit, and must not commit half of it.
struct UndoneWhenDropped<'t> {
    transaction: Option<&'t Transaction>,
    number: u64,
}

impl UndoneWhenDropped<'_> {
    fn end(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            transaction.shared.inner.lock().end_closure(self.number);
        }
    }

    fn undo(&mut self) -> Result<()> {
        let Some(transaction) = self.transaction.take() else {
            return Ok(());
        };
        let mut inner = transaction.shared.inner.lock();
        let place = inner.end_closure(self.number);
        let Some(place) = place.filter(|_| inner.phase == Phase::Active) else {
            return Ok(());
        };
        inner.savepoints.retain(|s| s.number < self.number);
        transaction.undo_to(&mut inner, place)?;
        paranoid!(
            inner.undo_count <= place.undo_count,
            "a statement that began at {place:?} is undone, and {} changes are left",
            inner.undo_count
        );
        Ok(())
    }
}

impl Drop for UndoneWhenDropped<'_> {
    fn drop(&mut self) {
        paranoid!(
            self.transaction.is_none() || crate::sync::thread::panicking(),
            "statement {} has neither failed nor ended",
            self.number
        );
        // A failure is purge's to mend, or has poisoned the engine.
        let _ = self.undo();
    }
}
