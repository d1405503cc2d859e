//! The control file: where recovery begins, and the numbers that must never repeat.
//!
//! The file is two copies of one block, at offsets 0 and [`CONTROL_COPY_LEN`], written in turn:
//! a write torn by power loss spoils only the copy it went to. The valid copy with the higher
//! sequence is the truth.
//!
//! | bytes      | field                                                                   |
//! |------------|-------------------------------------------------------------------------|
//! | 0..8       | magic, [`CONTROL_MAGIC`]                                                |
//! | 8..12      | format version, [`FORMAT_VERSION`]                                      |
//! | 12..16     | page size, bytes                                                        |
//! | 16..32     | uuid of the database                                                    |
//! | 32..40     | sequence: one higher for each write of the control file                 |
//! | 40..48     | epoch: one higher for each open of the database                         |
//! | 48..56     | checkpoint LSN: pages on disk hold every change below it                |
//! | 56..64     | scan start LSN: recovery reads the log from here, at most the checkpoint LSN |
//! | 64..72     | epoch of the frame at the scan start LSN                                |
//! | 72..80     | an LSN up to which the log was known to be durable                      |
//! | 80..88     | bytes in a log segment                                                  |
//! | 88..96     | next transaction id                                                     |
//! | 96..100    | next tablespace id                                                      |
//! | 100..104   | version epoch: upper part of version addresses, one higher for each open |
//! | 104        | 1 after a clean shutdown, else 0                                        |
//! | 105..112   | reserved, zero                                                          |
//! | 112..120   | next commit sequence number                                             |
//! | 120..4092  | reserved, zero                                                          |
//! | 4092..4096 | CRC-32C of bytes 0..4092                                                |
//!
//! All integers are little-endian. Of later formats only this is promised: magic, version and
//! checksum stay where they are.

use crate::header::{get_u32, get_u64, page_size_is_valid, put_u32, put_u64};
use crate::segment::segment_bytes_is_valid;
use crate::{Corrupt, Lsn, SpaceId, TrxId};

/// Bytes in one copy; the second copy begins here.
pub const CONTROL_COPY_LEN: usize = 4096;
/// Bytes in the control file.
pub const CONTROL_FILE_LEN: usize = 2 * CONTROL_COPY_LEN;
/// The first bytes of each copy.
pub const CONTROL_MAGIC: [u8; 8] = *b"INKSTCTL";
/// The newest format of a database directory that this code knows.
pub const FORMAT_VERSION: u32 = 1;

/// No sequence, epoch, LSN or id is higher: a million of them a second last for 146,000 years.
const NUMBER_MAX: u64 = 1 << 62;
/// The end of the log is looked for in every epoch since the scan's start. A database that is
/// killed while it is opened, once a second, comes to so many in half a year.
const SCANNED_EPOCHS_MAX: u64 = 1 << 24;

const VERSION: usize = 8;
const PAGE_SIZE: usize = 12;
const UUID: usize = 16;
const SEQUENCE: usize = 32;
const EPOCH: usize = 40;
const CHECKPOINT_LSN: usize = 48;
const SCAN_START_LSN: usize = 56;
const SCAN_START_EPOCH: usize = 64;
const KNOWN_DURABLE_LSN: usize = 72;
const LOG_SEGMENT_BYTES: usize = 80;
const NEXT_TRX_ID: usize = 88;
const NEXT_SPACE_ID: usize = 96;
const VERSION_EPOCH: usize = 100;
const CLEAN_SHUTDOWN: usize = 104;
const NEXT_COMMIT: usize = 112;
const FIELDS_END: usize = 120;
const CRC: usize = CONTROL_COPY_LEN - 4;

// Fields follow each other without overlap, and at least 512 bytes stay for later ones.
const _: () = {
    assert!(VERSION == CONTROL_MAGIC.len() && PAGE_SIZE == VERSION + 4 && UUID == PAGE_SIZE + 4);
    assert!(SEQUENCE == UUID + 16 && EPOCH == SEQUENCE + 8 && CHECKPOINT_LSN == EPOCH + 8);
    assert!(SCAN_START_LSN == CHECKPOINT_LSN + 8 && SCAN_START_EPOCH == SCAN_START_LSN + 8);
    assert!(KNOWN_DURABLE_LSN == SCAN_START_EPOCH + 8);
    assert!(LOG_SEGMENT_BYTES == KNOWN_DURABLE_LSN + 8 && NEXT_TRX_ID == LOG_SEGMENT_BYTES + 8);
    assert!(NEXT_SPACE_ID == NEXT_TRX_ID + 8 && VERSION_EPOCH == NEXT_SPACE_ID + 4);
    assert!(CLEAN_SHUTDOWN == VERSION_EPOCH + 4 && NEXT_COMMIT == CLEAN_SHUTDOWN + 8);
    assert!(FIELDS_END == NEXT_COMMIT + 8 && FIELDS_END + 512 <= CRC);
    assert!(
        NEXT_TRX_ID.is_multiple_of(8)
            && NEXT_COMMIT.is_multiple_of(8)
            && SEQUENCE.is_multiple_of(8)
    );
};

