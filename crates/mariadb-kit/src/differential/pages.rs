//! Where Inkstone's tables have their pages, for which InnoDB has no words: in a statement they
//! stand as `{pages:..}`, which Inkstone alone is given, and what SHOW CREATE TABLE says of them is
//! not compared.

use crate::random::Random;

const BEGIN: &str = "{pages:";
const END: char = '}';

const OPTIONS: [&str; 3] = [
    "PAGE_PLACEMENT",
    "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL",
];

/// Each names all options: what it was before is no part of what it becomes. The first two may
/// change places in EXCHANGE PARTITION, which is refused where only one is compressed.
const KINDS: [&str; 5] = [
    "PAGE_PLACEMENT=in_place PAGE_COMPRESSED=DEFAULT PAGE_COMPRESSION_LEVEL=DEFAULT",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=0 PAGE_COMPRESSION_LEVEL=DEFAULT",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=DEFAULT",
    "PAGE_PLACEMENT=DEFAULT PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=1",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=9",
];

/// Some options, behind those that both engines have.
pub fn options(random: &mut Random) -> String {
    format!(" {BEGIN}{}{END}", random.word(&KINDS))
}

/// Behind `ALTER TABLE t `: a copy, which is kept otherwise in Inkstone.
pub fn alter(random: &mut Random) -> String {
    forced(random.word(&KINDS))
}

/// The same; no pages are compressed.
pub fn alter_uncompressed(random: &mut Random) -> String {
    forced(random.word(&KINDS[..2]))
}

fn forced(kind: &str) -> String {
    format!("FORCE{BEGIN}, {kind}{END}, ALGORITHM=COPY")
}

/// The statement that InnoDB is given.
pub fn for_innodb(statement: &str) -> String {
    filled(statement, false)
}

/// The statement that Inkstone is given.
pub fn for_inkstone(statement: &str) -> String {
    filled(statement, true)
}

fn filled(statement: &str, is_given: bool) -> String {
    let mut parts = statement.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (own, behind) = part.split_once(END).unwrap_or((part, ""));
        filled += if is_given { own } else { "" };
        filled += behind;
    }
    filled
}

/// What SHOW CREATE TABLE says, without these options.
pub fn unshown(definition: &str) -> String {
    let mut rest = definition.to_owned();
    // Quoted as the SQL mode says.
    let quoted = |option| ['`', '"'].map(|quote| format!(" {quote}{option}{quote}="));
    for option in OPTIONS.into_iter().flat_map(quoted) {
        while let Some(at) = rest.find(&option) {
            let value = at + option.len();
            let end = rest[value..].find([' ', '\n']);
            rest.replace_range(at..end.map_or(rest.len(), |end| value + end), "");
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_given_its_own_words() {
        let alter = format!("ALTER TABLE t {}", forced(KINDS[1]));
        assert_eq!(for_innodb(&alter), "ALTER TABLE t FORCE, ALGORITHM=COPY");
        assert_eq!(
            for_inkstone(&alter),
            format!("ALTER TABLE t FORCE, {}, ALGORITHM=COPY", KINDS[1])
        );
        assert_eq!(for_innodb("SELECT '{}'"), "SELECT '{}'");
    }

    #[test]
    fn what_is_shown_of_pages_does_not_count() {
        let shown =
            ") ENGINE=X COMMENT='x' `PAGE_PLACEMENT`=placed `PAGE_COMPRESSED`=1\n PARTITION";
        assert_eq!(unshown(shown), ") ENGINE=X COMMENT='x'\n PARTITION");
        assert_eq!(unshown(") \"PAGE_PLACEMENT\"=placed"), ")");
    }
}
