use super::*;
use crate::store::test_disk::{Disk, Event, Fault, Random};
use inkstone_format::{Lsn, SpaceId, TrxId};

const DIRECTORY: &str = "/db";

fn control(lsn: u64) -> Control {
    Control {
        page_size: 16384,
        uuid: [3; 16],
        sequence: 0,
        epoch: 1,
        checkpoint_lsn: Lsn(lsn),
        scan_start_lsn: Lsn(lsn / 2),
        scan_start_epoch: 1,
        known_durable_lsn: Lsn(lsn),
        log_segment_bytes: 1 << 20,
        next_trx_id: TrxId(5),
        next_space_id: SpaceId(6),
        version_epoch: 7,
        next_commit: 8,
        clean_shutdown: false,
    }
}

fn create(disk: &Disk) -> Result<ControlFile> {
    ControlFile::create(&*disk.directory(DIRECTORY), &control(1), &Poison::default())
}

fn open(disk: &Disk) -> Result<ControlFile> {
    ControlFile::open(&*disk.directory(DIRECTORY), &Poison::default())
}

fn path() -> PathBuf {
    Path::new(DIRECTORY).join(CONTROL_FILE)
}

#[test]
fn writes_alternate_between_the_copies() {
    let disk = Disk::new();
    let mut file = create(&disk).unwrap();
    assert!(matches!(create(&disk), Err(Error::AlreadyExists(_))));
    disk.take_events();
    let mut offsets = Vec::new();
    for lsn in [10, 20, 30] {
        file.write(&*disk.directory(DIRECTORY), &control(lsn))
            .unwrap();
        for event in disk.take_events() {
            if let Event::Write { offset, length, .. } = event {
                assert_eq!(length, 4096);
                offsets.push(offset);
            }
        }
        assert_eq!(open(&disk).unwrap().current(), file.current());
        assert_eq!(file.current().checkpoint_lsn, Lsn(lsn));
        disk.take_events();
    }
    assert_eq!(offsets, [4096, 0, 4096]);
    assert_eq!(file.current().sequence, 4);
    assert_eq!(disk.bytes(&path()).len(), CONTROL_FILE_LEN);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let disk = Disk::new();
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error:?}");
    let mut file = create(&disk).unwrap();
    file.write(&*disk.directory(DIRECTORY), &control(10))
        .unwrap();
    disk.damage(&path(), 4096 + 50, &[0xff]);
    let mut file = open(&disk).unwrap();
    assert_eq!(file.current().checkpoint_lsn, Lsn(1), "the other copy");
    // It may have been of a later opening: what the other one says of a close counts for nothing.
    assert!(!file.knows_the_newest());
    // The bad copy is the one to be written next.
    file.write(&*disk.directory(DIRECTORY), &control(20))
        .unwrap();
    let again = open(&disk).unwrap();
    assert_eq!(again.current().checkpoint_lsn, Lsn(20));
    assert!(again.knows_the_newest());
    disk.damage(&path(), 50, &[0xff]);
    open(&disk).unwrap();
    disk.damage(&path(), 4096, &[0xff]);
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    disk.cut(&path(), 100);
    let error = open(&disk).unwrap_err();
    assert!(
        error.to_string().contains("the file has 100 bytes"),
        "{error}"
    );

    let disk = Disk::new();
    create(&disk).unwrap();
    let mut newer = control(1).encode();
    newer[8] = 200;
    let crc = crc(&newer[..4092]);
    newer[4092..].copy_from_slice(&crc.to_le_bytes());
    disk.damage(&path(), 4096, &newer);
    let error = open(&disk).unwrap_err();
    assert!(
        matches!(error, Error::NewerFormat { found: 200, .. }),
        "{error:?}"
    );
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |crc: u32, &b| (0..8).fold(crc ^ u32::from(b), bit))
}

#[test]
fn nonsense_is_not_written() {
    let disk = Disk::new();
    let mut file = create(&disk).unwrap();
    let mut bad = control(10);
    bad.scan_start_lsn = Lsn(11);
    assert!(file.write(&*disk.directory(DIRECTORY), &bad).is_err());
    file.write(&*disk.directory(DIRECTORY), &control(10))
        .unwrap();
}

#[test]
fn failed_writes_leave_the_old_contents_and_failed_syncs_poison() {
    let disk = Disk::new();
    let poison = Poison::default();
    let mut file = ControlFile::create(&*disk.directory(DIRECTORY), &control(1), &poison).unwrap();
    disk.set_fault(Fault::FailAt(0));
    assert!(matches!(
        file.write(&*disk.directory(DIRECTORY), &control(10)),
        Err(Error::Io { .. })
    ));
    assert_eq!(file.current().checkpoint_lsn, Lsn(1));
    file.write(&*disk.directory(DIRECTORY), &control(20))
        .unwrap();
    disk.set_fault(Fault::FailAt(1));
    assert!(matches!(
        file.write(&*disk.directory(DIRECTORY), &control(30)),
        Err(Error::Poisoned(_))
    ));
    assert!(matches!(
        file.write(&*disk.directory(DIRECTORY), &control(40)),
        Err(Error::Poisoned(_))
    ));
    assert!(poison.is_set());
}