/// What the control file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Bytes in a page.
    pub page_size: u32,
    /// Identity of the database: its other files carry it too.
    pub uuid: [u8; 16],
    /// One higher for each write of the control file.
    pub sequence: u64,
    /// One higher for each open of the database; the log's frames are seeded with it.
    pub epoch: u64,
    /// Pages on disk hold every change below this LSN.
    pub checkpoint_lsn: Lsn,
    /// Recovery reads the log from here; at most `checkpoint_lsn`.
    pub scan_start_lsn: Lsn,
    /// Epoch of the frame at `scan_start_lsn`.
    pub scan_start_epoch: u64,
    /// The log was known to be durable up to here: an end found earlier is corruption.
    pub known_durable_lsn: Lsn,
    /// Bytes in a log segment.
    pub log_segment_bytes: u64,
    /// The next transaction id to give out, unless the log shows a higher one.
    pub next_trx_id: TrxId,
    /// The next tablespace id to give out, unless the log shows a higher one.
    pub next_space_id: SpaceId,
    /// Upper part of version addresses.
    pub version_epoch: u32,
    /// The next commit sequence number, unless the log shows a higher one.
    pub next_commit: u64,
    /// Whether the database was closed in order: recovery has nothing to apply.
    pub clean_shutdown: bool,
}

/// Why a copy of the control file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The bytes are not a control block.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A whole control block of a format that came after this code.
    #[error("format version {found} is newer than {FORMAT_VERSION}")]
    Newer {
        /// The version found.
        found: u32,
    },
}

impl Control {
    /// The bytes of one copy.
    pub fn encode(&self) -> [u8; CONTROL_COPY_LEN] {
        let mut b = [0; CONTROL_COPY_LEN];
        b[..VERSION].copy_from_slice(&CONTROL_MAGIC);
        put_u32(&mut b, VERSION, FORMAT_VERSION);
        put_u32(&mut b, PAGE_SIZE, self.page_size);
        b[UUID..SEQUENCE].copy_from_slice(&self.uuid);
        put_u64(&mut b, SEQUENCE, self.sequence);
        put_u64(&mut b, EPOCH, self.epoch);
        put_u64(&mut b, CHECKPOINT_LSN, self.checkpoint_lsn.0);
        put_u64(&mut b, SCAN_START_LSN, self.scan_start_lsn.0);
        put_u64(&mut b, SCAN_START_EPOCH, self.scan_start_epoch);
        put_u64(&mut b, KNOWN_DURABLE_LSN, self.known_durable_lsn.0);
        put_u64(&mut b, LOG_SEGMENT_BYTES, self.log_segment_bytes);
        put_u64(&mut b, NEXT_TRX_ID, self.next_trx_id.0);
        put_u32(&mut b, NEXT_SPACE_ID, self.next_space_id.0);
        put_u32(&mut b, VERSION_EPOCH, self.version_epoch);
        b[CLEAN_SHUTDOWN] = u8::from(self.clean_shutdown);
        put_u64(&mut b, NEXT_COMMIT, self.next_commit);
        let crc = crc32c::crc32c(&b[..CRC]);
        put_u32(&mut b, CRC, crc);
        b
    }

    /// Reads one copy.
    pub fn parse(b: &[u8]) -> Result<Self, ControlError> {
        check_block(b)?;
        let control = Self {
            page_size: get_u32(b, PAGE_SIZE),
            uuid: b[UUID..SEQUENCE].try_into().expect("sixteen bytes"),
            sequence: get_u64(b, SEQUENCE),
            epoch: get_u64(b, EPOCH),
            checkpoint_lsn: Lsn(get_u64(b, CHECKPOINT_LSN)),
            scan_start_lsn: Lsn(get_u64(b, SCAN_START_LSN)),
            scan_start_epoch: get_u64(b, SCAN_START_EPOCH),
            known_durable_lsn: Lsn(get_u64(b, KNOWN_DURABLE_LSN)),
            log_segment_bytes: get_u64(b, LOG_SEGMENT_BYTES),
            next_trx_id: TrxId(get_u64(b, NEXT_TRX_ID)),
            next_space_id: SpaceId(get_u32(b, NEXT_SPACE_ID)),
            version_epoch: get_u32(b, VERSION_EPOCH),
            next_commit: get_u64(b, NEXT_COMMIT),
            clean_shutdown: b[CLEAN_SHUTDOWN] == 1,
        };
        control.check()?;
        Ok(control)
    }

