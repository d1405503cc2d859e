//! Circles in the graph, the shortest of each class.
//!
//! A circle lies in one strongly connected component. In each, for each class, every edge of the
//! kind that the class needs is tried as the circle's first, and the shortest way back is looked
//! for over the kinds that the class allows.

use super::check::Class;
use super::graph::{Edge, Graph, Kind, Node};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{HashMap, VecDeque};

/// What makes a circle of a class.
struct Shape {
    class: Class,
    /// Its first edge.
    first: fn(Kind) -> bool,
    /// Whether the first edge begins at a view instead of a transaction.
    from_view: bool,
    /// The others.
    rest: fn(Kind) -> bool,
    /// Whether there must be another anti-dependency.
    more_rw: bool,
    /// Whether two anti-dependencies may follow one another.
    adjacent_rw: bool,
}

fn anything(_: Kind) -> bool {
    true
}

fn forward(kind: Kind) -> bool {
    !kind.is_rw()
}

const SHAPES: [Shape; 7] = [
    Shape {
        class: Class::G0,
        first: |kind| kind == Kind::Ww,
        from_view: false,
        rest: |kind| kind == Kind::Ww || kind.is_order(),
        more_rw: false,
        adjacent_rw: false,
    },
    Shape {
        class: Class::G1c,
        first: |kind| kind == Kind::Wr,
        from_view: false,
        rest: forward,
        more_rw: false,
        adjacent_rw: false,
    },
    Shape {
        class: Class::TornSnapshot,
        first: Kind::is_rw,
        from_view: true,
        rest: forward,
        more_rw: false,
        adjacent_rw: false,
    },
    Shape {
        class: Class::GSingle,
        first: Kind::is_rw,
        from_view: false,
        rest: forward,
        more_rw: false,
        adjacent_rw: false,
    },
    Shape {
        class: Class::GNonadjacent,
        first: Kind::is_rw,
        from_view: false,
        rest: anything,
        more_rw: true,
        adjacent_rw: false,
    },
    Shape {
        class: Class::G2Item,
        first: |kind| kind == Kind::Rw,
        from_view: false,
        rest: |kind| kind != Kind::PredicateRw,
        more_rw: true,
        adjacent_rw: true,
    },
    Shape {
        class: Class::G2,
        first: |kind| kind == Kind::PredicateRw,
        from_view: false,
        rest: anything,
        more_rw: true,
        adjacent_rw: true,
    },
];

/// The shortest circle of each class in each component, as edges in their order.
pub(super) fn find(graph: &Graph) -> Vec<(Class, Vec<Edge>)> {
    let mut plain = DiGraph::<(), ()>::new();
    let nodes: Vec<NodeIndex> = graph.nodes.iter().map(|_| plain.add_node(())).collect();
    for edge in &graph.edges {
        plain.add_edge(nodes[edge.from], nodes[edge.to], ());
    }
    let mut found = Vec::new();
    for component in tarjan_scc(&plain) {
        if component.len() < 2 {
            continue;
        }
        let search = Search::within(graph, component.iter().map(|node| node.index()));
        let circles = SHAPES.iter().filter_map(|shape| {
            let circle = search.shortest(shape)?;
            Some((shape.class, circle))
        });
        found.extend(circles);
    }
    found
}

/// A way so far: where it is, whether its last edge was an anti-dependency, and whether there was
/// another one than the first.
type Place = (usize, bool, bool);

struct Search<'g> {
    graph: &'g Graph,
    /// Edges inside the component, by their beginning.
    from: HashMap<usize, Vec<&'g Edge>>,
}

impl<'g> Search<'g> {
    fn within(graph: &'g Graph, nodes: impl Iterator<Item = usize>) -> Self {
        let mut from: HashMap<usize, Vec<&Edge>> = nodes.map(|node| (node, Vec::new())).collect();
        for edge in &graph.edges {
            if from.contains_key(&edge.to)
                && let Some(edges) = from.get_mut(&edge.from)
            {
                edges.push(edge);
            }
        }
        Self { graph, from }
    }

    fn is_view(&self, node: usize) -> bool {
        matches!(self.graph.nodes[node], Node::View(..) | Node::Last)
    }

    fn shortest(&self, shape: &Shape) -> Option<Vec<Edge>> {
        let mut best: Option<Vec<Edge>> = None;
        let edges = self.graph.edges.iter();
        for first in edges.filter(|edge| (shape.first)(edge.kind)) {
            if !self.from.contains_key(&first.from) || self.is_view(first.from) != shape.from_view {
                continue;
            }
            let limit = best.as_ref().map_or(usize::MAX, Vec::len);
            if let Some(circle) = self.way_back(shape, first, limit) {
                best = Some(circle);
            }
            if best.as_ref().is_some_and(|circle| circle.len() == 2) {
                break;
            }
        }
        best
    }

    /// The shortest circle that begins with an edge, if it has fewer edges than `limit`.
    fn way_back(&self, shape: &Shape, first: &Edge, limit: usize) -> Option<Vec<Edge>> {
        let start: Place = (first.to, first.kind.is_rw(), false);
        let mut came: HashMap<Place, (Place, &Edge)> = HashMap::new();
        let mut queue = VecDeque::from([(start, 1)]);
        while let Some((place, length)) = queue.pop_front() {
            if length + 1 >= limit {
                return None;
            }
            let (node, after_rw, more) = place;
            for &edge in self.from.get(&node)? {
                let rw = edge.kind.is_rw();
                // The reads of views are not those of transactions.
                let allowed = (shape.rest)(edge.kind)
                    && !(rw && self.is_view(node))
                    && (shape.adjacent_rw || !(rw && after_rw));
                let next = (edge.to, rw, more || rw);
                if !allowed || next == start || came.contains_key(&next) {
                    continue;
                }
                came.insert(next, (place, edge));
                let closes = edge.to == first.from
                    && (next.2 || !shape.more_rw)
                    && (shape.adjacent_rw || !(rw && first.kind.is_rw()));
                if closes {
                    return Some(unwind(first, &came, start, next));
                }
                queue.push_back((next, length + 1));
            }
        }
        None
    }
}

fn unwind(
    first: &Edge,
    came: &HashMap<Place, (Place, &Edge)>,
    start: Place,
    mut at: Place,
) -> Vec<Edge> {
    let mut circle = Vec::new();
    while at != start {
        let (before, edge) = came[&at];
        circle.push(*edge);
        at = before;
    }
    circle.push(*first);
    circle.reverse();
    circle
}
