//! Types of columns, and values at their limits.

use super::sql::Sql;
use super::text::{Collation, Strings, hex, quoted, simpler};
use crate::random::Random;

/// A column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// TINYINT to BIGINT, by bytes; unsigned or not; ZEROFILL.
    Integer(u32, bool, bool),
    /// Digits, and those behind the point.
    Decimal(u32, u32),
    Float,
    Double,
    Bit(u32),
    Date,
    /// Digits of a second's parts.
    Time(u32),
    Datetime(u32),
    Timestamp(u32),
    Year,
    /// Characters. No collation: the table's.
    Char(u32, Option<Collation>),
    Varchar(u32, Option<Collation>),
    /// `TINY`, `` (64 KiB), `MEDIUM`, `LONG`.
    Text(&'static str, Option<Collation>),
    /// Members.
    Enum(usize, Option<Collation>),
    Set(usize, Option<Collation>),
    Binary(u32),
    Varbinary(u32),
    Blob(&'static str),
    Json,
    Uuid,
    Inet4,
    Inet6,
    Point,
}

const MEMBERS: [&str; 5] = ["a", "b", "long member", "Z", "0"];
const SIZES: [&str; 4] = ["TINY", "", "MEDIUM", "LONG"];

/// What decides which types a case has.
pub struct Palette {
    /// The collations of this case.
    pub collations: Vec<Collation>,
}

impl Palette {
    /// A type.
    pub fn kind(&self, random: &mut Random) -> Kind {
        match random.weighted(&[26, 5, 2, 3, 2, 10, 40, 8, 3, 3]) {
            0 => Kind::Integer(
                *random.pick(&[1, 2, 3, 4, 4, 8]),
                random.chance(30),
                random.chance(5),
            ),
            1 => {
                let digits = *random.pick(&[1, 5, 9, 10, 18, 38, 65]);
                let behind = random.below(u64::from(digits).min(38) + 1) as u32;
                Kind::Decimal(digits, behind)
            }
            2 => Kind::Float,
            3 => Kind::Double,
            4 => Kind::Bit(*random.pick(&[1, 7, 8, 9, 33, 64])),
            5 => {
                let digits = *random.pick(&[0, 0, 1, 3, 6]);
                match random.below(5) {
                    0 => Kind::Date,
                    1 => Kind::Time(digits),
                    2 => Kind::Datetime(digits),
                    3 => Kind::Timestamp(digits),
                    _ => Kind::Year,
                }
            }
            6 => self.text(random),
            7 => match random.below(3) {
                0 => Kind::Binary(*random.pick(&[1, 4, 16, 255])),
                1 => Kind::Varbinary(*random.pick(&[1, 4, 60, 255, 256, 2000, 3072])),
                _ => Kind::Blob(random.word(&SIZES)),
            },
            8 => random.pick(&[Kind::Uuid, Kind::Inet4, Kind::Inet6]).clone(),
            _ => random.pick(&[Kind::Json, Kind::Point, Kind::Json]).clone(),
        }
    }

    /// A type with a collation.
    pub fn text(&self, random: &mut Random) -> Kind {
        let collation = if random.chance(25) || self.collations.is_empty() {
            None
        } else {
            Some(random.pick(&self.collations).clone())
        };
        match random.weighted(&[25, 50, 15, 5, 5]) {
            0 => Kind::Char(*random.pick(&[1, 4, 10, 60, 255]), collation),
            1 => Kind::Varchar(
                *random.pick(&[1, 5, 20, 60, 100, 255, 256, 700, 768]),
                collation,
            ),
            2 => Kind::Text(random.word(&SIZES), collation),
            3 => Kind::Enum(MEMBERS.len(), collation),
            _ => Kind::Set(MEMBERS.len(), collation),
        }
    }
}

/// So many of ENUM and SET.
fn members(count: usize) -> String {
    let others = (MEMBERS.len()..count).map(|number| format!("m{number}"));
    let all = MEMBERS.map(str::to_owned).into_iter().chain(others);
    let quoted: Vec<String> = all.map(|member| format!("'{member}'")).collect();
    quoted.join(",")
}

impl Kind {
    /// The type as CREATE TABLE has it.
    pub fn definition(&self) -> String {
        match self {
            Self::Integer(bytes, unsigned, zerofill) => {
                let name = match bytes {
                    1 => "TINYINT",
                    2 => "SMALLINT",
                    3 => "MEDIUMINT",
                    4 => "INT",
                    _ => "BIGINT",
                };
                let unsigned = if *unsigned { " UNSIGNED" } else { "" };
                let zerofill = if *zerofill { " ZEROFILL" } else { "" };
                format!("{name}{unsigned}{zerofill}")
            }
            Self::Decimal(digits, behind) => format!("DECIMAL({digits},{behind})"),
            Self::Float => "FLOAT".to_owned(),
            Self::Double => "DOUBLE".to_owned(),
            Self::Bit(bits) => format!("BIT({bits})"),
            Self::Date => "DATE".to_owned(),
            Self::Time(digits) => format!("TIME({digits})"),
            Self::Datetime(digits) => format!("DATETIME({digits})"),
            Self::Timestamp(digits) => format!("TIMESTAMP({digits})"),
            Self::Year => "YEAR".to_owned(),
            Self::Char(length, collation) => collated(format!("CHAR({length})"), collation),
            Self::Varchar(length, collation) => collated(format!("VARCHAR({length})"), collation),
            Self::Text(size, collation) => collated(format!("{size}TEXT"), collation),
            Self::Enum(count, collation) => {
                collated(format!("ENUM({})", members(*count)), collation)
            }
            Self::Set(count, collation) => collated(format!("SET({})", members(*count)), collation),
            Self::Binary(length) => format!("BINARY({length})"),
            Self::Varbinary(length) => format!("VARBINARY({length})"),
            Self::Blob(size) => format!("{size}BLOB"),
            Self::Json => "JSON".to_owned(),
            Self::Uuid => "UUID".to_owned(),
            Self::Inet4 => "INET4".to_owned(),
            Self::Inet6 => "INET6".to_owned(),
            Self::Point => "POINT".to_owned(),
        }
    }

    /// Its own collation.
    pub fn collation(&self) -> Option<&Collation> {
        match self {
            Self::Char(_, collation)
            | Self::Varchar(_, collation)
            | Self::Text(_, collation)
            | Self::Enum(_, collation)
            | Self::Set(_, collation) => collation.as_ref(),
            _ => None,
        }
    }

    /// The same with another collation, if it has one.
    pub fn with_collation(&self, other: &Collation) -> Self {
        let mut changed = self.clone();
        if let Self::Char(_, collation)
        | Self::Varchar(_, collation)
        | Self::Text(_, collation)
        | Self::Enum(_, collation)
        | Self::Set(_, collation) = &mut changed
        {
            *collation = Some(other.clone());
        }
        changed
    }

    /// True of types whose values are characters, of any length.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Char(..) | Self::Varchar(..) | Self::Text(..))
    }

    /// True of integers.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Integer(..))
    }

    /// True if a key needs a length of its prefix.
    pub fn needs_prefix(&self) -> bool {
        matches!(self, Self::Text(..) | Self::Blob(_) | Self::Json)
    }

    /// The longest value in characters (bytes of a binary type), if a key may have a part of it.
    pub fn length(&self) -> Option<u32> {
        match self {
            Self::Char(length, _)
            | Self::Varchar(length, _)
            | Self::Binary(length)
            | Self::Varbinary(length) => Some(*length),
            Self::Text("TINY", _) | Self::Blob("TINY") => Some(60),
            Self::Text(..) | Self::Blob(_) | Self::Json => Some(2000),
            _ => None,
        }
    }

    /// True if it can be in a key.
    pub fn can_be_key(&self) -> bool {
        !matches!(self, Self::Point)
    }

    /// True if the server sorts it by its whole value.
    pub fn can_be_sorted(&self) -> bool {
        !matches!(
            self,
            Self::Point | Self::Json | Self::Text(..) | Self::Blob(_)
        )
    }

    /// A literal.
    pub fn value(&self, random: &mut Random, strings: &Strings) -> Sql {
        match self {
            Self::Integer(bytes, unsigned, _) => number(integer(random, *bytes, *unsigned)),
            Self::Decimal(digits, behind) => number(decimal(random, *digits, *behind)),
            Self::Float | Self::Double => number(
                (random.word(&[
                    "0", "-0.0", "1", "-1", "0.1", "1e-38", "-1e-38", "3.4e38", "1e300",
                    "16777217", "2.5", "1e15", "-2.5e-5",
                ]))
                .to_owned(),
            ),
            Self::Bit(bits) => {
                let all = u64::MAX >> (64 - bits);
                let value = *random.pick(&[0, 1, all, all >> 1, 5 & all, all / 3]);
                number(value.to_string())
            }
            Self::Date | Self::Time(_) | Self::Datetime(_) | Self::Timestamp(_) | Self::Year => {
                Sql::Value(self.moment(random), Vec::new())
            }
            Self::Enum(..) => {
                let value = random.word(&["a", "b", "long member", "Z", "0", "", "none"]);
                Sql::Value(quoted(value), simpler(value))
            }
            Self::Set(..) => {
                let value = random.word(&["", "a", "b,a", "a,b,Z", "long member", "0", "x"]);
                Sql::Value(quoted(value), simpler(value))
            }
            Self::Char(..) | Self::Varchar(..) | Self::Text(..) => self.string(random, strings),
            Self::Binary(_) | Self::Varbinary(_) | Self::Blob(_) => self.bytes(random, strings),
            Self::Json => Sql::Value(
                (random.word(&["'{}'", "'[1,2]'", "'{\"a\":1}'", "'null'", "'\"x\"'", "'{'"]))
                    .to_owned(),
                vec!["'{}'".to_owned()],
            ),
            Self::Uuid => Sql::Value(
                format!(
                    "'{:08x}-{:04x}-1{:03x}-8000-00000000000{}'",
                    random.below(3),
                    random.below(2),
                    random.below(2),
                    random.below(3)
                ),
                Vec::new(),
            ),
            Self::Inet4 => Sql::Value(
                format!("'{}.0.0.{}'", random.below(3), random.below(256)),
                Vec::new(),
            ),
            Self::Inet6 => Sql::Value(
                format!(
                    "'{:x}::{:x}'",
                    random.below(3),
                    random.below(70000) & 0xffff
                ),
                Vec::new(),
            ),
            Self::Point => Sql::Value(
                format!("POINT({},{})", random.below(4), random.below(4)),
                vec!["POINT(0,0)".to_owned()],
            ),
        }
    }

    fn moment(&self, random: &mut Random) -> String {
        let days = [
            "1000-01-01",
            "9999-12-31",
            "2000-02-29",
            "2024-12-31",
            "1999-06-15",
            "0000-00-00",
            "2024-00-00",
            "2023-02-29",
        ];
        let hours = ["00:00:00", "23:59:59", "12:00:00.5", "12:00:00.499999"];
        match self {
            Self::Date => format!("'{}'", random.word(&days)),
            Self::Time(_) => {
                let times = [
                    "838:59:59",
                    "-838:59:59",
                    "-00:00:01",
                    "-00:00:00.5",
                    "00:00:00",
                ];
                if random.chance(50) {
                    format!("'{}'", random.word(&times))
                } else {
                    format!("'{}'", random.word(&hours))
                }
            }
            Self::Timestamp(_) => {
                let days = [
                    "1970-01-02",
                    "2038-01-18",
                    "2000-02-29",
                    "2024-12-31",
                    "2024-06-15",
                ];
                format!("'{} {}'", random.word(&days), random.word(&hours))
            }
            Self::Datetime(_) => format!("'{} {}'", random.word(&days), random.word(&hours)),
            _ => (random.word(&["1901", "2155", "0", "2000", "70", "69", "1900"])).to_owned(),
        }
    }

    /// True of CHAR without PAD SPACE: InnoDB compares as many characters as the longer one of two
    /// has bytes, so that of three values with letters that weigh nothing the first may be equal to
    /// the second, the second to the third, and the first not to the third. No collation: the
    /// table's may be such a one.
    fn compares_weightless_oddly(&self) -> bool {
        match self {
            Self::Char(_, collation) => collation
                .as_ref()
                .is_none_or(|collation| collation.name.contains("nopad")),
            _ => false,
        }
    }

    /// A value for DEFAULT. The server keeps a call as text, in which bytes that do not print lose
    /// the backslash before their digits (SHOW CREATE TABLE: `repeat(_utf8mb4'x00',3)`). A column
    /// that is added in place gets the value of that text, in both engines; in a copy it does not.
    pub fn default(&self, random: &mut Random, strings: &Strings) -> String {
        let value = self.value(random, strings).render();
        if value.contains('(') && value.contains("x'") {
            "'a'".to_owned()
        } else {
            value
        }
    }

    fn string(&self, random: &mut Random, strings: &Strings) -> Sql {
        let length_max = self.length().unwrap_or(1) as usize;
        let charset = self.collation().map_or("latin1", |own| &own.charset);
        if length_max >= 256 && random.chance(20) {
            return long_string(random, length_max as u64);
        }
        let mut string = strings.draw(random, charset, length_max);
        if self.compares_weightless_oddly() {
            string.retain(|letter| letter.is_alphanumeric() || letter == ' ');
        }
        if matches!(self, Self::Text("" | "MEDIUM" | "LONG", _)) && random.chance(8) {
            let times = *random.pick(&[800, 3000, 4096, 8200, 16_400, 65_535, 200_000]);
            let times = times / string.len().max(1) + 1;
            return Sql::Value(
                format!("REPEAT({}, {times})", quoted(&string)),
                vec!["'a'".to_owned(), format!("REPEAT('a', {times})")],
            );
        }
        Sql::Value(quoted(&string), simpler(&string))
    }

    fn bytes(&self, random: &mut Random, strings: &Strings) -> Sql {
        let length_max = self.length().unwrap_or(1) as usize;
        if matches!(self, Self::Blob("" | "MEDIUM" | "LONG")) && random.chance(15) {
            let times = *random.pick(&[
                100, 760, 4096, 8100, 16_384, 40_000, 65_535, 70_000, 200_000,
            ]);
            let byte = random.word(&["00", "20", "61", "FF"]);
            return Sql::Value(
                format!("REPEAT(x'{byte}', {times})"),
                vec!["x'61'".to_owned()],
            );
        }
        if length_max >= 256 && random.chance(20) {
            return long_bytes(random, length_max as u64);
        }
        let string = if random.chance(50) {
            strings.draw(random, "ascii", length_max).into_bytes()
        } else {
            let length = random.place(length_max.min(6) + 1);
            (0..length)
                .map(|_| *random.pick(&[0, 0, 0x20, 0x61, 0xff, 0x80]))
                .collect()
        };
        let half = &string[..string.len() / 2];
        Sql::Value(
            format!("x'{}'", hex(&string)),
            vec!["x''".to_owned(), format!("x'{}'", hex(half))],
        )
    }
}

