//! Sorting against the standard library's, with runs in a simulated file.

use super::file::SORT_FILE;
use super::*;
use crate::{Error, ErrorKind};
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, OpenOptions, Vfs};
use std::path::Path;

/// As little as a sorter can have.
const LITTLE: usize = 1;

/// A small random number, from a state.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    *state >> 33
}

fn file(vfs: &SimVfs) -> Arc<SortFile> {
    let directory = vfs
        .open_directory(Path::new("/db"), Create::IfMissing)
        .unwrap();
    let file = Arc::new(SortFile::new(directory));
    file.open().unwrap();
    file
}

/// Keys of 0 to 12 bytes, many of them several times, and now and then a value of several chunks.
fn rows(count: usize, seed: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut state = seed;
    let mut row = |n: usize| {
        let length = random(&mut state) as usize % 13;
        let key = (0..length).map(|_| random(&mut state) as u8 % 3).collect();
        let value = match random(&mut state) % 2000 {
            0 => vec![7; 3 * CHUNK_BYTES],
            other => n.to_le_bytes().repeat(other as usize % 5),
        };
        (key, value)
    };
    (0..count).map(&mut row).collect()
}

fn add_all(sorter: &mut Sorter, rows: &[(Vec<u8>, Vec<u8>)]) {
    for (key, value) in rows {
        sorter.add(key, value).unwrap();
    }
}

/// Reads to the end, and compares.
fn expect(sorted: &mut Sorted, rows: &[(Vec<u8>, Vec<u8>)]) {
    let mut numbers: Vec<usize> = (0..rows.len()).collect();
    numbers.sort_by_key(|&n| &rows[n].0);
    for n in numbers {
        let (key, value) = &rows[n];
        let number = n as u64;
        assert_eq!(
            sorted.next_entry().unwrap(),
            Some(Entry { key, value, number })
        );
    }
    assert_eq!(sorted.next_entry().unwrap(), None);
    assert_eq!(sorted.next_entry().unwrap(), None);
}

#[test]
fn rows_come_out_in_order_however_many_runs_there_are() {
    let vfs = SimVfs::new(1);
    let file = file(&vfs);
    for (count, memory) in [
        (0, LITTLE),
        (1, LITTLE),
        (3000, SORT_MEMORY),
        (30_000, LITTLE),
    ] {
        let rows = rows(count, count as u64);
        let mut sorter = Sorter::of_memory(file.clone(), memory);
        add_all(&mut sorter, &rows);
        assert_eq!(sorter.len(), count as u64);
        assert_eq!(
            sorter.runs.len() > 5,
            count == 30_000,
            "{}",
            sorter.runs.len()
        );
        let mut sorted = sorter.sort().unwrap();
        expect(&mut sorted, &rows);
        sorted.rewind().unwrap();
        expect(&mut sorted, &rows);
    }
    assert_eq!(file.used_bytes(), 0, "runs of sorts that have ended");
}

#[test]
fn the_first_row_that_repeats_a_key_is_found() {
    let vfs = SimVfs::new(1);
    for memory in [LITTLE, SORT_MEMORY] {
        let mut sorter = Sorter::of_memory(file(&vfs), memory);
        // Row 19,000 has the key of a row before it; so has 19,500, with a lesser key, and both
        // again at the end.
        let mut keys: Vec<u32> = (0..20_000).rev().collect();
        keys[19_000] = 15_000;
        keys[19_500] = 9000;
        keys.extend([9000, 15_000, 0]);
        for (n, key) in keys.iter().enumerate() {
            let (key, value) = (key.to_be_bytes(), (n as u32).to_le_bytes());
            sorter.add(&key, &value).unwrap();
        }
        let mut sorted = sorter.sort().unwrap();
        for _ in 0..100 {
            sorted.next_entry().unwrap().unwrap();
        }
        let (number, key, value) = sorted.first_repeated().unwrap().unwrap();
        assert_eq!((number, key), (19_000, 15_000_u32.to_be_bytes().to_vec()));
        assert_eq!(value, 19_000_u32.to_le_bytes());
        let first = sorted.next_entry().unwrap().unwrap();
        assert_eq!(first.number, 19_999, "it goes back to the first row");
    }
    let mut none = Sorter::new(file(&vfs));
    none.add(b"a", b"").unwrap();
    none.add(b"", b"").unwrap();
    assert_eq!(none.sort().unwrap().first_repeated().unwrap(), None);
}

#[test]
fn sorters_share_their_memory() {
    let vfs = SimVfs::new(1);
    let file = file(&vfs);
    let memory = 16 * RUN_BYTES_MIN;
    let mut sorters: Vec<Sorter> = (0..8)
        .map(|_| Sorter::of_memory(file.clone(), memory))
        .collect();
    let mut most = 0;
    for n in 0..20_000_u64 {
        for sorter in &mut sorters {
            sorter.add(&n.to_be_bytes(), &[0; 40]).unwrap();
        }
        most = most.max(sorters.iter().map(Sorter::held_bytes).sum());
    }
    assert!(
        most <= memory + 8 * 100 && most > memory / 2,
        "{most} of {memory}"
    );
    sorters.truncate(1);
    let runs = sorters[0].runs.len();
    for n in 0..5000_u64 {
        sorters[0].add(&n.to_be_bytes(), &[0; 40]).unwrap();
    }
    assert_eq!(
        sorters[0].runs.len(),
        runs,
        "it has the memory of those that have ended"
    );
}

#[test]
fn a_changed_byte_fails_the_sort() {
    let vfs = SimVfs::new(1);
    let mut sorter = Sorter::of_memory(file(&vfs), LITTLE);
    add_all(&mut sorter, &rows(30_000, 3));
    let mut sorted = sorter.sort().unwrap();
    let directory = vfs.open_directory(Path::new("/db"), Create::Never).unwrap();
    let options = OpenOptions {
        create: Create::Never,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let bytes = directory.open(SORT_FILE, options).unwrap();
    let mut byte = [0];
    bytes.read_at(&mut byte, 100).unwrap();
    bytes.write_at(&[byte[0] ^ 1], 100).unwrap();
    let failed = sorted.rewind().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Corrupt);
    assert!(failed.to_string().contains(SORT_FILE), "{failed}");
}

#[test]
fn a_closed_database_sorts_no_more_and_leaves_no_file() {
    let vfs = SimVfs::new(1);
    let file = file(&vfs);
    let mut sorter = Sorter::of_memory(file.clone(), LITTLE);
    let mut number = 0_u32;
    let mut add = |sorter: &mut Sorter| {
        number += 1;
        sorter.add(&number.to_be_bytes(), &[1; 100])
    };
    while sorter.runs.len() < 2 {
        add(&mut sorter).unwrap();
    }
    let directory = vfs.open_directory(Path::new("/db"), Create::Never).unwrap();
    assert!(directory.exists(SORT_FILE).unwrap());
    file.close();
    assert!(!directory.exists(SORT_FILE).unwrap());
    let failed = loop {
        if let Err(error) = add(&mut sorter) {
            break error;
        }
    };
    assert!(matches!(failed, Error::Closed), "{failed}");
}
