//! Differences that are none: what InnoDB leaves open, or says of its own ways. Each with its
//! reason. A bug of Inkstone never stands here.
//!
//! Not on this list, because the comparison itself knows it: rows without ORDER BY come in any
//! order, rows that ORDER BY takes for equal come in any order among each other, and a group of
//! values that a collation takes for equal is named by any of them.

use super::compare::Aspect;
use super::sides::{Gone, Outcome, Side, Warning};
use crate::client::Reply;
use std::collections::BTreeMap;

/// How often each was met.
pub type Accepted = BTreeMap<&'static str, u64>;

struct Rule {
    reason: &'static str,
    applies: fn(&str, Aspect, &Outcome, &Outcome) -> bool,
}

/// How the server's error 1062 begins where it copies rows.
const RESEQUENCED_DUPLICATE: &str =
    "ALTER TABLE causes auto_increment resequencing, resulting in duplicate entry";

const RULES: [Rule; 13] = [
    Rule {
        reason: "a definition that a foreign key forbids has the number of the way in which an ALTER is done, and of the part that is looked at first",
        applies: |statement, aspect, innodb, inkstone| {
            let errors = [refused(innodb), refused(inkstone)];
            matches!(aspect, Aspect::Outcome | Aspect::Message | Aspect::Warnings)
                && (is_alter(statement) || errors == [1005; 2])
                && errors.map(is_of_foreign_key) == [true; 2]
        },
    },
    Rule {
        reason: "an ALTER that copies names the foreign key that a row breaks after its copy",
        applies: |statement, aspect, innodb, inkstone| {
            is_alter(statement)
                && aspect == Aspect::Message
                && [refused(innodb), refused(inkstone)] == [1452; 2]
        },
    },
    Rule {
        reason: "which of several foreign keys refuses a row depends on the order of indexes, and of what follows",
        applies: |_, aspect, innodb, inkstone| {
            let keys = [innodb, inkstone].map(constraint_named);
            let errors = [refused(innodb), refused(inkstone)];
            aspect == Aspect::Message
                && (errors == [1451; 2] || errors == [1452; 2])
                && keys[0].is_some()
                && keys[0] != keys[1]
        },
    },
    Rule {
        reason: "InnoDB changes children before the row's other entries, and another fault of it is met first",
        applies: |_, aspect, innodb, inkstone| {
            let first = |outcome: &Outcome| match refused(outcome) {
                0 => outcome.warnings.last().and_then(|it| it.code.parse().ok()),
                code => Some(code),
            };
            let is_fault = |code| matches!(code, 1062 | 1451 | 1452 | 1761);
            let faults = [innodb, inkstone].map(first);
            matches!(aspect, Aspect::Outcome | Aspect::Warnings)
                && faults.map(|code| code.is_some_and(is_fault)) == [true; 2]
                && faults.contains(&Some(1451))
                && innodb.warnings.len() == inkstone.warnings.len()
        },
    },
    Rule {
        reason: "CREATE .. SELECT with a unique key: InnoDB sorts the rows, and names the last one that it has read for the duplicate",
        applies: |statement, aspect, innodb, inkstone| {
            statement.starts_with("CREATE TABLE")
                && matches!(aspect, Aspect::Message | Aspect::Warnings)
                && [refused(innodb), refused(inkstone)] == [1062; 2]
                && key_named(innodb) == key_named(inkstone)
        },
    },
    Rule {
        reason: "how many rows an ALTER copied says which way it was done, not what it did",
        applies: |statement, aspect, _, _| {
            is_alter(statement) && matches!(aspect, Aspect::Affected | Aspect::Info)
        },
    },
    Rule {
        reason: "an ALTER that copies has words of its own for a duplicate of an AUTO_INCREMENT column, InnoDB's with ALGORITHM=COPY too",
        applies: |statement, aspect, innodb, inkstone| {
            let duplicate = |outcome: &Outcome| match &outcome.reply {
                Reply::Refused(refusal) => Some(as_any_duplicate(&refusal.message)),
                _ => None,
            };
            is_alter(statement)
                && aspect == Aspect::Message
                && [refused(innodb), refused(inkstone)] == [1062; 2]
                && duplicate(innodb) == duplicate(inkstone)
        },
    },
    Rule {
        reason: "an ALTER that fails in place has a second error, 1138 or 1030, behind the one that says why",
        applies: |statement, aspect, innodb, inkstone| {
            let second = innodb.warnings.split_last();
            is_alter(statement)
                && aspect == Aspect::Warnings
                && second.is_some_and(|(last, before)| {
                    matches!(&*last.code, "1138" | "1030") && inkstone.warnings.starts_with(before)
                })
        },
    },
    Rule {
        reason: "NULL made NOT NULL in place counts the rows of a partition, by copying those of the table",
        applies: |statement, aspect, innodb, inkstone| {
            is_alter(statement)
                && aspect == Aspect::Message
                && [refused(innodb), refused(inkstone)] == [1265; 2]
        },
    },
    Rule {
        reason: "an ALTER that a duplicate refuses has warned of as many rows as it had come to",
        applies: |statement, aspect, innodb, inkstone| {
            is_alter(statement)
                && aspect == Aspect::Warnings
                && are_duplicates(innodb, inkstone)
                && one_begins_the_other(&innodb.warnings, &inkstone.warnings)
        },
    },
    Rule {
        reason: "OPTIMIZE, which copies a table here, looks at its rows again, and warns of those that it could not take",
        applies: |statement, aspect, innodb, inkstone| {
            let more = inkstone.warnings.strip_prefix(&innodb.warnings[..]);
            let is_of_rows = |warning: &Warning| warning.code.parse().is_ok_and(is_fault_of_rows);
            statement.starts_with("OPTIMIZE TABLE")
                && aspect == Aspect::Warnings
                && more.is_some_and(|more| more.iter().all(is_of_rows))
        },
    },
    Rule {
        reason: "a row for which no partition can be computed names any number (the server has not written it)",
        applies: |_, aspect, innodb, inkstone| {
            let unknown = |at: usize| {
                let (before, code) = (at.checked_sub(1), &*innodb.warnings[at].code);
                code == "1526"
                    && before.is_some_and(|before| innodb.warnings[before].code == "1916")
            };
            let mut pairs = innodb.warnings.iter().zip(&inkstone.warnings).enumerate();
            let is_refused = [refused(innodb), refused(inkstone)] == [1526; 2];
            (aspect == Aspect::Warnings || aspect == Aspect::Message && is_refused)
                && innodb.warnings.len() == inkstone.warnings.len()
                && pairs.all(|(at, (a, b))| a == b || (a.code == b.code && unknown(at)))
        },
    },
    Rule {
        reason: "a generated column that is out of range names the alias that an earlier statement gave its table",
        applies: |_, aspect, innodb, inkstone| {
            let codes = |outcome: &Outcome| -> Vec<String> {
                let codes = outcome.warnings.iter().map(|each| each.code.clone());
                codes.collect()
            };
            let mut pairs = innodb.warnings.iter().zip(&inkstone.warnings);
            aspect == Aspect::Warnings
                && codes(innodb) == codes(inkstone)
                && pairs.all(|(a, b)| a == b || a.code == "1690")
        },
    },
];

