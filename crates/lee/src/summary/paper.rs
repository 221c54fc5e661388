//! A report in all its forms: text, comma-separated values, a page.

use crate::output::{Side, Table};
use crate::{names, size, when};
use leeward_lab::page::Page;
use leeward_lab::plot::{Chart, Draw, Scale, Series};
use leeward_volume::admin::{Day, Sampled, UsageOf, UsedOnDay};
use serde::Serialize;

/// One volume, user, group or pool.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is.
    pub of: Sampled,
    /// Its name, for a person.
    pub title: String,
    /// What it used.
    #[serde(flatten)]
    pub usage: UsageOf,
    /// The day on which it will be full, if it goes on to grow as it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<Day>,
}

impl Row {
    /// Without a forecast.
    pub fn new(of: Sampled, usage: UsageOf) -> Row {
        let id = usage.id as u32;
        let title = match (of, &usage.name) {
            (Sampled::User, _) => names::user_name(id),
            (Sampled::Group, _) => names::group_name(id),
            (_, Some(name)) => name.clone(),
            (_, None) => usage.id.to_string(),
        };
        Row { of, title, usage, full: None }
    }

    fn owner(&self) -> String {
        self.usage.uid.map(names::user_name).unwrap_or_default()
    }
}

/// A column of a table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Name.
    Name,
    /// Owner.
    Owner,
    /// Bytes at the beginning.
    Begin,
    /// Bytes at the end.
    End,
    /// How much it grew.
    Growth,
    /// Mean of bytes.
    Average,
    /// Most bytes.
    Peak,
    /// Files at the end.
    Files,
    /// Quota, or size.
    Limit,
    /// Last change.
    Changed,
    /// When it is full.
    Full,
    /// When it was gone.
    Gone,
}

impl Column {
    pub(super) const ALL: [Column; 12] = [
        Column::Name,
        Column::Owner,
        Column::Begin,
        Column::End,
        Column::Growth,
        Column::Average,
        Column::Peak,
        Column::Files,
        Column::Limit,
        Column::Changed,
        Column::Full,
        Column::Gone,
    ];

    /// Title of the column, and its name in comma-separated values.
    pub fn titles(self) -> (&'static str, &'static str) {
        match self {
            Column::Name => ("NAME", "name"),
            Column::Owner => ("OWNER", "owner"),
            Column::Begin => ("BEGIN", "begin_bytes"),
            Column::End => ("END", "end_bytes"),
            Column::Growth => ("GROWTH", "growth_bytes"),
            Column::Average => ("AVERAGE", "average_bytes"),
            Column::Peak => ("PEAK", "peak_bytes"),
            Column::Files => ("FILES", "end_files"),
            Column::Limit => ("LIMIT", "limit_bytes"),
            Column::Changed => ("CHANGED", "changed"),
            Column::Full => ("FULL", "full"),
            Column::Gone => ("GONE", "gone"),
        }
    }

    /// Whether it has words.
    pub fn is_word(self) -> bool {
        matches!(self, Column::Name | Column::Owner)
    }

    /// For a person.
    pub fn for_person(self, row: &Row) -> String {
        let usage = &row.usage;
        match self {
            Column::Begin => size::bytes(usage.begin.bytes),
            Column::End => size::bytes(usage.end.bytes),
            Column::Growth => growth(usage.growth()),
            Column::Average => size::bytes(usage.average_bytes),
            Column::Peak => size::bytes(usage.peak_bytes),
            Column::Files => size::count(usage.end.files),
            Column::Limit if usage.limit_bytes == 0 => "-".into(),
            Column::Limit => size::bytes(usage.limit_bytes),
            _ => match self.for_program(row) {
                text if text.is_empty() => "-".into(),
                text => text,
            },
        }
    }

