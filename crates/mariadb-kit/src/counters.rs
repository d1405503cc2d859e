//! What a part of an SQL file took: time, log, writes, from the status variables of either engine;
//! processor time and memory of the server from the system.

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
    /// Of the server, in user and kernel.
    pub processor_seconds: f64,
    /// The most that was resident.
    pub peak_bytes: f64,
}

/// The counters that both engines have under the same names.
const COUNTERS: [&str; 4] = [
    "lsn_current",
    "data_written",
    "data_writes",
    "dblwr_pages_written",
];

const MARK: &str = "#mark";
/// Begins a line of what the system tells, one for each mark, in the same order.
const PROCESS: &str = "#process";
/// In a second, in `/proc`.
const TICKS: f64 = 100.0;

/// Puts a query of the counters before each part, and one behind the last. `server`: the id of its
/// process.
pub fn with_marks(text: &str, engine: &str, server: u32) -> String {
    let mut marked = String::new();
    for line in text.lines() {
        if let Some(label) = line.strip_prefix("-- measure ") {
            marked += &mark(label, engine, server);
        } else if line.trim() == "-- end" {
            marked += &mark("", engine, server);
        }
        marked += line;
        marked.push('\n');
    }
    marked + &mark("", engine, server)
}

fn mark(label: &str, engine: &str, server: u32) -> String {
    // The peak begins anew.
    let process = format!(
        "system echo '{PROCESS}' $(cut -d' ' -f14,15 /proc/{server}/stat) \
         $(grep VmHWM /proc/{server}/status | tr -dc 0-9) && echo 5 > /proc/{server}/clear_refs\n"
    );
    let engine = engine.to_lowercase();
    let counters = COUNTERS.map(|counter| {
        format!(
            "(SELECT variable_value FROM information_schema.global_status \
             WHERE variable_name = '{engine}_{counter}')"
        )
    });
    let counters = counters.join(", ");
    format!("{process}SELECT '{MARK}', '{label}', {counters}, UNIX_TIMESTAMP(SYSDATE(6));\n")
}

/// Reads the marks in what the client printed.
pub fn parts(printed: &str) -> Result<Vec<Part>> {
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with(MARK))
        .collect();
    let processes: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix(PROCESS))
        .collect();
    if lines.len() != processes.len() {
        let (marks, told) = (lines.len(), processes.len());
        return Err(format!(
            "the system told {told} times of the server, at {marks} marks"
        ));
    }
    let mut parts = Vec::new();
    for (pair, process) in lines.windows(2).zip(processes.windows(2)) {
        let (label, before) = numbers(pair[0])?;
        let (_, after) = numbers(pair[1])?;
        if label.is_empty() {
            continue;
        }
        let ((ticks_before, _), (ticks, peak)) = (told(process[0])?, told(process[1])?);
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
            processor_seconds: (ticks - ticks_before) / TICKS,
            peak_bytes: peak * 1024.0,
        });
    }
    if parts.is_empty() {
        Err("the file measures nothing: it needs a line \"-- measure LABEL [ROWS]\"".to_owned())
    } else {
        Ok(parts)
    }
}

/// Ticks of processor time, and the peak of memory in KiB.
fn told(line: &str) -> Result<(f64, f64)> {
    let numbers: Vec<f64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [user, system, peak] => Ok((user + system, peak)),
        _ => Err(format!("the system tells of the server:{line}")),
    }
}

fn numbers(line: &str) -> Result<(&str, Vec<f64>)> {
    let mut words = line.split('\t').skip(1);
    let label = words.next().unwrap_or_default();
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    if numbers.len() == COUNTERS.len() + 1 {
        Ok((label, numbers))
    } else {
        Err(format!("a counter of {COUNTERS:?} is missing: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_difference_of_two_marks() {
        let printed = "#process 100 50 9\n#process 300 100 2048\n\
                       #mark\tinsert 100\t10\t20\t30\t40\t1.5\nnoise\n\
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
            processor_seconds: 2.5,
            peak_bytes: 2048.0 * 1024.0,
        };
        assert_eq!(parts, [expected]);
    }

    #[test]
    fn a_missing_counter_is_an_error() {
        let process = "#process 1 1 1\n#process 1 1 1\n";
        let marks =
            |first| format!("{process}#mark\ta\t1\t{first}\t3\t4\t5\n#mark\t\t1\t2\t3\t4\t5\n");
        assert!(parts(&marks("2")).is_ok());
        assert!(parts(&marks("NULL")).is_err());
        assert!(parts(&marks("2").replace("#process 1 1 1", "#process 1 1")).is_err());
    }

    /// A `#` that is not quoted would be a comment to the shell.
    #[test]
    fn the_system_tells_of_a_process() {
        let text = with_marks("", "InnoDB", std::process::id());
        let command = text.lines().find_map(|line| line.strip_prefix("system "));
        let command = command.expect("a command for the shell");
        let output = std::process::Command::new("sh")
            .args(["-c", command])
            .output();
        let output = output.expect("a shell").stdout;
        let printed = String::from_utf8(output).expect("text");
        let process = printed.trim().strip_prefix(PROCESS);
        let (ticks, peak) = told(process.expect("a mark")).expect("numbers");
        assert!(ticks >= 0.0 && peak > 100.0, "{printed}");
    }

    #[test]
    fn marks_stand_before_parts_and_behind_the_last() {
        let text = with_marks("CREATE;\n-- measure insert 5\nINSERT;\n", "InnoDB", 7);
        let kinds: Vec<bool> = text.lines().map(|line| line.contains(MARK)).collect();
        assert_eq!(kinds, [false, false, true, false, false, false, true]);
        assert!(text.contains("/proc/7/stat"));
        assert!(text.contains("'innodb_lsn_current'"));
    }
}
