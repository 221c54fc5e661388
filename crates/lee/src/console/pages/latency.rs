//! How long operations took over the day: in volumes, and with stores.

use super::now::duration;
use crate::console::form::link;
use crate::console::history::{Point, Slice, Timed};
use crate::console::html::{Side, drawing, table, text, to};
use crate::console::visit::{Made, Visit, page};
use crate::size;
use crate::summary::paper::over_time;
use leeward_lab::plot::{Draw, Scale, Series};
use leeward_volume::admin::VolumeList;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// Charts on the page: of the volumes with most operations.
const CHARTS: usize = 6;

/// What one volume, or one store, did in the day.
struct Day<'a> {
    name: &'a str,
    /// By the end of the slice, milliseconds since 1970.
    points: Vec<(f64, &'a Point)>,
    /// Operations a second in the last slice that had any.
    rate: f64,
}

impl Day<'_> {
    fn count(&self) -> u64 {
        self.points.iter().map(|(_, point)| point.count).sum()
    }

    fn worst(&self) -> u64 {
        self.points.iter().map(|(_, point)| point.p99).max().unwrap_or(0)
    }
}

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let day = visit.history().day();
    let own: Option<BTreeSet<u32>> = match visit.is_operator() {
        true => None,
        false => Some(visit.ask(&VolumeList)?.volumes.into_iter().map(|volume| volume.id).collect()),
    };
    let is_shown = |of: &Timed| match (of, &own) {
        (_, None) => true,
        (Timed::Volume(id), Some(own)) => own.contains(id),
        (Timed::Store(_), Some(_)) => false,
    };
    let (volumes, stores) = by_name(&day, is_shown);
    let wanted = visit.form().get("of");
    let body = html! {
        p { "Each five minutes of the last day, since the server was started. Half of the operations took no longer than \
            the lower line, 99 of 100 no longer than the upper one; both to a factor of two." }
        h2 { "Volumes" }
        (all(&volumes, wanted, visit.is_operator()))
        @if own.is_none() { h2 { "Stores" } (all(&stores, wanted, false)) }
    };
    page("Latency", "/latency", body)
}

/// Volumes and stores, those with most operations first.
fn by_name(day: &[Slice], is_shown: impl Fn(&Timed) -> bool) -> (Vec<Day<'_>>, Vec<Day<'_>>) {
    let mut all: BTreeMap<&Timed, Day<'_>> = BTreeMap::new();
    for slice in day {
        for point in slice.points.iter().filter(|point| is_shown(&point.of)) {
            let one =
                all.entry(&point.of).or_insert(Day { name: &point.name, points: Vec::new(), rate: 0.0 });
            one.name = &point.name;
            one.rate = point.count as f64 / slice.secs.max(1.0);
            one.points.push((slice.until_secs as f64 * 1e3, point));
        }
    }
    let (mut volumes, mut stores) = (Vec::new(), Vec::new());
    for (of, one) in all {
        if matches!(of, Timed::Volume(_)) { volumes.push(one) } else { stores.push(one) }
    }
    volumes.sort_by_key(|one| std::cmp::Reverse(one.count()));
    stores.sort_by_key(|one| std::cmp::Reverse(one.count()));
    (volumes, stores)
}

fn all(days: &[Day<'_>], wanted: &str, with_links: bool) -> Markup {
    let columns = [
        ("Name", Side::Left),
        ("Operations", Side::Right),
        ("A second", Side::Right),
        ("Half within", Side::Right),
        ("99 % within", Side::Right),
        ("Worst 99 % of the day", Side::Right),
        ("Chart", Side::Left),
    ];
    let row = |one: &Day<'_>| {
        let last = one.points.last().map(|(_, point)| *point);
        vec![
            if with_links && !one.name.starts_with('(') {
                to("/volume", &[("name", one.name)], one.name)
            } else {
                text(one.name)
            },
            text(size::count(one.count())),
            text(format!("{:.1}", one.rate)),
            text(last.map_or_else(|| "-".into(), |point| duration(point.p50))),
            text(last.map_or_else(|| "-".into(), |point| duration(point.p99))),
            text(duration(one.worst())),
            html! { a href=(link("/latency", &[("of", one.name)])) { "Show" } },
        ]
    };
    let rows: Vec<Vec<Markup>> = days.iter().map(row).collect();
    let chosen: Vec<&Day<'_>> = match days.iter().find(|one| one.name == wanted) {
        Some(one) => vec![one],
        None => days.iter().take(CHARTS).collect(),
    };
    html! {
        div .many { @for one in chosen { (drawing(&chart(one))) } }
        (table("Latency over the day", &columns, &rows, "Nothing was measured yet: the first five minutes are not over, nobody did anything, or not as much as in a hundred others."))
    }
}

fn chart(one: &Day<'_>) -> String {
    let series = |name: &str, of: fn(&Point) -> u64| Series {
        name: name.into(),
        points: one.points.iter().map(|(at, point)| (*at, of(point) as f64 / 1e3)).collect(),
        draw: Draw::Line,
    };
    let series = vec![series("99 %", |point| point.p99), series("half", |point| point.p50)];
    over_time(one.name, ("time of day", "latency"), Scale::Latency, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_told_by_volume_and_by_store() {
        let point = |of: Timed, name: &str, count| Point {
            of,
            name: name.into(),
            count,
            p50: 1_000_000,
            p99: 9_000_000,
        };
        let slice = |until_secs| Slice {
            until_secs,
            secs: 300.0,
            points: vec![
                point(Timed::Volume(1), "<home>", 10),
                point(Timed::Volume(2), "atlas", 30),
                point(Timed::Store("default: get".into()), "default: get", 5),
            ],
        };
        let day = [slice(300), slice(600)];
        let (volumes, stores) = by_name(&day, |_| true);
        assert_eq!(
            volumes.iter().map(|one| (one.name, one.count())).collect::<Vec<_>>(),
            [("atlas", 60), ("<home>", 20)]
        );
        assert_eq!((stores.len(), stores[0].worst()), (1, 9_000_000));
        let shown = all(&volumes, "", true).into_string();
        assert!(shown.matches("<svg").count() == 2 && !shown.contains("<home>"), "{shown}");
        assert_eq!(all(&volumes, "atlas", false).into_string().matches("<svg").count(), 1);
        let (own, none) = by_name(&day, |of| *of == Timed::Volume(1));
        assert_eq!((own.len(), none.len()), (1, 0));
    }
}
