//! `lee report`: what was used and when, and what others want to know of a cell in their forms.

mod census;
mod month;
mod srr;
mod transfers;
mod usage;

use super::Invocation;
use crate::fail::Fail;
use crate::summary::paper::Paper;
use crate::{names, output};
use leeward_volume::admin::Day;
use serde::Serialize;

/// Report what was used, and when, and in the forms of others
///
/// Once a day the cell keeps what each volume, user, group, project and pool uses: each day for two
/// years, and then the first of each month for ten. Days begin at 0:00 UTC.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    report: Report,
}

#[derive(Debug, clap::Subcommand)]
enum Report {
    Usage(usage::Args),
    Month(month::Args),
    Census(census::Args),
    Transfers(transfers::Args),
    Srr(srr::Args),
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that a file cannot be written.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    match &args.report {
        Report::Usage(args) => usage::run(invocation, args),
        Report::Month(args) => month::run(invocation, args),
        Report::Census(args) => census::run(invocation, args),
        Report::Transfers(args) => transfers::run(invocation, args),
        Report::Srr(args) => srr::run(invocation, args),
    }
}

/// The form of a report, besides text and JSON.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Form {
    /// As comma-separated values, with bytes and days as they are
    #[arg(long, conflicts_with_all = ["html", "json"])]
    csv: bool,
    /// As a page for a browser or a mail, which needs nothing else
    #[arg(long, conflicts_with = "json")]
    html: bool,
}

impl Form {
    /// To be called first: what programs read has all names of users, text and pages those that
    /// come soon.
    fn begin(self, invocation: &Invocation) {
        if self.csv || invocation.format == output::Format::Json {
            names::ask_for_all();
        }
    }
}

/// Prints a report; `json`: what programs read.
fn print(invocation: &Invocation, form: Form, paper: &Paper, json: &impl Serialize) -> Result<(), Fail> {
    match form {
        Form { csv: true, .. } => output::print(&paper.csv()),
        Form { html: true, .. } => output::print(&paper.html()),
        _ => output::show(invocation.format, json, || paper.text()),
    }
}

/// Today.
fn today(invocation: &Invocation) -> Day {
    let days = invocation.env.wall() / 86_400_000_000_000;
    Day(u32::try_from(days).unwrap_or(0))
}

fn parse_day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| format!("`{text}` is no day: write 2026-11-21"))
}
