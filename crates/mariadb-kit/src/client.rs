//! A connection that speaks the server's protocol: what a statement gives, down to counts and
//! warnings, thousands of times a second.
//!
//! It does what a private server needs: a socket, no password, one text statement at a time,
//! answers of any size that memory has room for. A client crate brings a hundred packages for TLS,
//! pools and types that nothing here would use. The words are the protocol's: a *packet* is three
//! bytes of length, a number, and a payload; a payload of 16 MiB - 1 goes on in the next packet.

use std::io::{BufReader, Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// What the client says it can do: long passwords, the protocol of 4.1, transactions,
/// authentication of 4.1, several results, plugins of authentication.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x20000 | 0x80000;
/// `utf8mb4_general_ci`.
const COLLATION: u8 = 45;
/// A statement that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest payload of one packet.
const PAYLOAD_MAX_BYTES: usize = 0xff_ffff;
/// A statement that gives more has no end: it would fill the machine's memory.
const ROWS_MAX_BYTES: usize = 2 << 30;
/// What a value needs beside its bytes.
const CELL_BYTES: usize = size_of::<Cell>();

/// A value of a row as text; NULL is `None`.
pub type Cell = Option<Vec<u8>>;

/// What a statement gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done.
    Done(Done),
    /// It gave rows.
    Rows(Rows),
    /// It failed.
    Refused(Refusal),
}

/// A statement that gives no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Rows changed, as the engine and the server count them.
    pub affected: u64,
    /// The first id that AUTO_INCREMENT gave.
    pub last_insert_id: u64,
    /// How many warnings SHOW WARNINGS has.
    pub warnings: u16,
    /// `Records: 3  Duplicates: 0  Warnings: 0`, if the statement says so.
    pub info: String,
}

/// Rows, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Values, row by row.
    pub rows: Vec<Vec<Cell>>,
    /// How many warnings SHOW WARNINGS has.
    pub warnings: u16,
}

/// A statement that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The server's error number.
    pub code: u16,
    /// The server's words.
    pub message: String,
}

/// A connection.
pub struct Client {
    stream: BufReader<UnixStream>,
    sequence: u8,
    id: u32,
}

impl Client {
    /// Connects as root.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            sequence: 0,
            id: 0,
        };
        let greeting = client.receive()?;
        client.id = connection_id(&greeting)?;
        let mut answer = Vec::new();
        answer.extend(CAPABILITIES.to_le_bytes());
        answer.extend((1u32 << 30).to_le_bytes());
        answer.push(COLLATION);
        answer.extend([0; 23]);
        answer.extend(b"root\0\0mysql_native_password\0");
        client.send(&answer)?;
        let mut packet = client.receive()?;
        if packet.first() == Some(&0xfe) {
            // Another plugin of authentication: the empty password is an empty packet to all of
            // them.
            client.send(&[])?;
            packet = client.receive()?;
        }
        match reply_to(&packet)? {
            Reply::Refused(refusal) => Err(Error::other(refusal.message)),
            _ => Ok(client),
        }
    }

    /// The number that the server has given to this connection: KILL and PROCESSLIST know it by it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// From now on a statement may take as long as it likes: it may wait for another session.
    pub fn wait_for_ever(&mut self) -> Result<()> {
        self.stream.get_ref().set_read_timeout(None)
    }

    /// Runs a statement. An error is the connection's: the server is gone, or does not answer.
    pub fn run(&mut self, statement: &str) -> Result<Reply> {
        self.sequence = 0;
        let mut query = vec![3];
        query.extend(statement.as_bytes());
        self.send(&query)?;
        let packet = self.receive()?;
        match packet.first() {
            Some(0 | 0xff) => reply_to(&packet),
            _ => self.rows(&packet),
        }
    }

    /// The rows behind a packet that says how many columns they have.
    fn rows(&mut self, packet: &[u8]) -> Result<Reply> {
        let columns = Reader(packet).number()?;
        // Their definitions, and the packet that ends them.
        for _ in 0..=columns {
            self.receive()?;
        }
        let mut rows = Vec::new();
        let mut left = ROWS_MAX_BYTES;
        loop {
            let packet = self.receive()?;
            left = left
                .checked_sub(packet.len() + columns as usize * CELL_BYTES)
                .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "there is no end of rows"))?;
            match packet.first() {
                Some(0xfe) if packet.len() < 9 => {
                    let warnings = Reader(&packet[1..]).u16()?;
                    return Ok(Reply::Rows(Rows { rows, warnings }));
                }
                Some(0xff) => return reply_to(&packet),
                _ => {}
            }
            let mut reader = Reader(&packet);
            let row = (0..columns).map(|_| reader.cell());
            rows.push(row.collect::<Result<_>>()?);
        }
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() >= PAYLOAD_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a statement of more than 16 MiB",
            ));
        }
        let mut packet = (payload.len() as u32).to_le_bytes().to_vec();
        packet[3] = self.sequence;
        packet.extend(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.get_mut().write_all(&packet)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 4];
            self.stream.read_exact(&mut header)?;
            self.sequence = header[3].wrapping_add(1);
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
            let begin = payload.len();
            payload.resize(begin + length, 0);
            self.stream.read_exact(&mut payload[begin..])?;
            if length < PAYLOAD_MAX_BYTES {
                return Ok(payload);
            }
        }
    }
}

