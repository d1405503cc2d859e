//! How pages of tables are kept in runs that kill servers, or compare them: in all ways. Of tables
//! that are made the servers' variables say it, from one start to the next; and statements change
//! what there is.

use super::random::Random;
use super::server::Server;

/// Names and values of options that decide it for new tables.
type Options = [(&'static str, &'static str); 2];

/// Placement and compression.
const KINDS: [(&str, &str); 4] = [
    ("in_place", "lz4"),
    ("placed", "none"),
    ("placed", "lz4"),
    ("placed", "zstd"),
];

/// What an ALTER asks for; what it was before is no part of it.
const ASKED: [&str; 4] = [
    "PAGE_PLACEMENT=in_place PAGE_COMPRESSED=0 PAGE_COMPRESSION_LEVEL=0",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=0 PAGE_COMPRESSION_LEVEL=0",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=0",
    "PAGE_PLACEMENT=placed PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=5",
];

/// For tables to come, from the next start of a server on.
pub fn choose(server: &mut Server, random: &mut Random) {
    for (name, value) in chosen(random) {
        server.set_option(name, value);
    }
}

/// For a server that is not there yet.
pub fn options(random: &mut Random) -> [String; 2] {
    chosen(random).map(|(name, value)| format!("--{name}={value}"))
}

fn chosen(random: &mut Random) -> Options {
    let (placement, compression) = *random.pick(&KINDS);
    [
        ("inkstone-page-placement", placement),
        ("inkstone-page-compression", compression),
    ]
}

/// Options of an ALTER TABLE.
pub fn asked(random: &mut Random) -> &'static str {
    random.word(&ASKED)
}
