//! Which transaction must come before which: Adya's dependencies, and the order in time.

use super::check::{Anomaly, Class};
use super::versions::{INITIAL, NOTHING, Version, Versions, show};
use super::walk::{External, Fate, Walked};
use super::{Action, End, History, Key, Outcome, Time};
use inkstone::Isolation;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// The second wrote the version after the first one's.
    Ww,
    /// The second read what the first wrote.
    Wr,
    /// The second wrote a version after the one that the first read: an anti-dependency.
    Rw,
    /// The same, and the first had not named the key but read a range.
    PredicateRw,
    /// The first was over before the second began, in the same client.
    Session,
    /// The same, in another client.
    RealTime,
}

impl Kind {
    /// Whether it is an anti-dependency.
    pub fn is_rw(self) -> bool {
        matches!(self, Kind::Rw | Kind::PredicateRw)
    }

    /// Whether it is an order in time.
    pub fn is_order(self) -> bool {
        matches!(self, Kind::Session | Kind::RealTime)
    }
}

/// An edge, and on what it rests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    /// Key, and the versions of `from` and `to`.
    pub on: Option<(Key, Version, Version)>,
}

/// What stands in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// What was there at first.
    Initial,
    /// A transaction that committed (number in the history).
    Txn(usize),
    /// What a transaction read as of one moment: by one statement, or by all. It need not have
    /// committed: no transaction is to see half of another.
    View(usize, Option<usize>),
    /// What was found after the end.
    Last,
}

/// Nodes and edges of a history.
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

impl Graph {
    /// The node of a transaction.
    pub fn of_txn(txn: usize) -> usize {
        txn + 1
    }
}

struct Builder<'a> {
    history: &'a History,
    walked: &'a [Walked],
    versions: &'a Versions,
    included: Vec<bool>,
    graph: Graph,
    known: HashSet<(usize, usize, Kind)>,
}

/// Builds the graph; reads of what never was, or was not to be seen, go to `out`.
pub(super) fn build(
    history: &History,
    walked: &[Walked],
    versions: &Versions,
    keys: &BTreeSet<Key>,
    out: &mut Vec<Anomaly>,
) -> Graph {
    let count = history.txns.len();
    let mut nodes = vec![Node::Initial];
    nodes.extend((0..count).map(Node::Txn));
    nodes.push(Node::Last);
    let graph = Graph {
        nodes,
        edges: Vec::new(),
    };
    let mut builder = Builder {
        history,
        walked,
        versions,
        included: vec![false; count],
        graph,
        known: HashSet::new(),
    };
    let last: Vec<External> = keys.iter().map(|&key| builder.found(key)).collect();
    builder.include(&last);
    builder.dirty_reads(&last, out);
    builder.txns();
    builder.views();
    builder.reads(Graph::of_txn(count), None, &last);
    builder.versions_of(keys);
    builder.order();
    builder.graph
}

