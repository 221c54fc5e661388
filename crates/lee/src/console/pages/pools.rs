//! Pools and their stores.

use super::now::duration;
use crate::console::html::{Side, facts, share, table, text};
use crate::console::visit::{Made, Visit, page};
use crate::{size, when};
use leeward_volume::admin::{DfShow, PoolInfo};
use leeward_volume::{Condition, Health, StoreState};
use maud::{Markup, html};

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let df = visit.ask(&DfShow)?;
    let now = visit.now_secs();
    let body = html! {
        (facts(&[
            ("Live data", text(size::bytes(df.live_bytes))),
            ("On disks", text(size::bytes(df.segment_bytes))),
            ("Metadata", text(size::bytes(df.metadata_bytes))),
            ("In memory, not stored yet", text(size::bytes(df.dirty_bytes))),
            ("To be freed", text(size::bytes(df.reclaim_bytes))),
        ]))
        @for pool in &df.pools { (of(pool, now)) }
    };
    page("Pools", "/pools", body)
}

fn of(pool: &PoolInfo, now: i64) -> Markup {
    let used = pool.total_bytes.saturating_sub(pool.available_bytes);
    let scrubbed = pool.scrub.last.as_ref().map_or_else(|| "never".into(), |pass| when::utc(pass.ended_secs));
    html! {
        section {
            h2 { "Pool " (pool.name) }
            @if let Some(why) = &pool.away { p .told.bad role="status" { "It cannot be reached: " (why) } }
            (facts(&[
                ("Layout", text(&pool.layout)),
                ("Space", html! { (size::bytes(used)) " of " (size::bytes(pool.total_bytes)) " " (share(used, pool.total_bytes)) }),
                ("Objects", html! { (size::count(pool.objects)) ", " (size::bytes(pool.object_bytes)) }),
                ("Live data", text(size::bytes(pool.live_bytes))),
                ("Last scrub", html! { (scrubbed) @if pool.scrub.late { " " strong { "late" } } }),
                ("Volumes", text(size::count(pool.volume_count))),
            ]))
            @if let Some(tier) = &pool.tier { p { "Pool " (tier.hot) " is in front of it." } }
            @if let Some(run) = &pool.scrub.running {
                p { "A scrub has been running since " (when::utc(run.begun_secs)) " (" (when::ago(now - run.begun_secs)) "): " (run.phase) "." }
            }
            @if let Some(health) = &pool.health { (how(health)) } @else { (stores(pool)) }
        }
    }
}

/// How it is.
fn how(health: &Health) -> Markup {
    let columns = [
        ("Store", Side::Left),
        ("Slot", Side::Right),
        ("State", Side::Left),
        ("How it is", Side::Left),
        ("Reads, 95 % within", Side::Right),
        ("Errors", Side::Right),
        ("Bad pieces", Side::Right),
    ];
    let row = |store: &leeward_volume::StoreHealth| {
        let figures = &store.figures;
        let errors = figures.get.errors + figures.put.errors + figures.delete.errors;
        let how = match store.condition {
            Condition::Ok => text("well"),
            _ => html! { strong { (condition(store.condition)) } ": " (store.why) },
        };
        vec![
            text(&store.url),
            text(store.slot.to_string()),
            text(state(store.state)),
            how,
            text(if store.get_p95_nanos == 0 { "-".into() } else { duration(store.get_p95_nanos) }),
            text(size::count(errors)),
            text(size::count(store.bad_pieces)),
        ]
    };
    let rows: Vec<Vec<Markup>> = health.stores.iter().map(row).collect();
    let lacking = match (health.lost_objects, health.degraded_objects) {
        (0, 0) => "No object is known to lack pieces.".into(),
        (0, degraded) => {
            format!("{} lack pieces, which are being rebuilt.", size::counted(degraded, "object", "objects"))
        }
        (lost, _) => {
            format!("{} cannot be read until stores come back.", size::counted(lost, "object", "objects"))
        }
    };
    html! {
        p { "It may lose " (size::counted(health.may_lose.into(), "more store", "more stores")) " without losing data. " (lacking) }
        (table("Stores", &columns, &rows, "It has no stores."))
    }
}

fn condition(condition: Condition) -> &'static str {
    match condition {
        Condition::Ok => "well",
        Condition::Slow => "slow",
        Condition::Full => "full",
        Condition::Failing => "failing",
        Condition::Missing => "missing",
    }
}

fn state(state: StoreState) -> &'static str {
    match state {
        StoreState::Active => "active",
        StoreState::Draining => "draining",
        StoreState::Missing => "given up",
    }
}

fn stores(pool: &PoolInfo) -> Markup {
    let columns = [("Store", Side::Left), ("State", Side::Left)];
    let row = |store: &leeward_volume::admin::StoreInfo| vec![text(&store.url), text(state(store.state))];
    let rows: Vec<Vec<Markup>> = pool.stores.iter().map(row).collect();
    table("Stores", &columns, &rows, "The cell's own directory or bucket.")
}
