//! What the tour says at the end.

use super::proof::Proof;
use super::watch::Heard;
use crate::check::{FileReport, opening_json, shown, table_json};
use crate::failure::{Failure, Result};
use inkstone::{OpenReport, TableReport};
use inkstone_bench::counts::Counts;
use inkstone_bench::output::{Output, TextTable, bytes, count, ratio, rounded};
use serde_json::{Value, json};
use std::path::Path;

/// What loading took.
#[derive(Debug)]
pub struct Loaded {
    pub seconds: f64,
    /// What the write path did, until all pages were on disk.
    pub counts: Counts,
}

/// Everything that the tour found.
#[derive(Debug)]
pub struct Report<'r> {
    /// Where the database is, if it is kept.
    pub directory: Option<&'r Path>,
    pub rows: u64,
    pub loaded: Loaded,
    pub heard: Heard,
    pub opened: OpenReport,
    pub after_recovery: Counts,
    pub transactions_found: u64,
    pub proofs: Vec<Proof>,
    pub tables: Vec<TableReport>,
    pub files: Vec<FileReport>,
}

/// A line of the write path's table: name, counter, shown as bytes.
const LINES: [(&str, &str, bool); 16] = [
    ("transactions committed", "commits", false),
    ("transactions rolled back", "rollbacks", false),
    ("redo log", "log_bytes", true),
    ("  written, with padding", "log_bytes_written", true),
    ("  mini-transactions", "log_mini_transactions", false),
    ("  write calls", "log_write_calls", false),
    ("  syncs", "log_syncs", false),
    ("data files", "page_bytes_written", true),
    ("  pages", "pages_written", false),
    ("  write calls", "data_write_calls", false),
    ("  syncs", "data_syncs", false),
    ("doublewrite file", "doublewrite_bytes", true),
    ("  pages", "doublewrite_pages", false),
    (
        "  fresh pages that skipped it",
        "doublewrite_skipped",
        false,
    ),
    ("  syncs", "doublewrite_syncs", false),
    ("place maps", "place_map_bytes", true),
];

impl Report<'_> {
    /// Prints everything; a failure if a proof failed.
    pub fn print(&self, output: &Output) -> Result<()> {
        output.text("");
        self.write_path().print(output);
        output.text("");
        for proof in &self.proofs {
            let mark = if proof.holds() { "ok    " } else { "FAILED" };
            output.text(format!("{mark}  {}", proof.claim));
            for violation in &proof.violations {
                output.text(format!("          {violation}"));
            }
        }
        let failed = self.proofs.iter().filter(|proof| !proof.holds()).count();
        output.text("");
        if let Some(directory) = self.directory {
            output.text(format!("the database is kept in {}", directory.display()));
        }
        if failed == 0 {
            output.text(self.verdict());
            output.json(&self.to_json());
            return Ok(());
        }
        let verdict = format!("{failed} of {} proofs FAILED", self.proofs.len());
        let mut object = self.to_json();
        let failure = Failure::Check(verdict);
        if let (Some(object), Value::Object(error)) = (object.as_object_mut(), failure.to_json()) {
            object.extend(error);
        }
        // One object says it all, so the failure is not printed again.
        output.json(&object);
        if output.is_json() {
            eprintln!("inkstone: {}", failure.message());
            return Err(Failure::Told(failure.exit_code()));
        }
        Err(failure)
    }

    fn verdict(&self) -> String {
        let pages: u64 = self.files.iter().map(|file| file.pages_checked).sum();
        let unacknowledged = self.transactions_found.saturating_sub(self.heard.commits());
        format!(
            "All is well. The process was killed in the middle of its work. All {} acknowledged commits are \
             there, {unacknowledged} that were under way are there whole, nothing is half there, and all {} \
             pages are sound.",
            count(self.heard.commits()),
            count(pages)
        )
    }

    fn write_path(&self) -> TextTable {
        let mut table = TextTable::new([
            "what the write path did",
            "load",
            "until killed",
            "recovery",
        ]);
        let phases = [
            &self.loaded.counts,
            &self.heard.counts,
            &self.after_recovery,
        ];
        for (name, counter, in_bytes) in LINES {
            let cells = phases.map(|counts| {
                if in_bytes {
                    bytes(counts.get(counter))
                } else {
                    count(counts.get(counter))
                }
            });
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        self.add_ratios(&mut table, phases);
        table
    }

    fn add_ratios(&self, table: &mut TextTable, [load, work, recovery]: [&Counts; 3]) {
        let per = |what: &str, load: String, work: String, recovery: String| {
            [what.to_owned(), load, work, recovery]
        };
        table.row(per(
            "log bytes for each row",
            format!("{:.1}", ratio(load.get("log_bytes"), self.rows)),
            String::new(),
            String::new(),
        ));
        table.row(per(
            "commits for each log sync",
            String::new(),
            format!("{:.1}", ratio(work.get("commits"), work.get("log_syncs"))),
            String::new(),
        ));
        let pages = |counts: &Counts| {
            let pages = ratio(counts.get("pages_written"), counts.get("data_write_calls"));
            format!("{pages:.1}")
        };
        table.row(per(
            "pages for each write call",
            pages(load),
            pages(work),
            pages(recovery),
        ));
        table.row(per(
            "milliseconds",
            count((self.loaded.seconds * 1000.0) as u64),
            count((self.heard.seconds * 1000.0) as u64),
            count(self.opened.milliseconds),
        ));
        let recovered = self.opened.recovered.as_ref();
        for (name, number) in [
            (
                "torn pages repaired",
                recovered.map(|r| r.torn_pages_repaired),
            ),
            ("losers rolled back", recovered.map(|r| r.losers)),
            (
                "row changes undone",
                recovered.map(|r| r.rows_undone + r.rows_to_undo),
            ),
        ] {
            table.row(per(
                name,
                String::new(),
                String::new(),
                count(number.unwrap_or(0)),
            ));
        }
    }

    fn to_json(&self) -> Value {
        let phase = |counts: &Counts, seconds: f64| {
            let counters: serde_json::Map<String, Value> = LINES
                .iter()
                .map(|(_, counter, _)| ((*counter).to_owned(), json!(counts.get(counter))))
                .collect();
            json!({ "seconds": rounded(seconds, 3), "counters": counters })
        };
        let work = &self.heard;
        json!({
            "ok": self.proofs.iter().all(Proof::holds),
            "directory": self.directory.map(shown),
            "rows": self.rows,
            "load": phase(&self.loaded.counts, self.loaded.seconds),
            "log_bytes_per_row": rounded(ratio(self.loaded.counts.get("log_bytes"), self.rows), 2),
            "until_killed": phase(&work.counts, work.seconds),
            "commits_acknowledged": work.commits(),
            "rollbacks_acknowledged": work.rollbacks(),
            "transactions_found": self.transactions_found,
            "recovery": phase(&self.after_recovery, self.opened.milliseconds as f64 / 1000.0),
            "opening": opening_json(&self.opened),
            "proofs": self.proofs.iter().map(Proof::to_json).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(table_json).collect::<Vec<_>>(),
            "files": self.files.iter().map(FileReport::to_json).collect::<Vec<_>>(),
        })
    }
}
