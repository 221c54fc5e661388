//! `lee pool`: where the data of volumes is kept.

use super::Invocation;
use crate::fail::{Fail, text};
use crate::output::{self, Side, Table, printable};
use crate::size;
use leeward_bucket::BucketUrl;
use leeward_volume::admin::{self, PoolInfo, StoreChange};
use leeward_volume::{Condition, Health, Layout, StoreState};
use serde_json::json;
use std::path::Path;

/// Create, list, show and remove pools and their stores, and put one in front of another
///
/// A pool has one or more stores and a layout. A store is a directory, as a rule on a disk of its
/// own, or a bucket of an object store. The layout says how data is kept in the stores. Each volume
/// names one pool for its data. The pool `default` is the directory of the cell, which also holds
/// all metadata.
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
        /// How data is kept: single, replica(COPIES) or erasure(DATA+PARITY)
        #[arg(long, default_value = "single")]
        layout: String,
        /// An empty store: a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, or
        /// s3://BUCKET/PREFIX?profile=NAME with the place and the keys of a profile in ~/.aws; as
        /// many as the layout counts
        #[arg(long = "store", required = true, value_name = "URL")]
        stores: Vec<String>,
        /// Allow stores on one disk or server, whose loss may take them all
        #[arg(long)]
        force: bool,
    },
    /// List all pools
    List,
    /// Show one pool
    Show {
        /// Its name
        name: String,
    },
    /// Remove an empty pool
    Remove {
        /// Its name
        name: String,
    },
    /// Put a fast pool in front of another one, or take it away again
    ///
    /// New data goes to the hot pool and is copied (flushed) to the cold one later. When the hot
    /// pool gets full, copied data is deleted from it (evicted). When it fills faster than it is
    /// emptied, writers are slowed more and more.
    Tier(TierArgs),
    /// Add, drain, replace and remove stores of a pool
    Store(StoreArgs),
}

#[derive(Debug, clap::Args)]
struct TierArgs {
    /// The cold pool, which keeps all data in the end
    cold: String,
    /// The hot pool in front of it, which nothing else may use
    #[arg(long, value_name = "POOL", required_unless_present = "none")]
    hot: Option<String>,
    /// Copy data to the cold pool above this percentage of the hot one
    #[arg(long, value_name = "PERCENT", default_value_t = 40, requires = "hot")]
    flush: u8,
    /// Delete copied data from the hot pool above this percentage, and slow writers down
    #[arg(long, value_name = "PERCENT", default_value_t = 80, requires = "hot")]
    evict: u8,
    /// Empty the hot pool, then take it away; this goes on when the command is ended early
    #[arg(long, conflicts_with = "hot")]
    none: bool,
    /// Do not wait until the hot pool is empty
    #[arg(long, requires = "none")]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
struct StoreArgs {
    #[command(subcommand)]
    action: StoreAction,
    /// Allow stores on one disk or server, whose loss may take them all
    #[arg(long, global = true)]
    force: bool,
    /// Allow the loss of data that cannot be rebuilt
    #[arg(long, global = true)]
    lose_data: bool,
}

#[derive(Debug, clap::Subcommand)]
enum StoreAction {
    /// Put a new store in the place of one that was given up, and rebuild its content
    Add {
        /// The pool
        pool: String,
        /// The new store, empty
        url: String,
    },
    /// Move the content of a store to a new one, which takes its place; after that, take the old
    /// one out with `remove`
    Drain {
        /// The pool
        pool: String,
        /// The store: its URL, or its number in `lee pool show`
        store: String,
        /// The new store, empty
        #[arg(long, value_name = "URL")]
        to: String,
    },
    /// Put a new store in the place of a lost one, and rebuild its content from the others
    Replace {
        /// The pool
        pool: String,
        /// The store: its URL, or its number in `lee pool show`
        store: String,
        /// The new store, empty
        #[arg(long, value_name = "URL")]
        by: String,
    },
    /// Give a store up, or take it out after it was drained
    Remove {
        /// The pool
        pool: String,
        /// The store: its URL, or its number in `lee pool show`
        store: String,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, layout, stores, force } => {
            let stores = stores.iter().map(|store| url_of(store)).collect::<Result<Vec<_>, Fail>>()?;
            let request = admin::PoolCreate { name, layout, stores, force };
            let pool = invocation.ask("pool create", &request)?;
            show(invocation, &pool, || {
                let stores = size::counted(pool.stores.len() as u64, "store", "stores");
                let free = size::bytes(pool.available_bytes);
                format!("created pool {}, {} in {stores}, with {free} to write", pool.name, pool.layout)
            })
        }
        Action::List => {
            let reply = invocation.ask("pool list", &admin::PoolList)?;
            output::reply(invocation.format, &reply, || table(&reply.pools).to_string())
        }
        Action::Show { name } => {
            let pool = invocation.ask("pool show", &admin::PoolShow { name })?;
            show(invocation, &pool, || details(&pool))
        }
        Action::Remove { name } => {
            invocation.ask("pool remove", &admin::PoolRemove { name: name.clone() })?;
            output::show(invocation.format, &json!({"reply": "done", "name": name}), || {
                format!("removed pool {name}")
            })
        }
        Action::Tier(args) => tier(invocation, args),
        Action::Store(args) => change_store(invocation, args),
    }
}