/// Why other words about rows are accepted of a join that the engines have other plans for.
pub const JOINED_OTHERWISE: &str = "which rows a join looks at, and in which order, is open: messages number them, warn of those that do not compare, name a temporary table for theirs, and count one as often as it is come to";

/// True of a difference that comes of a join's plan, if the plans differ.
pub fn is_about_joined_rows(aspect: Aspect, innodb: &Outcome, inkstone: &Outcome) -> bool {
    match aspect {
        Aspect::Message => refused(innodb) == refused(inkstone),
        Aspect::Warnings => unnumbered(innodb) == unnumbered(inkstone),
        Aspect::Info => {
            changed(innodb).is_some()
                && changed(innodb) == changed(inkstone)
                && unnumbered(innodb) == unnumbered(inkstone)
        }
        _ => false,
    }
}

/// How many rows an UPDATE says that it has changed; not how often it came to one, and how often it
/// warned.
fn changed(outcome: &Outcome) -> Option<&str> {
    match &outcome.reply {
        Reply::Done(done) => done
            .info
            .split("  ")
            .find(|part| part.starts_with("Changed: ")),
        _ => None,
    }
}

/// Warnings without the numbers of rows.
fn unnumbered(outcome: &Outcome) -> Vec<(String, String)> {
    let warnings = outcome.warnings.iter();
    let warnings = warnings.map(|warning| {
        let message = unnumbered_message(&warning.message);
        (warning.code.clone(), message)
    });
    // Of values that overflow where they are compared.
    let mut warnings: Vec<_> = warnings.filter(|(code, _)| code != "1916").collect();
    warnings.sort();
    // How often a row is come to depends on the plan.
    warnings.dedup();
    warnings
}

