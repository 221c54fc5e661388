//! What an operator, or who pays, wants to know of a month, on one page.

use super::forecast::full_on;
use super::paper::{Column, Paper, Part, Row, growth};
use super::usage::{kept_note, rows_of};
use crate::size;
use leeward_volume::admin::{Day, Sampled, UsageOf, UsageReport, UsageReported, UsedOnDay};
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Rows of a list of the first.
const TOP: usize = 10;
/// Rows of a list of all that something must be done about.
const LONGEST: usize = 100;
/// What is fuller than so many hundredths of its quota is nearly full.
const NEARLY_FULL_PERCENT: u128 = 90;
/// So many days ahead it is said that a quota will be reached.
const SOON_DAYS: u32 = 30;
/// What has not changed for so many days is quiet.
const QUIET_DAYS: u32 = 365;
/// From so many days before the end it is reckoned when a pool will be full.
const FORECAST_DAYS: u32 = 90;

/// What the cell says of the time.
struct Told {
    volumes: UsageReported,
    users: UsageReported,
    groups: UsageReported,
    projects: UsageReported,
    pools: UsageReported,
    /// Pools over a longer time, each day.
    pools_before: UsageReported,
}

/// The report of a month, and what programs read of it. `None`: it is yet to come. `ask` asks the
/// cell.
///
/// # Errors
/// Those of `ask`.
pub fn report<E>(
    (from, today): (Day, Day),
    ask: &mut dyn FnMut(&UsageReport) -> Result<UsageReported, E>,
) -> Result<Option<(Paper, Value)>, E> {
    if from > today {
        return Ok(None);
    }
    let next = from.first_of_next_month();
    let to = (next <= today).then_some(next);
    let told = all(ask, from, to)?;
    let parts = parts(&told);
    let json = json!({
        "reply": "month-report", "month": month_text(from), "from": from, "to": told.volumes.to,
        "kept_from": told.volumes.kept_from, "days": told.volumes.days, "parts": parts,
    });
    let until = if to.is_none() { ", until now" } else { "" };
    let pools_days = told
        .pools_before
        .rows
        .iter()
        .map(|pool| (format!("pool {}", pool.name.clone().unwrap_or_default()), pool.days.clone()));
    let volumes_days = told.volumes.days.clone();
    let paper = Paper {
        title: format!("{}{until}", month_text(from)),
        notes: notes(from, &told),
        lines: std::iter::once(("all volumes".to_string(), volumes_days)).chain(pools_days).collect(),
        parts,
    };
    Ok(Some((paper, json)))
}

fn all<E>(
    ask: &mut dyn FnMut(&UsageReport) -> Result<UsageReported, E>,
    from: Day,
    to: Option<Day>,
) -> Result<Told, E> {
    let mut ask = |of, from, daily| ask(&UsageReport { of, from, to, only: Vec::new(), daily });
    let volumes = ask(Sampled::Volume, from, false)?;
    let before = volumes.to.minus(FORECAST_DAYS).min(from);
    Ok(Told {
        users: ask(Sampled::User, from, false)?,
        groups: ask(Sampled::Group, from, false)?,
        projects: ask(Sampled::Project, from, false)?,
        pools: ask(Sampled::Pool, from, false)?,
        pools_before: ask(Sampled::Pool, before, true)?,
        volumes,
    })
}

/// `2026-11`.
pub fn month_text(day: Day) -> String {
    let (year, month) = day.month();
    format!("{year:04}-{month:02}")
}

fn notes(from: Day, told: &Told) -> Vec<String> {
    let (begin, end) = (told.volumes.days.first(), told.volumes.days.last());
    let bytes = |day: Option<&UsedOnDay>| day.map_or(0, |day| day.used.bytes);
    let files = |day: Option<&UsedOnDay>| day.map_or(0, |day| day.used.files);
    let live = told.volumes.rows.iter().filter(|row| row.gone.is_none()).count() as u64;
    let of_all = format!(
        "{} in {} and {}; it was {} at the beginning ({}).",
        size::bytes(bytes(end)),
        size::counted(files(end), "file", "files"),
        size::counted(live, "volume", "volumes"),
        size::bytes(bytes(begin)),
        growth(bytes(end) as i64 - bytes(begin) as i64),
    );
    let quiet_from = told.volumes.to.minus(QUIET_DAYS);
    let too_young = told.volumes.rows.iter().all(|row| row.changed.is_none_or(|day| day > quiet_from));
    let quiet = too_young.then(|| "No volume is known to have been quiet for a year.".to_string());
    std::iter::once(of_all).chain(kept_note(from, &told.volumes)).chain(quiet).collect()
}

