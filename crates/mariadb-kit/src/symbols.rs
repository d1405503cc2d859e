//! What the compiler and the linker cannot know: that the plugin fits the server which loads it.

use super::apt::output;
use super::tree::Tree;
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Classes whose layout the handler relies on, each with a function of the server that allocates
/// one: its size stands in the machine code there.
const LAYOUTS: [(&str, &str); 2] = [
    ("THD", "_Z21create_background_thdv"),
    (
        "TABLE",
        "_Z10open_tableP3THDP10TABLE_LISTP18Open_table_context",
    ),
];

/// Fails if the plugin needs a symbol that neither the server nor a library has: the server would
/// say so only when it loads the plugin. `preloaded` is a library that the server is given.
pub fn check_undefined(tree: &Tree, plugin: &Path, preloaded: Option<&Path>) -> Result<()> {
    let mut known = names(&tree.server(), "--defined-only")?;
    if let Some(library) = preloaded {
        known.extend(names(library, "--defined-only")?);
    }
    let needed = names(plugin, "--undefined-only")?;
    // A symbol with a version is a library's, and the linker has seen it there.
    let missing: Vec<&str> = needed
        .difference(&known)
        .map(String::as_str)
        .filter(|name| !name.contains('@'))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the plugin needs symbols that the server does not export:\n  {}",
        missing.join("\n  ")
    ))
}

fn names(file: &Path, which: &str) -> Result<BTreeSet<String>> {
    let printed = output(Command::new("nm").args(["-D", which]).arg(file))?;
    let mut names = BTreeSet::new();
    for line in printed.lines() {
        let mut words = line.split_whitespace().rev();
        let (Some(name), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        // A weak symbol may be missing.
        if which == "--defined-only" || kind == "U" {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Fails if a class is of another size in the plugin than in the server.
pub fn check_layouts(tree: &Tree, mut compiler: Command, work: &Path) -> Result<()> {
    let source = work.join("sizes.cc");
    let assembly = work.join("sizes.s");
    let lines = LAYOUTS.map(|(class, _)| {
        format!(
            "extern const size_t size_of_{class}; const size_t size_of_{class} = sizeof({class});\n"
        )
    });
    let text = format!(
        "#include <my_global.h>\n#include <sql_class.h>\n#include <table.h>\n{}",
        lines.concat()
    );
    std::fs::write(&source, text)
        .map_err(|error| format!("{} cannot be written: {error}", source.display()))?;
    output(compiler.arg("-S").arg(&source).arg("-o").arg(&assembly))?;
    let assembly = std::fs::read_to_string(&assembly)
        .map_err(|error| format!("{} cannot be read: {error}", assembly.display()))?;
    for (class, function) in LAYOUTS {
        let size = constant(&assembly, &format!("size_of_{class}:"))
            .ok_or_else(|| format!("the compiler does not tell the size of {class}"))?;
        let code = disassemble(tree, function)?;
        if !code
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == format!("0x{size:x}"))
        {
            return Err(format!(
                "{class} has {size} bytes in the plugin, and {function} of the server allocates no \
                 {size} bytes: headers or flags do not fit this server"
            ));
        }
    }
    Ok(())
}

/// The number after a label: `.quad 27312`, or `.xword`.
fn constant(assembly: &str, label: &str) -> Option<u64> {
    let (_, after) = assembly.split_once(&format!("\n{label}"))?;
    let line = after.lines().find(|line| !line.trim().is_empty())?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn disassemble(tree: &Tree, function: &str) -> Result<String> {
    let server = tree.server();
    let symbols = output(
        Command::new("nm")
            .args(["-D", "-S", "--defined-only"])
            .arg(&server),
    )?;
    let line = symbols
        .lines()
        .find(|line| line.split_whitespace().nth(3) == Some(function));
    let numbers: Vec<u64> = line
        .into_iter()
        .flat_map(str::split_whitespace)
        .take(2)
        .filter_map(|number| u64::from_str_radix(number, 16).ok())
        .collect();
    let [start, length] = numbers[..] else {
        return Err(format!("the server has no function {function}"));
    };
    let mut command = Command::new("objdump");
    command.args(["--disassemble", "--no-show-raw-insn"]);
    command.arg(format!("--start-address={start}"));
    command.arg(format!("--stop-address={}", start + length));
    output(command.arg(server))
}

#[cfg(test)]
mod tests {
    use super::constant;

    #[test]
    fn a_constant_is_read_from_assembly() {
        let text = "\t.size\tsize_of_THD, 8\nsize_of_THD:\n\t.quad\t27312\n";
        assert_eq!(constant(text, "size_of_THD:"), Some(27312));
        assert_eq!(constant(text, "size_of_TABLE:"), None);
    }
}
