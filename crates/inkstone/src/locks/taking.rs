//! What a caller says when it asks for a lock, and what it is told.

use super::Waiting;

/// What is to be done about a lock that another transaction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfTaken {
    /// Take a place in the queue for it.
    Queue,
    /// Go without it.
    Refuse,
}

/// Another transaction has the lock that was asked for, or comes first.
#[must_use]
pub enum Taken<'l> {
    /// The place in the queue ([`IfTaken::Queue`]).
    Queued(Waiting<'l>),
    /// There is none ([`IfTaken::Refuse`]).
    Refused,
}

/// Whether a locking read took a lock that its transaction did not have, or had weaker: a token
/// that gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It took one, which [`Transaction::unlock_row`](crate::Transaction::unlock_row) can give
    /// back. A shared lock that it had stays.
    Now,
    /// The transaction had the lock before, as strong, or none was taken.
    Before,
}
