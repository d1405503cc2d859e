//! Hot paths of the engine: reserving and copying in the log, looking a page up in the pool, and
//! what one transaction costs in memory. `cargo bench -p inkstone-bench --bench paths`.

#![expect(
    missing_docs,
    reason = "`criterion_group!` makes a function without any"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inkstone::internals::buffer::{BufferPool, PageStore, PageWriter, PoolOptions, RedoLog};
use inkstone::internals::counters::Counters;
use inkstone::internals::log::{Claim, Log, LogOptions, LogParams};
use inkstone::internals::options::LogWrite;
use inkstone::internals::poison::Poison;
use inkstone::{Database, Durability, Isolation, Options, Result};
use inkstone_format::header::{PageType, init_page};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use inkstone_io::{BackendChoice, Create, default_vfs};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers without a pattern.
struct Mixed(u64);

impl Mixed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn log_append(criterion: &mut Criterion) {
    const SEGMENT: u64 = 64 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let vfs = default_vfs(BackendChoice::Posix).expect("a file system");
    let log = vfs.open_directory(&directory.path().join("log"), Create::New);
    let params = LogParams {
        vfs,
        directory: log.expect("a directory"),
        uuid: [1; 16],
        segment_bytes: SEGMENT,
        epoch: 1,
        start_lsn: Lsn(SEGMENT),
        end_block: Vec::new(),
        options: LogOptions {
            capacity_bytes: 16 * SEGMENT,
            buffer_bytes: 64 << 20,
            buffering: true,
            write: LogWrite::Sync,
            write_through: false,
            archive: false,
        },
        keep_from: Lsn(0),
        is_new: true,
        is_closed: false,
        may_be_unused: false,
    };
    let log = Log::open(params, Arc::new(Counters::default()), Poison::default()).expect("a log");
    let payload = [7; 280];
    let mut group = criterion.benchmark_group("log");
    group.throughput(Throughput::Bytes(payload.len() as u64));
    group.bench_function("reserve, copy and publish 280 bytes", |b| {
        b.iter_custom(|times| {
            let (mut time, mut left) = (Duration::ZERO, times);
            // What the ring takes without a wait is timed; that it is written then is not.
            while left > 0 {
                let now = left.min(1 << 16);
                let begin = Instant::now();
                for _ in 0..now {
                    log.append(black_box(&payload), Claim::WhenDue, |_, _| {})
                        .expect("appended");
                }
                time += begin.elapsed();
                left -= now;
                log.wait_durable(log.current_lsn()).expect("durable");
                log.set_keep_from(log.durable_lsn());
            }
            time
        });
    });
    group.finish();
    log.close().expect("closed");
}

/// A log that has nothing to do with the pool's pages.
struct NoLog;

impl RedoLog for NoLog {
    fn ready_lsn(&self) -> Lsn {
        Lsn(1)
    }
    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
    fn capacity_bytes(&self) -> u64 {
        1 << 30
    }
}

/// A store of empty pages.
struct Empty;

impl PageStore for Empty {
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        init_page(buffer, id, PageType::Free);
        Ok(())
    }
    fn writer(&self) -> Result<Box<dyn PageWriter>> {
        Ok(Box::new(Self))
    }
}

impl PageWriter for Empty {
    fn write(&mut self, pages: &mut [inkstone::internals::buffer::PageImage<'_>]) -> Result<()> {
        pages.iter().for_each(|page| page.landed.set(true));
        Ok(())
    }
}

/// Pages of the pool, half of them resident.
const FRAMES: u64 = 8192;

fn page_lookup(criterion: &mut Criterion) {
    let pool = BufferPool::new(
        PoolOptions {
            page_size: 4096,
            bytes: FRAMES as usize * 4096,
            instances: 8,
        },
        Arc::new(Empty),
        Arc::new(NoLog),
        Arc::new(Counters::default()),
        Poison::default(),
    );
    let pool = pool.expect("a pool");
    let page = |n: u64| PageId {
        space: SpaceId(1),
        page: PageNo(n as u32 + 1),
    };
    for n in 0..FRAMES / 2 {
        drop(pool.shared(page(n)).expect("loaded"));
    }
    let mut mixed = Mixed(1);
    criterion.bench_function("page table lookup, resident", |b| {
        b.iter(|| {
            pool.optimistic_if_resident(page(mixed.below(FRAMES / 2)))
                .is_some()
        });
    });
    criterion.bench_function("page table lookup, absent", |b| {
        b.iter(|| {
            let absent = FRAMES + mixed.below(FRAMES);
            pool.optimistic_if_resident(page(absent)).is_some()
        });
    });
    criterion.bench_function("shared latch of a resident page", |b| {
        b.iter(|| {
            drop(
                pool.shared(page(mixed.below(FRAMES / 2)))
                    .expect("resident"),
            );
        });
    });
    pool.close();
}

const ROWS: u64 = 100_000;
const VALUE: [u8; 120] = [7; 120];

fn transactions(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options {
        buffer_pool_size: 256 << 20,
        log_file_size: 256 << 20,
        log_file_buffering: true,
        flush_log_at_trx_commit: Durability::Lazy,
        ..Options::default()
    };
    let db = Database::open(directory.path().join("db"), options).expect("a database");
    let table = db.create_table("t", &[]).expect("a table");
    let load = db.begin(Isolation::RepeatableRead).expect("begun");
    load.insert_many(&table, (0..ROWS).map(|n| (n.to_be_bytes(), VALUE)))
        .expect("inserted");
    load.commit().expect("committed");
    let mut mixed = Mixed(2);
    let reader = db.begin(Isolation::RepeatableRead).expect("begun");
    criterion.bench_function("point read", |b| {
        b.iter(|| {
            let key = mixed.below(ROWS).to_be_bytes();
            reader.get(&table, &key).expect("read").expect("there")
        });
    });
    reader.commit().expect("committed");
    criterion.bench_function("update of one row and commit, setting 0", |b| {
        b.iter(|| {
            let transaction = db.begin(Isolation::ReadCommitted)?;
            let mut value = VALUE;
            value[..8].copy_from_slice(&mixed.below(u64::MAX >> 1).to_be_bytes());
            transaction.update(&table, &mixed.below(ROWS).to_be_bytes(), &value)?;
            transaction.commit()
        });
    });
    let mut next = ROWS;
    let inserts = db.begin(Isolation::ReadCommitted).expect("begun");
    criterion.bench_function("insert of one row behind the last", |b| {
        b.iter(|| {
            next += 1;
            inserts.insert(&table, &next.to_be_bytes(), &VALUE)
        });
    });
    inserts.commit().expect("committed");
    drop(table);
    db.close().expect("closed");
}

criterion_group! {
    name = paths;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = log_append, page_lookup, transactions
}
criterion_main!(paths);
