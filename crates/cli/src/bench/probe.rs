//! What the device can do, measured on the same file system in the same run: the physical limit that
//! figures are compared with.

use crate::failure::{Failure, Result};
use crate::random::Random;
use inkstone_io::{
    AlignedBuffer, BackendChoice, Create, DIRECT_ALIGNMENT, File, Op, OpenOptions, Vfs, default_vfs,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the file that is probed.
const PROBE_BYTES: u64 = 16 << 20;

fn probe_file(vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn File>> {
    let options = |direct| OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct,
        dsync: false,
    };
    // A file system without O_DIRECT is measured through its cache.
    let opened = vfs
        .open(path, options(true))
        .or_else(|_| vfs.open(path, options(false)));
    opened.map_err(|e| Failure::io("open", path, e))
}

/// Syncs a second, one after the other, each after a write of 4 KiB over blocks that were written
/// before: what a log with one client does.
pub fn syncs_per_s(directory: &Path, seconds: f64) -> Result<f64> {
    let vfs =
        default_vfs(BackendChoice::Posix).map_err(|e| Failure::io("set up I/O", directory, e))?;
    let path = directory.join("probe");
    let file = probe_file(&*vfs, &path)?;
    let failed = |e| Failure::io("probe", &path, e);
    let block = AlignedBuffer::zeroed(1 << 20);
    for offset in (0..PROBE_BYTES).step_by(1 << 20) {
        file.write_at(&block, offset).map_err(failed)?;
    }
    file.sync().map_err(failed)?;
    let begin = Instant::now();
    let (mut syncs, time) = (0u64, Duration::from_secs_f64(seconds));
    while begin.elapsed() < time {
        let offset = syncs * DIRECT_ALIGNMENT as u64 % PROBE_BYTES;
        file.write_at(&block[..DIRECT_ALIGNMENT], offset)
            .map_err(failed)?;
        file.sync().map_err(failed)?;
        syncs += 1;
    }
    let rate = syncs as f64 / begin.elapsed().as_secs_f64();
    drop(file);
    vfs.remove(&path).map_err(failed)?;
    Ok(rate)
}

/// Reads of random pages a second with 32 of them in flight, of a file that is there.
pub fn reads_per_s(path: &Path, page_size: usize, seconds: f64) -> Result<f64> {
    let vfs = default_vfs(BackendChoice::Auto).map_err(|e| Failure::io("set up I/O", path, e))?;
    let options = |direct| OpenOptions {
        create: Create::Never,
        read_only: true,
        direct,
        dsync: false,
    };
    let opened = vfs
        .open(path, options(true))
        .or_else(|_| vfs.open(path, options(false)));
    let failed = |e| Failure::io("probe", path, e);
    let file = opened.map_err(failed)?;
    let pages = file.len().map_err(failed)? / page_size as u64;
    if pages == 0 {
        return Ok(0.0);
    }
    let mut batch = vfs.batch(32).map_err(failed)?;
    let mut buffers: Vec<AlignedBuffer> =
        (0..512).map(|_| AlignedBuffer::zeroed(page_size)).collect();
    let mut random = Random::new(3);
    let begin = Instant::now();
    let (mut reads, time) = (0u64, Duration::from_secs_f64(seconds));
    while begin.elapsed() < time {
        let mut operations: Vec<Op<'_>> = buffers
            .iter_mut()
            .map(|buffer| Op::Read {
                file: &*file,
                buffer,
                offset: random.below(pages) * page_size as u64,
            })
            .collect();
        for result in batch.run(&mut operations) {
            result.map_err(failed)?;
            reads += 1;
        }
    }
    Ok(reads as f64 / begin.elapsed().as_secs_f64())
}