impl Builder<'_> {
    /// What was found of a key after the end, as a read.
    fn found(&self, key: Key) -> External {
        let value = self.history.last.get(&key).cloned().unwrap_or_default();
        External {
            op: 0,
            key,
            value,
            predicate: false,
            snapshot: true,
        }
    }

    /// Transactions that count: those that committed, and of those of which it is not known
    /// those that left something.
    fn include(&mut self, last: &[External]) {
        let mut observed = HashSet::new();
        let mut see = |reader: usize, read: &External| {
            let newest = self.versions.read_version(read.key, &read.value);
            for version in newest.into_iter().chain(read.value.iter().copied()) {
                let writer = self.versions.writer(read.key, version);
                observed.extend(writer.map(|(writer, _)| writer).filter(|&w| w != reader));
            }
        };
        for (txn, walked) in self.walked.iter().enumerate() {
            let node = Graph::of_txn(txn);
            walked.reads.iter().for_each(|read| see(node, read));
        }
        last.iter().for_each(|read| see(usize::MAX, read));
        for (txn, included) in self.included.iter_mut().enumerate() {
            *included = match self.history.txns[txn].outcome {
                Outcome::Committed { .. } => true,
                Outcome::Aborted(_) => false,
                Outcome::Unknown => observed.contains(&Graph::of_txn(txn)),
            };
        }
    }

    fn dirty_reads(&self, last: &[External], out: &mut Vec<Anomaly>) {
        let mut complaints = HashMap::new();
        let count = self.history.txns.len();
        let txns = self.walked.iter().enumerate();
        let reads = txns.flat_map(|(txn, walked)| {
            let node = Graph::of_txn(txn);
            walked.reads.iter().map(move |read| (node, read))
        });
        let found = last.iter().map(|read| (Graph::of_txn(count), read));
        for (reader, read) in reads.chain(found) {
            for (at, &element) in read.value.iter().enumerate() {
                let writer = self.versions.writer(read.key, element);
                let newest = at + 1 == read.value.len();
                if let Some((class, what)) = self.fault(writer, newest) {
                    let nodes: Vec<usize> = std::iter::once(reader)
                        .chain(writer.map(|(writer, _)| writer))
                        .collect();
                    let text = format!("{element} of {} was read: {what}", read.key);
                    complaints
                        .entry((class, nodes.clone()))
                        .or_insert_with(|| Anomaly::of(class, nodes, text));
                }
            }
        }
        out.extend(complaints.into_values());
    }

    /// Why a version may not be seen by others.
    fn fault(&self, writer: Option<(usize, Fate)>, newest: bool) -> Option<(Class, &'static str)> {
        let Some((writer, fate)) = writer else {
            return Some((Class::Unwritten, "no transaction has written it"));
        };
        if writer == INITIAL {
            return None;
        }
        let aborted = matches!(self.history.txns[writer - 1].outcome, Outcome::Aborted(_));
        match fate {
            _ if aborted => Some((Class::G1a, "its writer was rolled back")),
            Fate::Undone => Some((Class::G1a, "its writer has undone it")),
            Fate::Intermediate if newest => Some((Class::G1b, "its writer has changed it again")),
            _ => None,
        }
    }

    fn stands(&self, node: usize) -> bool {
        node == INITIAL || self.included[node - 1]
    }

    fn add(&mut self, from: usize, to: usize, kind: Kind, on: Option<(Key, Version, Version)>) {
        if from != to && self.known.insert((from, to, kind)) {
            self.graph.edges.push(Edge { from, to, kind, on });
        }
    }

    fn txns(&mut self) {
        for (txn, walked) in self.walked.iter().enumerate() {
            if self.included[txn] {
                self.reads(Graph::of_txn(txn), Some(txn), &walked.reads);
            }
        }
    }

    /// What is promised to be read as of one moment: a statement at read committed, all that a
    /// transaction reads above it (by its snapshot, or by its locks).
    fn views(&mut self) {
        for (txn, walked) in self.walked.iter().enumerate() {
            match self.history.txns[txn].level {
                Isolation::ReadCommitted => {
                    let statements = walked.reads.chunk_by(|a, b| a.op == b.op);
                    for reads in statements.filter(|reads| reads[0].snapshot) {
                        self.view(txn, Some(reads[0].op), reads);
                    }
                }
                _ => self.view(txn, None, &walked.reads),
            }
        }
    }

    fn view(&mut self, txn: usize, op: Option<usize>, reads: &[External]) {
        if reads.is_empty() {
            return;
        }
        self.graph.nodes.push(Node::View(txn, op));
        self.reads(self.graph.nodes.len() - 1, Some(txn), reads);
    }

    /// Edges of what a node read; `own` is its transaction.
    fn reads(&mut self, node: usize, own: Option<usize>, reads: &[External]) {
        let own = own.map(Graph::of_txn);
        for read in reads {
            let Some(version) = self.versions.read_version(read.key, &read.value) else {
                continue;
            };
            let writer = self.versions.writer(read.key, version);
            if let Some((writer, _)) = writer
                && writer != INITIAL
                && Some(writer) != own
                && self.stands(writer)
            {
                let on = (read.key, version, version);
                self.add(writer, node, Kind::Wr, Some(on));
            }
            let kind = if read.predicate {
                Kind::PredicateRw
            } else {
                Kind::Rw
            };
            for &next in self.versions.next(read.key, version) {
                if let Some((writer, _)) = self.versions.writer(read.key, next)
                    && Some(writer) != own
                    && self.stands(writer)
                {
                    self.add(node, writer, kind, Some((read.key, version, next)));
                }
            }
        }
    }

    fn versions_of(&mut self, keys: &BTreeSet<Key>) {
        for &key in keys {
            let first = self.versions.all_after(key, NOTHING);
            for before in first {
                let Some((from, _)) = self.versions.writer(key, before) else {
                    continue;
                };
                if from == INITIAL || !self.stands(from) {
                    continue;
                }
                for &after in self.versions.next(key, before) {
                    if let Some((to, _)) = self.versions.writer(key, after)
                        && self.stands(to)
                    {
                        self.add(from, to, Kind::Ww, Some((key, before, after)));
                    }
                }
            }
        }
    }

    fn begin_and_end(&self, node: Node) -> Option<(Time, Option<Time>)> {
        let txns = &self.history.txns;
        match node {
            Node::Initial => Some((0, Some(0))),
            Node::Txn(txn) if !self.included[txn] => None,
            Node::Txn(txn) => match txns[txn].outcome {
                Outcome::Committed { at, .. } => Some((txns[txn].begin, Some(at))),
                _ => Some((txns[txn].begin, None)),
            },
            Node::View(txn, None) => Some((txns[txn].begin, None)),
            Node::View(txn, Some(op)) => Some((txns[txn].ops[op].at, None)),
            Node::Last if self.history.end == End::Quiet => Some((Time::MAX, None)),
            Node::Last => None,
        }
    }

    fn client(&self, node: usize) -> Option<u32> {
        match self.graph.nodes[node] {
            Node::Txn(txn) | Node::View(txn, _) => Some(self.history.txns[txn].client),
            _ => None,
        }
    }

    /// The order in time, without the edges that follow from others.
    fn order(&mut self) {
        let mut events = Vec::new();
        let mut begins = HashMap::new();
        for (node, &what) in self.graph.nodes.iter().enumerate() {
            if let Some((begin, end)) = self.begin_and_end(what) {
                begins.insert(node, begin);
                events.push((begin, false, node));
                events.extend(end.map(|end| (end, true, node)));
            }
        }
        events.sort_unstable();
        // Nodes that are over, and behind whose end no node began that is over too.
        let mut frontier: Vec<(Time, usize)> = Vec::new();
        for (time, is_end, node) in events {
            if is_end {
                frontier.retain(|&(end, _)| end >= begins[&node]);
                frontier.push((time, node));
                continue;
            }
            for (_, before) in frontier.clone() {
                let same =
                    self.client(before).is_some() && self.client(before) == self.client(node);
                let kind = if same { Kind::Session } else { Kind::RealTime };
                self.add(before, node, kind, None);
            }
        }
    }
}

