//! What two engines printed, compared but for the engines' names.

use inkstone_testkit::build::Result;
use std::path::Path;
use std::process::Command;

/// What InnoDB's CHECK TABLE says of a deleted row that its purge has not come to yet, which is so
/// on a busy machine.
const NOT_PURGED: &str = "\tcheck\tWarning\tInnoDB: Unpurged clustered index record in table ";

/// The output without what may differ: the engine's name, also where a test put its own word for
/// it, ids and waiting times of connections in lists of processes, names of an ALTER's copy, which
/// have the connection's id, and how far purge has come.
pub fn neutral(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains(NOT_PURGED))
        .map(|line| {
            if line.contains("\troot\tlocalhost") {
                without_moment(line)
            } else {
                without_copy(line) + "\n"
            }
        });
    without_name(&lines.collect::<String>()).replace("<STORAGE_ENGINE>", "<ENGINE>")
}

/// A line of SHOW PROCESSLIST without id and time.
fn without_moment(line: &str) -> String {
    let fields = line.split('\t').enumerate().map(|(at, field)| match at {
        0 | 5 => "#",
        _ => field,
    });
    fields.collect::<Vec<_>>().join("\t") + "\n"
}

/// A line without what the server adds to the name of an ALTER's copy.
fn without_copy(line: &str) -> String {
    const COPY: &str = "#sql-alter-";
    let mut parts = line.split(COPY);
    let mut kept = parts.next().unwrap_or("").to_owned();
    for part in parts {
        kept.push_str(COPY);
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-'));
    }
    kept
}

/// The text without the names of the engines.
pub fn without_name(text: &str) -> String {
    let mut neutral = String::with_capacity(text.len());
    let lower = text.to_ascii_lowercase();
    let mut rest = 0;
    while rest < text.len() {
        let names = ["innodb", "inkstone"];
        let next = names
            .iter()
            .filter_map(|name| lower[rest..].find(name).map(|at| (rest + at, name.len())))
            .min();
        let Some((at, length)) = next else {
            break;
        };
        neutral.push_str(&text[rest..at]);
        neutral.push_str("<ENGINE>");
        rest = at + length;
    }
    neutral.push_str(&text[rest..]);
    neutral
}

/// Lines that only one of the texts has, InnoDB's with `-` before them, Inkstone's with `+`.
/// Without line numbers, so that an unrelated change elsewhere in a test leaves them as they are.
pub fn differences(innodb: &str, inkstone: &str, work: &Path) -> Result<String> {
    if innodb == inkstone {
        return Ok(String::new());
    }
    let (a, b) = (work.join("innodb.txt"), work.join("inkstone.txt"));
    for (path, text) in [(&a, innodb), (&b, inkstone)] {
        std::fs::write(path, text)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    let output = Command::new("diff")
        .arg("-a")
        .arg("-U0")
        .args([&a, &b])
        .output();
    let output = output.map_err(|error| format!("diff cannot be started: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines = printed
        .lines()
        .skip(2)
        .filter(|line| !line.starts_with("@@"));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_name_does_not_count() {
        assert_eq!(
            neutral("ENGINE=InnoDB x innodb"),
            neutral("ENGINE=INKSTONE x Inkstone")
        );
        assert_eq!(neutral("größe"), "größe\n");
        let not_purged =
            "smoke.t\tcheck\tWarning\tInnoDB: Unpurged clustered index record in table `t`: x\n";
        assert_eq!(neutral(&format!("a\n{not_purged}b")), "a\nb\n");
        let of_inkstone = not_purged.replace("InnoDB", "INKSTONE");
        assert_ne!(neutral(&of_inkstone), "");
        assert_eq!(neutral("on <STORAGE_ENGINE>"), neutral("on InnoDB"));
        let process = |id, time| format!("{id}\troot\tlocalhost\ttest\tSleep\t{time}\t\tNULL\n");
        assert_eq!(neutral(&process(7, 1)), neutral(&process(8, 3)));
    }
}
