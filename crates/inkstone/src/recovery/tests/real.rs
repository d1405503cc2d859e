//! Once over everything real: log, pool, page store and files on a simulated disk that loses power.

use super::rig::PAGE;
use crate::buffer::{BufferPool, PoolOptions, RedoLog};
use crate::counters::Counters;
use crate::log::{Log, LogOptions, LogParams, ReadParams};
use crate::mtr::Mtr;
use crate::options::{Doublewrite, FlushMethod, LogWrite};
use crate::poison::Poison;
use crate::recovery::{FrameSource, LogSource, RedoInputs, RedoOptions, redo};
use crate::storage::Storage;
use crate::store::{FilePageStore, Placement, SpaceFiles, StoreOptions, repair};
use crate::{Error, Result};
use inkstone_format::header::{PageType, page_lsn};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use inkstone_io::Vfs;
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

const SPACE: SpaceId = SpaceId(2);
const SEGMENT: u64 = 1 << 20;
const UUID: [u8; 16] = [3; 16];

fn page(number: u32) -> PageId {
    PageId::new(SPACE, PageNo(number))
}

struct Open {
    files: Arc<SpaceFiles>,
    pool: Arc<BufferPool>,
    counters: Arc<Counters>,
    poison: Poison,
    late: Arc<LateLog>,
}

/// The pool's log, which is opened after the pool.
#[derive(Default)]
struct LateLog(OnceLock<Arc<Log>>);

impl RedoLog for LateLog {
    fn ready_lsn(&self) -> Lsn {
        // As in an open database: until the log is there, the checkpoint.
        self.0.get().map_or(Lsn(SEGMENT), |log| log.ready_lsn())
    }
    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        self.0.get().map_or(Ok(()), |log| log.wait_durable(lsn))
    }
    fn capacity_bytes(&self) -> u64 {
        1 << 30
    }
}

fn open(vfs: &SimVfs) -> Open {
    let options = StoreOptions {
        page_size: PAGE as u32,
        doublewrite: Doublewrite::On,
        doublewrite_skip_fresh: true,
        flush_method: FlushMethod::ODirect,
        open_files: 0,
        pool_bytes: 128 << 20,
    };
    let directory = Path::new("/db");
    vfs.create_dir_all(&directory.join("log")).unwrap();
    let directory = vfs.directory(directory);
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (counters, poison) = (Arc::new(Counters::default()), Poison::default());
    let late = Arc::new(LateLog::default());
    let files = SpaceFiles::new(directory.clone(), options, counters.clone(), poison.clone());
    let files = Arc::new(files.unwrap());
    repair(&*directory, &files, UUID, Lsn(SEGMENT)).unwrap();
    let store = FilePageStore::new(
        vfs,
        directory.clone(),
        UUID,
        options,
        files.clone(),
        counters.clone(),
        poison.clone(),
    );
    let pool = BufferPool::new(
        PoolOptions {
            page_size: PAGE,
            bytes: 32 * PAGE,
            instances: 2,
        },
        Arc::new(store.unwrap()),
        late.clone(),
        counters.clone(),
        poison.clone(),
    )
    .unwrap();
    pool.start_cleaners().unwrap();
    Open {
        files,
        pool,
        counters,
        poison,
        late,
    }
}

impl Open {
    fn storage(&self, vfs: &SimVfs) -> Storage {
        let params = LogParams {
            vfs: Arc::new(vfs.clone()),
            directory: vfs.directory("/db/log"),
            uuid: UUID,
            segment_bytes: SEGMENT,
            epoch: 1,
            start_lsn: Lsn(SEGMENT),
            end_block: Vec::new(),
            options: LogOptions {
                capacity_bytes: 8 << 20,
                buffer_bytes: 2 << 20,
                buffering: false,
                write: LogWrite::Sync,
                write_through: false,
                archive: false,
            },
            keep_from: Lsn(0),
            is_new: true,
            is_closed: false,
            may_be_unused: false,
        };
        let log = Log::open(params, self.counters.clone(), self.poison.clone()).unwrap();
        let _ = self.late.0.set(log.clone());
        Storage {
            pool: self.pool.clone(),
            log,
            counters: self.counters.clone(),
            poison: self.poison.clone(),
            unlogged: Arc::default(),
            page_size: PAGE,
        }
    }
}

