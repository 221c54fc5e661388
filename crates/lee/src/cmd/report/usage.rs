//! `lee report usage`: what each volume, user, group, pool or project used in a time.

use super::{Form, parse_day, print, today};
use crate::cmd::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::summary::paper::{Paper, Part, Row, comma_separated};
use crate::summary::usage::{By, columns, kept_note, rows_of, time_of};
use crate::{size, system};
use leeward_volume::admin::{Day, UsageReport, UsageReported, UsedOnDay};
use serde_json::json;

/// What volumes, users, groups, pools or projects used in a time: at its beginning, its end, and
/// each day
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only of these [default: of all]
    name: Vec<String>,
    /// Of what
    #[arg(long, value_enum, default_value_t = By::Volume)]
    by: By,
    /// From the beginning of this day on, in UTC [default: the first of this month]
    #[arg(long, value_name = "DATE", value_parser = parse_day)]
    from: Option<Day>,
    /// Up to the beginning of this day [default: until now]
    #[arg(long, value_name = "DATE", value_parser = parse_day)]
    to: Option<Day>,
    /// A row for each day: of each that is named, or of all together
    #[arg(long)]
    daily: bool,
    #[command(flatten)]
    form: Form,
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that nothing of a name is kept.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    args.form.begin(invocation);
    let from = args.from.unwrap_or_else(|| today(invocation).first_of_month());
    let request = UsageReport { of: args.by.of(), from, to: args.to, only: Vec::new(), daily: false };
    let reported = invocation.ask_with_bar("report usage", &request)?;
    let mut rows = rows_of(&reported);
    if !args.name.is_empty() {
        let named = args.name.iter().map(|name| Named::find(args.by, name)).collect::<Result<Vec<_>, _>>()?;
        if let Some(none) = named.iter().position(|named| !rows.iter().any(|row| named.is(row))) {
            return Err(Fail::new(format!(
                "nothing is kept of {} {} from {from} on: see lee report usage --by {}",
                args.by.many().trim_end_matches('s'),
                args.name[none],
                args.by.many().trim_end_matches('s'),
            )));
        }
        rows.retain(|row| named.iter().any(|named| named.is(row)));
    }
    if args.daily {
        return daily(invocation, args, &request, &reported, &rows);
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(row.usage.end.bytes), row.usage.id));
    let json = json!({
        "reply": "usage-report", "of": reported.of, "from": reported.from, "to": reported.to,
        "kept_from": reported.kept_from, "rows": rows, "days": reported.days,
    });
    let paper = Paper {
        title: format!("Usage by {} {}", args.by.many().trim_end_matches('s'), time_of(&reported, args.to)),
        notes: kept_note(from, &reported).into_iter().collect(),
        lines: vec![(format!("all {}", args.by.many()), reported.days)],
        parts: vec![Part { part: args.by.many(), title: String::new(), columns: columns(args.by), rows }],
    };
    print(invocation, args.form, &paper, &json)
}

/// What is named in the command.
enum Named<'a> {
    /// By its id: names of users and groups are the user database's.
    Id(u64),
    Name(&'a str),
}

impl Named<'_> {
    fn find(by: By, name: &str) -> Result<Named<'_>, Fail> {
        Ok(match by {
            By::User => Named::Id(system::owner(name)?.uid.into()),
            By::Group => Named::Id(system::group(name)?.into()),
            By::Volume | By::Pool | By::Project => Named::Name(name),
        })
    }

    fn is(&self, row: &Row) -> bool {
        match self {
            Named::Id(id) => row.usage.id == *id,
            Named::Name(name) => row.title == *name,
        }
    }
}

/// A row for each day.
fn daily(
    invocation: &Invocation,
    args: &Args,
    request: &UsageReport,
    reported: &UsageReported,
    named: &[Row],
) -> Result<(), Fail> {
    let mut days: Vec<(String, UsedOnDay)> = Vec::new();
    // what is used now is what the next day begins with
    let on = |day: Day| if args.to.is_none() && day == reported.to { "now".into() } else { day.to_string() };
    if args.name.is_empty() {
        days.extend(reported.days.iter().map(|day| (format!("all {}", args.by.many()), *day)));
    } else {
        let only = named.iter().map(|row| row.usage.id).collect();
        let request = UsageReport { only, daily: true, ..request.clone() };
        for row in rows_of(&invocation.ask_with_bar("report usage", &request)?) {
            days.extend(row.usage.days.iter().map(|day| (row.title.clone(), *day)));
        }
    }
    let cells = |(name, day): &(String, UsedOnDay)| {
        [on(day.day), name.clone(), day.used.bytes.to_string(), day.used.files.to_string()]
    };
    if args.form.csv {
        let lines: String = days.iter().map(|day| comma_separated(&cells(day)) + "\n").collect();
        return output::print(&format!("day,name,bytes,files\n{lines}"));
    }
    if args.form.html {
        return Err(Fail::new("--daily has no page: --html without it draws the days; or use --csv"));
    }
    let objects: Vec<_> = days
        .iter()
        .map(|(name, day)| {
            json!({"name": name, "day": on(day.day), "bytes": day.used.bytes, "files": day.used.files})
        })
        .collect();
    let columns = [("DAY", Side::Left), ("NAME", Side::Left), ("BYTES", Side::Right), ("FILES", Side::Right)];
    output::show(invocation.format, &json!({"reply": "usage-days", "days": objects}), || {
        let person = |(name, day): &(String, UsedOnDay)| {
            [day.day.to_string(), name.clone(), size::bytes(day.used.bytes), size::count(day.used.files)]
        };
        Table::new(&columns).rows(&days, person).to_string()
    })
}
