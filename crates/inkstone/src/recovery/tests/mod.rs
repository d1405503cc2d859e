//! Redo of logs in memory onto the real pool, over a store in memory; and once over everything
//! real.

mod files;
mod index;
mod late;
mod model;
mod random;
mod real;
mod rig;
mod speed;
mod threads;
mod transactions;
