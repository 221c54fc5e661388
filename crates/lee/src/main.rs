//! The `lee` command.
fn main() {}
