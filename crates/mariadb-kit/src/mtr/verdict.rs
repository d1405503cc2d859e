//! InnoDB's output of a test against Inkstone's.

use super::driver::Outcome;
use crate::compare::{differences, neutral};
use inkstone_testkit::build::Result;
use std::path::Path;

/// How the two engines did on one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same output, but for the engine's name.
    Equal,
    /// The output differs exactly as `mariadb/mtr/differences` says; with the reason stated there.
    Documented(String),
    /// The output differs otherwise; with the lines.
    Differs(String),
    /// Inkstone does not get to the end of it, and InnoDB does.
    Failed(String),
    /// InnoDB cannot run it, so there is nothing to compare.
    NotForInnoDb(String),
}

impl Verdict {
    /// As it stands in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Documented(_) => "differs (documented)",
            Self::Differs(_) => "DIFFERS",
            Self::Failed(_) => "FAILED",
            Self::NotForInnoDb(_) => "InnoDB cannot run it",
        }
    }

    /// True if it must be mended or documented.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Failed(_))
    }
}

/// Compares two outcomes. `work` is a folder to write in, `documented` the file that may document
/// the difference.
pub fn compare(
    innodb: &Outcome,
    inkstone: &Outcome,
    work: &Path,
    documented: &Path,
) -> Result<Verdict> {
    let innodb = match innodb {
        Outcome::Printed(text) => text,
        Outcome::Skipped(remark) | Outcome::Failed(remark) => {
            return Ok(match inkstone {
                Outcome::Failed(text) if is_crash(text) => Verdict::Failed(text.clone()),
                _ => Verdict::NotForInnoDb(remark.clone()),
            });
        }
    };
    let inkstone = match inkstone {
        Outcome::Printed(text) => text,
        Outcome::Skipped(remark) => return Ok(Verdict::Failed(format!("skipped: {remark}"))),
        Outcome::Failed(remark) => {
            let (reason, lines) = documented_difference(documented);
            return Ok(
                if !reason.is_empty() && !is_crash(remark) && lines == failed_line(remark) {
                    Verdict::Documented(reason)
                } else {
                    Verdict::Failed(remark.clone())
                },
            );
        }
    };
    let differences = differences(&neutral(innodb), &neutral(inkstone), work)?;
    if differences.is_empty() {
        return Ok(Verdict::Equal);
    }
    let (reason, lines) = documented_difference(documented);
    Ok(if !reason.is_empty() && lines == differences {
        Verdict::Documented(reason)
    } else {
        Verdict::Differs(differences)
    })
}

/// The reason and the lines of a documented difference; both empty if there is none.
fn documented_difference(file: &Path) -> (String, String) {
    split_reason(&std::fs::read_to_string(file).unwrap_or_default())
}

/// The line in which the test driver says which statement failed, and how.
fn failed_line(remark: &str) -> String {
    let mut lines = remark.lines();
    let line = lines.find(|line| line.starts_with("mysqltest: At line"));
    line.map(|line| format!("{line}\n")).unwrap_or_default()
}

fn is_crash(text: &str) -> bool {
    text.contains("crash") || text.contains("Lost connection") || text.contains("timeout")
}

/// A documented difference begins with its reason, in lines that begin with `#`.
fn split_reason(text: &str) -> (String, String) {
    let is_reason = |line: &&str| line.starts_with('#');
    let reason: Vec<&str> = text
        .lines()
        .take_while(is_reason)
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let lines = text.lines().skip_while(is_reason);
    (
        reason.join(" "),
        lines.map(|line| format!("{line}\n")).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_documented_only_by_its_very_line_and_never_a_crash() {
        let file = std::env::temp_dir().join(format!("inkstone-failure-{}", std::process::id()));
        std::fs::write(&file, "# Why\nmysqltest: At line 5: refused\n").expect("a file");
        let verdict = |remark: &str| {
            let inkstone = Outcome::Failed(format!("begun\n{remark}\nmore\n"));
            let innodb = Outcome::Printed(String::new());
            compare(&innodb, &inkstone, Path::new("/tmp"), &file).expect("a verdict")
        };
        let documented = Verdict::Documented("Why".into());
        assert_eq!(verdict("mysqltest: At line 5: refused"), documented);
        assert!(verdict("mysqltest: At line 6: refused").is_wrong());
        assert!(verdict("mysqltest: At line 5: refused\nLost connection").is_wrong());
        std::fs::remove_file(&file).expect("the file goes");
    }

    #[test]
    fn a_difference_is_documented_only_with_a_reason_and_its_very_lines() {
        let folder = std::env::temp_dir().join(format!("inkstone-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let documented = folder.join("documented.diff");
        let printed = |text: &str| Outcome::Printed(text.to_owned());
        let verdict = |documents: &str| {
            std::fs::write(&documented, documents).expect("a file");
            let (a, b) = (printed("x\n1\ny\n"), printed("x\n2\ny\n"));
            compare(&a, &b, &folder, &documented).expect("a verdict")
        };
        assert_eq!(
            verdict("# Two\n# is better\n-1\n+2\n"),
            Verdict::Documented("Two is better".into())
        );
        assert_eq!(verdict("-1\n+2\n"), Verdict::Differs("-1\n+2\n".into()));
        assert_eq!(
            verdict("# Two\n-1\n+3\n"),
            Verdict::Differs("-1\n+2\n".into())
        );
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