/// Whether two ALTERs that a duplicate refuses have warned of the same rows, one of them of more.
fn one_begins_the_other(a: &[Warning], b: &[Warning]) -> bool {
    begin_alike(a, b, &mut are_of_the_same)
}

/// The same, with another comparison of two warnings. The duplicate itself, and what an ALTER in
/// place says behind it, is compared elsewhere.
pub fn begin_alike(
    a: &[Warning],
    b: &[Warning],
    is_same: &mut dyn FnMut(&Warning, &Warning) -> bool,
) -> bool {
    let [mut a, mut b] = [a, b].map(|warnings| {
        let of_row = |it: &&Warning| !matches!(&*it.code, "1062" | "1138" | "1030");
        warnings.iter().filter(of_row)
    });
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if !is_same(a, b) => return false,
            (Some(_), Some(_)) => {}
            _ => return true,
        }
    }
}

/// Whether two warnings are the same, but for the numbers of their rows.
pub fn are_of_the_same(a: &Warning, b: &Warning) -> bool {
    a.code == b.code && unnumbered_message(&a.message) == unnumbered_message(&b.message)
}

/// True of ALTERs that a duplicate refuses, on both sides.
pub fn are_duplicates(innodb: &Outcome, inkstone: &Outcome) -> bool {
    [refused(innodb), refused(inkstone)] == [1062; 2]
}

/// A message without the number of its row, and without the table of a column.
pub fn unnumbered_message(message: &str) -> String {
    let message = message.split(" at row ").next().unwrap_or_default();
    without_table(message)
}

/// A warning of a column's value, without the table: the plan decides whether that is the one of
/// rows to be changed, `(temporary)`.
fn without_table(message: &str) -> String {
    match message.split_once(" for column `") {
        Some((value, column)) => {
            let name = column.rsplit_once("`.`").map_or(column, |(_, name)| name);
            format!("{value} for column `{name}")
        }
        None => message.to_owned(),
    }
}

/// The message of a duplicate, without the words that a copy has for one of an AUTO_INCREMENT
/// column.
pub fn as_any_duplicate(message: &str) -> String {
    message.replace(RESEQUENCED_DUPLICATE, "Duplicate entry")
}

/// True of errors that rows of a table are the reason for.
fn is_fault_of_rows(code: u16) -> bool {
    matches!(
        code,
        1048 | 1062 | 1264 | 1265 | 1292 | 1366 | 1406 | 1416 | 1526 | 1690 | 1916 | 4025
    )
}

fn is_alter(statement: &str) -> bool {
    let words = ["ALTER", "CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX"];
    words.iter().any(|word| statement.starts_with(word))
}

/// The key of error 1062, in quotation marks: what stands behind the value.
fn key_named(outcome: &Outcome) -> Option<&str> {
    match &outcome.reply {
        Reply::Refused(refusal) => refusal
            .message
            .rsplit_once("' for key ")
            .map(|(_, key)| key),
        _ => None,
    }
}

/// The key that error 1062 names.
pub fn duplicate_key(outcome: &Outcome) -> Option<&str> {
    let key = (refused(outcome) == 1062).then(|| key_named(outcome))??;
    key.strip_prefix('\'')?.strip_suffix('\'')
}

/// The foreign key that error 1451 or 1452 names.
fn constraint_named(outcome: &Outcome) -> Option<&str> {
    let Reply::Refused(refusal) = &outcome.reply else {
        return None;
    };
    let (_, named) = refusal.message.split_once("CONSTRAINT `")?;
    named.split('`').next()
}

/// Why an ALTER that only Inkstone refuses is accepted, and ends its case.
const COPIES_KEEP_REFERRING_COLUMNS: &str = "an ALTER renames columns of foreign keys, or changes whether they may be NULL, and more, which InnoDB does in place; the server refuses to copy such a table. InnoDB then also drops a primary key that a foreign key needs";