/// Power fails at every step, twice in a row: the contents are those of the last finished write,
/// or of the one that was interrupted.
#[test]
fn power_loss_never_takes_the_last_finished_write() {
    for seed in 1..200 {
        let mut random = Random(seed);
        let disk = Disk::new();
        disk.set_fault(Fault::PowerAt(random.below(9)));
        let created = create(&disk).is_ok();
        disk.power_loss(&mut random);
        if !ControlFile::exists(&*disk.directory(DIRECTORY)).unwrap() {
            assert!(!created);
            create(&disk).unwrap();
        }
        let mut finished = 1;
        for _ in 0..4 {
            let mut file = open(&disk).unwrap();
            let found = file.current().checkpoint_lsn.0;
            assert!(
                found == finished || found == finished + 1,
                "{found}, {finished}"
            );
            finished = found;
            disk.set_fault(Fault::PowerAt(random.below(8)));
            while file
                .write(&*disk.directory(DIRECTORY), &control(finished + 1))
                .is_ok()
            {
                finished += 1;
            }
            drop(file);
            // A killed process first, then power loss: what was opened must have been settled.
            if random.below(2) == 0 {
                disk.set_fault(Fault::None);
                let found = open(&disk).unwrap().current().checkpoint_lsn.0;
                assert!(found == finished || found == finished + 1);
                finished = found;
            }
            disk.power_loss(&mut random);
        }
    }
}

/// A sync fails and the process ends: the next one opened the copy that only the page cache had,
/// and wrote over the durable one. Power loss in the middle of that left none.
#[test]
fn the_durable_copy_is_not_given_up_for_one_whose_sync_failed() {
    use inkstone_io::sim::{Fault, OpKind, SimVfs};
    let mut found_values = [0; 2];
    for seed in 0..60 {
        let vfs = SimVfs::new(seed);
        vfs.create_dir_all(Path::new(DIRECTORY)).unwrap();
        let create =
            ControlFile::create(&*vfs.directory(DIRECTORY), &control(10), &Poison::default());
        let mut file = create.unwrap();
        vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
        file.write(&*vfs.directory(DIRECTORY), &control(20))
            .unwrap_err();
        let vfs = vfs.kill();
        let mut file = ControlFile::open(&*vfs.directory(DIRECTORY), &Poison::default()).unwrap();
        let found = file.current().checkpoint_lsn.0;
        found_values[usize::from(found == 20)] += 1;
        vfs.crash_at(1);
        file.write(&*vfs.directory(DIRECTORY), &control(30))
            .unwrap_err();
        for crash in 0..20 {
            let vfs = vfs.crash(crash);
            let file = ControlFile::open(&*vfs.directory(DIRECTORY), &Poison::default()).unwrap();
            let lsn = file.current().checkpoint_lsn.0;
            assert!([found, 30].contains(&lsn), "{lsn} after {found} was read");
        }
    }
    assert!(
        found_values.iter().all(|&count| count > 5),
        "{found_values:?}"
    );
}

/// The device says that it has the first write of a process, and does not: the process must not go
/// on under an epoch that the next one would take again. Nor must a database begin with a file of
/// nothing.
#[test]
fn a_write_that_the_device_loses_is_noticed() {
    use inkstone_io::sim::{Fault, OpKind, SimVfs};
    let vfs = SimVfs::new(1);
    vfs.create_dir_all(Path::new(DIRECTORY)).unwrap();
    let create =
        || ControlFile::create(&*vfs.directory(DIRECTORY), &control(10), &Poison::default());
    vfs.fail_nth(OpKind::Write, 1, Fault::Lost);
    let error = create().unwrap_err();
    assert!(error.to_string().contains("loses writes"), "{error}");
    assert!(!ControlFile::exists(&*vfs.directory(DIRECTORY)).unwrap());

    let mut file = create().unwrap();
    vfs.fail_nth(OpKind::Write, 1, Fault::Lost);
    let error = file
        .write(&*vfs.directory(DIRECTORY), &control(20))
        .unwrap_err();
    assert!(error.to_string().contains("loses writes"), "{error}");
    assert_eq!(file.current().checkpoint_lsn, Lsn(10));
    // One stale read is no lost write.
    vfs.fail_nth(OpKind::Read, 1, Fault::Stale);
    file.write(&*vfs.directory(DIRECTORY), &control(30))
        .unwrap();
    let file = ControlFile::open(&*vfs.directory(DIRECTORY), &Poison::default()).unwrap();
    assert_eq!(file.current().checkpoint_lsn, Lsn(30));
}
