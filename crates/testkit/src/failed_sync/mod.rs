//! A sync fails once: nothing that was acknowledged may be lost by it.
//!
//! | file | subject |
//! |---|---|
//! | [`restart`] | lives of a small database: what the next process may take from the page cache |
//! | [`flushers`] | many tables and slow syncs: what the same process makes of it, while others flush |

pub mod flushers;
pub mod restart;
