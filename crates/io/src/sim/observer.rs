//! Somebody who looks on, and may let others go first.

use super::faults::OpKind;
use parking_lot::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

type Call = dyn Fn(OpKind, &Path, &[u8]) + Send + Sync;

/// See [`SimVfs::observe`](super::SimVfs::observe).
#[derive(Default)]
pub(super) struct Observer(Mutex<Option<Arc<Call>>>);

impl Observer {
    pub fn set(&self, call: Arc<Call>) {
        *self.0.lock() = Some(call);
    }

    /// The same observer for another disk.
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }

    /// Calls the observer, if there is one. No lock of the disk may be held.
    pub fn see(&self, kind: OpKind, path: &Path, bytes: &[u8]) -> bool {
        let call = self.0.lock().clone();
        if let Some(call) = &call {
            call(kind, path, bytes);
        }
        call.is_some()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({})", self.0.lock().is_some())
    }
}
