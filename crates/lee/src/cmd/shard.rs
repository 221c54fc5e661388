//! `lee shard`: the parts of a cell that work side by side.

use super::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::{session, size};
use leeward_volume::admin::{ShardAdd, ShardList};

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
    /// Give the cell more shards, which it has from `lee restart` on
    ///
    /// Volumes stay where they are, and new ones come in the new shards. A cell has at most 32. It
    /// cannot have fewer again. Other pools than the cell's own, and limits of users everywhere,
    /// are only for cells of one shard; the volumes of projects stay in the first one.
    Add {
        /// How many
        #[arg(default_value_t = 1)]
        count: usize,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::List => list(invocation),
        Action::Add { count } => add(invocation, count),
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

fn add(invocation: &Invocation, count: usize) -> Result<(), Fail> {
    let cell = invocation.cell()?;
    let added =
        session::with(&invocation.env, &cell, "shard add", |session| session.ask(&ShardAdd { count }))?;
    output::reply(invocation.format, &added, || {
        let then = size::counted(added.then as u64, "shard", "shards");
        format!("{cell} has {then} as soon as it is served anew: lee restart, or lee up")
    })
}
