//! Which thread runs when: in a build with `--cfg inkstone_sim` a run's threads, locks and clocks
//! follow from its seed, too, and each operation of the disk is a place at which another thread may
//! go on. In other builds the operating system decides.

use crate::driver::{Marks, Plan, Run};
use inkstone_io::sim::SimVfs;

/// Runs a plan.
pub fn run(plan: Plan) -> (Marks, Result<(), String>) {
    #[cfg(inkstone_sim)]
    {
        let ran = scheduled::run(plan, false);
        (ran.marks, ran.result)
    }
    #[cfg(not(inkstone_sim))]
    Run::new(plan).run()
}

/// Runs `f` and the threads that it starts through the engine's seam.
pub fn under(
    seed: u64,
    f: impl FnOnce() -> (Marks, Result<(), String>) + Send + 'static,
) -> (Marks, Result<(), String>) {
    #[cfg(inkstone_sim)]
    {
        use inkstone::internals::sync::{Config, simulate};
        let _core = crate::cores::keep_one();
        match simulate(&Config::of_seed(seed), f) {
            Ok((ran, _)) => ran,
            Err(text) => (Marks::default(), Err(text)),
        }
    }
    #[cfg(not(inkstone_sim))]
    {
        let _ = seed;
        f()
    }
}

/// Lets the scheduler know what the disk does, and the disk take the scheduler's time.
pub(crate) fn attach(vfs: &SimVfs) {
    #[cfg(inkstone_sim)]
    vfs.observe(|kind, path, bytes| {
        let path = path.as_os_str().as_encoded_bytes();
        let names = crc32c::crc32c_append(kind as u32, path);
        let digest = u64::from(crc32c::crc32c(bytes)) << 32 | u64::from(names);
        inkstone::internals::sync::disk_operation(digest);
    });
    #[cfg(inkstone_sim)]
    vfs.sleep_by(inkstone::internals::sync::thread::sleep);
    #[cfg(not(inkstone_sim))]
    let _ = vfs;
}

/// What only the scheduler can do.
#[cfg(inkstone_sim)]
pub mod scheduled {
    use super::{Marks, Plan, Run};
    use inkstone::internals::sync::{Config, Report, simulate};

    /// A run that has ended.
    #[derive(Clone, Debug)]
    pub struct Ran {
        /// What was seen.
        pub marks: Marks,
        /// Whether the engine did what it promises.
        pub result: Result<(), String>,
        /// The schedule; empty if it did not come to its end.
        pub report: Report,
    }

    /// Runs a plan under the schedule of its seed; `record` keeps the schedule's decisions.
    pub fn run(plan: Plan, record: bool) -> Ran {
        let config = Config {
            record,
            ..Config::of_seed(plan.seed)
        };
        let _core = crate::cores::keep_one();
        match simulate(&config, move || Run::new(plan).run()) {
            Ok(((marks, result), report)) => Ran {
                marks,
                result,
                report,
            },
            Err(text) => Ran {
                marks: Marks::default(),
                result: Err(text),
                report: Report::default(),
            },
        }
    }

    /// Runs a plan twice: the error says where the two differ.
    pub fn check(plan: &Plan) -> Result<Ran, String> {
        let (first, second) = (run(plan.clone(), true), run(plan.clone(), true));
        let seed = plan.seed;
        if let Some(difference) = first.report.difference(&second.report) {
            return Err(format!(
                "seed {seed} makes two different runs: {difference}"
            ));
        }
        if first.marks.0 != second.marks.0 || first.result != second.result {
            return Err(format!(
                "seed {seed} makes the same schedule twice, and two results:\n{:?} {:?}\n{:?} {:?}",
                first.result, first.marks, second.result, second.marks
            ));
        }
        Ok(first)
    }
}
