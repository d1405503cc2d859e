//! One run: a database that is worked on, killed, recovered and checked, several times over.

use super::child::{ERROR_EXIT, Role};
use super::expect::{Expectation, Life, Observed};
use super::moment::{self, Moment, Reason, SILENCE_MAX};
use super::plan::Load;
use super::process::{Child, Ended};
use super::protocol::{Ack, Line};
use super::settings::{self, Place};
use super::stage::Stage;
use crate::Rng;
use crate::fuse::{Surface, Trigger};
use crate::loops::Case;
use inkstone::internals::options::IoBackend;
use inkstone::{Durability, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a worker works at most.
const WORK_MAX: Duration = Duration::from_millis(2_500);
/// How long an opener has the database open at most.
const OPEN_MAX: Duration = Duration::from_millis(50);
/// How often a worker may be killed before there is anything to check.
const CREATIONS_MAX: u64 = 4;

/// Counts of what was seen, by name.
pub type Marks = BTreeMap<String, u64>;

/// Where and how a run takes place, beside its seed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The run's seed.
    pub seed: u64,
    /// A directory of its own.
    pub home: PathBuf,
    /// Whether on the file system that loses power.
    pub fuse: bool,
    /// The file system of the kernel above it, if there is one.
    pub case: Option<&'static Case>,
    /// The backend.
    pub backend: IoBackend,
    /// Whether the home's file system takes `O_DIRECT`.
    pub takes_direct: bool,
    /// A deliberate bug that children have.
    pub mutant: Option<String>,
    /// When to begin no other round.
    pub until: Option<Instant>,
}

/// What is wrong, and what to look at.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong, each.
    pub texts: Vec<String>,
    /// The options in force.
    pub options: Vec<String>,
    /// What the child wrote to stderr.
    pub stderr: String,
    /// Directories that are kept: what it is, and where.
    pub kept: Vec<(&'static str, PathBuf)>,
}

type Outcome<T = ()> = Result<T, Box<Violation>>;

/// A run under way.
pub struct Run<'s> {
    setting: &'s Setting,
    stop: &'s AtomicBool,
    rng: Rng,
    stage: Stage,
    options: Options,
    place: Place,
    expectation: Expectation,
    /// Whether the first rows have been acknowledged.
    loaded: bool,
    lives: u64,
    /// Whether power was lost since the last check.
    power_lost: bool,
    marks: Marks,
}

impl<'s> Run<'s> {
    /// A run that has not begun. It ends soon after `stop` is set.
    pub fn new(setting: &'s Setting, stop: &'s AtomicBool) -> std::io::Result<Self> {
        let mut rng = Rng::new(setting.seed);
        let drawn = settings::page_size(&mut rng);
        let page_size = setting.case.map_or(drawn, |case| case.page_bytes as u64);
        let surface = match setting.case {
            Some(_) => Surface::Plain,
            None => settings::surface(&mut rng, page_size),
        };
        let stage = match setting.case {
            Some(case) => Stage::losing_power_below(&setting.home, case)?,
            None if setting.fuse => Stage::losing_power(&setting.home, surface)?,
            None => Stage::real(&setting.home)?,
        };
        Ok(Self {
            setting,
            stop,
            rng,
            stage,
            options: Options {
                page_size,
                ..Options::default()
            },
            place: Place {
                surface: setting.fuse.then_some(surface),
                takes_direct: setting.fuse || setting.takes_direct,
                backend: setting.backend,
                case: setting.case,
            },
            expectation: Expectation::new(Load::of_seed(setting.seed)),
            loaded: false,
            lives: 0,
            power_lost: false,
            marks: Marks::new(),
        })
    }

