//! Suites that name InnoDB in their statements (`ENGINE=InnoDB`): which names are an engine's to be
//! replaced, and which mean InnoDB itself.

const NAME: &[u8] = b"innodb";

/// The text with every `ENGINE=InnoDB`, `default_storage_engine='innodb'`, `$engine_type= InnoDB`
/// and so on naming the other engine. `include/have_innodb.inc` and `innodb_page_size` stay.
pub fn with_engine(text: &[u8], engine: &str) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = 0;
    for at in places(text) {
        replaced.extend_from_slice(&text[rest..at]);
        replaced.extend_from_slice(engine.as_bytes());
        rest = at + NAME.len();
    }
    replaced.extend_from_slice(&text[rest..]);
    replaced
}

/// True if there is something to be replaced: the test can be run for another engine.
pub fn names_engine(text: &[u8]) -> bool {
    places(text).next().is_some()
}

fn places(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let last = text.len().saturating_sub(NAME.len() - 1);
    (0..last).filter(|&at| {
        let (before, from) = text.split_at(at);
        let (name, behind) = from.split_at(NAME.len());
        let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        name.eq_ignore_ascii_case(NAME)
            && !behind.first().is_some_and(goes_on)
            && follows_engine(before)
    })
}

/// True for a text that ends in `engine =` or `engine_type = '`, in any case.
fn follows_engine(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    let before = match before {
        [head @ .., b'\'' | b'"'] => head.trim_ascii_end(),
        _ => before,
    };
    let [before @ .., b'='] = before else {
        return false;
    };
    let before = before.trim_ascii_end().to_ascii_lowercase();
    [&b"engine"[..], b"engine_type", b"engines"]
        .iter()
        .any(|word| before.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_engine_of_a_table_is_replaced() {
        let text = b"source include/have_innodb.inc; CREATE TABLE t (a INT) ENGINE=InnoDB; \
                     let $engine_type= 'innodb'; SET GLOBAL innodb_x = 1; \
                     SET default_storage_engine = INNODB; engine=innodb_x; # InnoDB";
        let expected = b"source include/have_innodb.inc; CREATE TABLE t (a INT) ENGINE=Inkstone; \
                         let $engine_type= 'Inkstone'; SET GLOBAL innodb_x = 1; \
                         SET default_storage_engine = Inkstone; engine=innodb_x; # InnoDB";
        assert_eq!(with_engine(text, "Inkstone"), expected.to_vec());
        assert!(names_engine(text));
        assert!(!names_engine(b"source include/have_innodb.inc; in"));
    }
}