    fn for_program(self, row: &Row) -> String {
        let usage = &row.usage;
        let day = |day: Option<Day>| day.map(|day| day.to_string()).unwrap_or_default();
        match self {
            Column::Name => row.title.clone(),
            Column::Owner => row.owner(),
            Column::Begin => usage.begin.bytes.to_string(),
            Column::End => usage.end.bytes.to_string(),
            Column::Growth => usage.growth().to_string(),
            Column::Average => usage.average_bytes.to_string(),
            Column::Peak => usage.peak_bytes.to_string(),
            Column::Files => usage.end.files.to_string(),
            Column::Limit => usage.limit_bytes.to_string(),
            Column::Changed => day(usage.changed),
            Column::Full => day(row.full),
            Column::Gone => day(usage.gone),
        }
    }
}

/// `+3.9 GiB`, `-12 KiB`.
pub fn growth(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "+" };
    format!("{sign}{}", size::bytes(bytes.unsigned_abs()))
}

/// A table of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its name, for programs.
    pub part: &'static str,
    /// Its title.
    #[serde(skip)]
    pub title: String,
    /// What is shown of each row.
    #[serde(skip)]
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A report.
pub struct Paper {
    /// Its title.
    pub title: String,
    /// Sentences below it.
    pub notes: Vec<String>,
    /// What it shows as a line over the days: name, and the days.
    pub lines: Vec<(String, Vec<UsedOnDay>)>,
    /// Its tables.
    pub parts: Vec<Part>,
}

impl Paper {
    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        for part in self.parts.iter().filter(|part| !part.rows.is_empty()) {
            let title = if part.title.is_empty() { "\n".into() } else { format!("\n{}\n", part.title) };
            text += &format!("{title}{}", part.table());
        }
        text
    }

    /// As comma-separated values.
    pub fn csv(&self) -> String {
        let mut text = format!("part,{}\n", Column::ALL.map(|column| column.titles().1).join(","));
        for part in &self.parts {
            for row in &part.rows {
                let cells = Column::ALL.map(|column| column.for_program(row));
                text += &format!("{},{}\n", part.part, comma_separated(&cells));
            }
        }
        text
    }

    /// As a page that needs nothing else.
    pub fn html(&self) -> String {
        let mut page = Page::new(&self.title);
        self.notes.iter().for_each(|note| page.paragraph(note));
        let charts: Vec<String> = self.lines.iter().map(|(name, days)| chart(name, days)).collect();
        page.charts(&charts);
        for part in self.parts.iter().filter(|part| !part.rows.is_empty()) {
            if !part.title.is_empty() {
                page.heading(&part.title);
            }
            let words = part.columns.iter().take_while(|column| column.is_word()).count();
            let head: Vec<&str> = part.columns.iter().map(|column| column.titles().0).collect();
            let cells = |row: &Row| part.columns.iter().map(|column| column.for_person(row)).collect();
            page.table(words, &head, &part.rows.iter().map(cells).collect::<Vec<_>>());
        }
        page.html()
    }
}

impl Part {
    fn table(&self) -> String {
        let side = |column: &Column| if column.is_word() { Side::Left } else { Side::Right };
        let columns: Vec<(&str, Side)> = self.columns.iter().map(|c| (c.titles().0, side(c))).collect();
        let cells = |row: &Row| self.columns.iter().map(|c| c.for_person(row)).collect::<Vec<_>>();
        Table::new(&columns).rows(&self.rows, cells).to_string()
    }
}

/// Bytes over the days, in the unit that fits.
pub fn chart(name: &str, days: &[UsedOnDay]) -> String {
    let most = days.iter().map(|day| day.used.bytes).max().unwrap_or(0);
    let units = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50)];
    let (unit, shift) = units.into_iter().rev().find(|(_, shift)| most >> shift > 0).unwrap_or(units[0]);
    let scale = (1u64 << shift) as f64;
    let point = |day: &UsedOnDay| (f64::from(day.day.0) * 86_400_000.0, day.used.bytes as f64 / scale);
    let points = days.iter().map(point).collect();
    let series = vec![Series { name: name.into(), points, draw: Draw::Line }];
    over_time(name, ("day", unit), Scale::Seconds, series)
}

