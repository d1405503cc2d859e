//! The names of a simulated disk: which are seen, which are durable, and the changes in between.
//!
//! # Promises
//!
//! 1. A crash keeps or drops each change of a name that `Names::sync` did not make durable. A
//!    change is all or nothing: after a rename there is the old state of both names, or the new.
//!    Tested by `a_rename_is_old_or_new`, `names_are_as_before_or_as_after`.
//! 2. Changes of the same name survive in order: where one is lost, so are later ones of the
//!    names that it touched. Changes of different names survive independently. Tested by
//!    `recycled_names_do_not_lose_their_files`, `independent_names_survive_independently`.

use super::losses::Losses;
use super::node::Node;
use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type Files = BTreeMap<PathBuf, Arc<Node>>;

#[derive(Debug, Default)]
pub(super) struct Names {
    current: Files,
    durable: Files,
    changes: Vec<Change>,
    /// Directories are durable at once, as `Vfs::open_directory` promises.
    pub(super) directories: BTreeSet<PathBuf>,
}

#[derive(Debug)]
enum Change {
    Create {
        path: PathBuf,
        node: Arc<Node>,
    },
    Remove {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        node: Arc<Node>,
    },
}

impl Change {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let (first, second) = match self {
            Change::Create { path, .. } | Change::Remove { path } => (path, None),
            Change::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    fn apply(&self, files: &mut Files) {
        match self {
            Change::Create { path, node } => {
                files.insert(path.clone(), Arc::clone(node));
            }
            Change::Remove { path } => {
                files.remove(path);
            }
            Change::Rename { from, to, node } => {
                files.remove(from);
                files.insert(to.clone(), Arc::clone(node));
            }
        }
    }
}

impl Names {
    /// The names of a disk that has just been found: all durable.
    pub(super) fn found(files: Files, directories: BTreeSet<PathBuf>) -> Self {
        Self {
            current: files.clone(),
            durable: files,
            changes: Vec::new(),
            directories,
        }
    }

    pub(super) fn files(&self) -> &Files {
        &self.current
    }

    pub(super) fn get(&self, path: &Path) -> Option<&Arc<Node>> {
        self.current.get(path)
    }

    /// Whether files can be made in the directory.
    pub(super) fn has_directory(&self, directory: &Path) -> bool {
        directory.parent().is_none() || self.directories.contains(directory)
    }

    pub(super) fn create(&mut self, path: PathBuf, node: Arc<Node>) {
        self.change(Change::Create { path, node });
    }

    pub(super) fn remove(&mut self, path: PathBuf) {
        self.change(Change::Remove { path });
    }

    pub(super) fn rename(&mut self, from: PathBuf, to: PathBuf, node: Arc<Node>) {
        self.change(Change::Rename { from, to, node });
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes.push(change);
    }

    /// Makes the changes in a directory durable, and those that they rest on.
    pub(super) fn sync(&mut self, directory: &Path) {
        let mut synced_names = BTreeSet::new();
        let mut synced = vec![false; self.changes.len()];
        for (change, synced) in self.changes.iter().zip(&mut synced).rev() {
            *synced = change
                .paths()
                .any(|path| path.parent() == Some(directory) || synced_names.contains(path));
            if *synced {
                synced_names.extend(change.paths().cloned());
            }
        }
        let mut left = Vec::new();
        for (change, synced) in std::mem::take(&mut self.changes).into_iter().zip(synced) {
            if synced {
                change.apply(&mut self.durable);
            } else {
                left.push(change);
            }
        }
        self.changes = left;
    }

    /// The names that are left after power loss, drawn from `rng`. What was lost is added to
    /// `losses`.
    pub(super) fn after_crash(&self, rng: &mut Rng, losses: &mut Losses) -> Files {
        let mut files = self.durable.clone();
        let keep_percent = rng.pick(&[0, 20, 50, 80, 100]);
        let mut lost_names = BTreeSet::new();
        for change in &self.changes {
            let rests_on_lost = change.paths().any(|path| lost_names.contains(path));
            if !rests_on_lost && rng.chance(keep_percent) {
                change.apply(&mut files);
            } else {
                lost_names.extend(change.paths());
                *match change {
                    Change::Create { .. } => &mut losses.creates_lost,
                    Change::Remove { .. } => &mut losses.removals_lost,
                    Change::Rename { .. } => &mut losses.renames_lost,
                } += 1;
            }
        }
        files
    }
}
