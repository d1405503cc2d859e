//! The worked examples of docs/format.md: a fenced block of hex bytes whose info string begins with
//! `hex`, and the `text` block that follows it, which says what the bytes mean.
//!
//! A line of a hex block is bytes, or `offset: bytes`; what follows `#` is a comment. Empty lines
//! separate parts (records, frames). With offsets, bytes that no line names are zero.

use std::path::Path;

/// A worked example.
#[derive(Debug)]
pub struct Block {
    /// Line of the document, for messages.
    pub line: usize,
    /// The word after `hex`.
    pub kind: String,
    /// The words after that.
    pub words: Vec<String>,
    /// The bytes, part by part.
    pub parts: Vec<Vec<u8>>,
    /// The text block that follows.
    pub text: String,
}

impl Block {
    /// The value of the word `name=value`.
    pub fn argument(&self, name: &str) -> &str {
        let found = self
            .words
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("line {}: the block has no {name}=", self.line))
    }

    /// The value of the word `name=number`.
    pub fn number(&self, name: &str) -> u64 {
        let text = self.argument(name);
        text.parse()
            .unwrap_or_else(|_| panic!("line {}: {name}={text}", self.line))
    }

    /// The only part.
    pub fn bytes(&self) -> &[u8] {
        assert_eq!(self.parts.len(), 1, "line {}: parts", self.line);
        &self.parts[0]
    }

    /// Fails unless the text block says `decoded`.
    pub fn check(&self, decoded: &str) {
        let (decoded, text) = (decoded.trim(), self.text.trim());
        assert!(
            decoded == text,
            "docs/format.md, line {}: the example of {} decodes to\n\n{decoded}\n\nbut the text beside it says\n\n{text}\n",
            self.line,
            self.kind
        );
    }
}

/// All examples of docs/format.md.
pub fn blocks() -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let document = std::fs::read_to_string(&path).expect("docs/format.md");
    parse(&document)
}

fn parse(document: &str) -> Vec<Block> {
    let mut lines = document.lines().enumerate().peekable();
    let mut blocks = Vec::new();
    while let Some((n, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let line = n + 1;
        let mut body = |what: &str| -> Vec<String> {
            let mut body = Vec::new();
            for (_, line) in lines.by_ref() {
                if line == "```" {
                    return body;
                }
                body.push(line.to_owned());
            }
            panic!("line {line}: the {what} block does not end");
        };
        let hex = body("fenced");
        let mut words = info.split_whitespace().map(str::to_owned);
        if words.next().as_deref() != Some("hex") {
            continue;
        }
        let kind = words.next().unwrap_or_default();
        let words = words.collect();
        let parts = parts(&hex, line);
        while lines.next_if(|(_, line)| line.is_empty()).is_some() {}
        let next = lines.next().map(|(_, line)| line);
        assert_eq!(
            next,
            Some("```text"),
            "what follows the block of line {line}"
        );
        let mut text = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
            text.push_str(line);
            text.push('\n');
        }
        blocks.push(Block {
            line,
            kind,
            words,
            parts,
            text,
        });
    }
    blocks
}

fn parts(lines: &[String], block: usize) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    for line in lines {
        let code = line.split('#').next().unwrap_or_default().trim();
        let part = parts.last_mut().expect("never empty");
        if line.trim().is_empty() {
            parts.push(Vec::new());
            continue;
        }
        let hex = match code.split_once(':') {
            None => code,
            Some((offset, hex)) => {
                let offset = usize::from_str_radix(offset.trim(), 16).expect("an offset");
                assert!(offset >= part.len(), "block of line {block}: {line}");
                part.resize(offset, 0);
                hex
            }
        };
        for byte in hex.split_whitespace() {
            let byte = u8::from_str_radix(byte, 16);
            part.push(byte.unwrap_or_else(|_| panic!("block of line {block}: {line}")));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