/// What the packet with which the server begins says of the connection.
fn connection_id(greeting: &[u8]) -> Result<u32> {
    let mut reader = Reader(greeting);
    if reader.u8()? == 0xff {
        let text = String::from_utf8_lossy(greeting);
        return Err(Error::other(format!("the server refuses it: {text}")));
    }
    // Its version, up to a zero.
    while reader.u8()? != 0 {}
    reader.u32()
}

/// A packet that says that a statement was done, or failed.
fn reply_to(packet: &[u8]) -> Result<Reply> {
    let mut reader = Reader(packet);
    match reader.u8()? {
        0xff => {
            let code = reader.u16()?;
            // Behind it `#` and the five bytes of SQLSTATE.
            let message = match reader.0 {
                [b'#', _, _, _, _, _, message @ ..] => message,
                message => message,
            };
            let message = String::from_utf8_lossy(message).into_owned();
            Ok(Reply::Refused(Refusal { code, message }))
        }
        0 => {
            let affected = reader.number()?;
            let last_insert_id = reader.number()?;
            let _status = reader.u16()?;
            let warnings = reader.u16()?;
            let info = if reader.0.is_empty() {
                String::new()
            } else {
                String::from_utf8_lossy(&reader.cell()?.unwrap_or_default()).into_owned()
            };
            Ok(Reply::Done(Done {
                affected,
                last_insert_id,
                warnings,
                info,
            }))
        }
        first => Err(malformed(&format!("a packet that begins with {first}"))),
    }
}

fn malformed(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("the server's answer is no packet of the protocol: {what}"),
    )
}

/// What is left of a packet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| malformed("it ends too soon"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A number of one to nine bytes.
    fn number(&mut self) -> Result<u64> {
        let length = match self.u8()? {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            small => return Ok(small.into()),
        };
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.take(length)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// A value behind its length.
    fn cell(&mut self) -> Result<Cell> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        let length = self.number()? as usize;
        Ok(Some(self.take(length)?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_numbers_the_connection() {
        let greeting = b"\x0a10.11.18-MariaDB\0\x07\x01\0\0salt";
        assert_eq!(connection_id(greeting).unwrap(), 0x107);
        assert!(connection_id(&greeting[..18]).is_err());
        let refusal = connection_id(b"\xff\x10\x04Too many connections").unwrap_err();
        assert!(refusal.to_string().contains("Too many connections"));
    }

    #[test]
    fn packets_are_read_as_the_protocol_has_them() {
        let done = [0, 3, 0xfc, 0x10, 0x27, 2, 0, 1, 0, 2, b'o', b'k'];
        let expected = Done {
            affected: 3,
            last_insert_id: 10_000,
            warnings: 1,
            info: "ok".to_owned(),
        };
        assert_eq!(reply_to(&done).unwrap(), Reply::Done(expected));
        let refused = b"\xff\x26\x04#23000Duplicate entry";
        let expected = Refusal {
            code: 1062,
            message: "Duplicate entry".to_owned(),
        };
        assert_eq!(reply_to(refused).unwrap(), Reply::Refused(expected));
        assert!(reply_to(&[0, 0xfe, 1]).is_err(), "it ends too soon");
        assert_eq!(
            Reader(&[0xfb, 1, b'x']).cell().unwrap(),
            None,
            "NULL has no length"
        );
    }
}
