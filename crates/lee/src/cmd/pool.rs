//! `lee pool`: where the data of volumes is kept.

use super::{Asked, unexpected};
use crate::fail::{Fail, text};
use crate::output::{self, Side, Table, printable};
use crate::size;
use leeward_volume::admin::{PoolInfo, Reply, Request};
use serde_json::json;
use std::path::Path;

/// Create, list, show and remove pools
///
/// A pool is one or more stores (directories, as a rule on disks of their own) and a layout: how data is kept in them. Each
/// volume names one pool for its data. The pool `default` is the directory of the cell, which also holds all metadata.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a pool
    Create {
        /// Name, unique in the cell
        name: String,
        /// How data is kept: single
        #[arg(long, default_value = "single")]
        layout: String,
        /// An empty store: a directory, or file:///DIRECTORY
        #[arg(long = "store", required = true, value_name = "URL")]
        stores: Vec<String>,
    },
    /// List all pools
    List,
    /// Show one pool
    Show {
        /// Its name
        name: String,
    },
    /// Remove a pool that nothing is in; its stores stay as they are
    Remove {
        /// Its name
        name: String,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(asked: &Asked, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, layout, stores } => {
            let stores = stores.iter().map(|store| url_of(store)).collect::<Result<Vec<_>, Fail>>()?;
            let pool = one(asked, "pool create", Request::PoolCreate { name, layout, stores })?;
            show(asked, &pool, || {
                let stores = size::counted(pool.stores.len() as u64, "store", "stores");
                let free = size::bytes(pool.available_bytes);
                format!("created pool {}, {} in {stores}, with {free} to write", pool.name, pool.layout)
            })
        }
        Action::List => {
            let reply = asked.ask("pool list", &Request::PoolList)?;
            let Reply::Pools { pools } = &reply else { return Err(unexpected(&reply)) };
            output::show(asked.format, &reply, || table(pools).to_string())
        }
        Action::Show { name } => {
            let pool = one(asked, "pool show", Request::PoolShow { name })?;
            show(asked, &pool, || details(&pool))
        }
        Action::Remove { name } => {
            asked.ask("pool remove", &Request::PoolRemove { name: name.clone() })?;
            output::show(asked.format, &json!({"reply": "done", "name": name}), || {
                format!("removed pool {name}")
            })
        }
    }
}

/// The URL of a store; a path means a directory of this machine, whatever directory the cell is served from.
fn url_of(store: &str) -> Result<String, Fail> {
    let path = match store.split_once("://") {
        Some(("file", path)) => path,
        Some(_) => return Ok(store.into()),
        None => store,
    };
    let wrong = |what: &str| Fail::new(format!("{}: {what}", printable(store)));
    let path = Path::new(path)
        .canonicalize()
        .map_err(|e| wrong(&format!("{}: name an existing, empty directory", text(&e))))?;
    if !path.is_dir() {
        return Err(wrong("not a directory: name an existing, empty directory"));
    }
    let path = path.to_str().ok_or_else(|| wrong("its path is not UTF-8"))?;
    Ok(format!("file://{path}"))
}

fn table(pools: &[PoolInfo]) -> Table {
    Table::new(&[
        ("POOL", Side::Left),
        ("LAYOUT", Side::Left),
        ("STORES", Side::Right),
        ("SIZE", Side::Right),
        ("FREE", Side::Right),
        ("STORED", Side::Right),
        ("VOLUMES", Side::Right),
        ("STATE", Side::Left),
    ])
    .rows(pools, |pool| {
        [
            pool.name.clone(),
            pool.layout.clone(),
            size::count(pool.stores.len().max(1) as u64),
            size::bytes(pool.total_bytes),
            size::bytes(pool.available_bytes),
            size::bytes(pool.object_bytes),
            size::count(pool.volumes.len() as u64),
            state(pool).into(),
        ]
    })
}

fn state(pool: &PoolInfo) -> &'static str {
    if pool.away.is_some() { "away" } else { "in use" }
}

fn details(pool: &PoolInfo) -> String {
    let mut text = [
        ("pool", pool.name.clone()),
        ("number", pool.id.to_string()),
        ("layout", pool.layout.clone()),
        ("size", size::bytes(pool.total_bytes)),
        ("free", size::bytes(pool.available_bytes)),
        (
            "stored",
            format!(
                "{} in {}",
                size::bytes(pool.object_bytes),
                size::counted(pool.objects, "object", "objects")
            ),
        ),
        ("live", size::bytes(pool.live_bytes)),
        ("in memory", size::bytes(pool.dirty_bytes)),
        ("volumes", pool.volumes.join(", ")),
        ("state", state(pool).to_string()),
    ]
    .map(|(name, value)| format!("{}\n", format!("{name:<12} {}", printable(&value)).trim_end()))
    .concat();
    if let Some(why) = &pool.away {
        text.push_str(&format!("{:<12} {}\n", "because", printable(why)));
    }
    for store in &pool.stores {
        text.push_str(&format!("{:<12} {}\n", format!("store {}", store.slot), printable(&store.url)));
    }
    text
}

fn one(asked: &Asked, command: &'static str, request: Request) -> Result<PoolInfo, Fail> {
    match asked.ask(command, &request)? {
        Reply::Pool(pool) => Ok(pool),
        other => Err(unexpected(&other)),
    }
}

fn show(asked: &Asked, pool: &PoolInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::show(asked.format, &Reply::Pool(pool.clone()), text)
}
