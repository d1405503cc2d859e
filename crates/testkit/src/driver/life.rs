//! The lives of a database: it is opened, worked on, and ends, again and again.

use super::wreck::{Wreck, control};
use super::{DIRECTORY, Ending, Outcome, Run, Stop, is_fault};
use crate::model::End;
use crate::{Rng, nothing_is_open};
use inkstone::internals::options::Doublewrite;
use inkstone::{Database, Options, Shutdown};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::sim::{OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;

/// In the paths of the control file, and of the new one before it gets its name.
const CONTROL_FILE: &str = "/control";

/// Openings that may fail for a reason before the run gives up.
const OPENINGS_MAX: u64 = 20;

impl Run {
    pub(super) fn cycles(&mut self) -> Result<(), String> {
        let mut end = End::Close;
        for cycle in 0..=self.plan.cycles {
            crate::campaign::alive();
            if cycle == 0
                && let Some(fault) = self.plan.fault.clone()
            {
                self.vfs.fail(fault);
                self.tolerant = true;
            }
            if self.plan.fault.is_none() && cycle % 2 == 1 {
                self.look()?;
            }
            self.open(&mut end)?;
            self.settle(self.plan.fault.is_none() || cycle > 0, |run| {
                run.check_recovered(end)
            })?;
            self.marks.add("cycles", 1);
            if cycle == self.plan.cycles || self.step >= self.plan.steps_total {
                break;
            }
            end = self.live()?;
            (self.tolerant, self.failing) = (false, false);
        }
        Ok(())
    }

    /// Runs something that must not fail (`strict`), or that may die.
    fn settle(&mut self, strict: bool, f: impl FnOnce(&mut Self) -> Outcome) -> Result<(), String> {
        match f(self) {
            Ok(()) => Ok(()),
            Err(Stop::Bug(text)) => Err(text),
            Err(Stop::Dead) if strict => Err("the database is dead after recovery".to_owned()),
            Err(Stop::Dead) => Ok(()),
        }
    }

    /// Opens the database, with crashes in the middle of it.
    fn open(&mut self, end: &mut End) -> Result<(), String> {
        let (mut crashes, mut inside) = (0, 0);
        for _ in 0..OPENINGS_MAX {
            self.options = self.plan.features.options(&mut self.rng);
            let features = &self.plan.features;
            let (percent, most) = (features.opening_crash_percent, features.opening_crashes_max);
            if !self.tolerant && crashes < most && self.rng.chance(percent) {
                self.aim(&[5, 30, 100, 1000]);
            }
            let before = control(&self.vfs, Path::new(DIRECTORY));
            let vfs = Arc::new(self.vfs.clone());
            let opened =
                Database::open_on(vfs, Path::new(DIRECTORY), self.options.clone(), &|_| {});
            match opened {
                Ok(db) => {
                    self.vfs.crash_at(u64::MAX);
                    self.db = Some(db);
                    if !self.vfs.is_dead() {
                        match self.while_pages_wait(*end)? {
                            None => return Ok(()),
                            Some(again) => *end = again,
                        }
                        continue;
                    }
                    self.forget_process();
                }
                Err(error) if self.vfs.is_dead() => {
                    self.trace(|| format!("crash while opening: {error}"));
                    // The epoch is written when recovery begins to change files.
                    let after = control(&self.vfs, Path::new(DIRECTORY));
                    if let (Some(before), Some(after)) = (before, after)
                        && !before.clean_shutdown
                        && after.epoch > before.epoch
                    {
                        self.marks.add("crashes inside recovery", 1);
                        let in_a_row = u64::from(inside > 0);
                        self.marks.add("crashes inside recovery in a row", in_a_row);
                        inside += 1;
                    }
                }
                Err(error) if self.tolerant && is_fault(&error) => {
                    self.trace(|| format!("fault while opening: {error}"));
                    self.vfs.clear_faults();
                    *end = self.die(*end)?;
                    self.tolerant = false;
                    continue;
                }
                Err(error) => {
                    if self.plan.trace {
                        let vfs = self.vfs.kill();
                        let text = crate::diagnose::of_error(&vfs, Path::new(DIRECTORY), &error);
                        self.trace(|| text);
                    }
                    return Err(format!("after {end:?} open failed: {error}"));
                }
            }
            crashes += 1;
            self.marks.add("crashes while opening", 1);
            *end = self.die(*end)?;
        }
        Err("the database cannot be opened".to_owned())
    }

    /// Checks the database over an overlay, as `inkstone verify` does: it is whole once recovery
    /// has run in memory, and the disk stays as it is.
    fn look(&mut self) -> Result<(), String> {
        let before = self.vfs.mutations();
        let overlay = OverlayVfs::new(Arc::new(self.vfs.clone()));
        let options = Options {
            doublewrite: Doublewrite::Off,
            ..self.options.clone()
        };
        let looked = Database::open_on(Arc::new(overlay), Path::new(DIRECTORY), options, &|_| {})
            .and_then(|db| {
                db.verify_catalog()?;
                for name in db.tables()? {
                    db.verify_table(&db.table(&name)?)?;
                }
                db.close()
            });
        looked.map_err(|error| format!("over an overlay: {error}"))?;
        self.marks.add("looks over an overlay", 1);
        match self.vfs.mutations() - before {
            0 => Ok(()),
            changes => Err(format!(
                "a look over an overlay changed the disk {changes} times"
            )),
        }
    }

    /// Power will be lost within so many mutations, or at one of the next of the control file:
    /// there are few of those, and all that is on the disk depends on each.
    fn aim(&mut self, within: &[u64]) {
        if self.rng.chance(10) {
            let nth = 1 + self.rng.below(3);
            return self.vfs.crash_at_in(CONTROL_FILE, nth);
        }
        let within = self.rng.pick(within);
        self.vfs.crash_at(1 + self.rng.below(within));
    }

    /// The process ends: power loss or kill. Returns what may be lost, after what came before.
    pub(super) fn die(&mut self, before: End) -> Result<End, String> {
        if self.rng.chance(75) {
            self.lose_power(before)
        } else {
            Ok(self.be_killed(before))
        }
    }

    fn be_killed(&mut self, before: End) -> End {
        self.marks.add("kills", 1);
        before.max_loss(self.kill())
    }

    /// The process ends. If one of its syncs failed, what that should have made durable is lost as
    /// by a power loss: the cache shows it, and the disk will never have it.
    fn kill(&mut self) -> End {
        self.vfs = self.vfs.kill();
        self.wreck = None;
        let fault = self.plan.fault.as_ref().filter(|_| self.tolerant);
        if fault.is_some_and(|f| f.kind.is_none_or(|kind| kind == OpKind::Sync)) {
            End::PowerLoss
        } else {
            End::Kill
        }
    }

    /// Power loss. Some of the other disks that it could have left are recovered and checked, too.
    fn lose_power(&mut self, before: End) -> Result<End, String> {
        let process = self.vfs.clone();
        let end = before.max_loss(End::PowerLoss);
        self.crash(&process);
        let others = match self.plan.fault {
            None => self.rng.below(self.features().outcomes_max + 1),
            Some(_) => 0,
        };
        for _ in 0..others {
            self.other_outcome(&process, end)?;
        }
        Ok(end)
    }

    fn crash(&mut self, process: &SimVfs) {
        self.vfs = process.crash(self.rng.next());
        self.marks.add("power losses", 1);
        self.wreck = Wreck::examine(process, &self.vfs, Path::new(DIRECTORY));
        if let Some(wreck) = &self.wreck {
            wreck.note(&mut self.marks);
        }
    }

    /// Recovers and checks another outcome of a power loss, and forgets it.
    fn other_outcome(&mut self, process: &SimVfs, mut end: End) -> Result<(), String> {
        // One step may look at many, each of which takes seconds where a transaction is large.
        crate::campaign::alive();
        let mut plan = self.plan.clone();
        plan.features.outcomes_max = 0;
        let rng = Rng::new(self.rng.next());
        let mut other = Run::on(plan, rng, process.clone(), self.model.clone());
        (other.shapes, other.step) = (self.shapes.clone(), self.step);
        other.crash(process);
        self.trace(|| "another outcome of the same power loss".to_owned());
        let checked = other.open(&mut end);
        let checked = checked.and_then(|()| other.settle(true, |other| other.check_recovered(end)));
        other.abandon();
        self.marks.merge(&other.marks);
        self.marks.add("other outcomes", 1);
        checked.map_err(|text| format!("in another outcome of the power loss: {text}"))
    }

    /// What would be recovered if the power were lost now; the life goes on.
    pub(super) fn if_power_were_lost(&mut self) -> Outcome {
        if self.tolerant || self.plan.fault.is_some() || self.vfs.is_dead() {
            return Ok(());
        }
        let process = self.vfs.clone();
        self.other_outcome(&process, End::PowerLoss)
            .map_err(Stop::Bug)
    }

    /// Drops all handles of a process that has ended.
    pub(super) fn forget_process(&mut self) {
        self.note_counters();
        for client in &mut self.clients {
            *client = None;
        }
        self.tables.clear();
        self.db = None;
    }

    /// Ends the process without a close: a wrecked engine may not be able to do that.
    pub(super) fn abandon(&mut self) {
        self.vfs.kill();
        self.forget_process();
    }

    /// Works until the process ends, and ends it.
    fn live(&mut self) -> Result<End, String> {
        let steps = self.rng.from_to(1, self.plan.steps_max);
        let last = (self.step + steps).min(self.plan.steps_total);
        let ending = self.rng.pick(&self.plan.features.ends);
        if ending == Ending::PowerLossInside && !self.tolerant {
            self.aim(&self.plan.features.crash_within.clone());
        }
        let spell = self.draw_spell(last);
        let mut stopped = Ok(());
        while self.step < last && stopped.is_ok() && !self.vfs.is_dead() {
            self.step += 1;
            stopped = self
                .keep_spell(spell.as_ref())
                .and_then(|()| self.one_step())
                .and_then(|()| self.check_log_files());
        }
        if let Err(Stop::Bug(text)) = stopped {
            return Err(format!("step {}: {text}", self.step));
        }
        self.vfs.crash_at(u64::MAX);
        if ending == Ending::Close && stopped.is_ok() && !self.vfs.is_dead() {
            return self.close();
        }
        let end = if ending == Ending::Kill {
            self.be_killed(End::Kill)
        } else if self.tolerant {
            self.die(End::Kill)?
        } else {
            self.lose_power(End::Kill)?
        };
        self.trace(|| format!("{end:?} with {} events", self.model.events()));
        self.forget_process();
        Ok(end)
    }

    /// The files of the log take no more than their options say, whatever transactions do.
    fn check_log_files(&self) -> Outcome {
        let bytes = self.vfs.bytes_in(&Path::new(DIRECTORY).join("log"));
        if bytes <= self.options.log_file_size {
            return Ok(());
        }
        let most = self.options.log_file_size;
        let text = format!("the files of the log have {bytes} bytes, log_file_size is {most}");
        Err(Stop::Bug(text))
    }

    /// Closes: in order, or with the log alone. Then the process ends, or the power is lost: what
    /// was committed is there in both.
    fn close(&mut self) -> Result<End, String> {
        self.note_counters();
        let how = self.rng.pick(&self.plan.features.closes);
        let keep = self.rng.chance(30);
        if !keep {
            self.clients.iter_mut().for_each(|client| *client = None);
        }
        self.tables.clear();
        let Some(db) = self.db.take() else {
            return Err("no database".to_owned());
        };
        let closed = db.close_as(how);
        // Transactions that outlive the database.
        self.clients.iter_mut().for_each(|client| *client = None);
        self.marks.add("closes", 1);
        match closed {
            Ok(()) => self.note_close(how),
            Err(error) if self.excuses(&error) => return Ok(self.kill()),
            Err(error) => return Err(format!("{how:?} close failed: {error}")),
        }
        nothing_is_open(&self.vfs)?;
        if self.rng.chance(75) {
            return self.lose_power(End::Close);
        }
        self.kill();
        Ok(End::Close)
    }

    fn note_close(&mut self, how: Shutdown) {
        self.trace(|| format!("closed: {how:?}"));
        match how {
            Shutdown::Slow => self.marks.add("slow closes", 1),
            Shutdown::Fast => {}
            Shutdown::LogOnly => self.closed_log_only = true,
        }
    }

    fn note_counters(&mut self) {
        let Some(db) = &self.db else { return };
        let kept = [
            "buffer_evictions",
            "pages_read_ahead",
            "leaf_splits",
            "inner_splits",
            "page_merges",
            "pages_moved",
            "rows_purged",
            "version_segments_spilled",
            "milestones_taken",
            "rows_left_out",
            "pages_logged_whole",
            "unlogged_commits",
            "version_segments_retired",
            "log_segments_recycled",
            "checkpoints",
            "doublewrite_skipped",
            "doublewrite_pages",
            "lock_timeouts",
            "checkpoint_waits",
            "log_bytes",
            "undo_moves",
            "undo_saves",
            "undo_file_cuts",
            "bulk_inserts",
            "bulk_deletes",
            "rows_bulk_deleted",
            "page_write_failures",
            "pages_redone_late",
        ];
        for (name, count) in db.counters().snapshot() {
            if kept.contains(&name) {
                self.marks.add(name, count);
            }
        }
    }
}

impl End {
    /// Which of two ends loses more. What was closed in order is not lost by what comes later.
    fn max_loss(self, later: End) -> End {
        match (self, later) {
            (End::Close, _) => End::Close,
            (End::PowerLoss, _) | (_, End::PowerLoss) => End::PowerLoss,
            _ => End::Kill,
        }
    }
}
