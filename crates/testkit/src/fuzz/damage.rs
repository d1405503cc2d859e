//! The files of a database, changed by the input; then the database is opened, read, verified and
//! worked on.
//!
//! Damage is of two kinds. *Rot* flips up to three bits of one file, which every checksum here
//! finds for certain: what is read must be what was written, or an error. *Forgery* changes
//! anything, makes checksums fit and adds frames to the log: then anything may be read, but nothing
//! may panic, hang, or allocate what a length in a file says.

use super::Target;
use super::input::{Input, dice_seeds};
use super::model::found;
use crate::model::Found;
use inkstone::internals::log::{LogReader, ReadParams};
use inkstone::{Database, Error, Isolation, Options, Transaction};
use inkstone_format::control::Control;
use inkstone_format::segment::{LOG_BLOCK, segment_file_name};
use inkstone_format::{Lsn, frame, header};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// `damage`: a database whose files were changed.
pub const DAMAGE: Target = Target {
    name: "damage",
    about: "a database with flipped bits, or forged pages, headers and log: opened, read, used",
    run: damage,
    seeds: damage_seeds,
    input_max: 1 << 10,
    allocation_max_mib: 64,
};

const DIRECTORY: &str = "db";
const BLOCK: u64 = 4096;

fn options() -> Options {
    Options {
        page_size: BLOCK,
        buffer_pool_size: 64 * BLOCK,
        buffer_pool_instances: 1,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        version_store_memory: 1 << 20,
        lock_wait_timeout_ms: 1,
        recovery_threads: 1,
        ..Options::default()
    }
}

fn open(vfs: &SimVfs) -> Result<Database, Error> {
    Database::open_on(
        Arc::new(vfs.clone()),
        Path::new(DIRECTORY),
        options(),
        &|_| {},
    )
}

/// A database that is not open.
struct Image {
    vfs: SimVfs,
    holds: Found,
    /// Blocks that are not zero, by file: where damage does something.
    blocks: Vec<(PathBuf, Vec<u64>)>,
    log_end: Lsn,
    epoch: u64,
    segment_bytes: u64,
}

static CLOSED: LazyLock<Image> = LazyLock::new(|| Image::new(true).expect("a database"));
static KILLED: LazyLock<Image> = LazyLock::new(|| Image::new(false).expect("a database"));

impl Image {
    /// A database that was closed in order, or killed with work under way.
    fn new(closed: bool) -> Result<Self, Error> {
        let vfs = SimVfs::new(1);
        let db = open(&vfs)?;
        let moved = fill(&db, !closed)?;
        let mut loser = None;
        if closed {
            db.close()?;
        } else {
            let (txn, table) = (db.begin(Isolation::ReadCommitted)?, db.table("a")?);
            for n in 20..30u64 {
                txn.update(&table, &n.to_be_bytes(), b"of a loser")?;
            }
            db.flush_log()?;
            loser = Some((txn, db));
        }
        let vfs = vfs.kill();
        drop((loser, moved));
        let read = open(&vfs.crash(1))?;
        let holds = found(&read)?;
        drop(read);
        let vfs = vfs.crash(1);
        let control = vfs.read_raw(&Path::new(DIRECTORY).join("control"));
        let control = control.expect("a control file");
        let (first, second) = control.split_at(BLOCK as usize);
        let (control, _) =
            Control::choose([first, &second[..BLOCK as usize]]).expect("a control block");
        let (log_end, epoch) = log_end(&vfs, &control)?;
        let blocks = vfs.files().into_iter().filter_map(|path| {
            let bytes = vfs.read_raw(&path).ok()?;
            let blocks = bytes.chunks(BLOCK as usize).enumerate();
            let used = blocks.filter(|(_, block)| !header::is_zero(block));
            let used: Vec<u64> = used.map(|(n, _)| n as u64).collect();
            (!used.is_empty()).then_some((path, used))
        });
        let blocks = blocks.collect();
        let segment_bytes = control.log_segment_bytes;
        Ok(Self {
            vfs,
            holds,
            blocks,
            log_end,
            epoch,
            segment_bytes,
        })
    }

    fn any_block(&self, input: &mut Input<'_>) -> (&Path, u64) {
        let (path, blocks) = &self.blocks[input.below(self.blocks.len())];
        (path, blocks[input.below(blocks.len())])
    }
}

