//! Operations of the engine by several threads, and how long they hold its locks: what
//! `cargo xtask lock-times` runs.

#[cfg(not(inkstone_lock_times))]
fn main() -> std::process::ExitCode {
    eprintln!("this build has no clocks at its locks: use `cargo xtask lock-times`");
    std::process::ExitCode::from(2)
}

#[cfg(inkstone_lock_times)]
fn main() -> std::process::ExitCode {
    times::main()
}

#[cfg(inkstone_lock_times)]
mod times {
    use clap::{Parser, ValueEnum};
    use inkstone::internals::options::IoBackend;
    use inkstone::internals::sync::held::{BUCKETS, LockUse, take};
    use inkstone_bench::Result;
    use inkstone_bench::database::WorkDirectory;
    use inkstone_bench::operations::{Bench, Client, Operation};
    use inkstone_bench::output::name_of;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    /// Measures how long the engine's locks are held: operations by several threads at the same
    /// time, each in rows of its own, over a table in memory.
    ///
    /// A lock that all operations take one after the other bounds how many there can be in a
    /// second, however many cores there are: the last column says where that is, by the lock of its
    /// kind that was held longest. Locks that one thread at a time has to itself bound nothing, and
    /// have none.
    #[derive(Parser)]
    #[command(name = "cargo xtask lock-times", version)]
    struct Arguments {
        /// Only these operations
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<Operation>,
        /// Threads; more than there are cores are put aside in the middle of a hold
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
        clients: u64,
        /// How often each thread does each operation
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
        times: u64,
        /// Rows of the table
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
        rows: u64,
        /// Shows also locks that were held for less than a nanosecond an operation
        #[arg(long)]
        all: bool,
        /// Prints one object a line for each lock
        #[arg(long)]
        json: bool,
    }

    /// Holds of a lock, or of all locks of a kind.
    #[derive(Clone)]
    struct Holds {
        threads: BTreeSet<usize>,
        shared: bool,
        places: BTreeMap<String, u64>,
        count: u64,
        waited: u64,
        nanos: u64,
        longest: u64,
        histogram: [u64; BUCKETS],
    }

    impl From<&LockUse> for Holds {
        fn from(used: &LockUse) -> Self {
            let file = used.at.file();
            let file = file.split_once("/src/").map_or(file, |(_, file)| file);
            Self {
                threads: [used.thread].into(),
                shared: used.shared,
                places: [(format!("{file}:{}", used.at.line()), used.count)].into(),
                count: used.count,
                waited: used.waited,
                nanos: used.nanos,
                longest: used.longest,
                histogram: used.histogram,
            }
        }
    }

    impl Holds {
        fn add(&mut self, other: Self) {
            self.threads.extend(other.threads);
            self.shared |= other.shared;
            for (place, count) in other.places {
                *self.places.entry(place).or_default() += count;
            }
            self.count += other.count;
            self.waited += other.waited;
            self.nanos += other.nanos;
            self.longest = self.longest.max(other.longest);
            for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
                *sum += count;
            }
        }

        /// Where it was taken most often.
        fn place(&self) -> &str {
            let most = self.places.iter().max_by_key(|(_, count)| **count);
            most.map_or("?", |(place, _)| place)
        }