    /// What must hold between the fields, in memory as on disk.
    pub fn check(&self) -> Result<(), Corrupt> {
        if !page_size_is_valid(self.page_size as usize) {
            let detail = format!("page size {} is none", self.page_size);
            return Err(Corrupt::at(PAGE_SIZE, detail));
        }
        if !segment_bytes_is_valid(self.log_segment_bytes) {
            let detail = format!("log segments of {} bytes are none", self.log_segment_bytes);
            return Err(Corrupt::at(LOG_SEGMENT_BYTES, detail));
        }
        self.check_order()?;
        self.check_numbers()
    }

    /// What must not be beyond what.
    fn check_order(&self) -> Result<(), Corrupt> {
        if self.scan_start_lsn > self.checkpoint_lsn {
            let detail = format!(
                "scan start LSN {} is beyond checkpoint LSN {}",
                self.scan_start_lsn, self.checkpoint_lsn
            );
            return Err(Corrupt::at(SCAN_START_LSN, detail));
        }
        if self.checkpoint_lsn > self.known_durable_lsn {
            let detail = format!(
                "checkpoint LSN {} is beyond {}, up to which the log was known to be durable",
                self.checkpoint_lsn, self.known_durable_lsn
            );
            return Err(Corrupt::at(CHECKPOINT_LSN, detail));
        }
        let epochs = self.epoch.checked_sub(self.scan_start_epoch);
        if epochs.is_none_or(|epochs| epochs > SCANNED_EPOCHS_MAX) {
            let detail = format!(
                "the scan starts in epoch {}, and the last was {}: no log is of so many epochs",
                self.scan_start_epoch, self.epoch
            );
            return Err(Corrupt::at(SCAN_START_EPOCH, detail));
        }
        Ok(())
    }

    /// Numbers that no database reaches: the next one of them might not be there.
    fn check_numbers(&self) -> Result<(), Corrupt> {
        let numbers = [
            (SEQUENCE, self.sequence),
            (EPOCH, self.epoch),
            (KNOWN_DURABLE_LSN, self.known_durable_lsn.0),
            (NEXT_TRX_ID, self.next_trx_id.0),
            (NEXT_COMMIT, self.next_commit),
            // Of addresses it is the upper part, of 23 bits.
            (VERSION_EPOCH, u64::from(self.version_epoch) << 39),
        ];
        match numbers.into_iter().find(|(_, number)| *number > NUMBER_MAX) {
            None => Ok(()),
            Some((at, _)) => Err(Corrupt::at(
                at,
                "a number that no database reaches".to_owned(),
            )),
        }
    }

    /// Chooses between the two copies of a control file: the valid one with the higher sequence,
    /// and its number. A valid copy of a newer format wins over everything.
    pub fn choose(copies: [&[u8]; 2]) -> Result<(Self, usize), ControlError> {
        match copies.map(Self::parse) {
            [Err(newer @ ControlError::Newer { .. }), _]
            | [_, Err(newer @ ControlError::Newer { .. })] => Err(newer),
            [Ok(a), Ok(b)] if b.sequence > a.sequence => Ok((b, 1)),
            [Ok(a), _] => Ok((a, 0)),
            [_, Ok(b)] => Ok((b, 1)),
            [Err(ControlError::Corrupt(a)), Err(ControlError::Corrupt(b))] => {
                let detail = format!("both copies are bad: first {a}; second {b}");
                Err(Corrupt::at(a.offset, detail).into())
            }
        }
    }
}

/// Checks length, magic, checksum, version and reserved bytes, in this order.
fn check_block(b: &[u8]) -> Result<(), ControlError> {
    let corrupt = |at, detail| Err(ControlError::Corrupt(Corrupt::at(at, detail)));
    if b.len() != CONTROL_COPY_LEN {
        return corrupt(0, format!("{} bytes, not {CONTROL_COPY_LEN}", b.len()));
    }
    if b[..VERSION] != CONTROL_MAGIC {
        return corrupt(0, format!("no control block: magic {:02x?}", &b[..VERSION]));
    }
    let (stored, computed) = (get_u32(b, CRC), crc32c::crc32c(&b[..CRC]));
    if stored != computed {
        return corrupt(
            CRC,
            format!("checksum {stored:08x}, computed {computed:08x}"),
        );
    }
    match get_u32(b, VERSION) {
        FORMAT_VERSION => {}
        found if found > FORMAT_VERSION => return Err(ControlError::Newer { found }),
        found => return corrupt(VERSION, format!("format version {found} never was")),
    }
    if b[CLEAN_SHUTDOWN] > 1 {
        return corrupt(CLEAN_SHUTDOWN, format!("flag is {}", b[CLEAN_SHUTDOWN]));
    }
    let reserved = (CLEAN_SHUTDOWN + 1..NEXT_COMMIT).chain(FIELDS_END..CRC);
    match reserved.into_iter().find(|&at| b[at] != 0) {
        Some(at) => corrupt(at, "a reserved byte is not zero".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
