//! The header and the Rust behind it say the same: functions, structures, visitors, codes.

mod common;

use common::{c_declarations, rust_sources};
use std::collections::BTreeMap;

/// What a C declaration is in Rust: `const ink_tree *tree` is `*const ink_tree`.
fn rust_type(declaration: &str) -> (String, String) {
    let declaration = declaration.trim();
    let (declaration, length) = match declaration.split_once('[') {
        Some((rest, length)) => (rest, Some(length.trim_end_matches(']'))),
        None => (declaration, None),
    };
    let split = declaration
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or_else(|| panic!("no name in {declaration:?}"));
    let (kind, name) = declaration.split_at(split + 1);
    let stars = kind.matches('*').count();
    let kind = kind.replace('*', " ");
    let words: Vec<&str> = kind.split_whitespace().collect();
    let constant = words.contains(&"const");
    let base = match words.last().copied().unwrap_or_default() {
        "uint64_t" => "u64",
        "uint32_t" => "u32",
        "int32_t" => "i32",
        "int" => "c_int",
        "size_t" => "usize",
        "uint8_t" => "u8",
        "char" => "c_char",
        "void" => "c_void",
        other => other,
    };
    let mut rust = match base.strip_prefix("ink_visit_") {
        Some(what) => format!("Visit{}", camel(what)),
        None => base.to_owned(),
    };
    for star in 0..stars {
        let pointer = if constant && star == 0 {
            "*const "
        } else {
            "*mut "
        };
        rust = format!("{pointer}{rust}");
    }
    if let Some(length) = length {
        rust = format!("[{rust}; {length}]");
    }
    (name.to_owned(), rust)
}

fn camel(snake: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..].to_lowercase();
    snake.split('_').map(word).collect()
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text between a bracket and the one that closes it.
fn enclosed(text: &str, open: char, close: char) -> &str {
    let start = text.find(open).unwrap() + 1;
    let mut depth = 1;
    for (at, c) in text[start..].char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return &text[start..start + at];
        }
    }
    panic!("{text:.80}: never closed")
}

fn parts(list: &str, separator: char) -> Vec<String> {
    let parts = list.split(separator).map(squeezed);
    parts.filter(|part| !part.is_empty()).collect()
}

/// Parameters and result of each function, as Rust has them.
type Functions = BTreeMap<String, (Vec<String>, String)>;

fn header_functions() -> Functions {
    let mut found = Functions::new();
    for declaration in c_declarations() {
        let is_function = declaration.contains('(')
            && !declaration.starts_with("typedef")
            && !declaration.starts_with("enum");
        if !is_function {
            continue;
        }
        let (head, _) = declaration.split_once('(').unwrap();
        let (name, result) = rust_type(head);
        let list = enclosed(&declaration, '(', ')');
        let parameters = parts(list, ',').into_iter().filter(|p| p != "void");
        let parameters = parameters.map(|p| rust_type(&p).1).collect();
        let result = if result == "c_void" {
            String::new()
        } else {
            result
        };
        assert!(found.insert(name, (parameters, result)).is_none());
    }
    found
}

fn rust_functions() -> Functions {
    let mut found = Functions::new();
    for source in rust_sources() {
        for part in source.split("extern \"C\" fn ").skip(1) {
            // Types of visitors have no name.
            if !part.starts_with("ink_") {
                continue;
            }
            let name = part.split_once('(').unwrap().0.to_owned();
            let list = enclosed(part, '(', ')');
            let parameters = parts(list, ',').into_iter();
            let parameters = parameters
                .map(|p| p.split_once(':').unwrap().1.trim().to_owned())
                .collect();
            let after = &part[name.len() + list.len() + 2..];
            let head = after.split('{').next().unwrap();
            let result = head.trim().trim_start_matches("->").trim().to_owned();
            assert!(found.insert(name, (parameters, result)).is_none());
        }
    }
    found
}

