//! C and C++ programs over the header and the static library.

mod common;

use common::{compile_and_run, header, root};

#[test]
fn a_c_program_uses_every_part() {
    let directory = tempfile::tempdir().unwrap();
    let source = root().join("tests/program.c");
    let printed = compile_and_run(&["gcc", "-std=c99"], &source, &directory.path().join("db"));
    assert!(printed.ends_with("all is well\n"), "{printed}");
}

#[test]
fn the_example_of_accounts_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let source = root().join("examples/accounts.c");
    let compiler = &["gcc", "-std=gnu99"];
    let printed = compile_and_run(compiler, &source, &directory.path().join("db"));
    assert_eq!(printed, "2000 transfers, the sum was 5000 and is 5000\n");
}

/// The example at the top of the header compiles, as C and as C++, and does what it says.
#[test]
fn the_example_of_the_header_works() {
    let text = header();
    let example = text.lines().take_while(|line| !line.contains("*/"));
    let example: Vec<&str> = example
        .filter_map(|line| line.strip_prefix(" *     "))
        .collect();
    assert!(example.len() > 20, "{example:?}");
    let program = format!(
        "#include <err.h>\n#include <stdio.h>\n#include <unistd.h>\n#include \"inkstone.h\"\n\
         int main(int argc, char **argv) {{\n(void)argc;\nif (chdir(argv[1])) return 1;\n{}\n\
         printf(\"%d\\n\", (int)found); return 0; }}\n",
        example.join("\n")
    );
    for (compiler, name) in [
        (&["gcc", "-std=c99"][..], "e.c"),
        (&["g++", "-std=gnu++11"], "e.cc"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join(name);
        // C++ has no empty initialisers of this kind, and no need for one of the warnings.
        std::fs::write(&source, program.replace("{0}", "{0, 0, 0}")).unwrap();
        assert_eq!(compile_and_run(compiler, &source, directory.path()), "1\n");
    }
}