impl Graph {
    /// An edge in words.
    pub fn describe(&self, edge: &Edge) -> String {
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        let Some((key, before, after)) = edge.on else {
            return format!("{from} was over before {to} began");
        };
        let (before, after) = (show(before), show(after));
        match edge.kind {
            Kind::Ww => format!("{from} wrote {before} of {key}, {to} then wrote {after}"),
            Kind::Wr => format!("{from} wrote {before} of {key}, {to} read it"),
            _ => format!("{from} read {key} at {before}, {to} then wrote {after}"),
        }
    }

    /// A node's name.
    pub fn name(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some(Node::Txn(txn)) => format!("T{txn}"),
            Some(Node::View(txn, None)) => format!("T{txn}'s snapshot"),
            Some(Node::View(txn, Some(op))) => format!("T{txn}'s statement {op}"),
            Some(Node::Last) => "what was found at the end".to_owned(),
            _ => "what was there at first".to_owned(),
        }
    }

    /// The transaction of a node.
    pub fn txn(&self, node: usize) -> Option<usize> {
        match self.nodes[node] {
            Node::Txn(txn) | Node::View(txn, _) => Some(txn),
            _ => None,
        }
    }
}

/// Whether two transactions have both read one version of a key and both written the next.
pub(super) fn lost_updates(
    history: &History,
    walked: &[Walked],
    versions: &Versions,
    out: &mut Vec<Anomaly>,
) {
    let mut updates: HashMap<(Key, Version), usize> = HashMap::new();
    for (at, txn) in walked.iter().enumerate() {
        if !matches!(history.txns[at].outcome, Outcome::Committed { .. }) {
            continue;
        }
        for written in txn.writes.iter().filter(|w| w.fate == Fate::Last) {
            let Some(read) = &written.read_before else {
                continue;
            };
            let Some(version) = versions.read_version(written.key, read) else {
                continue;
            };
            if let Some(other) = updates.insert((written.key, version), at) {
                let text = format!(
                    "both read {} at {} and then wrote it",
                    written.key,
                    show(version)
                );
                let nodes = vec![Graph::of_txn(other), Graph::of_txn(at)];
                out.push(Anomaly::of(Class::LostUpdate, nodes, text));
            }
        }
    }
}

/// Commits that had to be there at the end and are not.
pub(super) fn lost_commits(
    history: &History,
    versions: &Versions,
    keys: &BTreeSet<Key>,
    out: &mut Vec<Anomaly>,
) {
    let nothing = Vec::new();
    for &key in keys {
        let value = history.last.get(&key).unwrap_or(&nothing);
        let Some(version) = versions.read_version(key, value) else {
            continue;
        };
        for later in versions.all_after(key, version) {
            let Some((writer, fate)) = versions.writer(key, later) else {
                continue;
            };
            let lost = match writer {
                INITIAL => true,
                writer => match history.txns[writer - 1].outcome {
                    Outcome::Committed { durability, .. } => history.end.keeps(durability),
                    _ => false,
                },
            };
            if lost && fate != Fate::Undone {
                let text = format!(
                    "{} of {key} was acknowledged, and after {:?} it was at {}",
                    show(later),
                    history.end,
                    show(version)
                );
                out.push(Anomaly::of(Class::LostCommit, vec![writer], text));
                break;
            }
        }
    }
}

/// Every key that a history speaks of.
pub(super) fn keys(history: &History) -> BTreeSet<Key> {
    let mut keys: BTreeSet<Key> = history.initial.keys().copied().collect();
    keys.extend(history.last.keys());
    for op in history.txns.iter().flat_map(|txn| &txn.ops) {
        match &op.action {
            Action::Read { key, .. } | Action::Write { key, .. } => {
                keys.insert(*key);
            }
            Action::Scan { found, .. } => keys.extend(found.keys()),
            Action::Savepoint | Action::RollBack => {}
        }
    }
    keys
}