        /// Nanoseconds that 99 of 100 holds stayed below.
        fn p99(&self) -> u64 {
            let mut left = self.count - self.count / 100;
            let bucket = self.histogram.iter().position(|count| {
                left = left.saturating_sub(*count);
                left == 0
            });
            2 << bucket.unwrap_or(BUCKETS)
        }
    }

    /// Locks of one kind.
    struct Kind {
        /// The type of what they guard, and where they are taken.
        name: String,
        instances: usize,
        all: Holds,
        /// Nanoseconds of the one that was held longest of those that several threads used.
        busiest: u64,
    }

    /// A type without the paths of its parts.
    fn short(name: &str) -> String {
        let mut short = String::new();
        for part in name.split_inclusive(['<', '>', ',', ' ', '(', ')', '[', ']']) {
            short.push_str(part.rsplit("::").next().unwrap_or(part));
        }
        short
    }

    /// Locks by kind; first those of which one was held longest.
    fn kinds(used: &[LockUse]) -> Vec<Kind> {
        let mut locks: BTreeMap<(usize, &str), Holds> = BTreeMap::new();
        for used in used.iter().filter(|used| used.exclusive) {
            let lock = locks.entry((used.address, used.what));
            lock.and_modify(|holds| holds.add(used.into()))
                .or_insert_with(|| used.into());
        }
        let mut kinds: BTreeMap<String, Vec<Holds>> = BTreeMap::new();
        for ((_, what), holds) in locks {
            let file = holds.place().split(':').next().unwrap_or_default();
            let name = format!("{} ({file})", short(what));
            kinds.entry(name).or_default().push(holds);
        }
        let kinds = kinds.into_iter().filter_map(|(name, locks)| {
            let instances = locks.len();
            let shared = locks
                .iter()
                .filter(|holds| holds.shared && holds.threads.len() > 1);
            let busiest = shared.map(|holds| holds.nanos).max().unwrap_or(0);
            let all = locks.into_iter().reduce(|mut all, holds| {
                all.add(holds);
                all
            })?;
            Some(Kind {
                name,
                instances,
                all,
                busiest,
            })
        });
        let mut kinds: Vec<Kind> = kinds.collect();
        kinds.sort_by_key(|kind| Reverse((kind.busiest, kind.all.nanos)));
        kinds
    }

    /// Does an operation by all clients; the time that it took, and what became of the locks.
    fn measure(arguments: &Arguments, operation: Operation) -> Result<(Duration, Vec<LockUse>)> {
        let directory = WorkDirectory::fresh_in(&std::env::temp_dir(), "lock-times")?;
        let bench = Bench::new(directory.path(), arguments.rows, IoBackend::Auto)?;
        take();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..arguments.clients)
                .map(|number| {
                    let client = Client {
                        number,
                        of: arguments.clients,
                    };
                    let bench = &bench;
                    scope.spawn(move || bench.run(operation, arguments.times, client))
                })
                .collect();
            let ends = clients
                .into_iter()
                .map(|client| client.join().expect("no panic"));
            ends.collect::<inkstone::Result<()>>()
        })?;
        let (time, used) = (begin.elapsed(), take());
        bench.close()?;
        Ok((time, used))
    }

    fn print_table(arguments: &Arguments, operations: f64, kinds: &[Kind]) {
        println!(
            "  {:<56} {:>5} {:>8} {:>7} {:>8} {:>8} {:>10} {:>8} {:>12}",
            "lock",
            "locks",
            "taken/op",
            "waited",
            "mean ns",
            "p99 ns <",
            "longest us",
            "ns/op",
            "ops/s at most"
        );
        for kind in kinds {
            let (all, busiest) = (&kind.all, kind.busiest as f64 / operations);
            if !arguments.all && (all.nanos as f64 / operations) < 1.0 {
                continue;
            }
            let (serial, bound) = match kind.busiest {
                0 => ("-".to_owned(), "-".to_owned()),
                _ => (format!("{busiest:.1}"), format!("{:.2}M", 1e3 / busiest)),
            };
            println!(
                "  {:<56} {:>5} {:>8.3} {:>6.2}% {:>8.0} {:>8} {:>10.1} {serial:>8} {bound:>12}",
                kind.name,
                kind.instances,
                all.count as f64 / operations,
                all.waited as f64 * 100.0 / all.count as f64,
                all.nanos as f64 / all.count as f64,
                all.p99(),
                all.longest as f64 / 1e3,
            );
        }
    }

    fn print_json(operation: &str, operations: f64, kinds: &[Kind]) {
        for kind in kinds {
            let all = &kind.all;
            let busiest = kind.busiest as f64 / operations;
            println!(
                "{}",
                serde_json::json!({
                    "operation": operation,
                    "lock": kind.name,
                    "places": all.places,
                    "instances": kind.instances,
                    "taken_per_operation": all.count as f64 / operations,
                    "waited_share": all.waited as f64 / all.count as f64,
                    "mean_ns": all.nanos as f64 / all.count as f64,
                    "p99_below_ns": all.p99(),
                    "longest_ns": all.longest,
                    "busiest_ns_per_operation": busiest,
                    "operations_per_s_at_most": (kind.busiest > 0).then(|| 1e9 / busiest),
                })
            );
        }
    }

    /// Nanoseconds that a lock seems to be held in which nothing is done.
    fn clock_itself() -> f64 {
        const TIMES: u32 = 100_000;
        let lock = inkstone::internals::sync::Mutex::new(());
        take();
        (0..TIMES).for_each(|_| drop(lock.lock()));
        take().iter().map(|used| used.nanos).sum::<u64>() as f64 / f64::from(TIMES)
    }

    pub fn main() -> ExitCode {
        let mut arguments = Arguments::parse();
        // Each thread has rows of its own.
        arguments.rows = arguments.rows.max(arguments.clients);
        let chosen = match arguments.only.as_slice() {
            [] => Operation::value_variants(),
            only => only,
        };
        if !arguments.json {
            println!("a hold in which nothing is done: {:.0} ns", clock_itself());
        }
        for &operation in chosen {
            let name = name_of(operation);
            let (time, used) = match measure(&arguments, operation) {
                Ok(measured) => measured,
                Err(error) => {
                    eprintln!("lock-times: {name}: {error}");
                    return ExitCode::FAILURE;
                }
            };
            let operations = (arguments.times * arguments.clients) as f64;
            if arguments.json {
                print_json(&name, operations, &kinds(&used));
                continue;
            }
            println!(
                "{name}: {} threads, {:.0} operations a second (with clocks)",
                arguments.clients,
                operations / time.as_secs_f64()
            );
            print_table(&arguments, operations, &kinds(&used));
        }
        ExitCode::SUCCESS
    }
}
