//! Volumes: the list, and one with its history, snapshots and schedules.

use super::snapshots;
use crate::console::form::path_text;
use crate::console::html::{Side, drawing, facts, of_limit, quota, share, table, text, to, turning};
use crate::console::visit::{Made, Visit, page};
use crate::summary::paper::chart;
use crate::{names, size, system, when};
use leeward_volume::admin::{
    Day, Sampled, ScheduleInfo, ScheduleList, UsageReport, VolumeInfo, VolumeList, VolumeShow,
};
use maud::{Markup, html};

/// Rows of a part of the list.
const ROWS: usize = 100;
/// Days of the history.
const DAYS: u32 = 730;

/// The list.
pub fn list(visit: &Visit<'_>) -> Made {
    let mut volumes = visit.ask(&VolumeList)?.volumes;
    let wanted = visit.form().get("q").to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    // one question: there may be 100,000 owners, and the user database may be slow
    let owner = system::uid_named(visit.form().get("q")).ok().flatten();
    volumes.retain(|volume| has(&volume.name) || has(&volume.at) || owner == Some(volume.uid));
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    let parts = volumes.len().div_ceil(ROWS);
    let at = visit.form().number::<usize>("page").unwrap_or(0).min(parts.saturating_sub(1));
    let columns = [
        ("Volume", Side::Left),
        ("Place", Side::Left),
        ("Owner", Side::Left),
        ("Used", Side::Right),
        ("Quota", Side::Right),
        ("Full", Side::Right),
        ("Files", Side::Right),
        ("Snapshots", Side::Right),
    ];
    let rows: Vec<Vec<Markup>> = volumes.iter().skip(at * ROWS).take(ROWS).map(row).collect();
    let empty = match (wanted.is_empty(), visit.is_operator()) {
        (false, _) => "No volume has that in its name or place, and no user of that name owns one.",
        (true, true) => "There is no volume yet: `lee volume create NAME` makes one.",
        (true, false) => "You own no volume and look after none. Your files are under Files.",
    };
    let body = html! {
        form .search role="search" action="/console/volumes" {
            label { "Name, place or owner " input name="q" type="search" value=(visit.form().get("q")); }
            button { "Search" }
        }
        (table(&size::counted(volumes.len() as u64, "volume", "volumes"), &columns, &rows, empty))
        (turning("/volumes", &[("q", visit.form().get("q"))], at, parts))
    };
    page("Volumes", "/volumes", body)
}

fn row(volume: &VolumeInfo) -> Vec<Markup> {
    vec![
        to("/volume", &[("name", &volume.name)], &volume.name),
        text(&volume.at),
        text(names::user_name(volume.uid)),
        text(size::bytes(volume.usage.bytes)),
        text(size::bytes_limit(volume.quota_bytes)),
        share(volume.usage.bytes, volume.quota_bytes),
        text(size::count(volume.usage.files)),
        text(size::count(volume.snapshots)),
    ]
}

/// One volume.
pub fn show(visit: &Visit<'_>) -> Made {
    let name = visit.form().get("name");
    let volume = visit.ask(&VolumeShow { name: name.to_owned() })?;
    let schedules = visit.ask(&ScheduleList)?.schedules;
    let path = path_text(volume.at.as_bytes());
    let body = html! {
        (facts(&facts_of(&volume)))
        p { (to("/files", &[("path", &path)], "Its files")) " · " (to("/bin", &[("q", &volume.at)], "Its recycle bin")) }
        h2 { "History" }
        (history(visit, (Sampled::Volume, volume.id.into(), &volume.name)))
        h2 { "Snapshots" }
        (snapshots::of(visit, &volume.at, 0).unwrap_or_else(|why| html! { p .told.bad { (why.text()) } }))
        h2 { "Schedules of snapshots" }
        (scheduled(&schedules, &volume.at))
    };
    page(format!("Volume {name}"), "/volumes", body)
}

fn facts_of(volume: &VolumeInfo) -> Vec<(&'static str, Markup)> {
    let bin = match volume.bin_days {
        0 => "none".into(),
        days => size::counted(days.into(), "day", "days"),
    };
    let files = volume.usage.files + volume.usage.dirs;
    vec![
        ("Place", text(&volume.at)),
        ("Owner", text(names::user_name(volume.uid))),
        ("Used", text(size::bytes(volume.usage.bytes))),
        ("Quota", quota(volume.usage.bytes, volume.quota_bytes)),
        ("Files and directories", of_limit(files, volume.quota_files)),
        ("Made", text(when::utc(volume.created_secs))),
        ("Recycle bin", text(bin)),
    ]
}

/// What something used, over the days that are kept.
pub fn history(visit: &Visit<'_>, (of, id, name): (Sampled, u64, &str)) -> Markup {
    let today = Day(u32::try_from(visit.now_secs() / 86_400).unwrap_or(0));
    let request = UsageReport { of, from: today.minus(DAYS), to: None, only: vec![id], daily: true };
    let days = match visit.ask(&request) {
        Ok(reported) => {
            reported.rows.into_iter().find(|row| row.id == id).map(|row| row.days).unwrap_or_default()
        }
        Err(failure) => return html! { p .none { (failure.message) } },
    };
    if days.len() < 2 {
        return html! { p .none { "Usage is noted once a day: there is nothing to draw yet." } };
    }
    let (first, last) = (&days[0], &days[days.len() - 1]);
    html! {
        (drawing(&chart(name, &days)))
        p { (size::bytes(first.used.bytes)) " on " (first.day.to_string()) ", " (size::bytes(last.used.bytes)) " now." }
    }
}

fn scheduled(schedules: &[ScheduleInfo], at: &str) -> Markup {
    let is_its = |schedule: &&ScheduleInfo| {
        let follows = schedule.volumes.iter().any(|_| at.starts_with(schedule.path.trim_end_matches('/')));
        schedule.path == at || schedule.path.starts_with(&format!("{}/", at.trim_end_matches('/'))) || follows
    };
    let columns = [
        ("Directory", Side::Left),
        ("Every", Side::Left),
        ("Kept", Side::Left),
        ("Next", Side::Left),
        ("Newest", Side::Left),
        ("How it goes", Side::Left),
    ];
    let row = |schedule: &ScheduleInfo| {
        let how = match (&schedule.error, schedule.late) {
            (Some(error), _) => error.clone(),
            (None, true) => "late".into(),
            (None, false) => "well".into(),
        };
        vec![
            text(&schedule.path),
            text(when::interval(schedule.interval_secs)),
            text(&schedule.keep),
            text(when::utc(schedule.next_secs)),
            text(schedule.newest_secs.map_or_else(|| "-".into(), when::utc)),
            text(how),
        ]
    };
    let rows: Vec<Vec<Markup>> = schedules.iter().filter(is_its).map(row).collect();
    table("Schedules", &columns, &rows, "None: `lee snap schedule PATH 1h --keep 24h7d4w` makes one.")
}