fn parts(told: &Told) -> Vec<Part> {
    const POOL: &[Column] =
        &[Column::Name, Column::Begin, Column::End, Column::Growth, Column::Limit, Column::Full];
    const VOLUME: &[Column] = &[
        Column::Name,
        Column::Owner,
        Column::Begin,
        Column::End,
        Column::Growth,
        Column::Files,
        Column::Limit,
        Column::Changed,
    ];
    const SOON: &[Column] =
        &[Column::Name, Column::Owner, Column::End, Column::Growth, Column::Limit, Column::Full];
    const PROJECT: &[Column] =
        &[Column::Name, Column::Begin, Column::End, Column::Growth, Column::Files, Column::Limit];
    const SOON_PROJECT: &[Column] = &[Column::Name, Column::End, Column::Growth, Column::Limit, Column::Full];
    const OWNER: &[Column] =
        &[Column::Name, Column::Begin, Column::End, Column::Growth, Column::Average, Column::Files];
    let part = |part, title: &str, columns: &[Column], rows: Vec<Row>| Part {
        part,
        title: title.into(),
        columns: columns.to_vec(),
        rows,
    };
    let (volumes, projects) = (&told.volumes, &told.projects);
    let owned = |of: &UsageOf| of.end.bytes as i64;
    let used = |of: &UsageOf| if of.gone.is_none() { owned(of) } else { 0 };
    let grown = |of: &UsageOf| if of.gone.is_none() { of.growth() } else { 0 };
    let had = |of: &UsageOf| if of.gone.is_some() { of.begin.bytes as i64 } else { 0 };
    let (soon, quiet, soon_projects) = (soon_full(volumes), quiet(volumes), soon_full(projects));
    vec![
        part("pools", "Pools", POOL, pools(told)),
        part(
            "soon_full",
            &soon.titled("Volumes that are nearly full, or will be within 30 days"),
            SOON,
            soon.rows,
        ),
        part("projects", "Projects, each with those in it", PROJECT, top(projects, used)),
        part(
            "soon_full_projects",
            &soon_projects.titled("Projects that are nearly full, or will be within 30 days"),
            SOON_PROJECT,
            soon_projects.rows,
        ),
        part("largest_volumes", "Largest volumes", VOLUME, top(volumes, used)),
        part("grown_volumes", "Volumes that grew most", VOLUME, top(volumes, grown)),
        part("largest_users", "Users who own most", OWNER, top(&told.users, owned)),
        part("grown_users", "Users who own more than before", OWNER, top(&told.users, UsageOf::growth)),
        part("largest_groups", "Groups to which most belongs", OWNER, top(&told.groups, owned)),
        part(
            "quiet_volumes",
            &quiet.titled("Volumes that nobody has changed for a year"),
            VOLUME,
            quiet.rows,
        ),
        part("gone_volumes", "Volumes that were removed", VOLUME, top(volumes, had)),
    ]
}

/// Those with the most, if it is above zero.
fn top(told: &UsageReported, most: impl Fn(&UsageOf) -> i64) -> Vec<Row> {
    let with_any = told.rows.iter().map(|of| (most(of), of)).filter(|(most, _)| *most > 0);
    let mut found: Vec<(i64, &UsageOf)> = with_any.collect();
    found.sort_by_key(|(most, of)| (Reverse(*most), of.id));
    found.into_iter().take(TOP).map(|(_, of)| Row::new(told.of, of.clone())).collect()
}

fn pools(told: &Told) -> Vec<Row> {
    let mut rows = rows_of(&told.pools);
    rows.retain(|row| row.usage.gone.is_none());
    for row in &mut rows {
        let before = told.pools_before.rows.iter().find(|before| before.id == row.usage.id);
        row.full = before.and_then(|before| full_on(&before.days, row.usage.limit_bytes));
    }
    rows
}

/// The first of a list that has no end of its own.
struct Longest {
    rows: Vec<Row>,
    /// How many there are.
    of: usize,
}

impl Longest {
    fn titled(&self, title: &str) -> String {
        match self.of > self.rows.len() {
            true => format!("{title}: the first {LONGEST} of {}", size::count(self.of as u64)),
            false => title.into(),
        }
    }
}

fn soon_full(told: &UsageReported) -> Longest {
    let days = i128::from(told.to.0 - told.from.0);
    let mut found: Vec<(&UsageOf, Option<u32>)> = Vec::new();
    for of in told.rows.iter().filter(|of| of.gone.is_none() && of.limit_bytes > 0) {
        let (used, limit) = (of.end.bytes, of.limit_bytes);
        let left = i128::from(limit.saturating_sub(used));
        let days_left = match i128::from(of.growth()) {
            _ if left == 0 => Some(0),
            grows if grows > 0 => u32::try_from((left * days + grows - 1) / grows).ok(),
            _ => None,
        };
        let is_nearly_full = u128::from(used) * 100 >= u128::from(limit) * NEARLY_FULL_PERCENT;
        if is_nearly_full || days_left.is_some_and(|days| days <= SOON_DAYS) {
            found.push((of, days_left));
        }
    }
    let share = |of: &UsageOf| u128::from(of.end.bytes) * 10_000 / u128::from(of.limit_bytes);
    found.sort_by_key(|(of, _)| (Reverse(share(of)), of.id));
    let full = |days: Option<u32>| days.map(|days| told.to.plus(days));
    let row = |(of, days): &(&UsageOf, _)| Row { full: full(*days), ..Row::new(told.of, (*of).clone()) };
    Longest { rows: found.iter().take(LONGEST).map(row).collect(), of: found.len() }
}

