//! Spells in which pages cannot be written: the disk is full for overwriting too, or fails, for a
//! file or some of its bytes. Statements may fail meanwhile, and nothing poisons. When it is over
//! everything goes on; if the process ends first, nothing is lost.

use super::{Disk, Outcome, Run};
use inkstone::Error;
use inkstone_io::sim::{Fault, FaultRule, OpKind};
use std::ops::Range;

/// What cannot be written, and when.
#[derive(Debug)]
pub(super) struct Spell {
    rule: FaultRule,
    /// Of the files.
    bytes: Option<Range<u64>>,
    /// Steps of the run.
    steps: Range<u64>,
}

/// In the paths of files: all tablespaces, some of them, the copies of pages.
const FILES: [&str; 6] = [
    ".ink",
    "catalog.ink",
    "t00000001.ink",
    "t00000002.ink",
    "t00000003.ink",
    "doublewrite",
];

impl Run {
    /// A spell of a life that works until step `last`, or none.
    pub(super) fn draw_spell(&mut self, last: u64) -> Option<Spell> {
        if !self.features().spells || self.rng.chance(30) {
            return None;
        }
        let fault = match self.features().disk {
            // A part of a page may be written before the rest fails.
            Disk::Tears => self
                .rng
                .pick(&[Fault::Eio, Fault::Enospc, Fault::ShortWrite]),
            Disk::AtomicWrites | Disk::NeverTears => self.rng.pick(&[Fault::Eio, Fault::Enospc]),
        };
        let rule = FaultRule {
            kind: Some(OpKind::Write),
            path_contains: self.rng.pick(&FILES).to_owned(),
            nth: 1,
            times: u64::MAX,
            fault,
        };
        let page = self.plan.features.page_size;
        let bytes = self.rng.chance(50).then(|| {
            let first = self.rng.below(40);
            first * page..(first + self.rng.from_to(1, 40)) * page
        });
        let first = self.rng.from_to(self.step + 1, last.max(self.step + 1));
        let end = first + self.rng.pick(&[10, 50, 1000]);
        Some(Spell {
            rule,
            bytes,
            steps: first..end,
        })
    }

    /// Before each step.
    pub(super) fn keep_spell(&mut self, spell: Option<&Spell>) -> Outcome {
        let Some(spell) = spell else { return Ok(()) };
        if self.step == spell.steps.start {
            self.trace(|| format!("{spell:?}"));
            match &spell.bytes {
                Some(bytes) => self.vfs.fail_bytes(spell.rule.clone(), bytes.clone()),
                None => self.vfs.fail(spell.rule.clone()),
            }
            (self.tolerant, self.failing) = (true, true);
        }
        if self.step == spell.steps.end {
            self.trace(|| "pages can be written again".to_owned());
            self.vfs.clear_faults();
            self.failing = false;
            return self.end_spell();
        }
        Ok(())
    }

    /// Writes pages that could not be written, without waiting for the pool to try again by itself.
    /// Pages of one table may be in the way of another's.
    pub(super) fn write_pages(&mut self) {
        let db = self.database();
        let mut tables = self.tables.values();
        let _ = tables.try_for_each(|table| db.flush_table(table));
    }

    /// Everything can be written again.
    fn end_spell(&mut self) -> Outcome {
        self.write_pages();
        let db = self.database();
        let tables: Vec<_> = self.tables.values().cloned().collect();
        for table in &tables {
            if let Err(error) = db.flush_table(table) {
                return match error {
                    _ if self.vfs.is_dead() => Err(super::Stop::Dead),
                    // By the fault of the plan, which may have come in the spell.
                    Error::Poisoned(_) => self.judge("flushing after a spell", &error),
                    _ => super::bug(format!("flushing after a spell: {error}")),
                };
            }
        }
        self.marks.add("spells survived", 1);
        Ok(())
    }
}
