//! Atomics of the standard library, with a point before each operation where another thread may go
//! on. They have the layout of the plain ones, so that a byte of the log ring can be one.

pub use std::sync::atomic::Ordering;

use shuttle::sync::atomic::AtomicBool as Point;
use std::sync::atomic as plain;

/// Another thread may go on here.
pub(super) fn point() {
    Point::new(false).load(Ordering::SeqCst);
}

/// Orders operations around it.
pub fn fence(order: Ordering) {
    point();
    plain::fence(order);
}

macro_rules! atomic {
    ($name:ident $value:ty $(, $arithmetic:ident)*) => {
        /// As in the standard library.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(plain::$name);

        #[allow(dead_code, reason = "each type has what any of them needs")]
        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(plain::$name::new(value))
            }

            /// # Safety
            ///
            /// As in the standard library.
            pub unsafe fn from_ptr<'a>(at: *mut $value) -> &'a Self {
                // SAFETY: the same layout, and the caller's promise.
                unsafe { &*at.cast() }
            }

            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, success, failure)
            }

            pub fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, success, failure)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point();
                self.0.fetch_update(success, failure, f)
            }

            $(
                pub fn $arithmetic(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.$arithmetic(value, order)
                }
            )*
        }
    };
}

atomic!(AtomicBool bool, fetch_or, fetch_and);
atomic!(AtomicU8 u8, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
atomic!(AtomicU32 u32, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
atomic!(AtomicU64 u64, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
atomic!(AtomicI64 i64, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
atomic!(AtomicUsize usize, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_max, fetch_min);