/// A string whose key may be longer than the engine's: near the column's end or that of such a key.
fn long_string(random: &mut Random, length_max: u64) -> Sql {
    let letter = random.word(&["a", "\u{5b57}", "\u{fdfa}", "\u{e9}", " ", "\0"]);
    let most = *random.pick(&[length_max, length_max, length_max, 85, 253, 380, 507, 761]);
    let times = most.min(length_max).saturating_sub(random.below(4));
    let end = random.word(&["", "", "a", "b", "\u{5b57}", " ", "zz"]);
    let (letter, end) = (quoted(letter), quoted(end));
    Sql::Value(
        format!("CONCAT(REPEAT({letter}, {times}), {end})"),
        vec![
            "'a'".to_owned(),
            format!("REPEAT({letter}, {times})"),
            format!("REPEAT({letter}, {})", times / 2),
        ],
    )
}

/// The same of bytes.
fn long_bytes(random: &mut Random, length_max: u64) -> Sql {
    let byte = random.word(&["00", "01", "61", "ff"]);
    let most = *random.pick(&[length_max, length_max, 1521, 1536, 3040]);
    let times = most.min(length_max).saturating_sub(random.below(4));
    let end = random.word(&["", "", "00", "01", "61ff"]);
    Sql::Value(
        format!("CONCAT(REPEAT(x'{byte}', {times}), x'{end}')"),
        vec!["x'61'".to_owned(), format!("REPEAT(x'{byte}', {times})")],
    )
}

