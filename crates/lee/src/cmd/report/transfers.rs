//! `lee report transfers`: what went through doors, and to mounts.

use super::{Form, parse_day, today};
use crate::cmd::Invocation;
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::size;
use crate::summary::paper::comma_separated;
use leeward_lab::page::Page;
use leeward_volume::admin::{Day, TransferReport, Transferred, TransfersReported};

/// What went through doors, and to mounts of other machines, by address family
///
/// Requests, and the bytes of their bodies, also those of gateways; of mounts the content that
/// machines wrote and read, not what came from their memory. The cell notes it once a minute. It is
/// kept for ten years, day by day; days begin at 0:00 UTC.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// From the beginning of this day on, in UTC [default: the first of this month]
    #[arg(long, value_name = "DATE", value_parser = parse_day)]
    from: Option<Day>,
    /// Up to the beginning of this day [default: until now]
    #[arg(long, value_name = "DATE", value_parser = parse_day)]
    to: Option<Day>,
    /// A row for each day
    #[arg(long)]
    daily: bool,
    #[command(flatten)]
    form: Form,
}

/// A row: the day, if rows are of days, and what went through a door.
type Row = (Option<Day>, Transferred);

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    let from = args.from.unwrap_or_else(|| today(invocation).first_of_month());
    let told = invocation.ask("report transfers", &TransferReport { from, to: args.to })?;
    let rows: Vec<Row> = match args.daily {
        true => told.days.iter().map(|on| (Some(on.day), on.transferred)).collect(),
        false => told.rows.iter().map(|of| (None, *of)).collect(),
    };
    let title = match args.to {
        Some(to) => format!("Transfers from {from} up to {to}"),
        None => format!("Transfers from {from} until now"),
    };
    match args.form {
        Form { csv: true, .. } => output::print(&csv(&rows)),
        Form { html: true, .. } => output::print(&html(&title, &told, &rows)),
        _ => output::reply(invocation.format, &told, || text(&title, &told, &rows)),
    }
}

fn family(of: &Transferred) -> &'static str {
    if of.ipv6 { "IPv6" } else { "IPv4" }
}

/// What is not known, or that there is nothing.
fn note(told: &TransfersReported) -> Option<String> {
    match told.kept_from {
        None => Some("Nothing has gone through a door yet.".into()),
        Some(first) if first > told.from => Some(format!("The first day with requests is {first}.")),
        Some(_) if told.rows.is_empty() => Some("Nothing went through a door in that time.".into()),
        Some(_) => None,
    }
}

fn heads(rows: &[Row]) -> Vec<&'static str> {
    let day = rows.iter().any(|(day, _)| day.is_some()).then_some("DAY");
    day.into_iter().chain(["DOOR", "FAMILY", "REQUESTS", "RECEIVED", "SENT"]).collect()
}

fn cells((day, of): &Row) -> Vec<String> {
    let numbers = [size::count(of.requests), size::bytes(of.received_bytes), size::bytes(of.sent_bytes)];
    let words = [of.door.name().to_string(), family(of).to_string()];
    day.iter().map(Day::to_string).chain(words).chain(numbers).collect()
}

fn text(title: &str, told: &TransfersReported, rows: &[Row]) -> String {
    let note = note(told).map(|note| format!("{note}\n")).unwrap_or_default();
    if rows.is_empty() {
        return format!("{title}\n{note}");
    }
    let side = |head: &&'static str| match *head {
        "DAY" | "DOOR" | "FAMILY" => (*head, Side::Left),
        _ => (*head, Side::Right),
    };
    let columns: Vec<(&str, Side)> = heads(rows).iter().map(side).collect();
    format!("{title}\n{note}\n{}", Table::new(&columns).rows(rows, cells))
}

fn csv(rows: &[Row]) -> String {
    let mut text = "day,door,family,requests,received_bytes,sent_bytes\n".to_string();
    for (day, of) in rows {
        let cells = [
            day.map(|day| day.to_string()).unwrap_or_default(),
            of.door.name().into(),
            family(of).to_lowercase(),
            of.requests.to_string(),
            of.received_bytes.to_string(),
            of.sent_bytes.to_string(),
        ];
        text += &(comma_separated(&cells) + "\n");
    }
    text
}

fn html(title: &str, told: &TransfersReported, rows: &[Row]) -> String {
    let mut page = Page::new(title);
    if let Some(note) = note(told) {
        page.paragraph(&note);
    }
    let heads = heads(rows);
    let words = heads.len() - 3;
    page.table(words, &heads, &rows.iter().map(cells).collect::<Vec<_>>());
    page.html()
}
