//! Small encodings shared by log records and catalog rows: varints, byte strings, shared-prefix
//! keys, and values packed against a reference.

use crate::Corrupt;
use std::cmp::Ordering;

/// Appends `value` as LEB128: seven bits a byte, low bits first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Length of the longest common prefix.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= limit {
        let (x, y) = (&a[at..at + 8], &b[at..at + 8]);
        if x != y {
            let diff = u64::from_le_bytes(x.try_into().expect("eight"))
                ^ u64::from_le_bytes(y.try_into().expect("eight"));
            return at + (diff.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

/// Compares byte strings as `memcmp` does. Keys are mostly short: eight bytes at a time, without a
/// call, beat the library's routine for them.
#[inline]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let limit = a.len().min(b.len());
    let word = |bytes: &[u8], at: usize| {
        u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let mut at = 0;
    while at + 8 <= limit {
        let ordering = word(a, at).cmp(&word(b, at));
        if ordering.is_ne() {
            return ordering;
        }
        at += 8;
    }
    while at < limit {
        let ordering = a[at].cmp(&b[at]);
        if ordering.is_ne() {
            return ordering;
        }
        at += 1;
    }
    a.len().cmp(&b.len())
}

/// Whether `bytes` begins with `prefix`.
#[inline]
pub fn starts_with(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.len() >= prefix.len() && compare(&bytes[..prefix.len()], prefix).is_eq()
}

/// The most bytes that one reader may unpack: a few bytes of runs and copies can stand for many.
/// Six times the keys and values of the fullest page there can be (its keys written out), and a
/// mini-transaction fills two.
pub const UNPACKED_MAX: usize = 128 << 20;

/// A cursor over bytes that are not trusted.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes that may still be unpacked.
    allowance: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            allowance: UNPACKED_MAX,
        }
    }

    /// Offset of the next byte.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// A [`Corrupt`] at the present offset.
    pub fn corrupt(&self, detail: impl Into<String>) -> Corrupt {
        Corrupt::at(self.at, detail)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Corrupt> {
        let byte = *self
            .bytes
            .get(self.at)
            .ok_or_else(|| self.corrupt("ends early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// A varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Corrupt> {
        // Most are small.
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Corrupt> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.corrupt("varint of more than 64 bits"))
    }

    /// A varint that must be at most `limit`.
    #[inline]
    pub fn varint_max(&mut self, limit: u64, what: &str) -> Result<u64, Corrupt> {
        let value = self.varint()?;
        if value > limit {
            return Err(self.over(value, limit, what));
        }
        Ok(value)
    }

    #[cold]
    fn over(&self, value: u64, limit: u64, what: &str) -> Corrupt {
        self.corrupt(format!("{what} {value} is over {limit}"))
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let end = self
            .at
            .checked_add(count)
            .filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| self.corrupt(format!("{count} bytes wanted, fewer left")))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A varint length and that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let count = self.varint()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Takes note that so many bytes are made of what was read; fails when [`UNPACKED_MAX`] is
    /// passed. Called before bytes are made that do not stand in the input.
    #[inline]
    pub fn unpacks(&mut self, count: usize) -> Result<(), Corrupt> {
        let left = self.allowance.checked_sub(count);
        self.allowance =
            left.ok_or_else(|| self.corrupt(format!("unpacks to more than {UNPACKED_MAX} bytes")))?;
        Ok(())
    }

    /// A little-endian u64.
    pub fn u64(&mut self) -> Result<u64, Corrupt> {
        Ok(u64::from_le_bytes(
            self.take(8)?.try_into().expect("eight bytes"),
        ))
    }
}

/// Appends `key` as what it shares with `previous` and the rest: one byte with two nibbles (shared
/// length, suffix length; 15 means that a varint of the length minus 15 follows), then the suffix.
pub fn put_shared_key(out: &mut Vec<u8>, key: &[u8], previous: &[u8]) {
    let shared = common_prefix(key, previous);
    let suffix = key.len() - shared;
    out.push((shared.min(15) << 4 | suffix.min(15)) as u8);
    if shared >= 15 {
        put_varint(out, shared as u64 - 15);
    }
    if suffix >= 15 {
        put_varint(out, suffix as u64 - 15);
    }
    out.extend_from_slice(&key[shared..]);
}

/// The inverse of [`put_shared_key`]: `key` holds the previous key and receives this one.
#[inline]
pub fn get_shared_key(r: &mut Reader<'_>, key: &mut Vec<u8>) -> Result<(), Corrupt> {
    let nibbles = r.u8()?;
    let extended = |r: &mut Reader<'_>, n: u8| -> Result<usize, Corrupt> {
        Ok(if n == 15 {
            15 + r.varint_max(1 << 20, "key length")? as usize
        } else {
            usize::from(n)
        })
    };
    let shared = extended(r, nibbles >> 4)?;
    let suffix = extended(r, nibbles & 15)?;
    if shared > key.len() {
        return Err(r.corrupt(format!("shares {shared} bytes with a key of {}", key.len())));
    }
    let suffix = r.take(suffix)?;
    r.unpacks(shared + suffix.len())?;
    key.truncate(shared);
    key.extend_from_slice(suffix);
    Ok(())
}

