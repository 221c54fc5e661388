//! `lee scrub`: reads and verifies all data in pools, and repairs it where possible; now or by the
//! clock. Exit code 0: all data is whole, 1: data is lost or still lacks pieces, 2: could not
//! scrub.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table, printable};
use crate::{size, when};
use leeward_env::dates;
use leeward_volume::admin::{self, PoolInfo, ScrubInfo, ScrubStatus};
use serde_json::json;
use std::process::ExitCode;

const COULD_NOT_SCRUB: u8 = 2;

/// Read and verify all data in a pool, or in all, and repair it where possible
///
/// Pools with redundancy are repaired; in others damage is only found. `lee fsck` names the damaged
/// files. With --every, pools are scrubbed by the clock from now on, in the background and one at a
/// time. A run that was missed is made up for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool [default: all]
    pool: Option<String>,
    /// Scrub at this interval, not now: 1w, 30d, at least 1h, or never; without a pool: all, also
    /// those made later
    #[arg(long, value_name = "INTERVAL", value_parser = parse_every, conflicts_with = "status")]
    every: Option<u32>,
    /// Show when pools are scrubbed and how the last scrub went; scrub nothing now
    #[arg(long)]
    status: bool,
}

/// `never` is 0.
fn parse_every(text: &str) -> Result<u32, String> {
    match text {
        "never" => Ok(0),
        text => when::parse_interval(text).map_err(|why| format!("{why}, or never")),
    }
}

/// Runs it.
///
/// # Errors
/// When it could not read everything.
pub fn run(invocation: &Invocation, args: Args) -> Result<ExitCode, Fail> {
    scrub(invocation, args).map_err(|fail| fail.with_code(COULD_NOT_SCRUB))
}

