//! `lee df`: the space of the cell.

use super::Invocation;
use crate::fail::Fail;
use crate::{output, size};
use leeward_volume::admin::{self, Df, PoolInfo};

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation) -> Result<(), Fail> {
    let df = invocation.ask("df", &admin::DfShow)?;
    output::reply(invocation.format, &df, || text(&df))
}

fn text(df: &Df) -> String {
    let stored = df.segment_bytes + df.metadata_bytes;
    [
        ("disk below", size::bytes(df.total_bytes), "size of the file system that the cell is on"),
        ("available", size::bytes(df.available_bytes), "what users may still write"),
        ("stored", size::bytes(stored), "what the cell takes there, in all"),
        (
            "  data",
            size::bytes(df.segment_bytes),
            &format!("in {}", size::counted(df.segments, "segment", "segments")),
        ),
        ("  metadata", size::bytes(df.metadata_bytes), "tables and journal"),
        ("live", size::bytes(df.live_bytes), "what users' files hold, before compression"),
        ("in memory", size::bytes(df.dirty_bytes), "written, and not yet stored"),
        ("to reclaim", size::bytes(df.reclaim_bytes), "waits for cleaning in the background"),
    ]
    .map(|(name, value, meaning)| format!("{name:<11} {value:>9}   {meaning}\n"))
    .concat()
        + &others(df)
}

/// The other pools, where there are any.
fn others(df: &Df) -> String {
    let others = df.pools.iter().filter(|pool| pool.id != 0);
    let line = |pool: &PoolInfo| {
        let (free, size) = (size::bytes(pool.available_bytes), size::bytes(pool.total_bytes));
        if let Some(cold) = &pool.hot_of {
            return format!("pool {}: {free} of {size} free, in front of pool {cold}\n", pool.name);
        }
        let away = if pool.away.is_some() { ", away" } else { "" };
        format!(
            "pool {}: {free} of {size} available, {} stored{away}\n",
            pool.name,
            size::bytes(pool.object_bytes)
        )
    };
    others.map(line).collect()
}
