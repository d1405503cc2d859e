//! Real processes that are killed: on a file system of this machine, and on one of our own
//! ([`crate::fuse`]) that also loses power.
//!
//! # Words
//!
//! - *Child*: a process of this program that has the database open: a *worker* runs transactions
//!   and says on stdout what was acknowledged; an *opener* opens, and no more; a *checker* opens,
//!   reads everything, and says what is there.
//! - *Round*: a worker's life and end, some openers' (killed while they recover), a checker's.
//! - *Run*: rounds on one database. Its seed decides options, contents and when to kill; what the
//!   threads do in the meantime is real, and not repeatable.
//!
//! # Promises
//!
//! 1. After a kill everything is there that was acknowledged with `Durability::Sync` or `Write`,
//!    after a power loss what was acknowledged with `Sync`; nothing that was rolled back; nothing
//!    half. What is there is a prefix: if a commit survived, so did all that were acknowledged
//!    before it began.
//! 2. What a checker has seen is there for all later ones.
//! 3. All trees verify, secondary trees hold what their tables say, balances add up, each account's
//!    history has no gap (no update was lost), prepared transactions keep their locks and are
//!    decided as the coordinator wants.
//! 4. A child that ends by itself (a panic, an abort, an error that the disk does not explain) or
//!    says nothing for two minutes is a violation. The parent trusts no child: it compares what the
//!    checker found with what it heard through the pipe. It never opens the database itself.
//!
//! | module | subject |
//! |---|---|
//! | [`campaign`] | arguments, many runs, the report |
//! | `run` | one run: rounds, kills, power losses |
//! | `stage` | where the database lies |
//! | `process` | starting children, listening, killing |
//! | `settings` | options of the engine from a seed |
//! | `plan` | what each transaction does, as a function of its number |
//! | `schema` | what each DDL statement does, likewise |
//! | `moment` | when a child is killed, and listening until then |
//! | `child` | what a child is told to do |
//! | `worker` | workers |
//! | `check` | checkers |
//! | `protocol` | what children say |
//! | [`tear`] | whether a file system of the kernel tears pages, without the engine |
//! | `expect` | what must, may and must not be there |

pub mod campaign;
mod check;
mod child;
mod expect;
mod moment;
mod plan;
mod process;
mod protocol;
mod run;
mod schema;
mod settings;
mod stage;
pub mod tear;
mod worker;

pub use child::{ChildArguments, run_child};
