//! Which process this is, asked often: a forked child is another one.
//!
//! After `fork` a child has the memory of its parent and one thread of it. What it does with an
//! open database it does beside the parent: to the same files, without the parent's background
//! threads, with latches held by threads that it does not have. So it must be told apart, at every
//! call; `getpid` is a system call. A counter that `fork` raises in the child costs a load.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How often this process or an ancestor was forked since the first [`Owner`] was made.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Whether the C library counts: it may lack the memory to note the function to call.
static COUNTED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Things that are open in this process and have threads of their own.
static THREADED: AtomicU32 = AtomicU32::new(0);
/// This process was forked from one that had such things open.
static LACKS_THREADS: AtomicBool = AtomicBool::new(false);

/// Something is open that has threads of its own, as long as this is kept.
///
/// A child that is forked meanwhile lacks these threads, and any latch that one of them holds,
/// those of the language and of its libraries too, is held in the child for ever. So nothing can be
/// opened there that needs latches: see [`lacks_threads`].
#[derive(Debug)]
pub struct Threaded(Owner);

impl Threaded {
    /// Something is about to be opened.
    pub fn enter() -> Self {
        let owner = Owner::this_process();
        THREADED.fetch_add(1, Ordering::Relaxed);
        Self(owner)
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        if self.0.is_this_process() {
            THREADED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether this process was forked, and not replaced by `exec`, from one that had something open
/// with threads of its own.
pub fn lacks_threads() -> bool {
    LACKS_THREADS.load(Ordering::Relaxed)
}

/// A process, as one of its threads noted it.
///
/// ```
/// use inkstone_io::process::Owner;
/// assert!(Owner::this_process().is_this_process());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    forks: u32,
    /// Compared where forks are not counted.
    pid: Option<u32>,
}

impl Owner {
    /// This process.
    pub fn this_process() -> Self {
        WATCH.call_once(|| {
            // SAFETY: the function stays where it is, and does what a child of many threads may do
            // between fork and exec: it changes atomics.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            COUNTED.store(failed == 0, Ordering::Relaxed);
        });
        let counted = COUNTED.load(Ordering::Relaxed);
        Self {
            forks: FORKS.load(Ordering::Relaxed),
            pid: (!counted).then(std::process::id),
        }
    }

    /// Whether this is still that process, and not a child of it that was forked since.
    #[inline]
    pub fn is_this_process(&self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.forks
            && self.pid.is_none_or(|pid| pid == std::process::id())
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::this_process()
    }
}

extern "C" fn in_child() {
    if THREADED.swap(0, Ordering::Relaxed) > 0 {
        LACKS_THREADS.store(true, Ordering::Relaxed);
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
}
