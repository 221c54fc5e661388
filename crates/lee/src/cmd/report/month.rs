//! `lee report month`: what an operator, or who pays, wants to know of a month, on one page.

use super::{Form, print, today};
use crate::cmd::Invocation;
use crate::fail::Fail;
use crate::summary::month::{month_text, report};
use leeward_volume::admin::Day;

/// A month on one page: growth, who uses most, what is soon full, what nobody has changed for a
/// year
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The month, such as 2026-11 [default: this month, until now]
    #[arg(value_parser = parse_month)]
    month: Option<Day>,
    #[command(flatten)]
    form: Form,
}

fn parse_month(text: &str) -> Result<Day, String> {
    Day::parse(&format!("{text}-01")).ok_or_else(|| format!("`{text}` is no month: write 2026-11"))
}

/// Runs it.
///
/// # Errors
/// What the cell says, or that the month is yet to come.
pub fn run(invocation: &Invocation, args: &Args) -> Result<(), Fail> {
    args.form.begin(invocation);
    let today = today(invocation);
    let from = args.month.unwrap_or_else(|| today.first_of_month());
    let made = invocation
        .session("report month", |_, session| report((from, today), &mut |request| session.ask(request)))?;
    let yet_to_come =
        || Fail::new(format!("{} is yet to come: name a month that has begun", month_text(from)));
    let (paper, json) = made.ok_or_else(yet_to_come)?;
    print(invocation, args.form, &paper, &json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other() {
        let day = |text| Day::parse(text).expect("a day");
        assert_eq!(day("2026-11-01").first_of_next_month(), day("2026-12-01"));
        assert_eq!(day("2026-12-01").first_of_next_month(), day("2027-01-01"));
        assert_eq!(parse_month("2024-02"), Ok(day("2024-02-01")));
        for text in ["2024-2", "2024", "2024-13", "2024-02-03", ""] {
            parse_month(text).expect_err(text);
        }
    }
}