/// Rows short and long, in two tables with a secondary tree, checkpointed and not; and a prepared
/// transaction. If one is to be left: an open transaction, with undo in the undo file and behind
/// it.
fn fill(db: &Database, leaves: bool) -> Result<Option<Transaction>, Error> {
    let (a, b) = (
        db.create_table("a", &["by_value"])?,
        db.create_table("b", &[])?,
    );
    let txn = db.begin(Isolation::ReadCommitted)?;
    for n in 0..300u64 {
        txn.insert(&a, &n.to_be_bytes(), &[n as u8; 40])?;
        txn.insert(
            a.tree("by_value")?,
            &[&[n as u8], &n.to_be_bytes()[..]].concat(),
            b"",
        )?;
    }
    for n in 0..4u64 {
        txn.insert(&b, &n.to_be_bytes(), &vec![n as u8; 9000 * n as usize])?;
    }
    txn.commit()?;
    db.checkpoint()?;
    let txn = db.begin(Isolation::ReadCommitted)?;
    for n in 0..20u64 {
        txn.update(&a, &n.to_be_bytes(), &[9; 90])?;
        txn.delete(&a, &(n + 100).to_be_bytes())?;
    }
    txn.commit()?;
    let mut left = None;
    if leaves {
        let txn = db.begin(Isolation::ReadCommitted)?;
        for n in 40..70u64 {
            txn.update(&a, &n.to_be_bytes(), &[5; 50])?;
            if n == 60 {
                // Saves the undo of every transaction that is open.
                db.maintain(0)?;
            }
        }
        txn.insert(&a, &800u64.to_be_bytes(), b"of a loser")?;
        left = Some(txn);
    }
    let txn = db.begin(Isolation::ReadCommitted)?;
    txn.update(&b, &1u64.to_be_bytes(), &[7; 5000])?;
    txn.insert(&a, &900u64.to_be_bytes(), b"prepared")?;
    txn.prepare(b"xid")?;
    Ok(left)
}

fn log_end(vfs: &SimVfs, control: &Control) -> Result<(Lsn, u64), Error> {
    let log = vfs.directory(Path::new(DIRECTORY).join("log"));
    let mut reader = LogReader::open(ReadParams::of(control, log))?;
    let (mut end, mut epoch) = (control.scan_start_lsn, control.scan_start_epoch);
    while let Some(frame) = reader.next()? {
        (end, epoch) = (frame.end, frame.epoch);
    }
    Ok((end, epoch))
}

fn damage(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.u8();
    let image = if choice.is_multiple_of(2) {
        &*CLOSED
    } else {
        &*KILLED
    };
    // Everything that the image's process wrote is durable on this copy.
    let vfs = image.vfs.crash(1);
    if choice.is_multiple_of(4) {
        let (path, _) = image.any_block(&mut input);
        for _ in 0..1 + input.below(3) {
            let blocks = image.blocks.iter().find(|(other, _)| other == path);
            let blocks = blocks.map_or(&[][..], |(_, blocks)| blocks);
            let at = blocks[input.below(blocks.len())] * BLOCK + u64::from(input.u16()) % BLOCK;
            // The file's last block may be short.
            let _ = vfs.flip_bit(path, at, input.u8());
        }
        use_database(&vfs, Some(&image.holds));
    } else {
        while !input.is_empty() {
            forge(&vfs, image, &mut input);
        }
        use_database(&vfs, None);
    }
    vfs.kill();
}

fn forge(vfs: &SimVfs, image: &Image, input: &mut Input<'_>) {
    let kind = input.u8();
    let (path, block) = image.any_block(input);
    match kind % 8 {
        0..=3 => edit(vfs, path, block, |bytes| {
            let at = input.below(bytes.len());
            let new = input.short();
            let count = new.len().min(bytes.len() - at);
            bytes[at..at + count].copy_from_slice(&new[..count]);
        }),
        4 => {
            // A misdirected or a stale block.
            let (from, other) = image.any_block(input);
            let source = read_block(vfs, from, other);
            edit(vfs, path, block, |bytes| {
                let count = bytes.len().min(source.len());
                bytes[..count].copy_from_slice(&source[..count]);
            });
        }
        5 => edit(vfs, path, block, |bytes| bytes.fill(0)),
        6 => {
            let _ = vfs.truncate_raw(path, block * BLOCK + u64::from(input.u16()) % BLOCK);
        }
        _ => append_frame(vfs, image, &input.short()),
    }
}

fn read_block(vfs: &SimVfs, path: &Path, block: u64) -> Vec<u8> {
    let bytes = vfs.read_raw(path).unwrap_or_default();
    let from = ((block * BLOCK) as usize).min(bytes.len());
    let to = (from + BLOCK as usize).min(bytes.len());
    bytes[from..to].to_vec()
}

