//! The objects: a record of each server, and the map.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of the map.
pub const MAP: &str = "map";
/// How names of records begin.
const SERVER: &str = "server-";

/// Name of the record of a server.
pub fn record_name(id: &str) -> String {
    format!("{SERVER}{id}")
}

/// Whether an object of this name is the record of a server.
pub fn is_record(name: &str) -> bool {
    name.starts_with(SERVER)
}

/// How a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It renews its record, or somebody marks it.
    #[default]
    Alive,
    /// It has said that it answers nothing any more.
    Ended,
    /// Another server has marked it, for ever.
    Dead,
}

/// What the bucket says of a server, which is one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id, which no other process has or had.
    pub id: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// A lock on its machine that it holds until it has ended, or was killed, and that nobody else
    /// can hold meanwhile.
    #[serde(default)]
    pub lock: String,
    /// Where clients reach it: host and port.
    pub addresses: Vec<String>,
    /// The version of its program.
    pub version: String,
    /// The newest format of a cell that its program knows; 0: it does not say that, see
    /// [`Record::knows`].
    #[serde(default)]
    pub newest_format: u32,
    /// How it is.
    pub state: State,
    /// An operator wants it to serve nothing.
    pub draining: bool,
    /// Counts its own writes.
    pub renewals: u64,
    /// Counts the writes of others.
    pub orders: u64,
    /// When it began, seconds since 1970.
    pub since_secs: i64,
    /// When it renewed its record, seconds since 1970, for people: clocks of machines differ.
    pub renewed_secs: i64,
}

/// The newest format of a cell that programs know that do not say which one it is.
const FORMAT_UNSAID: u32 = 18;

impl Record {
    /// Whether its program can serve a cell of this format.
    pub fn knows(&self, format: u32) -> bool {
        format <= self.newest_format.max(FORMAT_UNSAID)
    }
}

/// Whose the cell is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Counts its versions.
    pub version: u64,
    /// Id of the server; `None`: nobody's.
    pub owner: Option<String>,
    /// The version with which the owner's turn began.
    pub epoch: u64,
    /// Dead servers that may have answered until shortly before this turn.
    pub after: Vec<String>,
    /// The server before this turn has not left the cell in order.
    #[serde(default)]
    pub after_crash: bool,
}

impl Map {
    /// The map with which the turn of a server begins, after one that may have left dead servers
    /// behind. Its number is the time at least: a map that was made anew while a clock was behind
    /// may have begun below the number that the cell has from an earlier one.
    pub(crate) fn taken_by(&self, id: &str, dead: Option<&str>, wall_secs: u64) -> Map {
        let version = wall_secs.max(self.version + 1);
        let mut after = self.after.clone();
        after.extend(dead.filter(|dead| !self.after.iter().any(|id| id == dead)).map(str::to_owned));
        let after_crash = self.owner.is_some();
        Map { version, owner: Some(id.to_owned()), epoch: version, after, after_crash }
    }

    /// The map in which the cell is nobody's, after a turn that has ended in order.
    pub(crate) fn left(&self) -> Map {
        Map { version: self.version + 1, owner: None, ..Map { epoch: self.epoch, ..Map::default() } }
    }
}

/// An object that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damaged { name, why } = self;
        write!(f, "the object servers/{name} is damaged ({why}): ")?;
        match name.as_str() {
            MAP => f.write_str(
                "end all servers of the cell, remove what is below servers/, and start them again",
            ),
            _ => f.write_str("its server ends, and lee server remove forgets it"),
        }
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("no map has keys that are no text");
    text.push(b'\n');
    text
}

pub(crate) fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, Damaged> {
    serde_json::from_slice(bytes).map_err(|e| Damaged { name: name.to_owned(), why: e.to_string() })
}
