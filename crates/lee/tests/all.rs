//! The tests of this crate, as one program: it is linked once. `./test` runs each file in a process
//! of its own.

mod accounts;
mod cell_life;
mod cli_errors;
mod common;
mod gateway;
mod keeper;
mod lab;
mod machine_commands;
mod machines;
mod metrics;
mod s3;
mod servers;
mod snapshots;
mod transfer;
