//! What a crash does to names.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Content of a file (it says which one it is), or nothing, for each name.
type Listing = BTreeMap<String, u8>;

fn listing(vfs: &SimVfs) -> Listing {
    let name = |path: &PathBuf| path.to_str().expect("a name of ours").to_owned();
    let content = |path: &PathBuf| vfs.read_raw(path).expect("a listed file")[0];
    vfs.files()
        .iter()
        .map(|path| (name(path), content(path)))
        .collect()
}

/// Makes a file with durable content and a name that is not durable.
fn create(vfs: &SimVfs, name: &str, content: u8) {
    let options = OpenOptions {
        create: Create::New,
        ..OPTIONS
    };
    let file = vfs.open(Path::new(name), options).unwrap();
    file.write_at(&[content], 0).unwrap();
    file.sync().unwrap();
}

fn rename(vfs: &SimVfs, from: &str, to: &str) {
    vfs.rename(Path::new(from), Path::new(to)).unwrap();
}

fn crashes(prepare: impl Fn(&SimVfs)) -> BTreeSet<Vec<(String, u8)>> {
    let vfs = SimVfs::new(1);
    vfs.create_dir_all(Path::new("x")).unwrap();
    vfs.create_dir_all(Path::new("y")).unwrap();
    prepare(&vfs);
    (0..200)
        .map(|seed| listing(&vfs.crash(seed)).into_iter().collect())
        .collect()
}

fn sync(vfs: &SimVfs, directory: &str) {
    vfs.sync_dir(Path::new(directory)).unwrap();
}

fn outcomes(expected: &[&[(&str, u8)]]) -> BTreeSet<Vec<(String, u8)>> {
    let owned = |one: &&[(&str, u8)]| one.iter().map(|&(n, c)| (n.to_owned(), c)).collect();
    expected.iter().map(owned).collect()
}

#[test]
fn a_synced_file_may_lose_its_name() {
    let found = crashes(|vfs| create(vfs, "file", 1));
    assert_eq!(found, outcomes(&[&[], &[("file", 1)]]));
    let found = crashes(|vfs| {
        create(vfs, "file", 1);
        sync(vfs, "");
    });
    assert_eq!(found, outcomes(&[&[("file", 1)]]));
}

#[test]
fn another_directory_s_sync_does_not_help() {
    let found = crashes(|vfs| {
        create(vfs, "x/file", 1);
        sync(vfs, "");
        sync(vfs, "y");
    });
    assert_eq!(found, outcomes(&[&[], &[("x/file", 1)]]));
}

#[test]
fn removals_are_durable_when_synced() {
    let prepare = |vfs: &SimVfs| {
        create(vfs, "file", 1);
        sync(vfs, "");
        vfs.remove(Path::new("file")).unwrap();
    };
    assert_eq!(crashes(prepare), outcomes(&[&[], &[("file", 1)]]));
    let found = crashes(|vfs| {
        prepare(vfs);
        sync(vfs, "");
    });
    assert_eq!(found, outcomes(&[&[]]));
}

#[test]
fn a_rename_is_old_or_new() {
    let found = crashes(|vfs| {
        create(vfs, "new", 1);
        create(vfs, "x/old", 2);
        sync(vfs, "");
        sync(vfs, "x");
        rename(vfs, "x/old", "new");
    });
    assert_eq!(
        found,
        outcomes(&[&[("new", 1), ("x/old", 2)], &[("new", 2)]])
    );
}

#[test]
fn recycled_names_do_not_lose_their_files() {
    // A segment is renamed to become the next one, and another takes its name: with the rename
    // lost, the creation must not replace the old file.
    let found = crashes(|vfs| {
        create(vfs, "1", 1);
        sync(vfs, "");
        rename(vfs, "1", "2");
        create(vfs, "1", 7);
    });
    let expected: &[&[_]] = &[&[("1", 1)], &[("2", 1)], &[("1", 7), ("2", 1)]];
    assert_eq!(found, outcomes(expected));
}

#[test]
fn independent_names_survive_independently() {
    let found = crashes(|vfs| {
        create(vfs, "a", 1);
        create(vfs, "b", 2);
    });
    let expected: &[&[_]] = &[&[], &[("a", 1)], &[("b", 2)], &[("a", 1), ("b", 2)]];
    assert_eq!(found, outcomes(expected));
}

