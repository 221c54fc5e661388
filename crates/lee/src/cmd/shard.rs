//! `lee shard`: the parts of a cell that work side by side.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::size;
use leeward_volume::admin::ShardList;
use leeward_volume::{Cell, Config};
use serde_json::json;
use std::path::PathBuf;

/// List the shards of a cell, and give it more
///
/// A shard is a part of the volumes of a cell, with a lock and commits of its own: so a cell uses
/// as many processors as it has shards, where they all have work. A volume is in one shard. A new
/// one comes in the shard of its project or of the volume that it is attached in, else where there
/// are the fewest (`lee volume create --shard` says another). A cell has one shard until you add
/// some; each takes its share of the memory for caches.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all shards
    List,
    /// Give a cell in a directory more shards, while nothing serves it
    ///
    /// Volumes stay where they are, and new ones come in the new shards. A cell has at most 32. It
    /// cannot have fewer again, and an older lee refuses it from then on. Tiers, and limits of
    /// users in all volumes together, are only for cells of one shard; the volumes of projects stay
    /// in the first one.
    Add {
        /// How many
        #[arg(default_value_t = 1)]
        count: usize,
        /// Directory of the cell
        dir: Option<PathBuf>,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says; it is in use, or in a bucket.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::List => list(invocation),
        Action::Add { count, dir } => add(invocation, count, dir),
    }
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("shard list", &ShardList {})?;
    output::reply(invocation.format, &reply, || {
        let columns = [
            ("SHARD", Side::Right),
            ("VOLUMES", Side::Right),
            ("DATA", Side::Right),
            ("METADATA", Side::Right),
            ("OPERATIONS", Side::Right),
            ("COMMITS", Side::Right),
        ];
        let table = Table::new(&columns).rows(&reply.shards, |shard| {
            [
                shard.shard.to_string(),
                size::count(shard.volumes),
                size::bytes(shard.object_bytes),
                size::bytes(shard.metadata_bytes),
                size::count(shard.operations),
                size::count(shard.commits),
            ]
        });
        table.to_string()
    })
}

fn add(invocation: &Invocation, count: usize, dir: Option<PathBuf>) -> Result<(), Fail> {
    let cell = invocation.cell_or(dir.as_deref())?;
    if cell.place().is_some() {
        return Err(Fail::new(format!("{cell} is in a bucket: only cells in directories get more shards")));
    }
    if count == 0 {
        return Err(Fail::usage("add at least one shard"));
    }
    let added = Cell::add_shards(&invocation.env, cell.path(), &Config::default(), count);
    let shards = added.map_err(|failure| match failure.errno {
        libc::EBUSY => Fail::new(format!("{cell} is being served: lee down first, then add shards")),
        _ => failure.into(),
    })?;
    let value = json!({"cell": cell.name(), "added": count, "shards": shards});
    output::show(invocation.format, &value, || {
        format!("{cell} has {} now; lee up serves it again", size::counted(shards as u64, "shard", "shards"))
    })
}
