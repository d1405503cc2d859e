//! Memory that a ring knows: its pages are pinned and looked up once, and not at each transfer.

use crate::MemoryHandle;
use io_uring::IoUring;

/// The registered buffers of one ring, in the order of their indexes.
#[derive(Debug, Default)]
pub(super) struct Registered(Vec<MemoryHandle>);

impl Registered {
    /// Registers `memory` in place of what was. The kernel may refuse (`RLIMIT_MEMLOCK`): then
    /// nothing is registered, and transfers go the usual way. No operation may be in flight.
    pub fn replace(&mut self, ring: &IoUring, memory: &[MemoryHandle]) -> bool {
        if !self.0.is_empty() {
            if ring.submitter().unregister_buffers().is_err() {
                return false;
            }
            self.0.clear();
        }
        let full = memory.iter().filter(|buffer| buffer.length() > 0);
        let kept: Vec<_> = full.cloned().collect();
        if kept.is_empty() || kept.len() > usize::from(u16::MAX) {
            return false;
        }
        let vectors: Vec<_> = kept
            .iter()
            .map(|buffer| libc::iovec {
                iov_base: buffer.start().cast(),
                iov_len: buffer.length(),
            })
            .collect();
        // SAFETY: the memory is valid, and stays so while it is registered: `self` keeps it until
        // it was unregistered above, or until the ring, which is dropped before `self`, is gone.
        let registered = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        if registered {
            self.0 = kept;
        }
        registered
    }

    /// The index of the buffer that holds these bytes as a whole.
    pub fn index_of(&self, start: *const u8, length: u32) -> Option<u16> {
        let holds = |buffer: &MemoryHandle| {
            let from = start.addr().checked_sub(buffer.start().addr());
            from.is_some_and(|from| {
                from < buffer.length() && length as usize <= buffer.length() - from
            })
        };
        let index = self.0.iter().position(holds)?;
        u16::try_from(index).ok()
    }
}
