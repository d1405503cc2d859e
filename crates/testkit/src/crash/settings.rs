//! Options of the engine from a seed: everything that changes how bytes get to the disk.

use crate::Rng;
use crate::fuse::Surface;
use crate::loops::Case;
use inkstone::Options;
use inkstone::internals::options::{Doublewrite, Durability, FlushMethod, IoBackend, LogWrite};

/// Where a run takes place, as far as options depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The surface of the disk that loses power; `None` on a file system of this machine.
    pub surface: Option<Surface>,
    /// Whether it takes files that are opened with `O_DIRECT`.
    pub takes_direct: bool,
    /// The backend.
    pub backend: IoBackend,
    /// What a file system of the kernel decides, if the database lies on one above such a disk.
    pub case: Option<&'static Case>,
}

/// The surface of a disk for a page size, drawn at random.
pub fn surface(rng: &mut Rng, page_size: u64) -> Surface {
    match rng.below(10) {
        0..=6 => Surface::Plain,
        7 | 8 => Surface::Untorn(page_size),
        _ => Surface::NoCache,
    }
}

/// A page size, drawn at random: mostly small, for many pages.
pub fn page_size(rng: &mut Rng) -> u64 {
    rng.pick(&[4, 4, 4, 8, 8, 16, 16, 16, 32, 64]) << 10
}

/// Options for the next opening. The page size stays.
pub fn vary(rng: &mut Rng, options: &mut Options, place: Place) {
    let durabilities = [
        Durability::Sync,
        Durability::Sync,
        Durability::Sync,
        Durability::Write,
        Durability::Lazy,
    ];
    options.io_backend = place.backend;
    options.buffer_pool_size = options.page_size * rng.pick(&[64, 64, 128, 512]);
    options.buffer_pool_instances = rng.pick(&[1, 2, 8]);
    options.buffer_pool_dump_at_shutdown = rng.chance(50);
    options.log_file_size = rng.pick(&[4, 4, 8, 16]) << 20;
    options.log_buffer_size = rng.pick(&[2, 2, 16]) << 20;
    options.log_file_buffering = !place.takes_direct || rng.chance(40);
    options.log_write = rng.pick(&[LogWrite::Sync, LogWrite::Async]);
    options.log_write_through = rng.chance(25);
    options.log_archive = rng.chance(10);
    options.flush_log_at_trx_commit = rng.pick(&durabilities);
    let skips = may_skip_doublewrite(options.page_size, place) && rng.chance(60);
    options.doublewrite = match place.case {
        Some(case) => case.doublewrite,
        None if skips => Doublewrite::Off,
        None => Doublewrite::On,
    };
    options.doublewrite_skip_fresh = rng.chance(70);
    options.flush_method = flush_method(rng, place);
    options.lock_wait_timeout_ms = rng.pick(&[20, 200, 1000]);
    options.version_store_memory = 1 << 20;
    options.recovery_threads = rng.from_to(1, 4);
    options.recovery_memory = rng.pick(&[0, 1 << 16, 1 << 20]);
}

/// Only where pages are never torn. A killed process can tear a write too, between pages of the
/// page cache (4096 bytes).
fn may_skip_doublewrite(page_size: u64, place: Place) -> bool {
    match place.surface {
        Some(Surface::Untorn(_)) => true,
        Some(_) => false,
        None => page_size == 4096,
    }
}

fn flush_method(rng: &mut Rng, place: Place) -> FlushMethod {
    // Untorn writes need it.
    if place
        .case
        .is_some_and(|case| case.doublewrite == Doublewrite::Atomic)
    {
        return FlushMethod::ODirect;
    }
    let mut methods = vec![FlushMethod::Fsync, FlushMethod::ODsync];
    if place.takes_direct {
        methods.extend([FlushMethod::ODirect, FlushMethod::ODirect]);
    }
    // Its promise holds only where the device has no volatile cache, or power is never lost.
    let no_cache = matches!(place.surface, None | Some(Surface::NoCache));
    if place.takes_direct && no_cache {
        methods.push(FlushMethod::ODirectNoFsync);
    }
    rng.pick(&methods)
}
