//! What the tests share: the header, the sources behind it, and C programs.
#![allow(dead_code, reason = "not every test file uses every helper")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn header() -> String {
    std::fs::read_to_string(root().join("include/inkstone.h")).unwrap()
}

/// The header's declarations without comments and preprocessor lines, each on one line, without its
/// semicolon.
pub fn c_declarations() -> Vec<String> {
    let mut code = String::new();
    for (n, part) in header().split("/*").enumerate() {
        code.push_str(if n == 0 {
            part
        } else {
            part.split_once("*/").unwrap().1
        });
    }
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    let code: String = lines.map(|line| format!("{line} ")).collect();
    let code = code.replace("extern \"C\" {", "");
    let (mut declarations, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in code.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ';' if depth == 0 => declarations.push(std::mem::take(&mut current)),
            c => current.push(c),
        }
    }
    let squeeze = |d: &String| d.split_whitespace().collect::<Vec<_>>().join(" ");
    declarations.iter().map(squeeze).collect()
}

pub fn rust_sources() -> Vec<String> {
    let files = std::fs::read_dir(root().join("src")).unwrap();
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let code = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        code.map(|line| format!("{line}\n")).collect()
    };
    files.map(read).collect()
}

/// Builds the static library in the profile of this test, and tells where it is.
pub fn archive() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--package",
        "inkstone-capi",
        "--message-format",
        "json",
    ]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(root()).output().unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let text = String::from_utf8(built.stdout).unwrap();
    let messages = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let files = messages.flat_map(|message| match &message["filenames"] {
        serde_json::Value::Array(files) => files.clone(),
        _ => Vec::new(),
    });
    let mut archives = files.filter_map(|file| file.as_str().map(PathBuf::from));
    let is_ours = |file: &PathBuf| file.ends_with("libinkstone_capi.a");
    archives.find(is_ours).expect("no static library was built")
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}{error}",
        output.status
    );
    out
}

/// Compiles a C or C++ source against the header and the library, and runs it with an argument.
/// What it printed.
pub fn compile_and_run(compiler: &[&str], source: &Path, argument: &Path) -> String {
    let program = argument.with_extension("program");
    let (compiler, flags) = compiler.split_first().unwrap();
    run(Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(root().join("include"))
        .arg(source)
        .arg(archive())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    run(Command::new(&program).arg(argument))
}
