//! What the protocol asks of a store.

use crate::overview::{Overview, overview};
use crate::record::{Record, State, decode, encode, record_name};
use leeward_bucket::{Bucket, Error, Tag};
use std::fmt;

/// Tries of an order to a server that renews its record at the same time.
const ORDER_TRIES: usize = 20;
/// Where the objects are.
const DIR: &str = "servers";

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Another object is there, or none. It may be what an earlier attempt of this call has put.
    Conflict,
    /// The store does not answer, or refuses; why. What was asked for may be done, now or later.
    Away(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Conflict => f.write_str("another has changed it"),
            Failed::Away(why) => f.write_str(why),
        }
    }
}

/// An object and its version, if it is there.
pub type Found<T> = Option<(Vec<u8>, T)>;

/// Objects that are changed by conditional puts.
pub trait Store: Send + Sync {
    /// The version of an object.
    type Tag: Clone + Send + Sync;

    /// An object and its version, or none.
    ///
    /// # Errors
    /// Away.
    fn get(&self, name: &str) -> Result<Found<Self::Tag>, Failed>;

    /// Makes an object that is not there.
    ///
    /// # Errors
    /// [`Failed`].
    fn create(&self, name: &str, body: Vec<u8>) -> Result<(), Failed>;

    /// Replaces an object that has this version.
    ///
    /// # Errors
    /// [`Failed`].
    fn swap(&self, name: &str, body: Vec<u8>, tag: &Self::Tag) -> Result<Self::Tag, Failed>;

    /// Removes an object; a missing one is no error.
    ///
    /// # Errors
    /// Away.
    fn delete(&self, name: &str) -> Result<(), Failed>;

    /// Names of all objects.
    ///
    /// # Errors
    /// Away.
    fn names(&self) -> Result<Vec<String>, Failed>;
}

impl Store for Bucket {
    type Tag = Tag;

    fn get(&self, name: &str) -> Result<Found<Tag>, Failed> {
        let found = self.get_tagged(&at(name)).map_err(failed)?;
        Ok(found.map(|(body, tag)| (body.to_vec(), tag)))
    }

    fn create(&self, name: &str, body: Vec<u8>) -> Result<(), Failed> {
        Bucket::create(self, &at(name), body.into()).map_err(failed)
    }

    fn swap(&self, name: &str, body: Vec<u8>, tag: &Tag) -> Result<Tag, Failed> {
        Bucket::swap(self, &at(name), body.into(), tag).map_err(failed)
    }

    fn delete(&self, name: &str) -> Result<(), Failed> {
        Bucket::delete(self, &at(name)).map_err(failed)
    }

    fn names(&self) -> Result<Vec<String>, Failed> {
        let all = self.list(DIR).map_err(failed)?;
        Ok(all.into_iter().filter_map(|(name, _)| name.strip_prefix("servers/").map(str::to_owned)).collect())
    }
}

fn at(name: &str) -> String {
    format!("{DIR}/{name}")
}

fn failed(e: Error) -> Failed {
    match e {
        // what is to be replaced may be gone
        Error::Exists(_) | Error::Missing(_) => Failed::Conflict,
        e => Failed::Away(e.to_string()),
    }
}

/// Says of processes that have held this lock, which the caller has now, that they have ended: they
/// answer nothing any more (O11), and nobody needs to wait for the end of their terms. Records of
/// those of whom that was known go: each server that begins reads all that there are.
///
/// # Errors
/// For a person: the store does not answer.
pub fn predecessors_ended<S: Store>(store: &S, lock: &str) -> Result<(), String> {
    let Overview { map, servers, .. } = overview(store)?;
    let is_in_map = |id: &String| map.owner.as_ref() == Some(id) || map.after.contains(id);
    for record in servers.iter().filter(|record| record.lock == lock && !lock.is_empty()) {
        match record.state {
            State::Alive => _ = order(store, &record.id, |record| record.state = State::Ended)?,
            State::Ended | State::Dead if is_in_map(&record.id) => (),
            // it may as well stay
            State::Ended | State::Dead => _ = store.delete(&record_name(&record.id)),
        }
    }
    Ok(())
}

/// Changes the record of a server from outside: an operator's order, which the server finds when it
/// renews next. The record then; `None`: there is none.
///
/// # Errors
/// For a person: why it could not be changed.
pub fn order<S: Store>(store: &S, id: &str, change: impl Fn(&mut Record)) -> Result<Option<Record>, String> {
    let name = record_name(id);
    for _ in 0..ORDER_TRIES {
        let Some((body, tag)) = store.get(&name).map_err(|e| e.to_string())? else { return Ok(None) };
        let before: Record = decode(&name, &body).map_err(|e| e.to_string())?;
        let mut record = before.clone();
        change(&mut record);
        if record == before {
            return Ok(Some(before));
        }
        record.orders += 1;
        match store.swap(&name, encode(&record), &tag) {
            Ok(_) => return Ok(Some(record)),
            Err(Failed::Conflict) => (),
            Err(away) => return Err(away.to_string()),
        }
    }
    Err(format!("the record of the server {id} changes all the time: try again"))
}
