//! The log of the layers below, on standard error (which is `DIR/log` in the background). The level
//! comes from `LEE_LOG`: `error`, `warn` (the default), `info`, `debug`, `trace`, or per part, such
//! as `leeward_data=debug`.

use crate::output;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "LEE_LOG";
/// The S3 library logs answers to clients as errors; the access log has those.
const LEVEL: &str = "warn,s3s=off";

/// Starts logging. A level that cannot be read is reported, and the default used.
pub fn start() {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let filter = EnvFilter::try_new(if wanted.is_empty() { LEVEL } else { &wanted }).unwrap_or_else(|e| {
        output::note(&format!("lee: {VARIABLE}={wanted} is no level ({e}): using {LEVEL}"));
        EnvFilter::new(LEVEL)
    });
    // An error means that there is a subscriber already: it stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unfailing)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}

/// Standard error whose write errors are ignored: a full disk, a terminal or a reader that is gone
/// must never end a thread that only logs something.
struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
