//! Newtypes for ids and units, so that one is never taken for another.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A tablespace: one file. 0 holds the catalog. Never reused within a database.
    SpaceId(u32)
}
id! {
    /// Page number within a tablespace; the page's byte offset is this times the page size.
    PageNo(u32)
}
id! {
    /// A tree within a tablespace (0: the clustered tree).
    TreeId(u32)
}
id! {
    /// Log sequence number: byte position in the endless redo log.
    Lsn(u64)
}
id! {
    /// A transaction. Never reused, also across restarts.
    TrxId(u64)
}
id! {
    /// Address of an old version in the version store. Never repeats, also across restarts; 0 is
    /// no address.
    VersionAddress(u64)
}

/// A page of the database: tablespace and page number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The tablespace.
    pub space: SpaceId,
    /// The page in it.
    pub page: PageNo,
}

impl PageId {
    /// The page `page` of tablespace `space`.
    pub const fn new(space: SpaceId, page: PageNo) -> Self {
        Self { space, page }
    }

    /// Both numbers in one word: the tablespace in the upper half.
    pub const fn to_u64(self) -> u64 {
        (self.space.0 as u64) << 32 | self.page.0 as u64
    }

    /// The inverse of [`PageId::to_u64`].
    pub const fn from_u64(word: u64) -> Self {
        Self {
            space: SpaceId((word >> 32) as u32),
            page: PageNo(word as u32),
        }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space, self.page)
    }
}

/// Hashes of ids, for tables with keys from the log or from pages: at worst they are slow.
pub type IdHash = BuildHasherDefault<IdHasher>;

/// Mixes the numbers of an id.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        let mixed = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
