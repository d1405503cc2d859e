//! What ThreadSanitizer has to say, collected from its files.

use inkstone_testkit::build::{Result, empty_folder, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a report begins.
const WARNING: &str = "WARNING: ThreadSanitizer: ";
/// The line above and below a report.
const RULER: &str = "==================";

/// The folder of the reports of one run of the command.
pub struct Reports(PathBuf);

impl Reports {
    /// Forgets what earlier runs left in `folder`.
    pub fn begin(folder: &Path) -> Result<Self> {
        empty_folder(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// What ThreadSanitizer is told by its environment variable.
    pub fn options(&self) -> String {
        let options = [
            format!("log_path={}", self.0.join("process").display()),
            format!(
                "suppressions={}",
                root().join("xtask/tsan/suppressions.txt").display()
            ),
            // The files decide, not the exit code of the process that wrote them.
            "exitcode=0".to_owned(),
            // Most of what may be remembered: a report whose older half is lost cannot be told from
            // those that are expected.
            "history_size=7".to_owned(),
        ];
        options.join(" ")
    }

    /// Prints each kind of report once; gives the number of reports.
    pub fn print(&self) -> Result<u64> {
        let error = |error| format!("{}: {error}", self.0.display());
        let mut kinds = Kinds::new();
        for entry in std::fs::read_dir(&self.0).map_err(error)? {
            let bytes = std::fs::read(entry.map_err(error)?.path()).map_err(error)?;
            collect(&String::from_utf8_lossy(&bytes), &mut kinds);
        }
        for (summary, (count, report)) in &kinds {
            println!("{count} x {summary}\n{report}\n");
        }
        let found = kinds.values().map(|(count, _)| count).sum();
        println!(
            "{found} reports of {} kinds, in full in {}",
            kinds.len(),
            self.0.display()
        );
        Ok(found)
    }
}

/// Reports by their summaries: how many, and the first one.
type Kinds = BTreeMap<String, (u64, String)>;

/// Adds the reports of a file to `kinds`.
fn collect(text: &str, kinds: &mut Kinds) {
    for report in text.split(RULER).filter(|part| part.contains(WARNING)) {
        let summary = report
            .lines()
            .find_map(|line| line.strip_prefix("SUMMARY: "));
        let kind = kinds
            .entry(summary.unwrap_or("a report without a summary").to_owned())
            .or_insert_with(|| (0, report.trim().to_owned()));
        kind.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_counted_by_their_summaries() {
        let report = |summary: &str| {
            format!("{RULER}\n{WARNING}data race (pid=1)\n  ...\nSUMMARY: {summary}\n{RULER}\n")
        };
        let text = [
            "ThreadSanitizer: something else\n".to_owned(),
            report("data race a.rs:1 in a"),
            report("data race b.rs:2 in b"),
            report("data race a.rs:1 in a"),
        ];
        let mut kinds = Kinds::new();
        collect(&text.concat(), &mut kinds);
        collect(&text.concat(), &mut kinds);
        let counts: Vec<_> = kinds.iter().map(|(kind, of)| (&kind[..], of.0)).collect();
        let expected = [("data race a.rs:1 in a", 4), ("data race b.rs:2 in b", 2)];
        assert_eq!(counts, expected);
    }
}
