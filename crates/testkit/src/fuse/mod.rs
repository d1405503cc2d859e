//! A file system that forgets what was not synced when the power fails, mounted through FUSE, so
//! that real system calls of a real process (POSIX and io_uring) are tested against power loss.
//!
//! The bytes lie in memory, in an [`inkstone_io::sim::SimVfs`]: what a power loss keeps, drops and
//! tears is decided by the same code that the simulation uses. This module puts it behind the
//! kernel: inodes, open flags, directories, mounting.
//!
//! | module | subject |
//! |---|---|
//! | `disk` | what outlives a mount: files, directories, power loss |
//! | `nodes` | inode numbers, and what they stand for |
//! | `server` | the kernel's requests |
//! | `mount` | mounting and unmounting |
//!
//! # Promises
//!
//! 1. What `write` has returned for, all later readers see; a killed process loses none of it.
//! 2. [`Disk::power_loss`] keeps what `fsync`, `fdatasync` or a file opened with `O_DSYNC` has made
//!    durable. Of the rest each write is kept, dropped, or torn at a multiple of 512 or 4096 bytes.
//! 3. A created, renamed or removed name, and a new directory, is durable only after an `fsync` of
//!    the directory that holds it. A synced file whose name was not is gone (stricter than ext4).
//! 4. Each mount has a page cache of its own: after a power loss none is left of an earlier one.
//!    Nothing that was written waits in it (the kernel writes through), so the disk knows it all.
//! 5. `O_DIRECT` goes past the page cache and demands offsets and lengths in multiples of 4096.
//! 6. Every request after [`Disk::power_loss`], or after what [`Disk::arm`] waits for, fails with
//!    `EIO`.
//!
//! # Not there
//!
//! Links, renames and removals of directories, extended attributes, permissions, times, holes.
//! `RWF_DSYNC` of a single write is not seen by a FUSE server: it is a plain write.

mod disk;
mod mount;
mod nodes;
mod server;

#[cfg(test)]
mod tests;

pub use disk::{Disk, Surface, Trigger};
pub use mount::{Mount, own_mount_namespace, unavailable};