/// Why a foreign key that only Inkstone refuses is accepted, and ends its case.
const KEYS_END_WITH_ROWS_KEY: &str = "a foreign key refers to columns of an index and, behind them, of the primary key, which InnoDB has at the end of each index";

/// Why a row that only Inkstone's foreign key refuses is accepted, and ends its case: where another
/// foreign key of the two tables makes children follow.
pub const REFUSED_BEFORE_FOLLOWED: &str = "children that refuse a change, and a new parent, are looked for before others follow; InnoDB takes foreign keys in the order of their names, and finds what has followed";

/// Why a definition that a foreign key forbids is refused by Inkstone alone.
pub fn refuses_reference(
    statement: &str,
    innodb: &Outcome,
    inkstone: &Outcome,
) -> Option<&'static str> {
    let Reply::Refused(refusal) = &inkstone.reply else {
        return None;
    };
    let said = |words: &str| {
        inkstone
            .warnings
            .iter()
            .any(|it| it.message.contains(words))
    };
    let is_of_copy = match refusal.code {
        1830 | 1833 | 1846 => refusal.message.contains("foreign key"),
        1553 => statement.contains("DROP PRIMARY KEY"),
        _ => false,
    };
    if is_alter(statement) && is_of_copy && matches!(refused(innodb), 0 | 1062 | 1265) {
        return Some(COPIES_KEEP_REFERRING_COLUMNS);
    }
    let lacks_index = refusal.code == 1005 && said("There is no index in the referenced table");
    (lacks_index && matches!(refused(innodb), 0 | 1452)).then_some(KEYS_END_WITH_ROWS_KEY)
}

/// True of errors that forbid a change of what a foreign key needs.
fn is_of_foreign_key(code: u16) -> bool {
    matches!(
        code,
        1005 | 1025 | 1553 | 1822 | 1825 | 1828 | 1829 | 1830 | 1833
    )
}

/// The error's number; 0 of a statement that succeeded.
fn refused(outcome: &Outcome) -> u16 {
    match &outcome.reply {
        Reply::Refused(refusal) => refusal.code,
        _ => 0,
    }
}

/// Why a difference is accepted whatever the statement is: since InnoDB's own CHECK TABLE finds
/// fault with an index, or the index gives other values than the table (of generated columns, or
/// beside a primary key of prefixes of texts), and Inkstone's with nothing.
pub const INNODB_CORRUPT: &str = "InnoDB finds its own index corrupt";

/// Why warnings of InnoDB's CHECK TABLE are accepted: where each is about an entry that is marked
/// as deleted, and Inkstone's says nothing. Purge may come to it later, or, behind a kill, never.
pub const INNODB_PURGES_LATER: &str = "InnoDB finds rows, and entries of an index without theirs, that are marked as deleted, and that purge has not come to";

/// Why other numbers of rows in what an ALTER or UPDATE says are accepted: where both tables have
/// the same rows and give them in another order (in which a trigger has put them there, say).
pub const ROWS_LIE_OTHERWISE: &str = "an ALTER or UPDATE numbers the rows of a table whose rows lie in another order, which was open when they were inserted";

/// The table whose rows a statement goes through and numbers, in the order in which they lie.
pub fn numbers_rows_of(statement: &str) -> Option<&str> {
    let table = statement.strip_prefix("ALTER TABLE ").or_else(|| {
        let target = statement.strip_prefix("UPDATE ")?;
        Some(target.strip_prefix("IGNORE ").unwrap_or(target))
    });
    table?.split(' ').next()
}

/// True of a difference that is but one of the numbers of rows.
pub fn is_about_row_numbers(
    statement: &str,
    aspect: Aspect,
    innodb: &Outcome,
    inkstone: &Outcome,
) -> bool {
    (is_alter(statement) || statement.starts_with("UPDATE "))
        && matches!(aspect, Aspect::Message | Aspect::Warnings)
        && refused(innodb) == refused(inkstone)
        && innodb.warnings.len() == inkstone.warnings.len()
        && unnumbered(innodb) == unnumbered(inkstone)
}

/// Why another duplicate is accepted: where InnoDB finds both when the rows come one by one into an
/// empty table that was altered in the same way.
pub const ONE_OF_THE_DUPLICATES: &str = "which of several duplicates an ALTER names depends on how keys are sorted, and in which order they are made; the rows have both";

