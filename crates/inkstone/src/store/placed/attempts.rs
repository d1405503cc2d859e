//! Whether it is worth while to compress the next page of a tablespace.
//!
//! Rows of random bytes, of pictures, of what is compressed already: no image of them is a unit
//! shorter, and to find that out costs more than all else that a write of a page does. So after
//! some failures in a row only a few pages are tried, until one is shorter again.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Failures in a row after which few pages are tried.
const FAILURES: u32 = 16;
/// Of so many pages one then is.
const EVERY: u32 = 16;

/// The pages since one was shorter for being compressed.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    since_success: AtomicU32,
}

impl Attempts {
    /// Whether to try the next page.
    pub fn is_due(&self) -> bool {
        let since = self.since_success.load(Ordering::Relaxed);
        since < FAILURES || since.is_multiple_of(EVERY)
    }

    /// A page was written, compressed or not.
    pub fn note(&self, is_compressed: bool) {
        if is_compressed {
            self.since_success.store(0, Ordering::Relaxed);
        } else {
            self.since_success.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_are_tried_after_failures_and_all_after_a_success() {
        let attempts = Attempts::default();
        let tried = |pages: u32, compresses: bool| {
            let one = |_: &u32| {
                let is_due = attempts.is_due();
                attempts.note(is_due && compresses);
                is_due
            };
            (0..pages).filter(one).count() as u32
        };
        assert_eq!(tried(FAILURES, false), FAILURES);
        assert_eq!(tried(10 * EVERY, false), 10);
        let until_found = tried(EVERY, true);
        assert!(until_found >= 1);
        assert_eq!(tried(50, true), 50);
    }
}