fn tier(invocation: &Invocation, args: TierArgs) -> Result<(), Fail> {
    let (name, wait) = (args.cold, !args.no_wait);
    let Some(hot) = args.hot else { return untier(invocation, name, wait) };
    let request = admin::PoolTier { name, hot, flush_percent: args.flush, evict_percent: args.evict };
    let pool = invocation.ask("pool tier", &request)?;
    show(invocation, &pool, || match &pool.tier {
        Some(tier) => format!(
            "pool {} is in front of pool {}; it is copied there from {} % on, and emptied from {} % on",
            tier.hot, pool.name, tier.flush_percent, tier.evict_percent
        ),
        None => format!("pool {} has no hot pool", pool.name),
    })
}

fn untier(invocation: &Invocation, name: String, wait: bool) -> Result<(), Fail> {
    let pool = invocation.ask_with_bar("pool tier", &admin::PoolUntier { name, wait })?;
    show(invocation, &pool, || match &pool.tier {
        Some(tier) => format!(
            "nothing goes to pool {} any more; what is there is copied to pool {} in the background",
            tier.hot, pool.name
        ),
        None => format!("pool {} has all its data; nothing is in front of it", pool.name),
    })
}

fn change_store(invocation: &Invocation, args: StoreArgs) -> Result<(), Fail> {
    let StoreArgs { action, force, lose_data } = args;
    let (name, change, done) = match action {
        StoreAction::Add { pool, url } => {
            let url = url_of(&url)?;
            (
                pool,
                StoreChange::Add { url: url.clone() },
                format!("{url} is a store now, and is being filled"),
            )
        }
        StoreAction::Drain { pool, store, to } => {
            let (store, to) = (named(&store), url_of(&to)?);
            let done = format!("what is on store {store} is being moved to {to}");
            (pool, StoreChange::Drain { store, to }, done)
        }
        StoreAction::Replace { pool, store, by } => {
            let (store, by) = (named(&store), url_of(&by)?);
            let done = format!("{by} takes the place of store {store}, and is being filled");
            (pool, StoreChange::Replace { store, by }, done)
        }
        StoreAction::Remove { pool, store } => {
            let store = named(&store);
            let done = format!("store {store} is not used any more");
            (pool, StoreChange::Remove { store }, done)
        }
    };
    let pool = invocation.ask("pool store", &admin::PoolStore { name, change, force, lose_data })?;
    show(invocation, &pool, || {
        format!("pool {}: {done}; lee pool show {} says how far that is", pool.name, pool.name)
    })
}

/// Names a store that the pool has already. Its directory may be gone.
fn named(store: &str) -> String {
    let is_number = store.chars().all(|c| c.is_ascii_digit());
    if is_number || store.contains("://") {
        return BucketUrl::parse(store).map_or_else(|_| store.into(), |url| url.to_string());
    }
    url_of(store).unwrap_or_else(|_| match Path::new(store).is_absolute() {
        true => format!("file://{store}"),
        false => store.into(),
    })
}

/// The URL of a store, always written in the same way. A path means a directory of this machine,
/// relative to the current directory.
fn url_of(store: &str) -> Result<String, Fail> {
    let wrong = |what: &str| Fail::new(format!("{}: {what}", printable(store)));
    let path = match store.split_once("://") {
        Some(("file", path)) => path,
        Some(("s3", _)) => {
            let url = BucketUrl::parse(store).map_err(|e| Fail::new(printable(&e.to_string())))?;
            return Ok(url.to_string());
        }
        Some(_) => return Err(wrong("a store is a directory, or a bucket: s3://BUCKET/PREFIX")),
        None => store,
    };
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
            size::count(pool.volume_count),
            [state(pool).into(), tier_in_short(pool)].concat(),
        ]
    })
}

/// The volumes whose data is there: the first, and how many more.
fn volumes(pool: &PoolInfo) -> String {
    match pool.volume_count.saturating_sub(pool.volumes.len() as u64) {
        0 => pool.volumes.join(", "),
        more => format!("{} and {} more", pool.volumes.join(", "), size::count(more)),
    }
}

fn state(pool: &PoolInfo) -> &'static str {
    if pool.away.is_some() {
        return "away";
    }
    let Some(health) = &pool.health else {
        return "in use";
    };
    let troubled = health.stores.iter().any(|s| s.condition != Condition::Ok);
    match (health.lost_objects, health.degraded_objects) {
        (0, 0) if troubled => "stores failing",
        (0, 0) => "in use",
        (0, _) => "degraded",
        _ => "data lost",
    }
}

