//! Bytes for people: hexadecimal, with the text beside it where it is text.

use std::fmt::Write;

/// Bytes that are shown unless all are asked for.
pub const SHORT: usize = 24;

/// As `0000000000000007` or `6b6579 "key"`; beyond `limit` bytes only how many there are. A run of
/// one byte is `20 x 1785`.
pub fn bytes(bytes: &[u8], limit: Option<usize>) -> String {
    if bytes.is_empty() {
        return "(empty)".to_owned();
    }
    let same = bytes.iter().all(|b| *b == bytes[0]);
    if same && bytes.len() > 8 && limit.is_some() {
        return format!("{:02x} x {}", bytes[0], bytes.len());
    }
    let shown = limit.map_or(bytes, |limit| &bytes[..limit.min(bytes.len())]);
    let mut out = hex(shown);
    if shown.iter().any(|b| b.is_ascii_alphanumeric()) && shown.iter().all(|b| is_text(*b)) {
        let _ = write!(out, " \"{}\"", text(shown));
    }
    if shown.len() < bytes.len() {
        let _ = write!(out, ".. ({} bytes)", bytes.len());
    }
    out
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' '
}

/// Printable ASCII, other bytes as dots.
pub fn text(bytes: &[u8]) -> String {
    let shown = |b: &u8| if is_text(*b) { *b as char } else { '.' };
    bytes.iter().map(shown).collect()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Lines of 32 bytes: offset, hexadecimal, text.
pub fn dump(bytes: &[u8]) -> Vec<String> {
    let line = |(n, chunk): (usize, &[u8])| {
        let groups: Vec<String> = chunk.chunks(4).map(hex).collect();
        format!("{:04x}  {:<71}  {}", n * 32, groups.join(" "), text(chunk))
    };
    bytes.chunks(32).enumerate().map(line).collect()
}

/// A UUID in its usual form.
pub fn uuid(uuid: &[u8; 16]) -> String {
    let digits = hex(uuid);
    [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shortened_and_text_is_shown() {
        assert_eq!(bytes(b"", Some(4)), "(empty)");
        assert_eq!(bytes(b"key", Some(4)), "6b6579 \"key\"");
        assert_eq!(bytes(&[0, 1, 2], Some(2)), "0001.. (3 bytes)");
        assert_eq!(bytes(&[b' '; 1785], Some(4)), "20 x 1785");
        assert_eq!(bytes(&[0; 8], Some(24)), "0000000000000000");
        assert_eq!(
            dump(b"ab")[0].trim_end(),
            format!("0000  6162{}  ab", " ".repeat(67))
        );
    }
}
