//! What a part of an SQL file took: time, log, writes, from the status variables of either engine.

use inkstone_testkit::build::Result;

/// One measured part.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub label: String,
    /// Rows that it works on, as the file says; 0 if it does not.
    pub rows: f64,
    pub seconds: f64,
    pub log_bytes: f64,
    pub data_bytes: f64,
    pub data_writes: f64,
    pub doublewrite_pages: f64,
}

/// The counters that both engines have under the same names.
const COUNTERS: [&str; 4] = [
    "lsn_current",
    "data_written",
    "data_writes",
    "dblwr_pages_written",
];

const MARK: &str = "#mark";

/// Puts a query of the counters before each part, and one behind the last.
pub fn with_marks(text: &str, engine: &str) -> String {
    let mut marked = String::new();
    for line in text.lines() {
        if let Some(label) = line.strip_prefix("-- measure ") {
            marked += &mark(label, engine);
        } else if line.trim() == "-- end" {
            marked += &mark("", engine);
        }
        marked += line;
        marked.push('\n');
    }
    marked + &mark("", engine)
}

fn mark(label: &str, engine: &str) -> String {
    let engine = engine.to_lowercase();
    let counters = COUNTERS.map(|counter| {
        format!(
            "(SELECT variable_value FROM information_schema.global_status \
             WHERE variable_name = '{engine}_{counter}')"
        )
    });
    format!(
        "SELECT '{MARK}', '{label}', {}, UNIX_TIMESTAMP(SYSDATE(6));\n",
        counters.join(", ")
    )
}

/// Reads the marks in what the client printed.
pub fn parts(printed: &str) -> Result<Vec<Part>> {
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with(MARK))
        .collect();
    let mut parts = Vec::new();
    for pair in lines.windows(2) {
        let (label, before) = numbers(pair[0])?;
        let (_, after) = numbers(pair[1])?;
        if label.is_empty() {
            continue;
        }
        let difference = |at: usize| after[at] - before[at];
        let (label, rows) = match label.rsplit_once(' ') {
            Some((head, rows)) if rows.parse::<f64>().is_ok() => {
                (head, rows.parse().unwrap_or_default())
            }
            _ => (label, 0.0),
        };
        parts.push(Part {
            label: label.to_owned(),
            rows,
            log_bytes: difference(0),
            data_bytes: difference(1),
            data_writes: difference(2),
            doublewrite_pages: difference(3),
            seconds: difference(4),
        });
    }
    match parts.is_empty() {
        true => {
            Err("the file measures nothing: it needs a line \"-- measure LABEL [ROWS]\"".to_owned())
        }
        false => Ok(parts),
    }
}

fn numbers(line: &str) -> Result<(&str, Vec<f64>)> {
    let mut words = line.split('\t').skip(1);
    let label = words.next().unwrap_or_default();
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    match numbers.len() == COUNTERS.len() + 1 {
        true => Ok((label, numbers)),
        false => Err(format!("a counter of {COUNTERS:?} is missing: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_difference_of_two_marks() {
        let printed = "#mark\tinsert 100\t10\t20\t30\t40\t1.5\nnoise\n\
                       #mark\t\t1010\t25\t32\t40\t3.5\n";
        let parts = parts(printed).expect("parts");
        let expected = Part {
            label: "insert".to_owned(),
            rows: 100.0,
            seconds: 2.0,
            log_bytes: 1000.0,
            data_bytes: 5.0,
            data_writes: 2.0,
            doublewrite_pages: 0.0,
        };
        assert_eq!(parts, [expected]);
    }

    #[test]
    fn a_missing_counter_is_an_error() {
        assert!(parts("#mark\ta\t1\tNULL\t3\t4\t5\n#mark\t\t1\t2\t3\t4\t5\n").is_err());
    }

    #[test]
    fn marks_stand_before_parts_and_behind_the_last() {
        let text = with_marks("CREATE;\n-- measure insert 5\nINSERT;\n", "InnoDB");
        let kinds: Vec<bool> = text.lines().map(|line| line.contains(MARK)).collect();
        assert_eq!(kinds, [false, true, false, false, true]);
        assert!(text.contains("'innodb_lsn_current'"));
    }
}
