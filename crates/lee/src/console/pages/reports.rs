//! Reports: usage over a time, and the month.

use crate::console::form::link;
use crate::console::html::{Side, drawing, table, text};
use crate::console::visit::{Made, Visit, page};
use crate::console::{Problem, Reply};
use crate::summary::month::{self, month_text};
use crate::summary::paper::{Paper, Part, Row, chart};
use crate::summary::usage::{By, columns, kept_note, rows_of, time_of};
use clap::ValueEnum;
use hyper::StatusCode;
use leeward_volume::admin::{Day, UsageReport};
use maud::{Markup, html};

/// Kind of comma-separated values.
const CSV: &str = "text/csv; charset=utf-8";
/// Rows that are shown; all are in the comma-separated values.
const ROWS: usize = 200;

fn today(visit: &Visit<'_>) -> Day {
    Day(u32::try_from(visit.now_secs() / 86_400).unwrap_or(0))
}

/// What is asked for.
struct Wanted {
    by: By,
    from: Day,
    to: Option<Day>,
}

impl Wanted {
    fn of(visit: &Visit<'_>) -> Wanted {
        let form = visit.form();
        let by = By::from_str(form.get("by"), true).unwrap_or(By::Volume);
        let from = Day::parse(form.get("from")).unwrap_or_else(|| today(visit).first_of_month());
        Wanted { by, from, to: Day::parse(form.get("to")) }
    }

    fn paper(&self, visit: &Visit<'_>) -> Result<Paper, Problem> {
        let request =
            UsageReport { of: self.by.of(), from: self.from, to: self.to, only: Vec::new(), daily: false };
        let reported = visit.ask(&request)?;
        let mut rows = rows_of(&reported);
        rows.sort_by_key(|row| (std::cmp::Reverse(row.usage.end.bytes), row.usage.id));
        let many = self.by.many();
        Ok(Paper {
            title: format!("Usage by {} {}", many.trim_end_matches('s'), time_of(&reported, self.to)),
            notes: kept_note(self.from, &reported).into_iter().collect(),
            lines: vec![(format!("all {many}"), reported.days)],
            parts: vec![Part { part: many, title: String::new(), columns: columns(self.by), rows }],
        })
    }
}

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let wanted = Wanted::of(visit);
    let paper = wanted.paper(visit);
    let (from, to) = (wanted.from.to_string(), wanted.to.map(|to| to.to_string()).unwrap_or_default());
    let by = wanted.by.many().trim_end_matches('s');
    let fields = [("by", by), ("from", from.as_str()), ("to", to.as_str())];
    let body = html! {
        form .search action="/console/reports" {
            label { "By " select name="by" {
                @for one in By::value_variants() {
                    @let name = one.many().trim_end_matches('s');
                    @if visit.is_operator() || *one != By::Pool {
                        option value=(name) selected[*one == wanted.by] { (name) }
                    }
                }
            } }
            label { "From " input type="date" name="from" value=(from); }
            label { "To " input type="date" name="to" value=(to); }
            button { "Show" }
        }
        @if visit.is_operator() { p { a href="/console/month" { "The month on a page" } } }
        @match &paper {
            Ok(paper) => {
                p { a href=(link("/reports/csv", &fields)) { "As comma-separated values" } }
                h2 { (paper.title) }
                (sheet(paper))
            }
            Err(Problem::Failed(_, why)) => p .none { (why) },
            Err(Problem::LogIn(..)) => p .none { "Log in first." },
        }
    };
    page("Reports", "/reports", body)
}

/// The same as values.
pub fn csv(visit: &Visit<'_>) -> Made {
    let wanted = Wanted::of(visit);
    let name = format!("usage-by-{}-{}.csv", wanted.by.many().trim_end_matches('s'), wanted.from);
    Ok(Reply::Text(CSV, name, wanted.paper(visit)?.csv()))
}

fn of_month(visit: &Visit<'_>) -> Result<(Day, Paper), Problem> {
    let from = Day::parse(&format!("{}-01", visit.form().get("month")));
    let from = from.unwrap_or_else(|| today(visit).first_of_month());
    let made = month::report((from, today(visit)), &mut |request| visit.ask(request))?;
    let none = || {
        let text = format!("{} is yet to come: name a month that has begun", month_text(from));
        Problem::of(StatusCode::BAD_REQUEST, text)
    };
    Ok((from, made.ok_or_else(none)?.0))
}

/// The month.
pub fn month(visit: &Visit<'_>) -> Made {
    let (from, paper) = of_month(visit)?;
    let name = month_text(from);
    let body = html! {
        form .search action="/console/month" {
            label { "Month " input type="month" name="month" value=(name); }
            button { "Show" }
        }
        p { a href=(link("/month/csv", &[("month", &name)])) { "As comma-separated values" } }
        (sheet(&paper))
    };
    page(format!("The month {}", paper.title), "/reports", body)
}

/// The same as values.
pub fn month_csv(visit: &Visit<'_>) -> Made {
    let (from, paper) = of_month(visit)?;
    Ok(Reply::Text(CSV, format!("month-{}.csv", month_text(from)), paper.csv()))
}

/// A report, below a heading.
fn sheet(paper: &Paper) -> Markup {
    html! {
        @for note in &paper.notes { p { (note) } }
        div .many {
            @for (name, days) in paper.lines.iter().filter(|(_, days)| days.len() > 1) { (drawing(&chart(name, days))) }
        }
        @for part in paper.parts.iter().filter(|part| !part.rows.is_empty()) {
            @if !part.title.is_empty() { h2 { (part.title) } }
            (part_table(part, &paper.title))
        }
        @if paper.parts.iter().all(|part| part.rows.is_empty()) { p .none { "Nothing was used in that time." } }
    }
}

fn part_table(part: &Part, title: &str) -> Markup {
    let side = |is_word| if is_word { Side::Left } else { Side::Right };
    let columns: Vec<(&str, Side)> =
        part.columns.iter().map(|column| (column.titles().0, side(column.is_word()))).collect();
    let cells = |row: &Row| part.columns.iter().map(|column| text(column.for_person(row))).collect();
    let rows: Vec<Vec<Markup>> = part.rows.iter().take(ROWS).map(cells).collect();
    let caption = if part.title.is_empty() { title } else { &part.title };
    html! {
        (table(caption, &columns, &rows, ""))
        @if part.rows.len() > ROWS { p .none { "The first " (ROWS) " of " (part.rows.len()) "; the values have all." } }
    }
}