#[test]
fn functions() {
    let (header, rust) = (header_functions(), rust_functions());
    assert!(header.len() > 70, "{} functions", header.len());
    for (name, signature) in &header {
        assert_eq!(rust.get(name), Some(signature), "{name}");
    }
    for name in rust.keys() {
        assert!(header.contains_key(name), "the header lacks {name}");
    }
}

/// Fields of each structure, names and types in order.
type Structures = BTreeMap<String, Vec<(String, String)>>;

#[test]
fn structures() {
    let mut header = Structures::new();
    for declaration in c_declarations() {
        if declaration.starts_with("typedef struct") && declaration.contains('{') {
            let name = declaration.rsplit('}').next().unwrap().trim().to_owned();
            let fields = parts(enclosed(&declaration, '{', '}'), ';');
            header.insert(name, fields.iter().map(|f| rust_type(f)).collect());
        }
    }
    let mut rust = Structures::new();
    for source in rust_sources() {
        let source = source.replace("MESSAGE_LEN]", "508]");
        for part in source.split("#[repr(C)]").skip(1) {
            let name = part.split_once("pub struct ").unwrap().1;
            let name = name.split_once(" {").unwrap().0.to_owned();
            let fields = parts(enclosed(part, '{', '}'), ',').into_iter();
            let fields = fields.map(|field| {
                let (name, kind) = field.split_once(':').unwrap();
                let name = name.trim().trim_start_matches("pub ");
                (name.to_owned(), kind.trim().to_owned())
            });
            rust.insert(name, fields.collect());
        }
    }
    assert!(header.len() >= 14, "{} structures", header.len());
    assert_eq!(header, rust);
}

#[test]
fn visitors() {
    let mut header = BTreeMap::new();
    for declaration in c_declarations() {
        let typedef = declaration.strip_prefix("typedef ");
        if let Some((result, rest)) = typedef.and_then(|rest| rest.split_once(" (*ink_visit_")) {
            let (name, list) = rest.split_once(')').unwrap();
            let parameters = parts(enclosed(list, '(', ')'), ',');
            let parameters: Vec<String> = parameters.iter().map(|p| rust_type(p).1).collect();
            let name = camel(name);
            header.insert(
                format!("Visit{name}"),
                (parameters, rust_type(&format!("{result} result")).1),
            );
        }
    }
    let mut rust = BTreeMap::new();
    for source in rust_sources() {
        for part in source.split("pub type Visit").skip(1) {
            let name = part.split_once(" =").unwrap().0;
            let parameters = parts(enclosed(part, '(', ')'), ',');
            let end = part.split_once(';').unwrap().0;
            // C may pass NULL.
            assert!(end.contains("Option<unsafe extern \"C\" fn"), "{name}");
            let result = end.rsplit_once("-> ").unwrap().1;
            let result = result.trim_end_matches(['>', ',', '\n']).to_owned();
            rust.insert(format!("Visit{name}"), (parameters, result));
        }
    }
    assert!(header.len() >= 8, "{} visitors", header.len());
    assert_eq!(header, rust);
}

#[test]
fn codes() {
    let declaration = c_declarations()
        .into_iter()
        .find(|d| d.starts_with("enum ink_code"));
    let declaration = declaration.unwrap();
    let header = parts(enclosed(&declaration, '{', '}'), ',');
    let header = header.iter().map(|code| {
        let (name, number) = code.split_once(" = ").unwrap();
        (camel(name.strip_prefix("INK_").unwrap()), number.to_owned())
    });
    let header: Vec<_> = header.filter(|(name, _)| name != "Ok").collect();
    let source = rust_sources()
        .into_iter()
        .find(|s| s.contains("pub enum Code {"))
        .unwrap();
    let rust = parts(
        enclosed(source.split_once("pub enum Code ").unwrap().1, '{', '}'),
        ',',
    );
    let rust = rust.iter().map(|code| {
        let (name, number) = code.split_once(" = ").unwrap();
        (name.to_owned(), number.to_owned())
    });
    assert_eq!(header, rust.collect::<Vec<_>>());
}