#[test]
fn a_sync_takes_along_what_its_changes_rest_on() {
    let found = crashes(|vfs| {
        create(vfs, "x/a", 1);
        rename(vfs, "x/a", "y/b");
        sync(vfs, "y");
    });
    assert_eq!(found, outcomes(&[&[("y/b", 1)]]));
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Remove(usize),
    Rename(usize, usize),
    Sync(usize),
}

const NAMES: [&str; 6] = ["x/1", "x/2", "x/3", "y/1", "y/2", "y/3"];
const DIRECTORIES: [&str; 2] = ["x", "y"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let step = prop_oneof![
        4 => name().prop_map(Step::Create),
        2 => name().prop_map(Step::Remove),
        4 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (0..DIRECTORIES.len()).prop_map(Step::Sync),
    ];
    prop::collection::vec(step, 1..20)
}

/// What may be true after a crash.
#[derive(Default)]
struct Model {
    current: Listing,
    /// For each name, what it led to since its directory was last synced.
    history: BTreeMap<String, Vec<Option<u8>>>,
    /// Files that nothing removed or replaced since their names were durable.
    safe: BTreeSet<u8>,
}

impl Model {
    fn set(&mut self, name: &str, content: Option<u8>) {
        match content {
            Some(content) => self.current.insert(name.to_owned(), content),
            None => self.current.remove(name),
        };
        let history = self
            .history
            .entry(name.to_owned())
            .or_insert_with(|| vec![None]);
        history.push(content);
    }

    fn sync(&mut self, directory: &str) {
        for name in NAMES.iter().filter(|name| name.starts_with(directory)) {
            let content = self.current.get(*name).copied();
            self.history.insert((*name).to_owned(), vec![content]);
            self.safe.extend(content);
        }
    }

    fn check(&self, found: &Listing) {
        for name in NAMES {
            let content = found.get(name).copied();
            let history = self.history.get(name).map_or(&[None][..], |known| known);
            assert!(history.contains(&content), "{name}: {content:?}");
        }
        let files: BTreeSet<u8> = found.values().copied().collect();
        assert_eq!(files.len(), found.len(), "a file with two names: {found:?}");
        assert!(
            self.safe.is_subset(&files),
            "lost: {:?} {found:?}",
            self.safe
        );
    }
}

fn run_step(step: &Step, number: u8, vfs: &SimVfs, model: &mut Model) {
    match *step {
        Step::Create(name) => {
            if !model.current.contains_key(NAMES[name]) {
                create(vfs, NAMES[name], number);
                model.set(NAMES[name], Some(number));
            }
        }
        Step::Remove(name) => {
            if let Some(&content) = model.current.get(NAMES[name]) {
                vfs.remove(Path::new(NAMES[name])).unwrap();
                model.safe.remove(&content);
                model.set(NAMES[name], None);
            }
        }
        Step::Rename(from, to) => {
            let (from, to) = (NAMES[from], NAMES[to]);
            let moved = model.current.get(from).copied();
            if let Some(content) = moved.filter(|_| from != to) {
                rename(vfs, from, to);
                if let Some(replaced) = model.current.get(to).copied() {
                    model.safe.remove(&replaced);
                }
                model.set(from, None);
                model.set(to, Some(content));
            }
        }
        Step::Sync(directory) => {
            sync(vfs, DIRECTORIES[directory]);
            model.sync(DIRECTORIES[directory]);
        }
    }
    assert_eq!(listing(vfs), model.current);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Each name leads to what it led to at some moment since its directory was synced; no file
    /// has two names; no file is lost that was durable and neither removed nor replaced.
    #[test]
    fn names_are_as_before_or_as_after(steps in steps(), seed: u64) {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("x")).unwrap();
        vfs.create_dir_all(Path::new("y")).unwrap();
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate() {
            run_step(step, number as u8 + 1, &vfs, &mut model);
        }
        for round in 0..8 {
            let after = vfs.crash(seed.wrapping_add(round));
            model.check(&listing(&after));
            // What was found is durable.
            prop_assert_eq!(listing(&after.crash(round)), listing(&after));
        }
    }
}
