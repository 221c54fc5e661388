//! `lee fsck`: checks every invariant and every checksum, of a cell in use or not. Exit code 0:
//! clean, 1: findings, 2: could not check.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, printable};
use crate::size;
use leeward_volume::admin::{self, FsckReport};
use std::process::ExitCode;

const COULD_NOT_CHECK: u8 = 2;

/// Runs it.
///
/// # Errors
/// When it could not check everything.
pub fn run(invocation: &Invocation) -> Result<ExitCode, Fail> {
    check(invocation).map_err(|fail| fail.with_code(COULD_NOT_CHECK))
}

fn check(invocation: &Invocation) -> Result<ExitCode, Fail> {
    let report = invocation.ask_with_bar("fsck", &admin::Fsck)?;
    output::reply(invocation.format, &report, || text(&report))?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &FsckReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let path = finding.path.as_deref().unwrap_or("-");
        text.push_str(&format!("{}: {}: {}\n", finding.kind, printable(path), printable(&finding.detail)));
    }
    let checked = format!(
        "checked {}, {}, {}, {} with {}",
        size::counted(report.volumes, "volume", "volumes"),
        size::counted(report.inodes, "inode", "inodes"),
        size::counted(report.dentries, "name", "names"),
        size::counted(report.segments, "segment", "segments"),
        size::bytes(report.bytes),
    );
    text.push_str(&match report.findings.len() as u64 {
        0 => format!("clean: {checked}\n"),
        n => format!("{}: {checked}\n", size::counted(n, "finding", "findings")),
    });
    text
}
