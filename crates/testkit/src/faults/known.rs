//! Broken promises that are known and not fixed yet. Each row excuses the cases that it describes
//! and counts them; a complete campaign that needs a row no more fails until it is deleted.

/// A row.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The kind of its cases, the first word of their names.
    pub kind: &'static str,
    /// In their names.
    pub case: &'static str,
    /// In what they fail with.
    pub says: &'static str,
    /// What it is, as the list of 2026-11-22 has it.
    pub bug: &'static str,
}

/// All rows.
pub const KNOWN: &[Known] = &[];

/// The row that a failure of a case is excused by.
pub fn find(case: &str, text: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|row| {
        case.split('/').next() == Some(row.kind)
            && case.contains(row.case)
            && text.contains(row.says)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_excuses_what_it_describes_and_nothing_else() {
        for row in KNOWN {
            let case = format!("{}/work{}All", row.kind, row.case);
            let found = find(&case, row.says).map(|found| found.bug);
            assert_eq!(found, Some(row.bug));
            assert_eq!(find(&case, "wrong rows"), None);
            assert_eq!(find("work/Sync/Eio/1/12", row.says), None);
        }
    }
}
