//! What an operator should look at, with the page that says what to do; copies and backups.

use crate::backup::{BackupCall, BackupStatus, Which as Backups};
use crate::console::Problem;
use crate::console::form::link;
use crate::console::help::{self, PAGES};
use crate::console::html::{Side, table, text};
use crate::console::visit::{Made, Visit, page};
use crate::control::Call;
use crate::mirror::{MirrorCall, MirrorStatus, Which as Mirrors};
use crate::summary::alarms::{Alarm, alarms};
use crate::when;
use hyper::StatusCode;
use leeward_volume::Condition;
use leeward_volume::admin::{DfShow, PoolInfo};
use maud::{Markup, PreEscaped, html};

/// A pool with less than one part in this many left is told.
const LOW_PART: u64 = 10;

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let mut all = alarms(&visit.running()?);
    visit.ask(&DfShow)?.pools.iter().for_each(|pool| all.extend(of_pool(pool)));
    let mirrors: Vec<MirrorStatus> =
        visit.list(&Call::Mirror { about: MirrorCall::Status { which: Mirrors::default() } })?;
    let backups: Vec<BackupStatus> =
        visit.list(&Call::Backup { about: BackupCall::List { which: Backups::default() } })?;
    let body = html! {
        @if all.is_empty() {
            p .told role="status" { "Nothing needs an operator." }
        } @else {
            ul .alarms { @for alarm in &all { li { (told(alarm)) } } }
        }
        p { "Prometheus watches more, over time: docs/METRICS.md has the rules." }
        h2 { "Copies in other cells" }
        (mirrors_table(&mirrors))
        h2 { "Backups" }
        (backups_table(&backups))
        h2 { "What to do" }
        h3 { "When an alert fires" }
        (pages(|name| name.starts_with("Leeward")))
        h3 { "When this is lost" }
        (pages(|name| !name.starts_with("Leeward")))
    };
    page("Alerts", "/alerts", body)
}

fn told(alarm: &Alarm) -> Markup {
    html! {
        (alarm.text)
        @if !alarm.page.is_empty() { ". " a href=(link("/help", &[("page", &alarm.page)])) { "What to do" } }
    }
}

fn of_pool(pool: &PoolInfo) -> Vec<Alarm> {
    let alarm = |text: String, page: &str| Alarm { text, page: page.into() };
    let mut all = Vec::new();
    if let Some(why) = &pool.away {
        all.push(alarm(format!("pool {} cannot be reached: {why}", pool.name), "LeewardPoolAway"));
    }
    if pool.total_bytes > 0 && pool.available_bytes < pool.total_bytes / LOW_PART {
        all.push(alarm(
            format!("pool {} has less than a tenth of its space left", pool.name),
            "LeewardSpaceLow",
        ));
    }
    for store in pool.health.iter().flat_map(|health| &health.stores) {
        let page = match store.condition {
            Condition::Ok => continue,
            Condition::Slow => "LeewardStoreSlow",
            Condition::Full => "LeewardSpaceLow",
            Condition::Failing | Condition::Missing => "LeewardStoreFailing",
        };
        all.push(alarm(format!("store {} of pool {}: {}", store.url, pool.name, store.why), page));
    }
    if pool.health.as_ref().is_some_and(|health| health.lost_objects > 0) {
        all.push(alarm(format!("objects of pool {} cannot be read", pool.name), "LeewardDamage"));
    }
    all
}

fn age(secs: Option<i64>) -> String {
    secs.map_or_else(|| "none yet".into(), |secs| format!("{} old", when::ago(secs)))
}

fn mirrors_table(all: &[MirrorStatus]) -> Markup {
    let columns = [
        ("Volume", Side::Left),
        ("To", Side::Left),
        ("Newest proven", Side::Left),
        ("Backlog", Side::Left),
        ("How it goes", Side::Left),
    ];
    let row = |one: &MirrorStatus| {
        let left = one.left_secs.map(|secs| format!("sending, {secs} s left"));
        let how = match (&one.error, one.is_bad()) {
            (Some(error), _) => html! { strong { (error) } },
            (None, true) => html! { strong { "late" } },
            (None, false) => text(left.unwrap_or_else(|| "well".into())),
        };
        vec![
            text(&one.mirror.volume),
            text(&one.mirror.to),
            text(age(one.age_secs)),
            text(one.backlog_in_words()),
            how,
        ]
    };
    let rows: Vec<Vec<Markup>> = all.iter().map(row).collect();
    table("Mirrors", &columns, &rows, "None: `lee mirror add VOLUME --to CELL` keeps one.")
}

fn backups_table(all: &[BackupStatus]) -> Markup {
    let columns = [
        ("Volume", Side::Left),
        ("To", Side::Left),
        ("Last", Side::Left),
        ("Tested", Side::Left),
        ("How it goes", Side::Left),
    ];
    let row = |one: &BackupStatus| {
        let how = if one.is_bad() {
            html! { strong { (one.why_bad()) } }
        } else {
            text("well")
        };
        vec![
            text(&one.backup.volume),
            text(&one.backup.to),
            text(age(one.age_secs)),
            text(age(one.test_age_secs)),
            how,
        ]
    };
    let rows: Vec<Vec<Markup>> = all.iter().map(row).collect();
    table("Backups", &columns, &rows, "None: `lee backup add VOLUME --to STORE` keeps one.")
}

fn pages(is_wanted: impl Fn(&str) -> bool) -> Markup {
    let wanted = PAGES.iter().map(|(name, _)| *name).filter(|name| is_wanted(name));
    html! { ul .pages { @for name in wanted { li { a href=(link("/help", &[("page", name)])) { (name) } } } } }
}

/// A page of the documentation.
pub fn help(visit: &Visit<'_>) -> Made {
    let name = visit.form().get("page");
    let none = || Problem::of(StatusCode::NOT_FOUND, format!("there is no page {name}"));
    let (title, text) = help::page(name).ok_or_else(none)?;
    page(title, "/alerts", html! { article { (PreEscaped(text)) } })
}