/// Creates a file and changes more of its pages than the pool holds.
fn work(storage: &Storage) -> Lsn {
    let mut end = Lsn(0);
    for round in 0..4u8 {
        for number in 0..60 {
            let id = page(number);
            let mut mtr = if round == 0 {
                let mut frames = storage.pool.reserve(1).unwrap();
                let mut mtr = Mtr::new(storage);
                let index = mtr.push(storage.pool.create(id, &mut frames).unwrap());
                if number == 0 {
                    mtr.note(&Record::FileCreate { space: SPACE });
                }
                let page_type = PageType::Overflow as u8;
                mtr.replay(
                    index,
                    &Record::PageInit {
                        page: id,
                        page_type,
                    },
                );
                mtr
            } else {
                let page = storage.pool.exclusive(id).unwrap();
                let mut mtr = Mtr::new(storage);
                mtr.push(page);
                mtr
            };
            let offset = 100 + u32::from(round);
            let bytes = vec![round + number as u8];
            mtr.replay(
                0,
                &Record::Bytes {
                    page: id,
                    offset,
                    bytes,
                },
            );
            end = mtr.commit().unwrap().1;
        }
    }
    storage.log.wait_durable(end).unwrap();
    end
}

fn source(vfs: &SimVfs, must_reach: Lsn) -> LogSource {
    LogSource::open(ReadParams {
        directory: vfs.directory("/db/log"),
        uuid: UUID,
        segment_bytes: SEGMENT,
        from: Lsn(SEGMENT),
        epoch: 1,
        newest_epoch: 2,
        must_reach,
        closed_at: None,
    })
    .unwrap()
}

#[test]
fn a_mini_transaction_that_is_dropped_after_a_change_poisons() {
    let vfs = SimVfs::new(1);
    let opened = open(&vfs);
    opened.files.create(SPACE, 60, Placement::InPlace).unwrap();
    let storage = opened.storage(&vfs);
    work(&storage);
    let begin = || {
        let mut mtr = Mtr::new(&storage);
        mtr.push(storage.pool.exclusive(page(3)).unwrap());
        mtr
    };
    drop(begin());
    assert!(!storage.poison.is_set(), "nothing was changed");
    let mut changed = begin();
    let (page, offset, bytes) = (page(3), 200, vec![1]);
    changed.replay(
        0,
        &Record::Bytes {
            page,
            offset,
            bytes,
        },
    );
    drop(changed);
    let error = storage.poison.check().unwrap_err().to_string();
    assert!(error.contains("not in the log"), "{error}");
}

#[test]
fn a_database_is_whole_after_power_loss() {
    for seed in 0..12 {
        let first = SimVfs::new(seed);
        let opened = open(&first);
        opened.files.create(SPACE, 60, Placement::InPlace).unwrap();
        let end = work(&opened.storage(&first));
        let mut vfs = first.crash(seed);
        // Recovery is interrupted by power loss, twice, and then runs through.
        for turn in 0..3 {
            if turn < 2 {
                vfs.crash_at(20 + 13 * seed);
            }
            let again = open(&vfs);
            let mut log = source(&vfs, end);
            let inputs = RedoInputs {
                pool: again.pool.clone(),
                files: again.files.clone(),
                checkpoint: Lsn(SEGMENT),
                options: RedoOptions {
                    threads: 2,
                    index_bytes_max: 4000,
                },
                spill: None,
                progress: &|_| {},
            };
            let outcome = redo(&mut log, inputs);
            if turn < 2 {
                again.pool.close();
                vfs = vfs.crash(seed + 100);
                continue;
            }
            assert_eq!(outcome.unwrap().end, end, "seed {seed}");
            for number in 0..60 {
                let found = again.pool.shared(page(number)).unwrap();
                let expected: Vec<u8> = (0..4).map(|round| round + number as u8).collect();
                assert_eq!(found[100..104], expected[..], "seed {seed}, page {number}");
                assert!(page_lsn(&found) <= end);
            }
        }
    }
}

#[test]
fn places_in_the_log_are_files_and_offsets() {
    let vfs = SimVfs::new(1);
    let opened = open(&vfs);
    opened.files.create(SPACE, 60, Placement::InPlace).unwrap();
    work(&opened.storage(&vfs));
    let log = source(&vfs, Lsn(0));
    let (path, offset) = log.locate(Lsn(SEGMENT + 77));
    assert_eq!(
        (path.to_str(), offset),
        (Some("/db/log/0000000000000001.log"), 4096 + 77)
    );
    assert!(vfs.exists(&path).unwrap());
    assert!(log.bytes_total().is_some_and(|bytes| bytes >= SEGMENT));
    assert_eq!((log.position(), log.epoch()), (Lsn(SEGMENT), 1));
    // Changes of a file that is gone, and was created before the checkpoint.
    let other = open(&SimVfs::new(2));
    let checkpoint = source(&vfs, Lsn(0)).next().unwrap().unwrap().end;
    let mut log = source(&vfs, Lsn(0));
    let inputs = RedoInputs {
        pool: other.pool.clone(),
        files: other.files.clone(),
        checkpoint,
        options: RedoOptions {
            threads: 1,
            index_bytes_max: 1 << 20,
        },
        spill: None,
        progress: &|_| {},
    };
    let error = redo(&mut log, inputs).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(
        error.to_string().contains("tablespace 2 is missing"),
        "{error}"
    );
}