/// Adds one to the key as a big-endian number; false (key unchanged) when it would overflow.
#[inline]
pub fn increment(key: &mut [u8]) -> bool {
    let Some(at) = key.iter().rposition(|&b| b != 0xff) else {
        return false;
    };
    key[at] += 1;
    key[at + 1..].fill(0);
    true
}

/// Whether `key` is `previous` plus one.
pub fn is_successor(key: &[u8], previous: &[u8]) -> bool {
    if key.len() != previous.len() {
        return false;
    }
    let Some(at) = previous.iter().rposition(|&b| b != 0xff) else {
        return false;
    };
    key[..at] == previous[..at]
        && key[at] == previous[at] + 1
        && key[at + 1..].iter().all(|&b| b == 0)
}

const LITERAL: u8 = 0;
const COPY: u8 = 1;
const RUN: u8 = 2;
const LENGTH_EXTENDED: usize = 63;
/// Shorter runs and copies are cheaper as literals.
const WORTH: usize = 4;

fn put_token(out: &mut Vec<u8>, op: u8, length: usize) {
    out.push(op << 6 | length.min(LENGTH_EXTENDED) as u8);
    if length >= LENGTH_EXTENDED {
        put_varint(out, (length - LENGTH_EXTENDED) as u64);
    }
}

fn run_length(bytes: &[u8]) -> usize {
    let first = bytes[0];
    let word = u64::from_le_bytes([first; 8]);
    let mut at = 1;
    while at + 8 <= bytes.len()
        && u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight")) == word
    {
        at += 8;
    }
    while at < bytes.len() && bytes[at] == first {
        at += 1;
    }
    at
}

/// Bytes that [`sure_literals`] judges at once.
const GLANCE: usize = 32;
/// The lowest bit of each pair of bytes.
const PAIRS: u64 = u64::from_le_bytes([1, 0, 1, 0, 1, 0, 1, 0]);

fn words(bytes: &[u8; GLANCE]) -> [u64; GLANCE / 8] {
    std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j])))
}

/// Not zero in the highest bit of some pair of bytes if any pair is zero, else zero in all.
#[inline]
fn zero_pairs(word: u64) -> u64 {
    word.wrapping_sub(PAIRS) & !word
}

/// How many bytes from the front are surely literals: no run and no copy that is worth a token
/// begins there. `reference` begins beside `rest`.
///
/// A run of four makes three bytes that equal their successors, a copy four that equal their
/// counterparts, and two of these stand in one aligned pair. The differences of [`GLANCE`] bytes
/// are looked through for such pairs at once, which the compiler makes vector code of. What begins
/// at the last byte may have its pair beyond, so that byte is not sure; nor is the value's end,
/// where less than four are worth a token.
#[inline]
fn sure_literals(rest: &[u8], reference: &[u8]) -> usize {
    let mut at = 0;
    while let Some(value) = rest[at..].first_chunk::<{ GLANCE + 2 }>() {
        let (here, _) = value.split_first_chunk().expect("longer");
        let (next, _) = value[1..].split_first_chunk().expect("longer");
        let (here, next) = (words(here), words(next));
        let mut found = 0;
        for i in 0..GLANCE / 8 {
            found |= zero_pairs(here[i] ^ next[i]);
        }
        let counterparts = reference.get(at..).unwrap_or_default();
        if let Some(counterparts) = counterparts.first_chunk() {
            let there = words(counterparts);
            for i in 0..GLANCE / 8 {
                found |= zero_pairs(here[i] ^ there[i]);
            }
        } else if !counterparts.is_empty() {
            break;
        }
        if found & PAIRS << 15 != 0 {
            break;
        }
        at += GLANCE;
    }
    at.saturating_sub(1)
}

