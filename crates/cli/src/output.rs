//! Text and JSON on stdout.

use crate::failure::Failure;
use serde_json::Value;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether results are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the results are not read any more, so that a long listing may stop.
    pub fn is_closed(&self) -> bool {
        CLOSED.load(Ordering::Relaxed)
    }

    /// Prints a line for people; nothing with `--json`.
    pub fn text(&self, line: impl AsRef<str>) {
        if !self.json {
            print_line(line.as_ref());
        }
    }

    /// Prints a value for programs on one line; nothing without `--json`.
    pub fn json(&self, value: &Value) {
        if self.json {
            print_line(&value.to_string());
        }
    }

    /// Prints what went wrong: to stderr, and with `--json` as an object to stdout.
    pub fn failure(&self, failure: &Failure) {
        eprintln!("inkstone: {}", failure.message());
        self.json(&failure.to_json());
    }
}

/// The reader of stdout has seen enough (`| head`).
static CLOSED: AtomicBool = AtomicBool::new(false);

/// As `println!`, but when the output is not read any more the program goes on in silence: what it
/// began must be ended and cleaned up, and its exit code still tells how it went.
fn print_line(line: &str) {
    if CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}") {
        CLOSED.store(true, Ordering::Relaxed);
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("inkstone: standard output: {error}");
        }
    }
}

/// A table with aligned columns. The first column is left-aligned, the others as their content:
/// numbers to the right.
#[derive(Debug, Default)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with a heading.
    pub fn new<S: Into<String>>(heading: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self::default();
        table.row(heading);
        table
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines of the table, without trailing blanks.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let right: Vec<bool> = (0..columns)
            .map(|column| column > 0 && self.is_numeric(column))
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let width = widths[column];
                if right[column] {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
        cells.all(|cell| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        })
    }

    /// Prints it for people.
    pub fn print(&self, output: &Output) {
        for line in self.lines() {
            output.text(line);
        }
    }
}

/// A number with a separator between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that suits them.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64;
    let mut unit = "";
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, name);
    }
    format!("{value:.1} {unit}")
}

/// `part` for each of `whole`; 0 if there is none.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Rounded to so many decimals, for JSON that people also read.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let factor = 10f64.powi(decimals);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(["what", "n"]);
        table.row(["a", "1,000"]);
        table.row(["long name", "7"]);
        assert_eq!(
            table.lines(),
            ["what           n", "a          1,000", "long name      7"]
        );
    }
}
