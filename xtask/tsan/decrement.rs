//! Tells ThreadSanitizer what the last owner of an `Arc` may rely on.
//!
//! An `Arc` is given up by a decrement with release ordering; the last owner passes an acquire
//! fence before it destroys the value. ThreadSanitizer knows no fences, and would report every
//! destructor. (The standard library avoids the fence when it is itself built for ThreadSanitizer;
//! the one that comes with the toolchain is not.) So the linker sends 64-bit decrements here
//! (`--wrap`), and a release becomes an acquire as well. What this hides: a decrement that should
//! acquire and does not.
//!
//! Not a part of the workspace: `cargo xtask tsan` compiles this file and links it to what it runs.

#![no_std]

use core::ffi::c_int;

/// `memory_order_release` and `memory_order_acq_rel`, as ThreadSanitizer numbers them.
const RELEASE: c_int = 3;
const ACQUIRE_AND_RELEASE: c_int = 4;

unsafe extern "C" {
    fn __real___tsan_atomic64_fetch_sub(at: *mut u64, value: u64, order: c_int) -> u64;
}

/// Stands for `__tsan_atomic64_fetch_sub`.
///
/// # Safety
/// As for an atomic decrement: `at` is valid, aligned, and used by atomics only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap___tsan_atomic64_fetch_sub(
    at: *mut u64,
    value: u64,
    order: c_int,
) -> u64 {
    let order = match order {
        RELEASE => ACQUIRE_AND_RELEASE,
        other => other,
    };
    // SAFETY: passed on as it came; the ordering is one that decrements may have.
    unsafe { __real___tsan_atomic64_fetch_sub(at, value, order) }
}
