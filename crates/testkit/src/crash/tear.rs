//! Whether a file system of the kernel keeps writes of a page whole at a power loss, without the
//! engine: a thread writes pages over and over, as the engine would, while another one syncs
//! another file, as commits do. Each page holds one number; a page of two was torn.
//!
//! The engine notices torn pages only where it reads them behind a recovery. This sees each.

use super::stage::Stage;
use crate::Rng;
use crate::fuse::Trigger;
use crate::loops::Case;
use inkstone::internals::options::Doublewrite;
use inkstone_io::posix::PosixVfs;
use inkstone_io::{AlignedBuffer, Create, File, OpenOptions, Vfs};
use std::io::{Result, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pages that are written, one chosen at random after the other.
const PAGES: u64 = 256;
/// The power fails at one of so many writes and flushes of the device.
const MUTATIONS_MAX: u64 = 600;
/// How long that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const WORD: usize = size_of::<u64>();

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Torn {
    /// Power losses.
    pub losses: u64,
    /// Of these, how many left a torn page.
    pub losses_with_torn: u64,
    /// Torn pages, of all power losses.
    pub pages: u64,
}

/// Loses power so many times. `home`: a directory of its own, which is made.
pub fn probe(home: &Path, case: &'static Case, losses: u64, seed: u64) -> Result<Torn> {
    let mut stage = Stage::losing_power_below(home, case)?;
    let mut rng = Rng::new(seed);
    let mut found = Torn::default();
    for _ in 0..losses {
        std::fs::create_dir_all(stage.database())?;
        write_until_dark(&stage, case, &mut rng)?;
        stage.power_loss(rng.next())?;
        let bytes = std::fs::read(stage.database().join("pages"))?;
        let torn = bytes.chunks(case.page_bytes).filter(|page| is_torn(page));
        let torn = torn.count() as u64;
        found.losses += 1;
        found.losses_with_torn += u64::from(torn > 0);
        found.pages += torn;
    }
    Ok(found)
}

fn is_torn(page: &[u8]) -> bool {
    page.chunks(WORD).any(|word| word != &page[..WORD])
}

/// Writes and syncs until the power has failed, and the threads have seen it.
fn write_until_dark(stage: &Stage, case: &Case, rng: &mut Rng) -> Result<()> {
    let options = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: true,
        dsync: false,
    };
    let pages = PosixVfs::new().open_file(&stage.database().join("pages"), options)?;
    let mut buffer = AlignedBuffer::zeroed(case.page_bytes);
    for page in 0..PAGES {
        pages.write_at(&buffer, page * case.page_bytes as u64)?;
    }
    pages.sync()?;
    let mut log = std::fs::File::create(stage.database().join("log"))?;
    log.write_all(&[0; 4096])?;
    log.sync_all()?;
    std::fs::File::open(stage.database())?.sync_all()?;
    stage.arm(Trigger::Mutation(1 + rng.below(MUTATIONS_MAX)));
    let mut numbers = Rng::new(rng.next());
    let stop = AtomicBool::new(false);
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while going() && write_page(&*pages, case, &mut buffer, &mut numbers).is_ok() {}
        });
        scope.spawn(|| while going() && sync_more(&mut log).is_ok() {});
        let begin = Instant::now();
        while !stage.is_dead() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    stage.disarm();
    Ok(())
}

fn write_page(
    pages: &dyn File,
    case: &Case,
    buffer: &mut AlignedBuffer,
    numbers: &mut Rng,
) -> Result<()> {
    let number = numbers.next().to_le_bytes();
    buffer
        .chunks_mut(WORD)
        .for_each(|word| word.copy_from_slice(&number));
    let offset = numbers.below(PAGES) * case.page_bytes as u64;
    match case.doublewrite {
        Doublewrite::Atomic => pages.write_atomic_at(buffer, offset),
        Doublewrite::On | Doublewrite::Off => pages.write_at(buffer, offset),
    }
}

fn sync_more(log: &mut std::fs::File) -> Result<()> {
    log.write_all(b"a commit")?;
    log.sync_data()
}
