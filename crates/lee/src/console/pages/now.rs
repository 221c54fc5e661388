//! What goes on now: who does what, who waits behind whom, what took long and why, and what to do.

use crate::console::history::{Look, since};
use crate::console::html::{self, Page, Side, facts, table, text, to};
use crate::console::visit::{Made, Visit};
use crate::console::{Problem, Reply};
use crate::control::Flows;
use crate::size;
use crate::summary::alarms::alarms;
use crate::summary::rates::{self, Order, Row, Shown, rates};
use crate::summary::waits::{self, Of, explain, lost_text};
use leeward_volume::admin::DfShow;
use maud::{Markup, html};

/// Rows of each list.
const ROWS: usize = 20;
/// A user with more than this share of the work is named, where others wait behind.
const LARGE_SHARE: f64 = 0.4;
/// A rate over a shorter time says nothing, seconds.
const SECS_MIN: f64 = 0.2;

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    // first, so that nothing is from before it
    let looks = visit.looks();
    let flows = visit.flows()?;
    let before = looks.as_ref().map(|(before, _)| before.report.clone()).unwrap_or_default();
    let shown = rates(&Flows { report: before, ..Flows::default() }, &flows, Order::Share);
    let of_cell = if visit.is_operator() {
        of_cell(visit)?
    } else {
        html! {}
    };
    let operations = match &looks {
        Some((before, now)) if visit.is_operator() => operations(before, now),
        _ => html! {},
    };
    let body = html! {
        (of_cell)
        (tiles(&shown))
        (what_to_do(&shown))
        h2 { "Who does what" }
        (work(&shown, visit.is_operator()))
        (operations)
        h2 { "What took long" }
        (slow(&flows))
    };
    Ok(Reply::Page(Page { title: "Now".into(), at: "", is_live: true, body }))
}

/// What an operator should know of the cell.
fn of_cell(visit: &Visit<'_>) -> Result<Markup, Problem> {
    let running = visit.running()?;
    let df = visit.ask(&DfShow)?;
    let alarms = alarms(&running).len() as u64;
    Ok(html! {
        @if alarms > 0 {
            p .told.bad role="status" {
                a href="/console/alerts" { (size::counted(alarms, "alert", "alerts")) } " to look at"
            }
        }
        (facts(&[
            ("Space left", html! { (size::bytes(df.available_bytes)) " of " (size::bytes(df.total_bytes)) }),
            ("Volumes", to("/volumes", &[], &size::count(running.volumes))),
            ("Snapshots", text(size::count(running.snapshots))),
            ("Machines", to("/machines", &[], &size::count(running.sessions))),
        ]))
    })
}

fn tiles(shown: &Shown) -> Markup {
    facts(&[
        ("Operations a second", text(per_second(shown.operations_per_second, shown.seconds))),
        ("Wait for their turn", text(size::count(shown.waiting_for_turn))),
        ("Wait for their ceiling", text(size::count(shown.waiting_for_ceiling))),
        ("Wait for a thread", text(size::count(shown.waiting_for_thread))),
        ("In memory, not stored yet", text(size::bytes(shown.dirty_bytes))),
    ])
}

fn per_second(rate: f64, secs: f64) -> String {
    if secs < SECS_MIN { "-".into() } else { size::count(rate.round() as u64) }
}

/// Sentences about who hurts whom, and what helps.
fn what_to_do(shown: &Shown) -> Markup {
    let told = advice(&shown.flows, shown.waiting_for_ceiling);
    html! { @if !told.is_empty() { h2 { "What to do" } ul { @for sentence in &told { li { (html::sentence(sentence)) } } } } }
}

fn advice(flows: &[Row], waiting_for_ceiling: u64) -> Vec<String> {
    let mut told = Vec::new();
    for row in flows.iter().filter(|row| row.share > LARGE_SHARE) {
        let waits = |other: &&Row| other.uid != row.uid && other.waited_behind.as_ref() == Some(&row.user);
        let behind =
            flows.iter().filter(waits).map(|row| &row.user).collect::<std::collections::BTreeSet<_>>();
        if !behind.is_empty() {
            told.push(format!(
                "{} does {:.0} % of the work, and {} waited behind: each still gets an equal share. To give \
                 {} less: `lee flow limit {} --ops N`, or a lower weight with `lee flow weight`.",
                row.user,
                row.share * 100.0,
                size::counted(behind.len() as u64, "user", "users"),
                row.user,
                row.user
            ));
        }
    }
    if waiting_for_ceiling > 0 {
        told.push("Requests wait for the ceiling of their user: `lee flow list` shows who has one.".into());
    }
    let for_machine = flows.iter().filter_map(|row| row.waited_for_machine.as_ref()).next();
    if let Some(host) = for_machine {
        told.push(format!(
            "Users wait for {host} to give leases back. If it hangs, it is cut off after 6 s; `lee session list` shows it."
        ));
    }
    told
}

