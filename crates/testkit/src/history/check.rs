//! Everything that can be wrong with a history, and what each isolation level promises.

use super::graph::{self, Graph};
use super::versions::Versions;
use super::walk::walk;
use super::{History, cycles, report};
use inkstone::Isolation;
use std::collections::BTreeSet;
use std::fmt;

macro_rules! classes {
    ($($class:ident $name:literal $help:literal $allowed:expr;)+) => {
        /// A kind of anomaly.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Class { $(#[doc = $help] $class,)+ }

        impl Class {
            /// Every class.
            pub const ALL: &[Class] = &[$(Class::$class,)+];

            /// Its name in the field.
            pub fn name(self) -> &'static str {
                match self { $(Class::$class => $name,)+ }
            }

            /// What it is.
            pub fn help(self) -> &'static str {
                match self { $(Class::$class => $help,)+ }
            }

            /// The levels that let it through.
            fn allowed(self) -> &'static [Isolation] {
                match self { $(Class::$class => $allowed,)+ }
            }
        }
    };
}

const NEVER: &[Isolation] = &[];
const READ_COMMITTED: &[Isolation] = &[Isolation::ReadCommitted];
const BELOW_SERIALIZABLE: &[Isolation] = &[Isolation::ReadCommitted, Isolation::RepeatableRead];

classes! {
    Internal "internal" "A transaction does not see what it wrote or locked" NEVER;
    Unwritten "unwritten" "A read of what no transaction has written" NEVER;
    Duplicate "duplicate" "A write that is there twice" NEVER;
    IncompatibleOrder "incompatible order" "Two reads of a list of which neither can have become the other: an element was lost" NEVER;
    LostCommit "lost commit" "An acknowledged commit is not there at the end" NEVER;
    G0 "G0" "Dirty write: a circle of writes" NEVER;
    G1a "G1a" "Aborted read: what was rolled back was read" NEVER;
    G1b "G1b" "Intermediate read: what was not a transaction's last word was read" NEVER;
    G1c "G1c" "Circular information flow: a circle of writes and reads" NEVER;
    TornSnapshot "torn snapshot" "What is read as of one moment (a statement, a repeatable-read transaction, the recovered database) misses what it should hold" NEVER;
    FuzzyRead "fuzzy read" "A read-committed transaction reads a key twice and sees others' changes" READ_COMMITTED;
    NotRepeatable "not repeatable" "The same above read committed, or a phantom" NEVER;
    LostUpdate "lost update" "P4: two transactions read one version and both replace it" READ_COMMITTED;
    GSingle "G-single" "Read skew: a circle with one anti-dependency" READ_COMMITTED;
    GNonadjacent "G-nonadjacent" "A circle in which no two anti-dependencies follow one another" READ_COMMITTED;
    G2Item "G2-item" "Write skew: a circle with anti-dependencies on rows" BELOW_SERIALIZABLE;
    G2 "G2" "Write skew on a predicate: as G2-item, with rows that a scan passed or missed" BELOW_SERIALIZABLE;
}

/// Whether a level forbids a class; `None`: transactions of all levels at once, which are promised
/// what read committed promises, each its own snapshots, and to see their own writes.
pub fn forbidden(level: Option<Isolation>, class: Class) -> bool {
    let level = level.unwrap_or(Isolation::ReadCommitted);
    !class.allowed().contains(&level)
}

/// Something that a history shows.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// Of which kind.
    pub class: Class,
    /// The nodes that it is about.
    pub(super) nodes: Vec<usize>,
    /// What it is, in words.
    pub text: String,
}

impl Anomaly {
    pub(super) fn of(class: Class, nodes: Vec<usize>, text: String) -> Self {
        Self { class, nodes, text }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.text)
    }
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// All anomalies, forbidden or not.
    pub anomalies: Vec<Anomaly>,
    /// Edges of the graph.
    pub edges: u64,
    /// The level, if all transactions have the same.
    pub level: Option<Isolation>,
}

impl Checked {
    /// The anomalies that the level forbids.
    pub fn violations(&self) -> impl Iterator<Item = &Anomaly> {
        let forbids = |anomaly: &&Anomaly| forbidden(self.level, anomaly.class);
        self.anomalies.iter().filter(forbids)
    }

    /// The classes that it shows.
    pub fn classes(&self) -> BTreeSet<Class> {
        self.anomalies.iter().map(|anomaly| anomaly.class).collect()
    }
}

/// Checks a history.
pub fn check(history: &History) -> Checked {
    let keys = graph::keys(history);
    let txns = history.txns.iter().enumerate();
    let walked: Vec<_> = txns
        .map(|(at, txn)| walk(Graph::of_txn(at), txn, &keys))
        .collect();
    let mut found: Vec<Anomaly> = walked.iter().flat_map(|w| w.anomalies.clone()).collect();
    let versions = Versions::of(history, &walked, &mut found);
    let graph = graph::build(history, &walked, &versions, &keys, &mut found);
    graph::lost_updates(history, &walked, &versions, &mut found);
    graph::lost_commits(history, &versions, &keys, &mut found);
    for (class, circle) in cycles::find(&graph) {
        let lines: Vec<String> = circle.iter().map(|edge| graph.describe(edge)).collect();
        let nodes = circle.iter().map(|edge| edge.from).collect();
        let text = format!("{}\n    {}", class.help(), lines.join("\n    "));
        found.push(Anomaly::of(class, nodes, text));
    }
    found.sort_by_key(|anomaly| anomaly.class);
    for anomaly in &mut found {
        report::add_transactions(&mut anomaly.text, &anomaly.nodes, history, &graph);
    }
    let levels = history.txns.iter().map(|txn| txn.level);
    let first = history.txns.first().map(|txn| txn.level);
    let same = levels.into_iter().all(|level| Some(level) == first);
    Checked {
        anomalies: found,
        edges: graph.edges.len() as u64,
        level: first.filter(|_| same),
    }
}