    /// Runs all of it.
    pub fn run(mut self) -> (Marks, Outcome) {
        let done = self.rounds();
        (self.marks, done)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_late(&self) -> bool {
        self.setting
            .until
            .is_some_and(|until| Instant::now() >= until)
    }

    fn mark(&mut self, name: &str, count: u64) {
        if count > 0 {
            *self.marks.entry(name.to_owned()).or_default() += count;
        }
    }

    fn violation(&self, texts: Vec<String>, stderr: String) -> Box<Violation> {
        let left = self.stage.leave().ok().flatten();
        let mut kept: Vec<_> = left
            .map(|place| ("as it was left", place))
            .into_iter()
            .collect();
        let before = self.setting.home.join("before");
        if before.exists() {
            kept.push(("as it was before the last check recovered it", before));
        }
        let options = self.options.show().into_iter();
        Box::new(Violation {
            texts,
            options: options
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            stderr,
            kept,
        })
    }

    fn io<T>(&self, what: &str, result: std::io::Result<T>) -> Outcome<T> {
        result.map_err(|error| self.violation(vec![format!("{what}: {error}")], String::new()))
    }

    fn rounds(&mut self) -> Outcome {
        let rounds = self.rng.from_to(2, 6);
        let mut round = 0;
        while round < rounds && !self.stopped() && !(round > 0 && self.is_late()) {
            let life = self.work()?;
            if self.stopped() {
                break;
            }
            if !self.loaded {
                continue;
            }
            self.open_and_die()?;
            self.check(life)?;
            self.mark("rounds", 1);
            round += 1;
        }
        self.mark("runs", 1);
        Ok(())
    }

    fn start(&mut self, role: Role, clients: usize) -> Outcome<Child> {
        settings::vary(&mut self.rng, &mut self.options, self.place);
        let mut first = self.expectation.next.clone();
        first.resize(clients, 0);
        let first: Vec<_> = first.iter().map(u64::to_string).collect();
        let role = match role {
            Role::Work => "work",
            Role::Open => "open",
            Role::Check => "check",
            Role::CheckAndWait => "check-and-wait",
        };
        let mut arguments = vec![
            "child".to_owned(),
            self.stage.database().display().to_string(),
            format!("--role={role}"),
            format!("--seed={}", self.setting.seed),
            format!("--life={}", self.lives),
            format!("--steps={}", self.expectation.steps),
        ];
        if !first.is_empty() {
            arguments.push(format!("--first={}", first.join(",")));
        }
        let mutant = self.setting.mutant.iter();
        arguments.extend(mutant.map(|name| format!("--mutant={name}")));
        for (name, value) in self.options.show() {
            arguments.push(format!("--set={name}={value}"));
        }
        self.io("a child cannot be started", Child::start(&arguments))
    }

    /// A worker's life. Returns what it acknowledged.
    fn work(&mut self) -> Outcome<Life> {
        self.lives += 1;
        let moment = self.moment_for_work();
        let clients = self.rng.pick(&[1, 2, 4, 8, 16]);
        let child = self.start(Role::Work, clients)?;
        let durability = self.options.flush_log_at_trx_commit;
        let lines = self.live(child, moment)?;
        let violations = lines.iter().filter_map(|line| match line {
            Line::Violation(text) => Some(text.clone()),
            _ => None,
        });
        let violations: Vec<_> = violations.collect();
        if !violations.is_empty() {
            return Err(self.violation(violations, String::new()));
        }
        self.note_death(&lines, "working");
        let acks: Vec<Ack> = lines.iter().filter_map(acknowledged).collect();
        self.loaded |= lines.contains(&Line::Loaded);
        self.mark("acknowledgements", acks.len() as u64);
        self.mark_work(clients, durability);
        self.after_death(60)?;
        Ok(Life {
            acks,
            durability,
            power_lost: false,
            clients,
        })
    }

    fn mark_work(&mut self, clients: usize, durability: Durability) {
        self.mark(
            "workers on io_uring",
            u64::from(self.place.backend == IoBackend::IoUring),
        );
        self.mark(
            "workers on posix",
            u64::from(self.place.backend == IoBackend::Posix),
        );
        self.mark("workers of 8 threads and more", u64::from(clients >= 8));
        self.mark(
            "workers of setting 1",
            u64::from(durability == Durability::Sync),
        );
        self.mark(
            "workers of setting 2",
            u64::from(durability == Durability::Write),
        );
        self.mark(
            "workers of setting 0",
            u64::from(durability == Durability::Lazy),
        );
    }

    fn moment_for_work(&mut self) -> Moment {
        let creating = !self.loaded && self.lives < CREATIONS_MAX;
        if (self.loaded || creating) && self.rng.chance(15) {
            return Moment::Opening(Duration::from_micros(self.rng.skewed(150_000)));
        }
        if self.stage.loses_power() && (self.loaded || creating) && self.rng.chance(60) {
            // A file system of the kernel gathers writes: its device sees fewer.
            let mutations = if self.stage.sees_names() {
                20_000
            } else {
                3_000
            };
            return self.power_loss_within(mutations, 60, WORK_MAX);
        }
        let most = self
            .rng
            .pick(&[50, 300, 1_000, WORK_MAX.as_millis() as u64]);
        Moment::Working(Duration::from_millis(self.rng.below(most)))
    }

    /// At some mutation of the disk, or some change of a name.
    fn power_loss_within(&mut self, mutations: u64, names: u64, patience: Duration) -> Moment {
        let trigger = if self.rng.chance(65) || !self.stage.sees_names() {
            Trigger::Mutation(1 + self.rng.skewed(mutations))
        } else {
            Trigger::Name(1 + self.rng.skewed(names))
        };
        Moment::PowerLoss(trigger, patience)
    }

    /// Recoveries that are killed.
    fn open_and_die(&mut self) -> Outcome {
        for _ in 0..self.rng.pick(&[0, 0, 1, 2, 4]) {
            if self.stopped() {
                return Ok(());
            }
            let moment = if self.stage.loses_power() && self.rng.chance(60) {
                self.power_loss_within(500, 12, OPEN_MAX)
            } else {
                Moment::Opening(Duration::from_micros(self.rng.skewed(200_000)))
            };
            let child = self.start(Role::Open, 0)?;
            let lines = self.live(child, moment)?;
            self.note_death(&lines, "recovering");
            self.after_death(50)?;
        }
        Ok(())
    }

    /// Counts a kill, and whether it met the child at opening.
    fn note_death(&mut self, lines: &[Line], what: &str) {
        self.mark("kills", 1);
        if lines.contains(&Line::Opening) && !lines.contains(&Line::Open) {
            let recovers = what == "recovering" || self.loaded;
            let name = match (recovers, self.stage.is_dead()) {
                (true, false) => "kills inside recovery",
                (true, true) => "power losses inside recovery",
                (false, false) => "kills inside creation",
                (false, true) => "power losses inside creation",
            };
            self.mark(name, 1);
        } else if self.stage.is_dead() {
            self.mark(&format!("power losses while {what}, at a write or sync"), 1);
        }
    }

    /// The power fails too, for sure if it has already.
    fn after_death(&mut self, percent: u64) -> Outcome {
        self.stage.disarm();
        let chosen = self.rng.chance(percent);
        let seed = self.rng.next();
        if !self.stage.loses_power() || !(self.stage.is_dead() || chosen) {
            return Ok(());
        }
        let lost = self.stage.power_loss(seed);
        let (losses, directories) = self.io("power loss", lost)?;
        self.power_lost = true;
        self.mark("power losses", 1);
        self.mark("unsynced writes lost", losses.writes_lost);
        self.mark("unsynced writes kept", losses.writes_kept);
        self.mark("unsynced writes torn", losses.writes_torn);
        self.mark("unsynced lengths lost", losses.lengths_lost);
        self.mark("unsynced creations lost", losses.creates_lost);
        self.mark("unsynced removals lost", losses.removals_lost);
        self.mark("unsynced renames lost", losses.renames_lost);
        self.mark("unsynced directories lost", directories);
        Ok(())
    }

    /// A checker's life, and what comes of it.
    fn check(&mut self, mut life: Life) -> Outcome {
        let copied = self.stage.keep_a_copy();
        self.io("copying the database", copied)?;
        let (role, moment) = if self.rng.chance(50) {
            (Role::Check, Moment::Never)
        } else {
            (Role::CheckAndWait, Moment::Complete)
        };
        let child = self.start(role, 0)?;
        let lines = self.live(child, moment)?;
        if self.stopped() {
            return Ok(());
        }
        let mut observed = Observed::default();
        for line in &lines {
            observed.take(line);
            if let Line::Mark(name, count) = line {
                self.mark(name, *count);
            }
        }
        life.power_lost = std::mem::take(&mut self.power_lost);
        let (checked, wrong) = self.expectation.check(&life, &observed);
        let mut texts = observed.violations;
        texts.extend(wrong);
        if !observed.complete {
            texts.push("the checker did not come to its end".to_owned());
        }
        if !texts.is_empty() {
            return Err(self.violation(texts, String::new()));
        }
        self.mark("checks", 1);
        self.mark("commits checked", checked.commits);
        self.mark("commits lost legally", checked.lost_legally);
        self.mark("commits there unheard of", checked.unheard);
        if role == Role::CheckAndWait {
            self.mark("kills", 1);
            self.after_death(50)?;
        }
        Ok(())
    }

    /// Listens to a child until its moment, and kills it. Returns all it said.
    fn live(&mut self, child: Child, moment: Moment) -> Outcome<Vec<Line>> {
        if let Moment::PowerLoss(trigger, _) = moment {
            self.stage.arm(trigger);
        }
        let mut lines = Vec::new();
        let over = || self.stopped() || self.stage.is_dead();
        let reason = moment::listen(&child, moment, &over, &mut lines);
        if self.stage.is_dead() {
            // Time to misbehave without a disk.
            std::thread::sleep(Duration::from_millis(self.rng.skewed(60)));
        }
        let ended = match reason {
            Reason::Closed => child.end(),
            _ => child.kill(),
        };
        let ended = self.io("the end of a child", ended)?;
        lines.extend_from_slice(&ended.lines);
        self.judge(reason, &lines, ended)?;
        Ok(lines)
    }

    /// A child must not end before it is told to, except where its disk is gone; nor may it panic
    /// then.
    fn judge(&self, reason: Reason, lines: &[Line], ended: Ended) -> Outcome {
        let error = lines.iter().find_map(|line| match line {
            Line::Error(text) => Some(text.clone()),
            _ => None,
        });
        let dead = self.stage.is_dead();
        let status = ended.status;
        let explained = dead && status.code() == Some(i32::from(ERROR_EXIT));
        let wrong = match reason {
            Reason::Hangs => Some(format!("a child said nothing for {SILENCE_MAX:?}")),
            _ if ended.was_killed() || explained || status.success() => error
                .filter(|_| !dead)
                .map(|text| format!("a child failed: {text}")),
            _ => {
                let error = error.unwrap_or_else(|| "it said no reason".to_owned());
                Some(format!("a child ended by itself, {status}: {error}"))
            }
        };
        match wrong {
            Some(text) => Err(self.violation(vec![text], ended.stderr)),
            None => Ok(()),
        }
    }
}

fn acknowledged(line: &Line) -> Option<Ack> {
    match line {
        Line::Acknowledged(ack) => Some(*ack),
        _ => None,
    }
}

/// Whether files in a directory can be opened with `O_DIRECT`.
pub fn takes_direct(directory: &Path) -> bool {
    use inkstone_io::{Create, OpenOptions, Vfs};
    let options = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: true,
        dsync: false,
    };
    let path = directory.join("probe");
    let takes = inkstone_io::posix::PosixVfs::new()
        .open_file(&path, options)
        .is_ok();
    let _ = std::fs::remove_file(&path);
    takes
}