/// Why another error is accepted: where InnoDB finds both faults in this way.
pub const ONE_OF_THE_FAULTS: &str = "an ALTER that two faults refuse names the one that its way of doing it meets first; the rows have both";

/// Why another duplicate, or another fault than a duplicate, is accepted: where InnoDB names
/// Inkstone's when it copies row by row.
pub const INNODB_COPIES_IN_BULK: &str = "an ALTER that copies sorts InnoDB's rows, looks for duplicates when it has read them all, and names the last one read; row by row (innodb_alter_copy_bulk=OFF) it names Inkstone's";

/// Why both errors of an ALTER may be right, if both are of rows and the rows have both faults.
pub fn of_several_faults(
    statement: &str,
    aspect: Aspect,
    innodb: &Outcome,
    inkstone: &Outcome,
) -> Option<&'static str> {
    let errors = [refused(innodb), refused(inkstone)];
    match aspect {
        _ if !is_alter(statement) => None,
        Aspect::Message => (errors == [1062; 2]).then_some(ONE_OF_THE_DUPLICATES),
        Aspect::Outcome => (errors.map(is_fault_of_rows) == [true; 2]).then_some(ONE_OF_THE_FAULTS),
        _ => None,
    }
}

/// Why an UPDATE or DELETE by InnoDB of no rows is accepted, and ends its case: where InnoDB does
/// what Inkstone did when the server has opened the table anew.
pub const INNODB_STAYS_PRUNED: &str = "the server remembers of a partitioned table that an earlier statement was about no partition, and finds no rows by an index of InnoDB (Inkstone makes it forget)";

/// Why an EXCHANGE PARTITION that only Inkstone refuses is accepted, and ends its case: where
/// InnoDB can then not open one of the two tables.
pub const INNODB_EXCHANGES_OTHER_KEYS: &str = "the server exchanges a partition for a table whose rows lie by another key, and InnoDB can open one of the two no more";

/// Why this error of an ALTER is accepted of one engine, and ends its case: where that one does or
/// says what the other one does when the server has opened the table anew. InnoDB refuses it behind
/// an ALTER that failed if that was done in place, or says `ALGORITHM=COPY`.
pub const CHECK_OF_FAILED_COPY: &str = "the server, behind an ALTER that a row refused, knows a constraint's columns by their old names until the table is opened anew";

/// The engine that has the error that the server then gives, and what the other one says.
pub fn refuses_renamed_check<'a>(
    statement: &str,
    innodb: &'a Outcome,
    inkstone: &'a Outcome,
) -> Option<(Side, &'a Outcome)> {
    let says = |outcome: &Outcome| match &outcome.reply {
        Reply::Refused(refusal) => refusal.code == 1054 && refusal.message.ends_with(" in 'CHECK'"),
        _ => false,
    };
    match [says(innodb), says(inkstone)] {
        [false, true] if is_alter(statement) => Some((Side::Inkstone, innodb)),
        [true, false] if is_alter(statement) => Some((Side::Innodb, inkstone)),
        _ => None,
    }
}

/// Why another column in a warning of an ALTER is accepted: where Inkstone's has the place among
/// those that are stored that InnoDB's has among all.
pub const INNODB_COUNTS_COLUMNS: &str = "InnoDB names the wrong column of a value that an ALTER cuts (it takes a place among stored columns for one among all)";

/// Why warnings of a HANDLER that reads by values, or of a SELECT, are accepted, and end their
/// case: where InnoDB has them, too, when a row has refused a copy in its session. (InnoDB's copy
/// in bulk is refused when the server has read all rows, and does not count any more.)
pub const COUNTS_BEHIND_COPY: &str = "the server, behind an ALTER whose copy a row refused, goes on counting values that are cut, and HANDLER warns of those that it is to look for, SELECT of those of virtual columns";

/// Why an ALTER or OPTIMIZE that only one engine refuses is accepted, and ends its case: where the
/// other one refuses for the same reason to copy the table that its ALTER in place has left.
pub const COPIES_ARE_CHECKED: &str = "an ALTER that copies checks constraints of rows that IGNORE has let in, and computes generated columns again, one in place does not (InnoDB copies a partitioned table for a virtual column)";