fn scrub(invocation: &Invocation, args: Args) -> Result<ExitCode, Fail> {
    if let Some(every_secs) = args.every {
        return set_every(invocation, args.pool, every_secs).map(|()| ExitCode::SUCCESS);
    }
    if args.status {
        return status(invocation, args.pool).map(|()| ExitCode::SUCCESS);
    }
    let reply = invocation.ask_with_bar("scrub", &admin::Scrub { pool: args.pool })?;
    output::reply(invocation.format, &reply, || reply.pools.iter().map(line).collect())?;
    let whole = reply.pools.iter().all(|p| p.lost_objects == 0 && p.degraded_objects == 0);
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(pool: &ScrubInfo) -> String {
    let mut line = format!("pool {}: {} read", pool.pool, size::bytes(pool.bytes));
    if pool.bad_pieces + pool.repaired_objects > 0 {
        let bad = size::counted(pool.bad_pieces, "bad piece", "bad pieces");
        let repaired = size::counted(pool.repaired_objects, "object", "objects");
        line.push_str(&format!(", {bad} found, {repaired} repaired"));
    }
    if pool.degraded_objects > 0 {
        let objects = size::counted(pool.degraded_objects, "object still lacks", "objects still lack");
        line.push_str(&format!(", {objects} pieces: see lee pool show {}", pool.pool));
    }
    match pool.lost_objects {
        0 => line.push_str(", all data is whole\n"),
        n => line.push_str(&format!(
            ", {} damaged: lee fsck names the files\n",
            size::counted(n, "object is", "objects are")
        )),
    }
    line
}

fn set_every(invocation: &Invocation, pool: Option<String>, every_secs: u32) -> Result<(), Fail> {
    let pools = invocation.ask("scrub", &admin::ScrubEvery { pool: pool.clone(), every_secs })?.pools;
    let of = |p: &&PoolInfo| pool.as_ref().is_none_or(|name| *name == p.name);
    let next = pools.iter().filter(of).find_map(|p| p.scrub.next_secs);
    output::show(invocation.format, &shown(&pools, pool.as_deref()), || {
        let what =
            pool.as_ref().map_or_else(|| "all pools".into(), |name| format!("pool {}", printable(name)));
        match next {
            Some(next) => {
                let every = when::interval(every_secs);
                format!("scrubs {what} every {every}; the next time at {}", dates::minute(next))
            }
            None => format!("scrubs {what} only when asked to"),
        }
    })
}

fn status(invocation: &Invocation, pool: Option<String>) -> Result<(), Fail> {
    let pools = match pool {
        Some(name) => vec![invocation.ask("scrub", &admin::PoolShow { name })?],
        None => invocation.ask("scrub", &admin::PoolList)?.pools,
    };
    output::show(invocation.format, &shown(&pools, None), || table(&pools).to_string() + &troubles(&pools))
}

/// The JSON form, of all pools or of one.
fn shown(pools: &[PoolInfo], only: Option<&str>) -> serde_json::Value {
    let of = |p: &&PoolInfo| p.hot_of.is_none() && only.is_none_or(|name| name == p.name);
    let pools: Vec<_> = pools.iter().filter(of).map(|p| json!({"pool": p.name, "scrub": p.scrub})).collect();
    json!({"reply": "scrubs", "pools": pools})
}

fn table(pools: &[PoolInfo]) -> Table {
    let alone: Vec<&PoolInfo> = pools.iter().filter(|p| p.hot_of.is_none()).collect();
    Table::new(&[
        ("POOL", Side::Left),
        ("EVERY", Side::Right),
        ("LAST BEGAN", Side::Left),
        ("TOOK", Side::Right),
        ("READ", Side::Right),
        ("FOUND", Side::Left),
        ("NEXT", Side::Left),
        ("STATE", Side::Left),
    ])
    .rows(&alone, |pool| {
        let (s, nothing) = (&pool.scrub, || "-".to_string());
        let last = s.last.as_ref();
        [
            pool.name.clone(),
            s.every_secs.map_or_else(nothing, when::interval),
            last.map_or_else(nothing, |last| dates::minute(last.begun_secs)),
            last.map_or_else(nothing, |last| when::ago(last.ended_secs - last.begun_secs)),
            last.map_or_else(nothing, |last| size::bytes(last.found.bytes)),
            last.map_or_else(nothing, |last| found(&last.found)),
            s.next_secs.map_or_else(nothing, dates::minute),
            state(s),
        ]
    })
}

fn found(found: &ScrubInfo) -> String {
    match (found.lost_objects, found.degraded_objects) {
        (0, 0) => "all whole".into(),
        (0, n) => format!("{} degraded", size::count(n)),
        (n, _) => format!("{} DAMAGED", size::count(n)),
    }
}

/// In a few words, how scrubbing a pool goes.
fn state(s: &ScrubStatus) -> String {
    let late = if s.late { "LATE" } else { "good" };
    match (&s.running, s.error.is_some(), s.every_secs) {
        (Some(run), ..) => format!("{}, {} of {}", run.phase, size::count(run.done), size::count(run.total)),
        (None, true, _) => "FAILS".into(),
        (None, false, None) => "by hand".into(),
        (None, false, Some(_)) => late.into(),
    }
}

fn troubles(pools: &[PoolInfo]) -> String {
    let why =
        |p: &PoolInfo| Some(format!("{}: {}\n", printable(&p.name), printable(p.scrub.error.as_ref()?)));
    pools.iter().filter_map(why).collect()
}

/// The line of `lee pool show`.
pub fn in_short(s: &ScrubStatus) -> String {
    let last = match &s.last {
        Some(last) => format!("{}, {}", dates::minute(last.begun_secs), found(&last.found)),
        None => "never".into(),
    };
    let every = s
        .every_secs
        .map_or_else(String::new, |secs| format!("; every {}: ", when::interval(secs)) + &state(s));
    let running =
        if s.running.is_some() && s.every_secs.is_none() { format!("; {}", state(s)) } else { String::new() };
    last + &every + &running
}
