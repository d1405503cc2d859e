//! The account of a deadlock: which transaction waited for which, for what, in which statement.
//!
//! It is noted while the latches are held under which the circle was found, and put into words
//! later, when none is held: names of tables are the catalog's. The victim does that when it wakes,
//! while the tables are there; so their names stay when they are dropped.

use super::request::Request;
use super::statement::is_statement_lock;
use super::{Access, LockMode, LockTarget, TreeKey};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::sync::OnceLock;
use inkstone_format::TrxId;
use inkstone_format::space::CLUSTERED_TREE;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a key that are shown.
const KEY_BYTES_SHOWN: usize = 32;

/// Names of a table and its tree.
pub type Names = (String, String);

/// A source of the names of trees.
pub trait TreeNames: Send + Sync {
    /// Table and tree; `None` if it was dropped.
    fn names(&self, tree: TreeKey) -> Option<Names>;
}

/// One of the transactions that waited for each other.
#[derive(Clone, Debug)]
struct Member {
    trx: TrxId,
    tag: u64,
    changes: u64,
    waited: Duration,
    access: Access,
    tree: TreeKey,
    target: LockTarget,
    statement: Option<String>,
}

/// A deadlock. Each member waited for the next one, the last for the first.
#[derive(Clone, Debug)]
pub struct Deadlock {
    members: Vec<Member>,
    victim: TrxId,
    /// Whether the victim was the cheapest.
    cheapest: bool,
    /// Set when the victim was interrupted before it was rolled back.
    spared: OnceLock<()>,
    words: OnceLock<String>,
}

impl Deadlock {
    /// The account of a circle; `statement` says what an owner's transaction does.
    pub(crate) fn of(
        circle: &[&Arc<Request>],
        victim: &TrxState,
        statement: impl Fn(usize) -> Option<String>,
    ) -> Self {
        let is_victim = |request: &&Arc<Request>| request.trx.id() == victim.id();
        paranoid!(
            circle.iter().any(is_victim),
            "victim {:?} is no part of its deadlock",
            victim.id()
        );
        let fewest = circle.iter().map(|request| request.trx.cost()).min();
        let member = |request: &&Arc<Request>| Member {
            trx: request.trx.id(),
            tag: request.trx.details().tag,
            changes: request.trx.weight(),
            waited: request.since.elapsed(),
            access: request.access,
            tree: request.tree,
            target: request.target.for_people(),
            // It need not be held: none can end while it waits.
            statement: statement(request.trx.owner()),
        };
        Self {
            members: circle.iter().map(member).collect(),
            victim: victim.id(),
            cheapest: fewest == Some(victim.cost()),
            spared: OnceLock::new(),
            words: OnceLock::new(),
        }
    }

    /// The victim is not rolled back after all.
    pub(crate) fn spare_victim(&self) {
        // Once for each victim.
        let _ = self.spared.set(());
    }

    /// In words, several lines, as it was put first.
    pub fn words(&self, names: Option<&dyn TreeNames>) -> String {
        if let Some(words) = self.words.get() {
            return words.clone();
        }
        let words = self.text(names);
        // Another thread may have been first.
        let _ = self.words.set(words.clone());
        words
    }

    fn text(&self, names: Option<&dyn TreeNames>) -> String {
        paranoid!(
            self.members.iter().any(|member| member.trx == self.victim),
            "the victim {:?} is none of {} in the deadlock",
            self.victim,
            self.members.len()
        );
        let mut text = format!("deadlock of {} transactions:\n", self.members.len());
        for (n, me) in self.members.iter().enumerate() {
            let next = &self.members[(n + 1) % self.members.len()];
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  transaction {} (connection {}, {} changes) waits for transaction {} since {} ms, {} in {}, {}",
                me.trx,
                me.tag,
                me.changes,
                next.trx,
                me.waited.as_millis(),
                wish(me.access),
                place(me.tree, names),
                show_target(&me.target),
            );
            if let Some(statement) = &me.statement {
                let _ = writeln!(text, "    {statement}");
            }
        }
        let fate = match (self.spared.get(), self.cheapest) {
            (Some(()), _) => "was interrupted, and waits no more",
            (None, true) => "was rolled back: it had the fewest changes and locks",
            (None, false) => "was rolled back: the program prefers it",
        };
        let _ = write!(text, "transaction {} {fate}", self.victim);
        text
    }
}

fn wish(access: Access) -> &'static str {
    match access {
        Access::Insert => "to insert",
        Access::Row(LockMode::Shared) => "to lock shared",
        Access::Row(LockMode::Exclusive) => "to lock exclusive",
    }
}

/// What a request is for, in words.
pub(super) fn place_of(request: &Request, names: Option<&dyn TreeNames>) -> String {
    let (space, _) = request.tree;
    if is_statement_lock(request.tree) {
        let names = names.and_then(|names| names.names((space, CLUSTERED_TREE)));
        return match names {
            Some((table, _)) => format!("the statement lock of table {table}"),
            None => format!("the statement lock of tablespace {space}"),
        };
    }
    let target = show_target(&request.target.for_people());
    format!("{target} in {}", place(request.tree, names))
}

fn place(tree: TreeKey, names: Option<&dyn TreeNames>) -> String {
    match names.and_then(|names| names.names(tree)) {
        Some((table, tree)) => format!("tree {tree} of table {table}"),
        None => format!("tablespace {}, tree {}", tree.0, tree.1),
    }
}

fn show_target(target: &LockTarget) -> String {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    match target {
        LockTarget::Row(key) => format!("key {}", show_key(key)),
        LockTarget::Range(Unbounded, Unbounded) | LockTarget::Gap(Unbounded, Unbounded) => {
            "all keys".to_owned()
        }
        LockTarget::Range(low, high) | LockTarget::Gap(low, high) => {
            let low = match low {
                Included(key) => format!("[{}", show_key(key)),
                Excluded(key) => format!("({}", show_key(key)),
                Unbounded => "(..".to_owned(),
            };
            let high = match high {
                Included(key) => format!("{}]", show_key(key)),
                Excluded(key) => format!("{})", show_key(key)),
                Unbounded => "..)".to_owned(),
            };
            format!("keys {low}, {high}")
        }
    }
}

fn show_key(key: &[u8]) -> String {
    let shown = key.iter().take(KEY_BYTES_SHOWN);
    shown.map(|byte| format!("{byte:02x}")).collect()
}