/// Changes a block, and makes the checksum fit if it has one.
fn edit(vfs: &SimVfs, path: &Path, block: u64, change: impl FnOnce(&mut [u8])) {
    let mut bytes = read_block(vfs, path, block);
    if bytes.is_empty() {
        return;
    }
    change(&mut bytes);
    let name = path.to_string_lossy();
    if bytes.len() == BLOCK as usize {
        if name.ends_with(".ink") {
            header::stamp_checksum(&mut bytes);
        } else if name.ends_with("control") || name.contains("doublewrite") || block == 0 {
            let at = bytes.len() - 4;
            let crc = crc32c::crc32c(&bytes[..at]);
            bytes[at..].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let _ = vfs.write_raw(path, block * BLOCK, &bytes);
}

/// A whole frame of any records at the end of the log.
fn append_frame(vfs: &SimVfs, image: &Image, payload: &[u8]) {
    let mut bytes = Vec::new();
    frame::encode(payload, None, image.log_end, image.epoch, &mut bytes);
    let (number, at) = (
        image.log_end.0 / image.segment_bytes,
        image.log_end.0 % image.segment_bytes,
    );
    let path = Path::new(DIRECTORY)
        .join("log")
        .join(segment_file_name(number));
    if at + bytes.len() as u64 <= image.segment_bytes {
        let _ = vfs.write_raw(&path, LOG_BLOCK as u64 + at, &bytes);
    }
}

/// Opens the database and does what programs do with one. Every error is legal; but if it must hold
/// something, whatever can be read is that.
fn use_database(vfs: &SimVfs, holds: Option<&Found>) {
    let Ok(db) = open(vfs) else { return };
    if let Some(holds) = holds {
        assert!(read_is_true(&db, holds), "damage was read as data");
    }
    let _ = db.finish_rollbacks();
    if let Some(holds) = holds {
        assert!(read_is_true(&db, holds), "damage was undone as data");
    }
    let _ = found(&db);
    let _ = work(&db);
    for name in db.tables().unwrap_or_default() {
        if let Ok(table) = db.table(&name) {
            let _ = (db.verify_table(&table), db.statistics(&table));
        }
    }
    for xid in db.prepared_transactions() {
        let _ = db.rollback_prepared(&xid);
    }
    let _ = (db.purge(), db.checkpoint());
    drop(db.close());
}

/// Whether the rows that can be read are those that were written.
fn read_is_true(db: &Database, holds: &Found) -> bool {
    let (Ok(names), Ok(txn)) = (db.tables(), db.begin(Isolation::ReadCommitted)) else {
        return true;
    };
    let prepared = db.prepared_transactions() == holds.prepared;
    prepared
        && names.iter().eq(holds.tables.keys())
        && names.iter().all(|name| {
            let Ok(table) = db.table(name) else {
                return true;
            };
            let mut trees = table.trees().iter().zip(&holds.tables[name]);
            trees.all(|(tree, wanted)| match txn.range(tree, ..) {
                Ok(rows) => rows_are_true(rows, wanted),
                Err(_) => true,
            })
        })
}

/// Whether rows are the wanted ones, up to the first error.
fn rows_are_true(
    rows: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
    wanted: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> bool {
    let mut wanted = wanted.iter();
    for row in rows {
        match row {
            Ok((key, value)) if wanted.next() == Some((&key, &value)) => {}
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    wanted.next().is_none()
}

fn work(db: &Database) -> Result<(), Error> {
    for name in db.tables()? {
        let table = db.table(&name)?;
        let txn = db.begin(Isolation::RepeatableRead)?;
        for n in [0u64, 25, 101, 299, 5000] {
            let _ = txn.get(&table, &n.to_be_bytes());
            let _ = txn.upsert(&table, &n.to_be_bytes(), &[1; 900]);
            let _ = txn.upsert(&table, &n.to_be_bytes(), &[2; 9000]);
            let _ = txn.delete(&table, &(n + 1).to_be_bytes());
        }
        txn.savepoint("s")?;
        let rows = (6000..6050u64).map(|n| (n.to_be_bytes().to_vec(), vec![3; 100]));
        let _ = txn.insert_many(&table, rows);
        txn.rollback_to_savepoint("s")?;
        txn.commit()?;
    }
    Ok(())
}

fn damage_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = dice_seeds(16, 60);
    for (name, input) in super::records::record_seeds() {
        // A frame at the end of the log, of the closed and of the killed database.
        let payload = &input[2..];
        let Ok(length) = u8::try_from(payload.len()) else {
            continue;
        };
        for choice in [2, 1] {
            let bytes = [&[choice, 7, 0, 0, length], payload].concat();
            seeds.push((format!("frame{choice}-{name}"), bytes));
        }
    }
    seeds
}
