//! Running all cases, and what is told of them.

use super::damage::{self, Finding};
use super::every::{self, Consequence, Series};
use super::figure::Measured;
use super::handles::{self, Crowd};
use super::known::{self, KNOWN};
use super::work::{Life, Start};
use super::{around, full, huge, lasting, processes, unused};
use inkstone_io::sim::OpKind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Longest time; `None`: until every case has run.
    pub time: Option<Duration>,
    /// Every so many-th case is run.
    pub stride: u64,
    /// No more cases than that.
    pub cases: u64,
    /// Whether to go on after a failure.
    pub keep_going: bool,
}

/// A case of any kind, as a failure names it.
#[derive(Clone, Copy, Debug)]
pub enum Case {
    /// One operation fails.
    Every(every::Case),
    /// A file fails for as long as it lasts.
    Lasting(lasting::Case),
    /// There are few handles.
    Handles(handles::Case),
    /// Real processes have a budget.
    Processes(processes::Case),
    /// What is around the process changes.
    Around(around::Case),
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('/').next() {
            Some("lasting") => text.parse().map(Case::Lasting),
            Some("handles") => text.parse().map(Case::Handles),
            Some("processes") => text.parse().map(Case::Processes),
            Some("around") => text.parse().map(Case::Around),
            _ => text.parse().map(Case::Every),
        }
    }
}

/// What has been run, and what came of it.
#[derive(Debug)]
pub struct Report {
    budget: Budget,
    begin: Instant,
    consequences: every::Tally,
    findings: damage::Tally,
    figures: Vec<Measured>,
    /// Cases that each row of [`KNOWN`] has excused, by its bug.
    excused: BTreeMap<&'static str, u64>,
    /// What they failed with.
    excuses: Vec<String>,
    cases: u64,
    damages: u64,
    huge: u64,
    /// Broken promises.
    pub broken: Vec<String>,
    /// How many cases it took to find the first.
    found_by: Option<u64>,
    cut_short: bool,
}