fn quiet(told: &UsageReported) -> Longest {
    let from = told.to.minus(QUIET_DAYS);
    let is_quiet =
        |of: &&UsageOf| of.gone.is_none() && of.end.bytes > 0 && of.changed.is_some_and(|day| day <= from);
    let mut found: Vec<&UsageOf> = told.rows.iter().filter(is_quiet).collect();
    found.sort_by_key(|of| (Reverse(of.end.bytes), of.id));
    let row = |of: &&UsageOf| Row::new(told.of, (*of).clone());
    Longest { rows: found.iter().take(LONGEST).map(row).collect(), of: found.len() }
}

#[cfg(test)]
mod tests {
    use super::super::paper::tests::volume;
    use super::*;
    use leeward_volume::admin::Used;

    const END: Day = Day(20_500);

    fn reported(of: Sampled, rows: Vec<UsageOf>) -> UsageReported {
        let (from, to) = (END.minus(30), END);
        let days = [from, to].map(|day| UsedOnDay { day, used: Used { bytes: 1 << 20, files: 3 } }).into();
        UsageReported { of, from, to, kept_from: Some(from.minus(1)), rows, days }
    }

    fn told(volumes: Vec<UsageOf>) -> Told {
        let pool = || UsageOf {
            days: (0..31)
                .map(|n| UsedOnDay {
                    day: END.minus(30 - n),
                    used: Used { bytes: 100 + u64::from(n), files: 0 },
                })
                .collect(),
            limit_bytes: 230,
            ..volume(0, "default", 100, 130)
        };
        Told {
            volumes: reported(Sampled::Volume, volumes),
            users: reported(Sampled::User, vec![volume(0, "", 5, 6)]),
            groups: reported(Sampled::Group, Vec::new()),
            projects: reported(Sampled::Project, Vec::new()),
            pools: reported(Sampled::Pool, vec![pool()]),
            pools_before: reported(Sampled::Pool, vec![pool()]),
        }
    }

    fn names<'a>(parts: &'a [Part], part: &str) -> Vec<&'a str> {
        let part = parts.iter().find(|other| other.part == part).expect(part);
        part.rows.iter().map(|row| row.title.as_str()).collect()
    }

    #[test]
    fn a_month_says_what_somebody_must_do_something_about() {
        let limited = |limit_bytes, of| UsageOf { limit_bytes, ..of };
        let all = told(vec![
            limited(1000, volume(1, "full", 1000, 1000)),
            limited(1000, volume(2, "nearly", 900, 900)),
            limited(1000, volume(3, "grows", 300, 700)),
            limited(1000, volume(4, "slowly", 300, 400)),
            limited(1000, volume(5, "shrinks", 800, 100)),
            UsageOf { changed: Some(END.minus(365)), ..volume(6, "quiet", 50, 50) },
            UsageOf { changed: Some(END.minus(364)), ..volume(7, "not quiet", 60, 60) },
            UsageOf { gone: Some(END.minus(3)), ..volume(8, "gone", 70, 0) },
        ]);
        let parts = parts(&all);
        assert_eq!(names(&parts, "soon_full"), ["full", "nearly", "grows"]);
        let soon = parts.iter().find(|part| part.part == "soon_full").expect("there");
        // 400 in 30 days; 300 are left
        assert_eq!(
            soon.rows.iter().map(|row| row.full).collect::<Vec<_>>(),
            [Some(END), None, Some(END.plus(23))]
        );
        assert_eq!(names(&parts, "grown_volumes"), ["grows", "slowly"]);
        assert_eq!(names(&parts, "largest_volumes")[..3], ["full", "nearly", "grows"]);
        assert_eq!(names(&parts, "quiet_volumes"), ["quiet"]);
        assert_eq!(names(&parts, "gone_volumes"), ["gone"]);
        assert_eq!(names(&parts, "largest_users"), ["root"]);
        let pools = parts.iter().find(|part| part.part == "pools").expect("there");
        assert_eq!(pools.rows[0].full, Some(END.plus(100)), "one a day, and 100 are left");
        let many = |n| UsageOf { changed: Some(Day(9)), ..volume(n, "old", 0, n) };
        let quiet = quiet(&reported(Sampled::Volume, (1..=103).map(many).collect()));
        assert_eq!(quiet.titled("Old"), "Old: the first 100 of 103");
        assert_eq!((quiet.rows.len(), quiet.rows[0].usage.id), (100, 103));
        let notes = notes(END.minus(30), &all);
        assert_eq!(notes, ["1 MiB in 3 files and 7 volumes; it was 1 MiB at the beginning (+0 B)."]);
    }
}
