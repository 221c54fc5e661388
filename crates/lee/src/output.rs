//! The output of a command on standard output: a line, an aligned table, or with `--json` one
//! object.
//!
//! A reader that goes away (`lee volume list | head -1`) is no error, and never ends a process that
//! serves a cell.

use crate::fail::{Fail, text};
use leeward_volume::admin::Reply;
use serde::Serialize;
use std::io::{self, Write};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// One JSON object in one line.
    Json,
}

/// Prints what a command has to say in the form that was asked for; `text` makes the text for a
/// person.
///
/// # Errors
/// When standard output cannot be written to, as on a full disk.
pub fn show<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<(), Fail> {
    print(&shown(format, value, text)?)
}

fn shown<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<String, Fail> {
    match format {
        Format::Text => Ok(text()),
        Format::Json => {
            serde_json::to_string(value).map_err(|e| Fail::new(format!("cannot be shown as JSON: {e}")))
        }
    }
}

/// Prints a reply of the cell. Its JSON begins with the field `reply`, which names its kind.
///
/// # Errors
/// As [`show`].
pub fn reply<R: Reply>(format: Format, reply: &R, text: impl FnOnce() -> String) -> Result<(), Fail> {
    show(format, &WithKind { reply: R::KIND, content: reply }, text)
}

/// [`reply`] on standard error, where standard output has something else.
///
/// # Errors
/// When it cannot be shown as JSON.
pub fn reply_beside<R: Reply>(format: Format, reply: &R, text: impl FnOnce() -> String) -> Result<(), Fail> {
    note(shown(format, &WithKind { reply: R::KIND, content: reply }, text)?.trim_end());
    Ok(())
}

#[derive(Serialize)]
struct WithKind<'a, R> {
    reply: &'static str,
    #[serde(flatten)]
    content: &'a R,
}

/// Prints lines; the last one gets its end of line where it has none.
///
/// # Errors
/// As [`show`].
pub fn print(lines: &str) -> Result<(), Fail> {
    let end = if lines.is_empty() || lines.ends_with('\n') { "" } else { "\n" };
    print_bytes(&[lines, end].concat().into_bytes())
}

/// Prints bytes as they are.
///
/// # Errors
/// As [`show`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), Fail> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes);
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Fail::new(format!("cannot write to standard output: {}", text(&e))))
        }
        _ => Ok(()),
    }
}

/// Prints a remark beside the result, on standard error.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// An aligned table; no trailing blanks.
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings.
    pub fn new(columns: &[(&str, Side)]) -> Table {
        let sides = columns.iter().map(|c| c.1).collect();
        Table { sides, rows: vec![columns.iter().map(|c| c.0.to_string()).collect()] }
    }

    /// The table with a row for each item.
    pub fn rows<T, R: AsRef<[String]>>(mut self, items: &[T], cells: impl Fn(&T) -> R) -> Table {
        let row = |item| cells(item).as_ref().iter().map(|c| printable(c)).collect();
        self.rows.extend(items.iter().map(row));
        self
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |i: usize| self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..self.sides.len()).map(|i| width(i).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                match side {
                    Side::Left => line.push_str(&format!("{cell:<width$}  ")),
                    Side::Right => line.push_str(&format!("{cell:>width$}  ")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Escapes characters that would move the cursor: names come from users.
pub fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_fs::Usage;
    use leeward_volume::admin::{Done, KeyInfo, NewKey, Restored};

    fn json<R: Reply>(reply: &R) -> String {
        serde_json::to_string(&WithKind { reply: R::KIND, content: reply }).expect("JSON")
    }

    #[test]
    fn replies_begin_with_their_kind() {
        assert_eq!(json(&Done {}), r#"{"reply":"done"}"#);
        let usage = Usage { bytes: 1, files: 2, dirs: 3 };
        assert_eq!(json(&usage), r#"{"reply":"usage","bytes":1,"files":2,"dirs":3}"#);
        assert_eq!(json(&Restored(usage)), r#"{"reply":"restored","bytes":1,"files":2,"dirs":3}"#);
        let key = KeyInfo {
            user: "u".into(),
            access_key_id: "k".into(),
            label: String::new(),
            created_secs: 0,
            host: None,
        };
        let secret_access_key = "s".into();
        assert_eq!(
            json(&NewKey { key, secret_access_key }),
            r#"{"reply":"key-created","user":"u","access_key_id":"k","label":"","created_secs":0,"secret_access_key":"s"}"#
        );
    }

    #[test]
    fn tables_are_aligned() {
        let table = Table::new(&[("NAME", Side::Left), ("BYTES", Side::Right), ("AT", Side::Left)])
            .rows(&[["a", "10 GiB", "/a\n"], ["longer", "1 B", "/"]], |row| row.map(String::from));
        assert_eq!(table.to_string(), "NAME     BYTES  AT\na       10 GiB  /a\\n\nlonger     1 B  /\n");
    }
}