impl Report {
    /// Nothing has been run.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            begin: Instant::now(),
            consequences: every::Tally::new(),
            findings: damage::Tally::new(),
            figures: Vec::new(),
            excused: BTreeMap::new(),
            excuses: Vec::new(),
            cases: 0,
            damages: 0,
            huge: 0,
            broken: Vec::new(),
            found_by: None,
            cut_short: false,
        }
    }

    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// A promise was broken.
    pub fn broken(&mut self, text: String) {
        println!("FAILED {text}");
        self.found_by.get_or_insert(self.ran());
        self.broken.push(text);
    }

    /// Cases that were run, of all kinds.
    fn ran(&self) -> u64 {
        self.cases + self.damages + self.huge
    }

    fn goes_on(&mut self) -> bool {
        let time = self.budget.time;
        self.cut_short |=
            self.ran() >= self.budget.cases || time.is_some_and(|time| self.begin.elapsed() > time);
        !self.cut_short && (self.budget.keep_going || self.is_clean())
    }

    /// Runs one case. Whether there was such an operation.
    fn step(&mut self, starts: &[Start], case: every::Case) -> bool {
        let Series { kind, fault, .. } = case.series;
        match every::run(starts, case) {
            Ok(Consequence::NoSuchOperation) => return false,
            Ok(consequence) => self.count((format!("{kind:?}"), format!("{fault:?}")), consequence),
            Err(broken) => {
                self.cases += 1;
                self.broken(broken.text);
                return broken.happened;
            }
        }
        true
    }

    fn count(&mut self, row: (String, String), consequence: Consequence) {
        self.cases += 1;
        let row = self.consequences.entry(row).or_default();
        *row.entry(consequence).or_default() += 1;
    }

    /// Runs one case.
    pub fn case(&mut self, starts: &[Start], case: Case) {
        match case {
            Case::Every(case) => {
                if !self.step(starts, case) {
                    println!("there is no such operation in {case}");
                }
            }
            Case::Lasting(case) => self.lasting_case(starts, case),
            Case::Handles(case) => match Crowd::new() {
                Ok(crowd) => self.handles_case(&crowd, case),
                Err(text) => self.broken(format!("with handles for all: {text}")),
            },
            Case::Processes(case) => self.process_case(case),
            Case::Around(case) => self.around_case(starts, case),
        }
        self.found_by = None;
        for text in &self.excuses {
            println!("known breach: {text}");
        }
    }

    fn lasting_case(&mut self, starts: &[Start], case: lasting::Case) {
        let row = (format!("{:?}", case.place), format!("{:?}", case.wrong));
        let done = case.run(starts);
        self.note(&case.to_string(), row, done);
    }

    fn handles_case(&mut self, crowd: &Crowd, case: handles::Case) {
        let row = ("handles".to_owned(), format!("{:?}", case.before));
        let done = case.run(crowd);
        self.note(&case.to_string(), row, done);
    }

    fn process_case(&mut self, case: processes::Case) {
        let measured = case.run().and_then(|value| {
            let figure = processes::LOSER_OPENING;
            let measured = value.map(|value| Measured { figure, value });
            self.figures.extend(measured);
            measured.map_or(Ok(()), |measured| measured.judge())
        });
        let done = measured.map(|()| Consequence::Unnoticed);
        self.note(&case.to_string(), case.names(), done);
    }

    fn around_case(&mut self, starts: &[Start], case: around::Case) {
        let what = match case.change {
            around::Change::Memory(_) => "memory",
            _ => "control",
        };
        let row = ("around".to_owned(), what.to_owned());
        let done = case.run(starts);
        self.note(&case.to_string(), row, done);
    }

    /// Notes what came of a case.
    fn note(&mut self, case: &str, row: (String, String), done: Result<Consequence, String>) {
        let text = match done {
            Ok(consequence) => return self.count(row, consequence),
            Err(text) => text,
        };
        self.cases += 1;
        match known::find(case, &text) {
            Some(known) => {
                *self.excused.entry(known.bug).or_default() += 1;
                self.excuses.push(format!("{case}: {text}"));
            }
            None => self.broken(format!(
                "{case}: {text}\n  repeat: cargo xtask faults --case {case}"
            )),
        }
    }

    /// After a complete campaign of a kind: a row that excuses nothing any more is to be deleted.
    fn check_known(&mut self, kind: &str) {
        if self.extent() != "complete" || !self.goes_on() {
            return;
        }
        for row in KNOWN.iter().filter(|row| row.kind == kind) {
            if !self.excused.contains_key(row.bug) {
                self.broken(format!(
                    "\"{}\" is fixed: delete its row in faults/known.rs",
                    row.bug
                ));
            }
        }
    }

    /// Runs all cases of files that fail for as long as it lasts.
    pub fn lasting(&mut self, starts: &[Start]) {
        for case in lasting::Case::all().into_iter().step_by(self.stride()) {
            if !self.goes_on() {
                return;
            }
            self.lasting_case(starts, case);
        }
        self.check_known("lasting");
    }

    /// Runs all budgets of handles.
    pub fn handles(&mut self) {
        let crowd = match Crowd::new() {
            Ok(crowd) => crowd,
            Err(text) => return self.broken(format!("with handles for all: {text}")),
        };
        for case in crowd.cases().into_iter().step_by(self.stride()) {
            if !self.goes_on() {
                return;
            }
            self.handles_case(&crowd, case);
        }
        self.check_known("handles");
    }

    /// Runs all budgets of real processes.
    pub fn processes(&mut self) {
        for case in processes::Case::ALL.into_iter().step_by(self.stride()) {
            if !self.goes_on() {
                return;
            }
            self.process_case(case);
        }
        self.check_known("processes");
    }

    /// Runs all changes of what is around the process.
    pub fn around(&mut self, starts: &[Start]) {
        for case in around::Case::all().into_iter().step_by(self.stride()) {
            if !self.goes_on() {
                return;
            }
            self.around_case(starts, case);
        }
        self.check_known("around");
    }

    fn stride(&self) -> usize {
        self.budget.stride as usize
    }

    /// Runs all cases of a kind of operation.
    pub fn kind(&mut self, starts: &[Start], kind: OpKind) {
        for series in Series::all(kind) {
            let mut nth = 1;
            while self.goes_on() && self.step(starts, every::Case { series, nth }) {
                nth += self.budget.stride;
            }
        }
    }

    /// Damages the disk that each of these lives begins with.
    pub fn damage(&mut self, starts: &[Start], lives: &[Life]) {
        for &life in lives {
            let all = damage::all(starts, life).unwrap_or_else(|error| {
                self.broken(format!("the disk of {life:?} cannot be read: {error}"));
                Vec::new()
            });
            for damage in all.iter().step_by(self.stride()) {
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

    /// Fills disks.
    pub fn full(&mut self) {
        let stride = self.stride();
        self.full_cases(unused::Case::all().step_by(stride), unused::Case::run);
        self.full_cases(full::Case::all().step_by(stride), full::Case::run);
    }

    fn full_cases<C>(
        &mut self,
        cases: impl Iterator<Item = C>,
        run: impl Fn(C) -> Result<(), String>,
    ) {
        for case in cases {
            if !self.goes_on() {
                return;
            }
            match run(case) {
                Ok(()) => self.count(("Disk".to_owned(), "Full".to_owned()), Consequence::Failed),
                Err(text) => {
                    self.cases += 1;
                    self.broken(format!("{text}\n  repeat: cargo xtask faults --kind full"));
                }
            }
        }
    }

    fn extent(&self) -> &'static str {
        match (self.cut_short, self.budget.stride) {
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
        let figures = self.figures.iter().map(|Measured { figure, value }| {
            serde_json::json!({
                "name": figure.name,
                "unit": figure.unit,
                "value": value,
                "bound": figure.bound,
                "known_breach": figure.breach.map(|breach| breach.until),
            })
        });
        serde_json::json!({
            "cases": self.cases,
            "damages": self.damages,
            "huge_files": self.huge,
            "extent": self.extent(),
            "seconds": self.begin.elapsed().as_secs_f64(),
            "faults": faults.collect::<Vec<_>>(),
            "damage": findings.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
            "known_breaches": self.excused,
            "excused": self.excuses,
            "broken": self.broken,
        })
        .to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.consequences.is_empty() {
            write!(f, "{:<11} {:<13}", "operation", "fault")?;
            for consequence in Consequence::ALL {
                write!(f, " {:>10}", format!("{consequence:?}"))?;
            }
            writeln!(f)?;
        }
        for ((kind, fault), row) in &self.consequences {
            write!(f, "{kind:<11} {fault:<13}")?;
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
        for measured in &self.figures {
            writeln!(f, "{measured}")?;
        }
        for (bug, cases) in &self.excused {
            writeln!(f, "KNOWN BREACH, {cases} cases: {bug}")?;
        }
        if let Some(cases) = self.found_by {
            writeln!(
                f,
                "the first broken promise: found by --cases {}",
                cases.max(1)
            )?;
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
