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
            // between fork and exec: it changes an atomic.
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
    FORKS.fetch_add(1, Ordering::Relaxed);
}