/// Why other rows are accepted, and end their case: where one engine gives the other one's when its
/// tables with stored columns and a trigger have been copied.
pub const STALE_UNTIL_COPIED: &str = "the server leaves a stored column as it was where a trigger changes what it is computed of (LOAD DATA REPLACE, UPDATE of a join); an ALTER that copies computes it anew, one in place does not";

/// Why an INSERT or REPLACE that InnoDB finds no row for is accepted, and ends its case: where
/// InnoDB, told to leave out rows that a key refuses, leaves one of its indexes without entries of
/// rows that are there. (To take the refused row out again it deletes the entry that compares as
/// equal, which is the other row's, and then cannot find that row.)
pub const INNODB_LOSES_ENTRY: &str = "InnoDB cannot find the row that a key refuses another for: it has deleted that row's entry (a primary key of a text's beginning)";

/// True if the error is that a row cannot be found.
pub fn finds_no_row(outcome: &Outcome) -> bool {
    refused(outcome) == 1032
}

/// Why other rows of a SELECT are accepted: where Inkstone's are those that InnoDB itself gives
/// without an index.
pub const INNODB_LEAVES_OUT: &str = "InnoDB finds other rows by an index than in the table (ranges of texts with letters that weigh nothing; virtual columns)";

/// Why other rows of a SELECT are accepted: where Inkstone's are those that InnoDB itself gives
/// when it is made to use just the indexes that Inkstone's plan has.
pub const INNODB_WOULD_LEAVE_OUT: &str = "InnoDB gives the same rows when it is made to use the index that Inkstone's plan has (ranges of texts with letters that weigh nothing)";

/// Why an UPDATE or DELETE by InnoDB of fewer rows is accepted, and ends its case: where InnoDB,
/// asked behind it, leaves as many rows of its table out by one of its indexes; or where it refuses
/// the same UPDATE by no index, for the same row as Inkstone.
pub const INNODB_CHANGES_FEWER: &str = "InnoDB finds other rows by an index than in the table, and changes fewer (ranges of texts with letters that weigh nothing, or of NOPAD texts read backwards; fractions of a second, and bits, that a column has no place for)";

/// Why an UPDATE or DELETE by Inkstone of fewer rows is accepted, and ends its case: where InnoDB,
/// given the rows that Inkstone has left, leaves as many of them out by one of its indexes; or
/// where it does the UPDATE that it has refused as Inkstone did when it is made to use the same
/// index.
pub const INNODB_WOULD_CHANGE_FEWER: &str = "InnoDB, too, would change fewer rows by an index than the table has (ranges of texts with letters that weigh nothing), and has used none";

/// Why other rows of a SELECT with a fraction of a second are accepted: where Inkstone's are those
/// that InnoDB itself gives when it is made to use just the indexes that Inkstone's plan has, and
/// each entry of them if that does.
pub const INNODB_BY_ANOTHER_INDEX: &str = "the server cuts a fraction of a second that the column has no place for, and takes it for equal where the plan uses a certain index, and comes to each of its entries; InnoDB does so too by that plan";

/// Why other rows of a join are accepted: where Inkstone's are those that InnoDB itself gives when
/// it is made to read the tables in the order, and by the indexes, of Inkstone's plan.
pub const INNODB_JOINS_SO_TOO: &str = "which rows of a join compare as equal depends on the plan (an index of a text's beginning, with letters that weigh nothing); InnoDB gives the same with Inkstone's plan";

/// Why other rows of an INSERT .. SELECT from its own table are accepted, and end their case: where
/// all is equal when InnoDB is made to read them as Inkstone does.
pub const BUFFER_LOSES_ORDER: &str = "the server's temporary table does not keep the order in which an index gave the rows (a short row behind a long text); sorted there, or not, InnoDB does as Inkstone does";

/// Why another order of rows is accepted: where Inkstone's is the one that ORDER BY asks for.
pub const INNODB_UNORDERED: &str = "InnoDB gives rows of partitions in another order than ORDER BY says (a virtual column of the index)";

