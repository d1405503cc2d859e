use super::MemoryVfs;
use crate::log::ahead::{Ahead, Piece};
use inkstone_io::{AlignedBuffer, Create, OpenOptions};
use std::path::Path;
use std::sync::Arc;

const BYTES: usize = 4096;

#[test]
fn pieces_read_ahead_are_those_asked_for() {
    let vfs = MemoryVfs::new();
    let path = Path::new("/db/file");
    vfs.insert(path, (0..3 * BYTES).map(|at| (at / BYTES) as u8).collect());
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let file = vfs.open(path, options).unwrap();
    let piece = |number: usize| Piece {
        file: file.clone(),
        offset: (number * BYTES) as u64,
        len: BYTES,
    };
    let ahead = Ahead::start(BYTES).unwrap();
    let mut buffer = AlignedBuffer::zeroed(BYTES);
    buffer.fill(9);
    // Nothing was asked for.
    assert!(ahead.take(&piece(0), &mut buffer).is_none());
    for number in [1, 2, 0] {
        ahead.ask(piece(number));
        assert!(ahead.take(&piece(number), &mut buffer).unwrap().is_ok());
        assert_eq!(buffer[..], [number as u8; BYTES]);
    }
    // Another one, of this file and of another one.
    ahead.ask(piece(1));
    assert!(ahead.take(&piece(2), &mut buffer).is_none());
    ahead.ask(piece(1));
    let other = Piece {
        file: vfs.open(path, options).unwrap(),
        ..piece(1)
    };
    assert!(!Arc::ptr_eq(&other.file, &file));
    assert!(ahead.take(&other, &mut buffer).is_none());
    assert_eq!(buffer[..], [0; BYTES]);
    // What cannot be read is an error of the one that takes it, and of no other.
    ahead.ask(piece(3));
    assert!(ahead.take(&piece(3), &mut buffer).unwrap().is_err());
    ahead.ask(piece(3));
    assert!(ahead.take(&piece(2), &mut buffer).is_none());
    ahead.ask(piece(2));
    assert!(ahead.take(&piece(2), &mut buffer).unwrap().is_ok());
    // Dropped while a piece is on its way.
    ahead.ask(piece(1));
}
