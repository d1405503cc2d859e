//! Strings that are hard on keys: long same prefixes, trailing blanks and zeroes, letters that a
//! collation takes for others, random code points.

use crate::random::Random;

/// A collation of the server, and its character set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    /// `utf8mb4_general_ci`.
    pub name: String,
    /// `utf8mb4`.
    pub charset: String,
    /// The most bytes of a character.
    pub character_max_bytes: u32,
}

/// The strings of a case: few enough that they meet each other in keys.
pub struct Strings {
    stems: Vec<String>,
}

const STEMS: [&str; 8] = [
    "",
    "a",
    "constraints",
    "Straße",
    "unique",
    "ch",
    "ss",
    "Zoë",
];

/// What collations contract, expand, ignore, or take for each other.
const SPECIAL: [&str; 44] = [
    "ch",
    "CH",
    "cH",
    "ll",
    "dz",
    "dž",
    "cs",
    "Cs",
    "gy",
    "lj",
    "nj",
    "ss",
    "ß",
    "ẞ",
    "æ",
    "AE",
    "ae",
    "œ",
    "ij",
    "ĳ",
    "å",
    "aa",
    "AA",
    "ö",
    "oe",
    "\u{301}",
    "e\u{301}",
    "é",
    "\u{ad}",
    "\u{200d}",
    "İ",
    "ı",
    "ﬃ",
    "ǆ",
    "か\u{3099}",
    "が",
    "ー",
    "อา",
    "เก",
    "แ",
    "\u{0}",
    "\t",
    "\u{10ffff}",
    "\u{ffff}",
];

/// Letters of a character set: first and last code points.
fn letters(charset: &str) -> &'static [(u32, u32)] {
    match charset {
        "latin1" | "cp850" | "dec8" | "hp8" | "macroman" | "swe7" => {
            &[(0x41, 0x5a), (0x61, 0x7a), (0xa0, 0xff)]
        }
        "latin2" | "cp1250" | "cp852" | "macce" | "keybcs2" | "latin5" | "latin7" | "cp1257" => {
            &[(0x41, 0x5a), (0x61, 0x7a), (0xc0, 0x17e)]
        }
        "greek" => &[(0x41, 0x7a), (0x386, 0x3ce)],
        "hebrew" => &[(0x41, 0x7a), (0x5d0, 0x5ea)],
        "cp1251" | "koi8r" | "koi8u" | "cp866" => &[(0x41, 0x7a), (0x401, 0x451)],
        "cp1256" => &[(0x41, 0x7a), (0x621, 0x652)],
        "armscii8" => &[(0x41, 0x7a), (0x531, 0x587)],
        "geostd8" => &[(0x41, 0x7a), (0x10d0, 0x10f5)],
        "tis620" => &[(0x61, 0x7a), (0xe01, 0xe3a), (0xe40, 0xe5b)],
        "big5" | "gb2312" | "gbk" => &[(0x61, 0x7a), (0x4e00, 0x9f00)],
        "sjis" | "cp932" | "ujis" | "eucjpms" => {
            &[(0x61, 0x7a), (0x3041, 0x30fe), (0x4e00, 0x5200)]
        }
        "euckr" => &[(0x61, 0x7a), (0xac00, 0xd7a3)],
        "ascii" | "binary" => &[(0, 0x7f), (0x41, 0x5a), (0x61, 0x7a)],
        "ucs2" | "utf8mb3" => &[
            (0x20, 0x7e),
            (0xa0, 0x17f),
            (0x300, 0x36f),
            (0x370, 0x5ff),
            (0xe01, 0xe5b),
            (0x1e00, 0x1fff),
            (0x3041, 0x30ff),
            (0x4e00, 0x9fff),
            (0xac00, 0xd7a3),
            (0, 0xffff),
        ],
        _ => &[
            (0x20, 0x7e),
            (0xa0, 0x17f),
            (0x300, 0x36f),
            (0x370, 0x5ff),
            (0xe01, 0xe5b),
            (0x1e00, 0x1fff),
            (0x3041, 0x30ff),
            (0x4e00, 0x9fff),
            (0x1f300, 0x1f6ff),
            (0, 0x10ffff),
        ],
    }
}

impl Strings {
    /// The stems of a case.
    pub fn new(random: &mut Random) -> Self {
        let mut stems = Vec::new();
        for _ in 0..4 {
            let stem = random.word(&STEMS);
            let times = *random.pick(&[1, 1, 1, 2, 4, 9, 30, 90]);
            stems.push(stem.repeat(times));
        }
        Self { stems }
    }

    /// A string for a column of so many characters.
    pub fn draw(&self, random: &mut Random, charset: &str, length_max: usize) -> String {
        let mut string = match random.weighted(&[6, 45, 20, 15, 4]) {
            0 => String::new(),
            1 => random.pick(&self.stems).clone() + random.word(&["", "a", "A", "b", "x1", "é"]),
            2 => letters_of(random, charset, 4),
            3 => {
                let stem = random.pick(&self.stems).clone();
                let special = random.word(&SPECIAL);
                stem + special + random.word(&["", "", "a", "z"])
            }
            _ => letters_of(random, charset, length_max.min(60)),
        };
        if random.chance(15) {
            string += random.word(&[" ", "  ", "\0", " a", "\t", "\u{a0}"]);
        }
        if random.chance(10) {
            string = string.to_uppercase();
        }
        // One in a few dozen is too long.
        if random.chance(3) {
            string
        } else {
            string.chars().take(length_max).collect()
        }
    }
}

fn letters_of(random: &mut Random, charset: &str, most: usize) -> String {
    let ranges = if random.chance(90) {
        letters(charset)
    } else {
        letters("utf8mb4")
    };
    let length = 1 + random.place(most.max(1));
    let letter = |_| {
        let (first, last) = *random.pick(ranges);
        let code = random.between(first.into(), last.into());
        char::from_u32(code as u32).unwrap_or('\u{fffd}')
    };
    (0..length).map(letter).collect()
}

/// A literal of a string.
pub fn quoted(string: &str) -> String {
    let is_plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'\'' && byte != b'\\';
    if string.bytes().all(is_plain) {
        return format!("'{string}'");
    }
    format!("_utf8mb4 x'{}'", hex(string.as_bytes()))
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Literals that are simpler than this string.
pub fn simpler(string: &str) -> Vec<String> {
    let characters: Vec<char> = string.chars().collect();
    let part = |from: usize, to: usize| characters[from..to].iter().collect::<String>();
    let length = characters.len();
    let mut shorter = vec![String::new(), "a".to_owned()];
    if length > 1 {
        let (half, quarter) = (length / 2, length / 4);
        shorter.extend([part(0, half), part(half, length)]);
        if quarter > 0 {
            shorter.extend([part(quarter, length), part(0, length - quarter)]);
        }
        shorter.extend([part(1, length), part(0, length - 1)]);
    }
    shorter.retain(|other| other != string);
    shorter.iter().map(|other| quoted(other)).collect()
}
