//! An observer, which may let other threads go first; and a clock, which lets time pass.

use super::faults::OpKind;
use parking_lot::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Sleep = dyn Fn(Duration) + Send + Sync;
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

/// See [`SimVfs::sleep_by`](super::SimVfs::sleep_by).
#[derive(Default)]
pub(super) struct Clock(Mutex<Option<Arc<Sleep>>>);

impl Clock {
    pub fn set(&self, sleep: Arc<Sleep>) {
        *self.0.lock() = Some(sleep);
    }

    /// The same clock for another disk.
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }

    /// Lets so much time pass. No lock of the disk may be held.
    pub fn sleep(&self, time: Duration) {
        let sleep = self.0.lock().clone();
        match sleep {
            Some(sleep) => sleep(time),
            None => std::thread::sleep(time),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.0.lock().is_some())
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({})", self.0.lock().is_some())
    }
}
