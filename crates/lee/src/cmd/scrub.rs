//! `lee scrub`: reads and verifies all data in pools, and repairs what can be. Exit code 0: all is whole, 1: something is lost or
//! still lacks pieces, 2: could not scrub.

use super::{Asked, unexpected};
use crate::fail::Fail;
use crate::output;
use crate::progress::Bar;
use crate::size;
use leeward_volume::admin::{Progress, Reply, Request, ScrubInfo};
use std::process::ExitCode;

const COULD_NOT_SCRUB: u8 = 2;

/// Read and verify all data in a pool, or in all, and repair what can be
///
/// Pools that keep more than one copy are repaired; in others damage is found. `lee fsck` names the files that lost something.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool [default: all]
    pool: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When it could not read everything.
pub fn run(asked: &Asked, args: Args) -> Result<ExitCode, Fail> {
    scrub(asked, args).map_err(|fail| fail.with_code(COULD_NOT_SCRUB))
}

fn scrub(asked: &Asked, args: Args) -> Result<ExitCode, Fail> {
    let bar = Bar::new(asked.format);
    let request = Request::Scrub { pool: args.pool };
    let asking = |progress: Progress| bar.show(&progress);
    let reply = asked.session("scrub", |_, session| session.ask_with_progress(&request, &mut { asking }));
    bar.clear();
    let reply = reply?;
    let Reply::Scrubbed { pools } = &reply else { return Err(unexpected(&reply)) };
    output::show(asked.format, &reply, || pools.iter().map(line).collect())?;
    let whole = pools.iter().all(|p| p.lost_objects == 0 && p.degraded_objects == 0);
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(pool: &ScrubInfo) -> String {
    let mut line = format!("pool {}: {} read", pool.pool, size::bytes(pool.bytes));
    if pool.bad_pieces + pool.repaired_pieces > 0 {
        let bad = size::counted(pool.bad_pieces, "bad piece", "bad pieces");
        line.push_str(&format!(", {bad} found, {} repaired", size::count(pool.repaired_pieces)));
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
