//! What the sanitizers have to say, collected from their files.

use inkstone_testkit::build::{Result, empty_folder};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a report begins, behind the place or the process.
const BEGINNINGS: [&str; 2] = ["ERROR: AddressSanitizer: ", ": runtime error: "];
/// How a report is summed up.
const SUMMARY: &str = "SUMMARY: ";

/// The folder of the reports of one run of the command.
pub struct Reports(PathBuf);

impl Reports {
    /// Forgets what an earlier process of this id left in `folder`.
    pub fn begin(folder: &Path) -> Result<Self> {
        empty_folder(folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// Where a sanitizer writes: it adds the process's id.
    pub fn of(&self, sanitizer: &str) -> PathBuf {
        self.0.join(sanitizer)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.0)
            .map_err(|error| format!("{} cannot be read: {error}", self.0.display()))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    /// Everything that was written so far; it is forgotten.
    pub fn take(&self) -> Result<String> {
        let mut text = String::new();
        for file in self.files()? {
            text += &read(&file)?;
            std::fs::remove_file(&file)
                .map_err(|error| format!("{} cannot be removed: {error}", file.display()))?;
        }
        Ok(text)
    }

    /// Prints each kind of report once; gives the number of reports. Without any, the folder goes.
    pub fn print(&self) -> Result<u64> {
        let mut kinds = Kinds::new();
        for file in self.files()? {
            collect(&read(&file)?, &mut kinds);
        }
        for (summary, (count, report)) in &kinds {
            println!("{count} x {summary}\n{report}\n");
        }
        let found = kinds.values().map(|(count, _)| count).sum();
        match found {
            0 => {
                println!("no report of a sanitizer");
                let _ = std::fs::remove_dir_all(&self.0);
            }
            _ => println!(
                "{found} reports of sanitizers, of {} kinds, in full in {}",
                kinds.len(),
                self.0.display()
            ),
        }
        Ok(found)
    }
}

fn read(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reports by their summaries: how many, and the first one.
type Kinds = BTreeMap<String, (u64, String)>;

/// Adds the reports of a file to `kinds`. Text that is no known report counts as one, too: nothing
/// that a sanitizer says may be lost.
fn collect(text: &str, kinds: &mut Kinds) {
    let mut reports: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = BEGINNINGS.iter().any(|beginning| line.contains(beginning));
        match reports.last_mut() {
            Some(report) if !begins => *report += &format!("\n{line}"),
            _ => reports.push(line.to_owned()),
        }
    }
    for report in reports {
        if report
            .chars()
            .all(|char| char.is_whitespace() || char == '=')
        {
            continue;
        }
        let summary = report.lines().find_map(|line| line.strip_prefix(SUMMARY));
        let first = report.lines().next().unwrap_or_default();
        let kind = summary.unwrap_or(first).to_owned();
        kinds.entry(kind).or_insert_with(|| (0, report)).0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_counted_by_their_summaries_and_nothing_is_lost() {
        let address = "=================\n==7==ERROR: AddressSanitizer: heap-buffer-overflow on address\n  #0 f\n\
                       SUMMARY: AddressSanitizer: heap-buffer-overflow a.cc:1 in f\n";
        let undefined = "a.cc:2:3: runtime error: signed integer overflow: 1 + 1\n  #0 g\n\
                         SUMMARY: UndefinedBehaviorSanitizer: signed-integer-overflow a.cc:2:3\n";
        let mut kinds = Kinds::new();
        collect(&[undefined, undefined].concat(), &mut kinds);
        collect(&[undefined, address].concat(), &mut kinds);
        collect("==8==WARNING: something new\n", &mut kinds);
        let counts: Vec<_> = kinds.iter().map(|(kind, of)| (&kind[..], of.0)).collect();
        let expected = [
            ("==8==WARNING: something new", 1),
            ("AddressSanitizer: heap-buffer-overflow a.cc:1 in f", 1),
            (
                "UndefinedBehaviorSanitizer: signed-integer-overflow a.cc:2:3",
                3,
            ),
        ];
        assert_eq!(counts, expected);
    }
}
