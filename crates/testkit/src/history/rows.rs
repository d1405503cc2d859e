//! Keys and values as bytes of a table.

use super::{Key, Range, Value};

/// A key's bytes. Those of a row are spread over its range: its number, mirrored.
pub(super) fn key_bytes(key: Key) -> Vec<u8> {
    let (kind, number, id) = match key {
        Key::List(number) => (b'l', number, None),
        Key::Register(number) => (b'r', number, None),
        Key::Row { range, id } => (b's', range, Some(id.reverse_bits())),
    };
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend(id.iter().flat_map(|id| id.to_be_bytes()));
    bytes
}

/// The key of some bytes.
pub(super) fn key_of(bytes: &[u8]) -> Option<Key> {
    let (kind, rest) = bytes.split_first()?;
    let (number, id) = rest.split_first_chunk::<4>()?;
    let number = u32::from_be_bytes(*number);
    match (kind, id.len()) {
        (b'l', 0) => Some(Key::List(number)),
        (b'r', 0) => Some(Key::Register(number)),
        (b's', 8) => Some(Key::Row {
            range: number,
            id: u64::from_be_bytes(id.try_into().ok()?).reverse_bits(),
        }),
        _ => None,
    }
}

/// The least bytes in a range, and the least beyond it.
pub(super) fn range_bytes(range: Range) -> (Vec<u8>, Vec<u8>) {
    let bytes = |key| {
        let mut bytes = key_bytes(key);
        bytes.truncate(5);
        bytes
    };
    let (low, high) = range.bounds();
    (bytes(low), bytes(high))
}

/// A value's bytes, with so many more that depend on it.
pub(super) fn value_bytes(value: &Value, padding: usize) -> Vec<u8> {
    let mut bytes = (value.len() as u32).to_be_bytes().to_vec();
    bytes.extend(value.iter().flat_map(|element| element.to_be_bytes()));
    bytes.resize(bytes.len() + padding, filler(value));
    bytes
}

fn filler(value: &Value) -> u8 {
    value.last().map_or(0, |element| *element as u8)
}

/// The value of some bytes, or what is wrong with them.
pub(super) fn value_of(bytes: &[u8]) -> Result<Value, String> {
    let damaged = || {
        format!(
            "a value of {} bytes is not one that was written",
            bytes.len()
        )
    };
    let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let length = 8 * u32::from_be_bytes(*count) as usize;
    let (elements, padding) = rest.split_at_checked(length).ok_or_else(damaged)?;
    let elements = elements.chunks_exact(8);
    let value: Value = elements
        .map(|element| element.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
        .collect();
    if padding.iter().all(|&byte| byte == filler(&value)) {
        Ok(value)
    } else {
        Err(damaged())
    }
}