fn collated(name: String, collation: &Option<Collation>) -> String {
    match collation {
        None => name,
        Some(Collation {
            name: own, charset, ..
        }) => format!("{name} CHARACTER SET {charset} COLLATE {own}"),
    }
}

fn number(value: String) -> Sql {
    let simpler = ["0", "1", "2", "3"]
        .into_iter()
        .filter(|other| *other != value)
        .map(str::to_owned)
        .collect();
    Sql::Value(value, simpler)
}

/// Small ones that meet, limits, and what is just beyond them.
fn integer(random: &mut Random, bytes: u32, unsigned: bool) -> String {
    let bits = bytes * 8;
    let (least, most) = if unsigned {
        (0, (1i128 << bits) - 1)
    } else {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    };
    let value = match random.weighted(&[70, 6, 6, 4, 4, 1, 1]) {
        0 => i128::from(random.below(24)),
        1 => least,
        2 => most,
        3 => most - i128::from(random.below(3)),
        4 => -i128::from(random.below(5)),
        5 => most + 1,
        _ => i128::from(random.bits()) & most,
    };
    value.to_string()
}

fn decimal(random: &mut Random, digits: u32, behind: u32) -> String {
    let before = (digits - behind) as usize;
    let behind = behind as usize;
    match random.below(6) {
        0 => "0".to_owned(),
        1 => format!(
            "{}.{}",
            "9".repeat(before.max(1)),
            "9".repeat(behind.max(1))
        ),
        2 => format!(
            "-{}.{}",
            "9".repeat(before.max(1)),
            "9".repeat(behind.max(1))
        ),
        3 => format!("0.{}1", "0".repeat(behind.saturating_sub(1))),
        4 => format!("-{}", random.below(10)),
        _ => format!("{}.{}", random.below(10), random.below(10)),
    }
}