/// Appends `value` packed against `reference`: tokens that copy from the reference at the same
/// position, repeat one byte, or carry literal bytes. A token is one byte, two bits of operation
/// (0 literal, 1 copy, 2 run) and six of length (63: a varint of the length minus 63 follows). The
/// length of the value is not part of it.
pub fn pack(out: &mut Vec<u8>, value: &[u8], reference: &[u8]) {
    let mut at = 0;
    let mut literal_from = 0;
    // Where to glance ahead again: what stands before is looked at byte by byte.
    let mut glance_at = 0;
    while at < value.len() {
        if at >= glance_at {
            at += sure_literals(&value[at..], reference.get(at..).unwrap_or_default());
            glance_at = at + GLANCE;
        }
        let rest = &value[at..];
        let copy = match reference.get(at) {
            Some(&b) if b == rest[0] => common_prefix(rest, &reference[at..]),
            _ => 0,
        };
        let run = match rest.get(1) {
            Some(&b) if b == rest[0] => run_length(rest),
            _ => 1,
        };
        let best = copy.max(run);
        // What is left at the end is worth less than a literal's token.
        if best < WORTH && best < rest.len() {
            at += 1;
            continue;
        }
        if best < WORTH && (copy < best || literal_from < at) {
            at += best;
            continue;
        }
        if literal_from < at {
            put_token(out, LITERAL, at - literal_from);
            out.extend_from_slice(&value[literal_from..at]);
        }
        if copy >= run {
            put_token(out, COPY, copy);
        } else {
            put_token(out, RUN, run);
            out.push(rest[0]);
        }
        at += best;
        literal_from = at;
    }
    if literal_from < at {
        put_token(out, LITERAL, at - literal_from);
        out.extend_from_slice(&value[literal_from..at]);
    }
}

/// Appends `value` as one literal, which [`unpack`] understands with any reference.
pub(crate) fn put_literal(out: &mut Vec<u8>, value: &[u8]) {
    if !value.is_empty() {
        put_token(out, LITERAL, value.len());
        out.extend_from_slice(value);
    }
}

/// As [`unpack`] against a reference of so many bytes, but the bytes are not made.
pub(crate) fn skip_packed(
    r: &mut Reader<'_>,
    length: usize,
    reference: usize,
) -> Result<(), Corrupt> {
    r.unpacks(length)?;
    let mut done = 0;
    while done < length {
        let (operation, count) = get_token(r, length - done)?;
        match operation {
            LITERAL => drop(r.take(count)?),
            COPY if done + count > reference => {
                return Err(r.corrupt("copies past the reference"));
            }
            COPY => {}
            _ => drop(r.u8()?),
        }
        done += count;
    }
    Ok(())
}

/// Operation and count of a token, of which at most `left` bytes may come.
#[inline]
fn get_token(r: &mut Reader<'_>, left: usize) -> Result<(u8, usize), Corrupt> {
    let token = r.u8()?;
    let mut count = usize::from(token & 63);
    if count == LENGTH_EXTENDED {
        count += r.varint_max(1 << 31, "token length")? as usize;
    }
    if count == 0 || count > left {
        return Err(r.corrupt(format!("token of {count} bytes, {left} left")));
    }
    match token >> 6 {
        operation @ (LITERAL | COPY | RUN) => Ok((operation, count)),
        _ => Err(r.corrupt(format!("unknown token {token:02x}"))),
    }
}

/// The inverse of [`pack`]: appends `length` bytes to `out`, which grows only as they come.
pub fn unpack(
    r: &mut Reader<'_>,
    length: usize,
    reference: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    r.unpacks(length)?;
    let start = out.len();
    while out.len() - start < length {
        let done = out.len() - start;
        let (operation, count) = get_token(r, length - done)?;
        match operation {
            LITERAL => out.extend_from_slice(r.take(count)?),
            COPY => {
                let from = reference.get(done..done + count);
                out.extend_from_slice(from.ok_or_else(|| r.corrupt("copies past the reference"))?);
            }
            _ => {
                let byte = r.u8()?;
                out.resize(out.len() + count, byte);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