fn work(shown: &Shown, is_operator: bool) -> Markup {
    let columns = [
        ("User", Side::Left),
        ("Volume", Side::Left),
        ("Door", Side::Left),
        ("Ops/s", Side::Right),
        ("Read/s", Side::Right),
        ("Write/s", Side::Right),
        ("Share", Side::Right),
        ("ms/op", Side::Right),
        ("Waited", Side::Right),
        ("For", Side::Left),
        ("Behind", Side::Left),
    ];
    let row = |row: &Row| {
        let waited = row.waited_milliseconds_per_operation / row.milliseconds_per_operation.max(1e-9);
        let job = row.job.as_ref().map_or_else(String::new, |job| format!(" ({job})"));
        let volume = match is_operator && row.volume != "(snapshots)" {
            true => to("/volume", &[("name", &row.volume)], &row.volume),
            false => text(&row.volume),
        };
        vec![
            text(format!("{}{job}", row.user)),
            volume,
            text(rates::door(row)),
            text(per_second(row.operations_per_second, shown.seconds)),
            text(size::bytes(row.read_bytes_per_second as u64)),
            text(size::bytes(row.written_bytes_per_second as u64)),
            text(format!("{:.0} %", row.share * 100.0)),
            text(format!("{:.2}", row.milliseconds_per_operation)),
            text(format!("{:.0} %", waited.min(1.0) * 100.0)),
            text(row.waited_for.as_deref().unwrap_or("-")),
            text(rates::behind(row)),
        ]
    };
    let rows: Vec<Vec<Markup>> = shown.flows.iter().take(ROWS).map(row).collect();
    let caption = format!("Work of the last {:.0} seconds", shown.seconds.max(1.0));
    table(&caption, &columns, &rows, "Nobody does anything at the moment.")
}

/// How long operations took since the look before, by door and kind.
fn operations(before: &Look, now: &Look) -> Markup {
    let mut all = Vec::new();
    for op in &now.operations {
        let is_same = |other: &&leeward_vfs::ledger::OpReport| {
            (other.door, other.operation, other.class) == (op.door, op.operation, op.class)
        };
        let took = since(&op.latency, before.operations.iter().find(is_same).map(|other| &other.latency));
        if took.count() > 0 {
            all.push((op, took));
        }
    }
    all.sort_by_key(|(_, took)| std::cmp::Reverse(took.count()));
    let columns = [
        ("Operation", Side::Left),
        ("Door", Side::Left),
        ("Class", Side::Left),
        ("Count", Side::Right),
        ("Half within", Side::Right),
        ("99 % within", Side::Right),
    ];
    let row = |(op, took): &(&leeward_vfs::ledger::OpReport, leeward_env::histogram::Histogram)| {
        vec![
            text(op.operation),
            text(op.door.name()),
            text(op.class),
            text(size::count(took.count())),
            text(duration(took.quantile(0.5))),
            text(duration(took.quantile(0.99))),
        ]
    };
    let rows: Vec<Vec<Markup>> = all.iter().take(ROWS).map(row).collect();
    html! {
        h2 { "How long operations take" }
        (table("Latency by operation and door", &columns, &rows, "Nothing was done in the last seconds."))
    }
}

/// `250 µs`, `3.2 ms`, `1.5 s`.
pub fn duration(nanos: u64) -> String {
    match nanos as f64 / 1e3 {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

fn slow(flows: &Flows) -> Markup {
    let told = explain(flows, &Of::Everybody);
    let columns = [
        ("Operation", Side::Left),
        ("User", Side::Left),
        ("Door", Side::Left),
        ("Ago", Side::Right),
        ("Took", Side::Right),
        ("Waited", Side::Left),
        ("Path", Side::Left),
    ];
    let row = |row: &waits::Row| {
        vec![
            text(&row.operation),
            text(&row.user),
            text(waits::door(row)),
            text(format!("{:.0} s", row.seconds_ago)),
            text(duration((row.milliseconds * 1e6) as u64)),
            text(waits::waits(row)),
            text(row.path.as_deref().unwrap_or("-")),
        ]
    };
    let rows: Vec<Vec<Markup>> = told.operations.iter().take(ROWS).map(row).collect();
    html! {
        (table("The slowest operations of ten minutes", &columns, &rows,
            "Nothing took longer than a millisecond in the last ten minutes."))
        @for lost in &told.lost { p .told.bad role="status" { (lost_text(lost)) } }
        (html::note("`lee why` and `lee top` show the same on the command line."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hurts_whom_is_said() {
        let row = |user: &str, uid, share, behind: Option<&str>| Row {
            user: user.into(),
            uid,
            job: None,
            door: "mount".into(),
            from_machines: Vec::new(),
            volume: "home".into(),
            operations_per_second: 1.0,
            read_bytes_per_second: 0.0,
            written_bytes_per_second: 0.0,
            share,
            milliseconds_per_operation: 1.0,
            waited_milliseconds_per_operation: 0.5,
            waited_for: None,
            waited_behind: behind.map(str::to_owned),
            waited_for_machine: None,
            dirty_bytes: 0,
        };
        let rows = [row("storm", 1, 0.8, Some("storm")), row("alice", 2, 0.1, Some("storm"))];
        let told = advice(&rows, 0);
        assert!(
            told.len() == 1 && told[0].starts_with("storm does 80 % of the work, and 1 user"),
            "{told:?}"
        );
        assert!(advice(&rows[..1], 0).is_empty(), "nobody waits behind himself");
        assert_eq!(advice(&[], 3).len(), 1);
        assert_eq!(
            [duration(250_000), duration(3_200_000), duration(1_500_000_000)],
            ["250 µs", "3.2 ms", "1.5 s"]
        );
    }
}
