//! What volumes, users, groups, pools or projects used in a time.

use super::paper::{Column, Row};
use clap::ValueEnum;
use leeward_volume::admin::{Day, Sampled, UsageReported};

/// Of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Volumes
    Volume,
    /// Users, by the files that they own
    User,
    /// Groups, by the files that belong to them
    Group,
    /// Pools, by the space that is taken on their disks
    Pool,
    /// Projects, each with those in it
    Project,
}

impl By {
    /// What the cell calls it.
    pub fn of(self) -> Sampled {
        match self {
            By::Volume => Sampled::Volume,
            By::User => Sampled::User,
            By::Group => Sampled::Group,
            By::Pool => Sampled::Pool,
            By::Project => Sampled::Project,
        }
    }

    /// Many of them.
    pub fn many(self) -> &'static str {
        match self {
            By::Volume => "volumes",
            By::User => "users",
            By::Group => "groups",
            By::Pool => "pools",
            By::Project => "projects",
        }
    }
}

/// The rows of an answer.
pub fn rows_of(reported: &UsageReported) -> Vec<Row> {
    reported.rows.iter().map(|usage| Row::new(reported.of, usage.clone())).collect()
}

/// `from 2026-11-01 until now`.
pub fn time_of(reported: &UsageReported, to: Option<Day>) -> String {
    let end = to.map_or("until now".into(), |to| format!("up to {to}"));
    format!("from {} {end}", reported.from)
}

/// That not all of the time is known, if it is not.
pub fn kept_note(asked: Day, reported: &UsageReported) -> Option<String> {
    match reported.kept_from {
        None => Some("The cell has no sample yet: all that is there now counts as growth.".into()),
        Some(first) if first > asked => Some(format!("The first sample is of {first}.")),
        Some(_) => None,
    }
}

/// What is shown of them.
pub fn columns(by: By) -> Vec<Column> {
    let is_shown = |column: &Column| match column {
        Column::Owner | Column::Changed => by == By::Volume,
        Column::Files => by != By::Pool,
        Column::Limit | Column::Gone => !matches!(by, By::User | By::Group),
        Column::Full => false,
        _ => true,
    };
    Column::ALL.into_iter().filter(is_shown).collect()
}