/// A small drawing over time, as an SVG element. The labels are of time and of the values.
pub fn over_time(title: &str, (x_label, y_label): (&str, &str), y: Scale, series: Vec<Series>) -> String {
    Chart {
        title: title.into(),
        x_label: x_label.into(),
        y_label: y_label.into(),
        x: Scale::Clock(when::utc),
        y,
        x_range: None,
        series,
        bands: Vec::new(),
        width: 520.0,
        plot_height: 160.0,
    }
    .svg()
}

/// One line. What a spreadsheet would take for a formula is text for it.
pub fn comma_separated(cells: &[String]) -> String {
    let cell = |text: &String| {
        let is_formula =
            text.starts_with(['=', '+', '@', '\t']) || text.starts_with('-') && text.parse::<f64>().is_err();
        let text = if is_formula { format!("'{text}") } else { text.clone() };
        match text.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use leeward_volume::admin::Used;

    /// What a volume used: its number, name, bytes at the beginning and the end.
    pub fn volume(id: u64, name: &str, begin: u64, end: u64) -> UsageOf {
        UsageOf {
            id,
            name: Some(name.into()),
            uid: Some(0),
            begin: Used { bytes: begin, files: 1 },
            end: Used { bytes: end, files: 2 },
            average_bytes: begin,
            peak_bytes: end,
            changed: None,
            gone: None,
            limit_bytes: 0,
            days: Vec::new(),
        }
    }

    fn paper(name: &str) -> Paper {
        let row = Row { full: Some(Day(20_000)), ..Row::new(Sampled::Volume, volume(7, name, 4096, 1024)) };
        let columns = vec![Column::Name, Column::Growth, Column::Limit, Column::Full];
        let part = Part {
            part: "volumes",
            title: "Some <volumes>".into(),
            columns: columns.clone(),
            rows: vec![row],
        };
        let empty = Part { part: "none", title: "None".into(), columns, rows: Vec::new() };
        let days = vec![UsedOnDay { day: Day(19_999), used: Used { bytes: 5 << 30, files: 1 } }; 3];
        let lines = vec![("all <volumes>".into(), days)];
        Paper { title: "A & B".into(), notes: vec!["Note.".into()], lines, parts: vec![part, empty] }
    }

    #[test]
    fn text_is_for_a_person() {
        let text = paper("a").text();
        let wanted = "A & B\nNote.\n\nSome <volumes>\nNAME  GROWTH  LIMIT        FULL\na     -3 KiB      -  2024-10-04\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn values_are_whole_and_no_formulas() {
        let csv = paper("=1+1,\"x\"").csv();
        let mut lines = csv.lines();
        assert_eq!(
            lines.next(),
            Some(
                "part,name,owner,begin_bytes,end_bytes,growth_bytes,average_bytes,peak_bytes,end_files,limit_bytes,changed,full,gone"
            )
        );
        assert_eq!(
            lines.next(),
            Some("volumes,\"'=1+1,\"\"x\"\"\",root,4096,1024,-3072,4096,1024,2,0,,2024-10-04,")
        );
        assert_eq!(lines.next(), None);
        let cells = ["-5".to_string(), "-x".into(), "+1".into(), "a\nb".into(), String::new()];
        assert_eq!(comma_separated(&cells), "-5,'-x,'+1,\"a\nb\",");
    }

    #[test]
    fn a_page_needs_nothing_and_runs_nothing() {
        let html = paper("<script>alert(1)</script>").html();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
        assert!(html.contains("<svg") && html.contains("Some &lt;volumes&gt;") && html.contains("A &amp; B"));
        assert!(!html.contains("src=") && !html.contains("href=\"http"), "nothing from elsewhere");
    }
}
