//! The `inkstone` program.
fn main() {}
