//! Transfers from and to memory that the ring knows.

use super::*;
use crate::{AlignedBuffer, Create};

fn vfs() -> Option<UringVfs> {
    UringVfs::new()
        .inspect_err(|error| eprintln!("skipped: no io_uring here ({error})"))
        .ok()
}

fn filled(bytes: usize, seed: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 97) as u8 ^ seed;
    }
    buffer
}

/// The code of the first submission of a write.
fn entry_of(buffers: &[&[u8]], atomic: bool, registered: &Registered) -> String {
    let (file, _sender) = pipe();
    format!("{:?}", write_job(&file, buffers, atomic).entry(registered))
}

#[test]
fn only_what_lies_in_one_registered_buffer_is_fixed() {
    let Some(ring) = ring() else { return };
    let (known, other) = (filled(8192, 1), filled(4096, 2));
    let mut registered = Registered::default();
    let kind_of = |buffers: &[&[u8]], atomic: bool, registered: &Registered| {
        let entry = entry_of(buffers, atomic, registered);
        let code = entry.split("op_code: ").nth(1).expect("a code");
        code.split(',')
            .next()
            .expect("a code")
            .parse::<u8>()
            .expect("a number")
    };
    let kind = |buffers: &[&[u8]], registered: &Registered| kind_of(buffers, false, registered);
    assert_eq!(kind(&[&known[..10]], &registered), opcode::Write::CODE);
    if !registered.replace(&ring, &[known.handle()]) {
        eprintln!("skipped: this user may not register memory");
        return;
    }
    assert_eq!(kind(&[&known[..10]], &registered), opcode::WriteFixed::CODE);
    assert_eq!(
        kind(&[&known[8191..]], &registered),
        opcode::WriteFixed::CODE
    );
    // The kernel refuses untorn writes from registered memory.
    let untorn = kind_of(&[&known[..4096]], true, &registered);
    assert_eq!(untorn, opcode::Write::CODE);
    // Pieces that lie one after the other are one.
    let (front, back) = known.split_at(5000);
    assert_eq!(kind(&[front, back], &registered), opcode::WriteFixed::CODE);
    assert_eq!(kind(&[back, front], &registered), opcode::Writev::CODE);
    assert_eq!(kind(&[&other[..10]], &registered), opcode::Write::CODE);
    assert_eq!(
        kind(&[front, &other[..10]], &registered),
        opcode::Writev::CODE
    );
    // What is registered again replaces what was.
    assert!(registered.replace(&ring, &[other.handle()]));
    assert_eq!(kind(&[&known[..10]], &registered), opcode::Write::CODE);
    assert_eq!(kind(&[&other[..10]], &registered), opcode::WriteFixed::CODE);
}

#[test]
fn registered_memory_reads_and_writes_as_any_other() {
    let Some(vfs) = vfs() else { return };
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        create: Create::New,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let file = vfs.open_file(&directory.path().join("f"), options).unwrap();
    let mut batch = vfs.batch(4).unwrap();
    let (mut first, second) = (filled(1 << 20, 3), filled(65536, 4));
    let used = batch.register(&[first.handle(), second.handle()]);
    eprintln!("registered: {used}");
    let expected = first.to_vec();
    let half = first.len() / 2;
    let write = |buffers, offset| Op::Write {
        file: &*file,
        buffers,
        offset,
        atomic: false,
    };
    let mut writes = [
        write(vec![&first[..half], &first[half..]], 0),
        write(vec![&second[..]], 1 << 20),
        write(vec![&second[..100], &first[..100]], 2 << 20),
        Op::Sync { file: &*file },
    ];
    for result in batch.run(&mut writes) {
        result.unwrap();
    }
    first.fill(0);
    let read = Op::Read {
        file: &*file,
        buffer: &mut first[..],
        offset: 0,
    };
    batch.run(&mut [read]).remove(0).unwrap();
    assert_eq!(&first[..], &expected[..]);
    let mut rest = vec![0; (1 << 20) + 200];
    file.read_at(&mut rest, 1 << 20).unwrap();
    assert_eq!(&rest[..65536], &second[..]);
    assert_eq!(&rest[1 << 20..][..100], &second[..100]);
    assert_eq!(&rest[1 << 20..][100..], &expected[..100]);
}

#[test]
fn memory_outlives_its_buffer_while_a_ring_knows_it() {
    let Some(vfs) = vfs() else { return };
    let mut batch = vfs.batch(4).unwrap();
    let buffer = filled(1 << 20, 5);
    let handle = buffer.handle();
    batch.register(std::slice::from_ref(&handle));
    let start = handle.start();
    // The ring is made now.
    let options = OpenOptions {
        create: Create::New,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let directory = tempfile::tempdir().unwrap();
    let file = vfs.open_file(&directory.path().join("f"), options).unwrap();
    batch
        .run(&mut [Op::Sync { file: &*file }])
        .remove(0)
        .unwrap();
    drop((buffer, handle));
    // This memory is not given out again as long as the batch is there.
    let others: Vec<_> = (0..8).map(|_| AlignedBuffer::zeroed(1 << 20)).collect();
    assert!(others.iter().all(|other| other.raw() != start));
    drop(batch);
}
