//! Inkstone from C. The header, `include/inkstone.h`, is the documentation: what each function
//! promises and asks for stands there, and a test compares it with what is exported here.
//!
//! # How it is built
//!
//! - Every entry point runs its work in a frame of [`entry`]: a failure becomes a code and a
//!   message, a panic becomes `INK_PANIC`. None crosses into the caller's frames.
//! - Handles are boxes. What C passes in is turned into references and slices at the top of an
//!   entry point, by the functions of [`raw`], which say what the caller promises.
//! - No state is kept by thread, and none outside of handles.
//! - A cursor does not point to its transaction: both hold the same [`transaction`] cell, so a
//!   cursor that outlives its transaction gets an error.

#![allow(
    non_camel_case_types,
    reason = "types that C sees have the names that they have there"
)]

mod catalog;
mod changes;
mod cursor;
mod database;
mod entry;
mod error;
mod hooks;
mod parts;
mod raw;
mod references;
mod rows;
mod savepoints;
mod sorter;
mod status;
mod transaction;
mod transfer;
mod upkeep;
mod watch;