/// The part of a pool in a tier, for a list.
fn tier_in_short(pool: &PoolInfo) -> String {
    if let Some(cold) = &pool.hot_of {
        return format!(", in front of {cold}");
    }
    let (Some(info), Some(now)) = (&pool.tier, pool.health.as_ref().and_then(|health| health.tier.as_ref()))
    else {
        return String::new();
    };
    let slowed = if now.pressure_percent > 0 { ", writers slowed" } else { "" };
    let (used, left) = (now.hot_used_percent, size::bytes(now.unflushed_bytes));
    format!(", behind {}: {used} % full, {left} to flush{slowed}", info.hot)
}

fn tier_lines(pool: &PoolInfo) -> String {
    if let Some(cold) = &pool.hot_of {
        return format!("{:<12} in front of pool {}\n", "tier", printable(cold));
    }
    let Some(info) = &pool.tier else { return String::new() };
    let what = match info.ending {
        true => format!("pool {} in front, which is being emptied", printable(&info.hot)),
        false => format!(
            "pool {} in front; flushed from {} % on, evicted from {} % on",
            printable(&info.hot),
            info.flush_percent,
            info.evict_percent
        ),
    };
    let mut lines = vec![("tier", what)];
    if let Some(now) = pool.health.as_ref().and_then(|health| health.tier.as_ref()) {
        let (objects, so_far) = (
            size::counted(now.unflushed_objects, "object", "objects"),
            if now.searched { "" } else { " so far; still looking" },
        );
        lines.push((
            "hot pool",
            format!("{} % of {} used", now.hot_used_percent, size::bytes(now.hot_total_bytes)),
        ));
        lines.push(("to flush", format!("{} in {objects}{so_far}", size::bytes(now.unflushed_bytes))));
        lines.push(("to evict", size::bytes(now.evictable_bytes)));
        let writers = match now.pressure_percent {
            0 => "not slowed".to_string(),
            part => format!("slowed: they flush {part} % of what they write themselves"),
        };
        lines.push(("writers", writers));
        if !now.last_error.is_empty() {
            lines.push(("flush fails", printable(&now.last_error)));
        }
    }
    lines.into_iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
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
        ("volumes", volumes(pool)),
        ("state", state(pool).to_string()),
    ]
    .map(|(name, value)| format!("{}\n", format!("{name:<12} {}", printable(&value)).trim_end()))
    .concat();
    if let Some(why) = &pool.away {
        text.push_str(&format!("{:<12} {}\n", "because", printable(why)));
    }
    text.push_str(&tier_lines(pool));
    if pool.hot_of.is_none() {
        text.push_str(&format!("{:<12} {}\n", "scrubbed", super::scrub::in_short(&pool.scrub)));
    }
    if let Some(health) = &pool.health {
        text.push_str(&health_lines(health));
    } else {
        for store in &pool.stores {
            text.push_str(&format!("{:<12} {}\n", format!("store {}", store.slot), printable(&store.url)));
        }
    }
    text
}

fn health_lines(health: &Health) -> String {
    let counted = |n| size::counted(n, "object", "objects");
    let mut lines = Vec::new();
    if health.layout != Layout::Single {
        lines.push((
            "may lose".to_string(),
            size::counted(health.may_lose.into(), "more store", "more stores"),
        ));
        let degraded = match (health.degraded_objects, health.searched) {
            (n, true) => format!("{} with pieces missing", counted(n)),
            (n, false) => format!("{} with pieces missing so far; still looking", counted(n)),
        };
        lines.push(("degraded".to_string(), degraded));
        let repair = &health.repair;
        let repaired =
            format!("{} done, {} to do", counted(repair.objects_done), counted(repair.objects_waiting));
        lines.push(("repair".to_string(), repaired));
    }
    lines.push(("lost".to_string(), format!("{}; lee fsck names the files", counted(health.lost_objects))));
    for store in &health.stores {
        let state = match (store.state, store.condition) {
            (StoreState::Draining, _) => "being emptied, ",
            (StoreState::Missing, _) => "given up, ",
            (StoreState::Active, _) => "",
        };
        let condition = match store.condition {
            Condition::Ok => "ok",
            Condition::Slow => "slow",
            Condition::Full => "full",
            Condition::Failing => "failing",
            Condition::Missing => "missing",
        };
        let why = if store.why.is_empty() { String::new() } else { format!(" ({})", printable(&store.why)) };
        let bad = match store.bad_pieces {
            0 => String::new(),
            n => format!(", {}", size::counted(n, "bad piece", "bad pieces")),
        };
        lines.push((
            format!("store {}", store.slot),
            format!("{}: {state}{condition}{why}{bad}", printable(&store.url)),
        ));
    }
    lines.into_iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

fn show(invocation: &Invocation, pool: &PoolInfo, text: impl FnOnce() -> String) -> Result<(), Fail> {
    output::reply(invocation.format, pool, text)
}
