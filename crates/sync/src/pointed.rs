//! Atomics of backends that decide which thread runs: those of `std`, with a place before each
//! operation at which another thread may go on.
//!
//! One thread runs at a time, and what it did is seen by the next one, so that all of them are
//! sequentially consistent here, whatever their ordering says.

use super::backend::atomic_point as point;
pub use std::sync::atomic::Ordering;

/// A fence: nothing but a place at which another thread may go on.
#[inline]
#[track_caller]
pub fn fence(order: Ordering) {
    point();
    std::sync::atomic::fence(order);
}

macro_rules! atomic {
    ($name:ident, $value:ty, $($number:ident)?) => {
        /// The atomic of this name, scheduled.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(dead_code, reason = "the whole interface, as the engine does not use every one of each")]
        impl $name {
            /// An atomic of this value.
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// The value.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// The value, which no other thread can reach.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Reads.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            /// Writes.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            /// Writes; the value before.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            /// Writes if the value is `current`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As `compare_exchange`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            atomic!(fetch_or $value);
            atomic!(fetch_and $value);
            $(
                atomic!(fetch_add $number);
                atomic!(fetch_sub $number);
                atomic!(fetch_max $number);
                atomic!(fetch_min $number);
            )?
        }
    };
    ($operation:ident $value:ty) => {
        /// The operation of this name; the value before.
        #[inline]
        #[track_caller]
        pub fn $operation(&self, value: $value, order: Ordering) -> $value {
            point();
            self.0.$operation(value, order)
        }
    };
}

atomic!(AtomicBool, bool,);
atomic!(AtomicU8, u8, u8);
atomic!(AtomicU32, u32, u32);
atomic!(AtomicI64, i64, i64);
atomic!(AtomicU64, u64, u64);
atomic!(AtomicUsize, usize, usize);

impl AtomicU8 {
    /// The atomic at an address.
    ///
    /// # Safety
    ///
    /// As for `std::sync::atomic::AtomicU8::from_ptr`.
    pub unsafe fn from_ptr<'a>(pointer: *mut u8) -> &'a Self {
        // SAFETY: the caller's promises; this type is laid out as a byte.
        unsafe { &*pointer.cast::<Self>() }
    }
}
