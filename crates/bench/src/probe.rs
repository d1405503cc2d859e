//! What the device can do, measured on the same file system in the same run: the physical limit
//! that figures are compared with.

use crate::failure::{Failure, Result};
use crate::random::Random;
use inkstone::Options;
use inkstone_io::{
    AlignedBuffer, BackendChoice, Batch, Create, DIRECT_ALIGNMENT, Directory, File, Op,
    OpenOptions, Vfs, default_vfs,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the file that is measured with.
const NAME: &str = "probe";
/// Operations in flight, but for syncs, which come one after the other.
const DEPTH: usize = 32;
/// Bytes of the file that is written to.
const SYNC_FILE: u64 = 16 << 20;
/// Bytes of a write of the bandwidth probe.
const WRITE: usize = 1 << 20;

/// A file of the probe, removed when this is dropped.
struct Probe {
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
}

impl Probe {
    /// Makes a file of written blocks.
    fn create(
        directory: &Path,
        bytes: u64,
        choice: BackendChoice,
        open: OpenOptions,
    ) -> Result<Self> {
        let path = directory.join(NAME);
        let failed = |e| Failure::io("probe", &path, e);
        let vfs = default_vfs(choice).map_err(failed)?;
        let directory = vfs.open_directory(directory, Create::Never);
        let mut probe = Self {
            vfs,
            directory: directory.map_err(failed)?,
            path: path.clone(),
            file: None,
        };
        let file = probe.directory.open(NAME, open).map_err(failed)?;
        probe.file = Some(file.clone());
        let mut block = AlignedBuffer::zeroed(WRITE);
        Random::new(5).fill(&mut block);
        for offset in (0..bytes).step_by(WRITE) {
            file.write_at(&block, offset).map_err(failed)?;
        }
        file.sync().map_err(failed)?;
        Ok(probe)
    }

    fn file(&self) -> Result<&Arc<dyn File>> {
        let missing = || Failure::Check("the probe has no file".to_owned());
        self.file.as_ref().ok_or_else(missing)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.file = None;
        if let Err(e) = self.directory.remove(NAME) {
            eprintln!("inkstone: remove {}: {e}", self.path.display());
        }
    }
}

/// Syncs a second, one after the other, each after a block of 4 KiB was appended to a file whose
/// blocks were written before: what the log does with one client. The file is opened as these
/// options open the log: past the page cache or through it, with a sync or by `O_DSYNC`.
pub fn syncs_per_s(directory: &Path, options: &Options, seconds: f64) -> Result<f64> {
    let open = OpenOptions {
        create: Create::New,
        read_only: false,
        direct: !options.log_file_buffering,
        dsync: options.log_write_through,
    };
    let probe = Probe::create(directory, SYNC_FILE, BackendChoice::Posix, open)?;
    let (file, failed) = (probe.file()?, |e| Failure::io("probe", &probe.path, e));
    let mut block = AlignedBuffer::zeroed(DIRECT_ALIGNMENT);
    Random::new(6).fill(&mut block);
    let begin = Instant::now();
    let (mut syncs, time) = (0u64, Duration::from_secs_f64(seconds));
    while begin.elapsed() < time || syncs == 0 {
        let offset = syncs * DIRECT_ALIGNMENT as u64 % SYNC_FILE;
        file.write_at(&block, offset).map_err(failed)?;
        if !open.dsync {
            file.sync().map_err(failed)?;
        }
        syncs += 1;
    }
    Ok(syncs as f64 / begin.elapsed().as_secs_f64())
}

/// Reads of random pages a second with 32 of them in flight, of a file that is there, past the page
/// cache. The file may be that of an open table: it grows, and is cut where its end is free.
pub fn reads_per_s(path: &Path, page_size: usize, seconds: f64) -> Result<f64> {
    let failed = |e| Failure::io("probe", path, e);
    let vfs = default_vfs(BackendChoice::Auto).map_err(failed)?;
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: true,
        dsync: false,
    };
    let file = vfs.open_file(path, options).map_err(failed)?;
    let mut batch = vfs.batch(DEPTH).map_err(failed)?;
    let mut buffers: Vec<AlignedBuffer> = (0..16 * DEPTH)
        .map(|_| AlignedBuffer::zeroed(page_size))
        .collect();
    let mut random = Random::new(3);
    let begin = Instant::now();
    let (mut reads, time) = (0u64, Duration::from_secs_f64(seconds));
    while begin.elapsed() < time || reads == 0 {
        let pages = file.len().map_err(failed)? / page_size as u64;
        if pages == 0 {
            return Err(Failure::Check(format!("{}: no whole page", path.display())));
        }
        let read = |buffer| Op::Read {
            file: &*file,
            buffer,
            offset: random.below(pages) * page_size as u64,
        };
        let buffers = buffers.iter_mut().map(|buffer| &mut buffer[..]);
        let mut operations: Vec<Op<'_>> = buffers.map(read).collect();
        match run(&mut *batch, &mut operations) {
            Ok(done) => reads += done,
            // The file was cut since its length was asked for.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(reads as f64 / begin.elapsed().as_secs_f64())
}

/// Bytes a second that the device takes: writes of 1 MiB one behind the other, 32 of them in
/// flight, past the page cache.
#[derive(Clone, Copy, Debug)]
pub struct WriteBandwidth {
    /// To a file that grows, with the sync that makes it durable: what a load can do.
    pub new_file: f64,
    /// Over blocks that were written before: the device without its file system.
    pub overwrite: f64,
}

impl WriteBandwidth {
    /// The mean of two looks.
    pub fn mean(self, other: Self) -> Self {
        Self {
            new_file: (self.new_file + other.new_file) / 2.0,
            overwrite: (self.overwrite + other.overwrite) / 2.0,
        }
    }
}

/// Measures with a file of so many bytes, which it writes twice.
pub fn write_bandwidth(directory: &Path, file_bytes: u64) -> Result<WriteBandwidth> {
    let open = OpenOptions {
        create: Create::New,
        read_only: false,
        direct: true,
        dsync: false,
    };
    let probe = Probe::create(directory, 0, BackendChoice::Auto, open)?;
    let (file, failed) = (probe.file()?, |e| Failure::io("probe", &probe.path, e));
    let mut batch = probe.vfs.batch(DEPTH).map_err(failed)?;
    let mut block = AlignedBuffer::zeroed(WRITE);
    Random::new(7).fill(&mut block);
    let writes = file_bytes.div_ceil(WRITE as u64).max(DEPTH as u64);
    let mut pass = || -> Result<f64> {
        let begin = Instant::now();
        let write = |n| Op::Write {
            file: &**file,
            buffers: vec![&block[..]],
            offset: n * WRITE as u64,
            atomic: false,
        };
        let mut operations: Vec<Op<'_>> = (0..writes).map(write).collect();
        run(&mut *batch, &mut operations).map_err(failed)?;
        file.sync().map_err(failed)?;
        Ok((writes * WRITE as u64) as f64 / begin.elapsed().as_secs_f64())
    };
    Ok(WriteBandwidth {
        new_file: pass()?,
        overwrite: pass()?,
    })
}

/// Runs operations, and says how many.
fn run(batch: &mut dyn Batch, operations: &mut [Op<'_>]) -> std::io::Result<u64> {
    batch
        .run(operations)
        .into_iter()
        .collect::<std::io::Result<()>>()?;
    Ok(operations.len() as u64)
}