/// The table of an UPDATE, or of an INSERT .. ON DUPLICATE KEY UPDATE.
pub fn updates_rows_of(statement: &str) -> Option<&str> {
    let is_insert = statement.contains(" ON DUPLICATE KEY UPDATE ");
    let target = match statement.strip_prefix("UPDATE ") {
        Some(target) => target.strip_prefix("IGNORE ").unwrap_or(target),
        None => statement.split_once("INTO ").filter(|_| is_insert)?.1,
    };
    target.split(' ').next()
}

/// Why another key of error 1062 of an UPDATE is accepted: where InnoDB's is the one that stands in
/// the server's order of keys where Inkstone's stands among InnoDB's indexes.
pub const INNODB_COUNTS_KEYS: &str = "InnoDB names the wrong key of a row that an UPDATE moves to another partition (it takes a place in its order of indexes for one in the server's)";

/// Why a case ends where the server does: in a statement of InnoDB, with just this assertion. A
/// server without Inkstone fails it, too:
/// `CREATE TABLE t1 (c VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_as_ci NOT NULL, PRIMARY KEY (c(30) DESC), KEY k (c DESC))`,
/// then rows `'a'` and `CONCAT(REPEAT(_utf8mb4 x'00', 698), 'a')`.
pub const INNODB_FAILS: &str = "InnoDB ends the server: an entry of an index beside a primary key of a text's beginning differs from the one that was deleted and compares as equal (assertion in row0ins.cc)";

/// Why a case ends where InnoDB gives more rows than are kept: a join of two tables whose rows LOAD
/// DATA has doubled often.
pub const TOO_LARGE: &str = "InnoDB gives more than 2 GiB of rows, which are not compared";

/// True if the end of the server is accepted.
pub fn accept_end(gone: &Gone, accepted: &mut Accepted) -> bool {
    if gone.engine == "InnoDB" && gone.is_too_large {
        *accepted.entry(TOO_LARGE).or_default() += 1;
        return true;
    }
    let is_innodbs = gone.engine == "InnoDB"
        && gone.assertion.as_ref().is_some_and(|(file, condition)| {
            file.ends_with("/row0ins.cc") && condition == "update->n_fields == 0"
        });
    if is_innodbs {
        *accepted.entry(INNODB_FAILS).or_default() += 1;
    }
    is_innodbs
}

/// True if this difference is accepted.
pub fn accept(
    statement: &str,
    aspect: Aspect,
    innodb: &Outcome,
    inkstone: &Outcome,
    accepted: &mut Accepted,
) -> bool {
    let rule = RULES
        .iter()
        .find(|rule| (rule.applies)(statement, aspect, innodb, inkstone));
    if let Some(rule) = rule {
        *accepted.entry(rule.reason).or_default() += 1;
    }
    rule.is_some()
}

#[cfg(test)]
mod tests {
    use super::{Warning, one_begins_the_other, without_table};

    #[test]
    fn fewer_rows_are_the_first_of_all() {
        let warnings = |texts: &[(&str, &str)]| -> Vec<Warning> {
            let warning = |&(code, message): &(&str, &str)| Warning {
                level: "Warning".to_owned(),
                code: code.to_owned(),
                message: message.to_owned(),
            };
            texts.iter().map(warning).collect()
        };
        let cut = ("1265", "Data truncated for column 'c1' at row 1");
        let cut_too = ("1265", "Data truncated for column 'c2' at row 2");
        let duplicate = ("1062", "Duplicate entry '1' for key 'k1'");
        let all = warnings(&[cut, cut_too, duplicate]);
        assert!(one_begins_the_other(&all, &warnings(&[cut, duplicate])));
        assert!(one_begins_the_other(&warnings(&[duplicate]), &all));
        assert!(!one_begins_the_other(
            &all,
            &warnings(&[cut_too, duplicate])
        ));
        let other = ("1264", "Out of range value for column 'c1' at row 1");
        assert!(!one_begins_the_other(&warnings(&[other, duplicate]), &all));
    }

    #[test]
    fn warnings_without_their_table() {
        let of_temporary = "Incorrect string value: 'x' for column ``.`(temporary)`.`c11`";
        let of_table = "Incorrect string value: 'x' for column `d_inno`.`t2`.`c11`";
        let expected = "Incorrect string value: 'x' for column `c11`";
        assert_eq!(without_table(of_temporary), expected);
        assert_eq!(without_table(of_table), expected);
        let other = "Data truncated for column 'c1'";
        assert_eq!(without_table(other), other);
    }
}
