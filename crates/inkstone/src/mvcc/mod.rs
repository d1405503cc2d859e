//! Which version of a row a transaction sees: the active transactions, the order of commits,
//! snapshots, and the store of old versions. Knows nothing of pages, log and trees.
//!
//! | module | subject |
//! |---|---|
//! | [`system`] | active transactions, commit order, snapshots, slots |
//! | [`versions`] | the store of before-images that rollback and snapshots read |
//! | `isolation` | the levels, and what they ask for |
//! | `interrupt` | interrupting a statement from another thread |

pub(crate) mod interrupt;
pub(crate) mod isolation;
pub mod system;
pub mod versions;

pub use interrupt::Interrupt;
pub use isolation::Isolation;
