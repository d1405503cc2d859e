//! Running all cases, and what is told of them.

use super::damage::{self, Finding};
use super::every::{self, Case, Consequence, Series};
use super::huge;
use super::work::{Life, Start};
use inkstone_io::sim::OpKind;
use std::fmt;
use std::time::{Duration, Instant};

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Longest time; `None`: until every case has run.
    pub time: Option<Duration>,
    /// Every so many-th case is run.
    pub stride: u64,
    /// Whether to go on after a failure.
    pub keep_going: bool,
}

/// What has been run, and what came of it.
#[derive(Debug)]
pub struct Report {
    budget: Budget,
    begin: Instant,
    consequences: every::Tally,
    findings: damage::Tally,
    cases: u64,
    damages: u64,
    huge: u64,
    /// Broken promises.
    pub broken: Vec<String>,
    out_of_time: bool,
}

impl Report {
    /// Nothing has been run.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            begin: Instant::now(),
            consequences: every::Tally::new(),
            findings: damage::Tally::new(),
            cases: 0,
            damages: 0,
            huge: 0,
            broken: Vec::new(),
            out_of_time: false,
        }
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// A promise was broken.
    pub fn broken(&mut self, text: String) {
        println!("FAILED {text}");
        self.broken.push(text);
    }

    fn goes_on(&mut self) -> bool {
        let time = self.budget.time;
        self.out_of_time |= time.is_some_and(|time| self.begin.elapsed() > time);
        !self.out_of_time && (self.budget.keep_going || self.is_clean())
    }

    /// Runs one case. Whether there was such an operation.
    fn step(&mut self, starts: &[Start], case: Case) -> bool {
        let Series { kind, fault, .. } = case.series;
        match every::run(starts, case) {
            Ok(Consequence::NoSuchOperation) => return false,
            Ok(consequence) => {
                self.cases += 1;
                let row = (format!("{kind:?}"), format!("{fault:?}"));
                let row = self.consequences.entry(row).or_default();
                *row.entry(consequence).or_default() += 1;
            }
            Err(broken) => {
                self.cases += 1;
                self.broken(broken.text);
                return broken.happened;
            }
        }
        true
    }

    /// Runs one case.
    pub fn case(&mut self, starts: &[Start], case: Case) {
        if !self.step(starts, case) {
            println!("there is no such operation in {case}");
        }
    }

    /// Runs all cases of a kind of operation.
    pub fn kind(&mut self, starts: &[Start], kind: OpKind) {
        for series in Series::all(kind) {
            let mut nth = 1;
            while self.goes_on() && self.step(starts, Case { series, nth }) {
                nth += self.budget.stride;
            }
        }
    }

    /// Damages the disk that each life begins with.
    pub fn damage(&mut self, starts: &[Start]) {
        for life in [Life::Work, Life::AfterKill, Life::AfterTear] {
            let all = damage::all(starts, life).unwrap_or_else(|error| {
                self.broken(format!("the disk of {life:?} cannot be read: {error}"));
                Vec::new()
            });
            for damage in all.iter().step_by(self.budget.stride as usize) {
                if !self.goes_on() {
                    return;
                }
                self.damages += 1;
                match damage::run(starts, damage) {
                    Ok(finding) => {
                        let row = (damage.part(), damage.what.name());
                        let row = self.findings.entry(row).or_default();
                        *row.entry(finding).or_default() += 1;
                    }
                    Err(text) => self.broken(text),
                }
            }
        }
    }

    /// Fills huge files.
    pub fn huge(&mut self) {
        for case in huge::Case::ALL {
            if !self.goes_on() {
                return;
            }
            self.huge += 1;
            if let Err(text) = huge::run(case) {
                self.broken(format!("{text}\n  repeat: cargo xtask faults --kind huge"));
            }
        }
    }

    fn extent(&self) -> &'static str {
        match (self.out_of_time, self.budget.stride) {
            (true, _) => "cut short",
            (false, 1) => "complete",
            (false, _) => "sampled",
        }
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let faults = self.consequences.iter().map(|((kind, fault), row)| {
            let row: serde_json::Map<_, _> = row
                .iter()
                .map(|(c, &n)| (format!("{c:?}"), n.into()))
                .collect();
            serde_json::json!({ "kind": kind, "fault": fault, "consequences": row })
        });
        let findings = self.findings.iter().map(|((part, what), row)| {
            let row: serde_json::Map<_, _> = row
                .iter()
                .map(|(f, &n)| (format!("{f:?}"), n.into()))
                .collect();
            serde_json::json!({ "file": format!("{part:?}"), "damage": what, "found": row })
        });
        serde_json::json!({
            "cases": self.cases,
            "damages": self.damages,
            "huge_files": self.huge,
            "extent": self.extent(),
            "seconds": self.begin.elapsed().as_secs_f64(),
            "faults": faults.collect::<Vec<_>>(),
            "damage": findings.collect::<Vec<_>>(),
            "broken": self.broken,
        })
        .to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.consequences.is_empty() {
            write!(f, "{:<10} {:<11}", "operation", "fault")?;
            for consequence in Consequence::ALL {
                write!(f, " {:>10}", format!("{consequence:?}"))?;
            }
            writeln!(f)?;
        }
        for ((kind, fault), row) in &self.consequences {
            write!(f, "{kind:<10} {fault:<11}")?;
            for consequence in Consequence::ALL {
                write!(f, " {:>10}", row.get(&consequence).copied().unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        if !self.findings.is_empty() {
            write!(f, "{:<12} {:<12}", "file", "damage")?;
            for finding in Finding::ALL {
                write!(f, " {:>15}", format!("{finding:?}"))?;
            }
            writeln!(f)?;
        }
        for ((part, what), row) in &self.findings {
            write!(f, "{:<12} {what:<12}", format!("{part:?}"))?;
            for finding in Finding::ALL {
                write!(f, " {:>15}", row.get(&finding).copied().unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        writeln!(
            f,
            "{} faults, {} damages and {} huge files ({}), {} broken promises, {seconds:.1} s",
            self.cases,
            self.damages,
            self.huge,
            self.extent(),
            self.broken.len()
        )
    }
}
