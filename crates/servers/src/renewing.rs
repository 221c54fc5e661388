//! A server's own record, which it renews as long as it lives.

use crate::record::{Record, State, decode, encode, record_name};
use crate::store::{Failed, Store};
use crate::times::ANSWERS;
use leeward_env::{Env, Nanos, Term};
use std::sync::Arc;

/// Puts that were not answered, at most: their times are remembered, as they may have been done.
const TRIES_MAX: usize = 16;
/// Attempts of one renewal that meet an order of an operator.
const MET_MAX: usize = 3;

/// How a renewal went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The record is renewed.
    Renewed,
    /// The store did not answer; why.
    Late(String),
    /// This server is marked as dead, or its record is gone; why. It answers nothing any more.
    Over(String),
}

/// Renews the record of this process.
pub struct Renewing<S: Store> {
    env: Env,
    store: Arc<S>,
    term: Term,
    name: String,
    /// What is known to be in the store,
    record: Record,
    /// and its version; `None`: it is to be read first.
    tag: Option<S::Tag>,
    /// Numbers of renewals that were not answered, and when they were sent.
    tries: Vec<(u64, Nanos)>,
}

impl<S: Store> Renewing<S> {
    /// Makes the record of a process that begins. Its term lasts from now on.
    ///
    /// # Errors
    /// For a person: why it cannot.
    pub fn begin(env: &Env, store: &Arc<S>, record: Record, term: &Term) -> Result<Renewing<S>, String> {
        let name = record_name(&record.id);
        let sent = env.now();
        match store.create(&name, encode(&record)) {
            // nobody else has this id: an answer was lost
            Ok(()) | Err(Failed::Conflict) => (),
            Err(away) => return Err(away.to_string()),
        }
        term.extend(sent + ANSWERS);
        let (env, store, term) = (env.clone(), store.clone(), term.clone());
        Ok(Renewing { env, store, term, name, record, tag: None, tries: Vec::new() })
    }

    /// The record as it was stored last.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Renews it once.
    pub fn renew(&mut self) -> Standing {
        for _ in 0..MET_MAX {
            if self.tag.is_none()
                && let Err(standing) = self.read()
            {
                return standing;
            }
            let Some(tag) = self.tag.clone() else { break };
            let sent = self.env.now();
            // never a number of before: which of them is there says when it was sent
            let last = self.tries.last().map_or(self.record.renewals, |(number, _)| *number);
            let renewed_secs = (self.env.wall() / 1_000_000_000) as i64;
            let next = Record { renewals: last + 1, renewed_secs, ..self.record.clone() };
            self.tries.push((next.renewals, sent));
            if self.tries.len() > TRIES_MAX {
                self.tries.remove(0);
            }
            match self.store.swap(&self.name, encode(&next), &tag) {
                Ok(tag) => {
                    self.tag = Some(tag);
                    self.adopt(next);
                    return Standing::Renewed;
                }
                // an order of an operator, a mark, or a renewal before that was not answered
                Err(Failed::Conflict) => self.tag = None,
                Err(Failed::Away(why)) => {
                    // it may be done: a store that answers late, but does it, is no reason to be
                    // taken for dead
                    self.tag = None;
                    return Standing::Late(why);
                }
            }
        }
        Standing::Late("the record is changed by others all the time".into())
    }

    /// Reads the record that others have changed.
    fn read(&mut self) -> Result<(), Standing> {
        let found = self.store.get(&self.name).map_err(|e| Standing::Late(e.to_string()))?;
        let Some((body, tag)) = found else {
            return Err(self.over("the record of this server was removed"));
        };
        let there: Record = match decode(&self.name, &body) {
            Ok(record) => record,
            Err(damaged) => return Err(self.over(&damaged.to_string())),
        };
        if there.id != self.record.id || there.state != State::Alive {
            return Err(self.over("another server has marked this one as dead, as it was not heard of"));
        }
        self.tag = Some(tag);
        self.adopt(there);
        Ok(())
    }

    /// This is in the store. If it is a renewal, the term lasts from when that was sent.
    fn adopt(&mut self, there: Record) {
        let sent = self.tries.iter().find(|(number, _)| *number == there.renewals).map(|(_, sent)| *sent);
        if let Some(sent) = sent {
            self.term.extend(sent + ANSWERS);
            self.tries.retain(|(number, _)| *number > there.renewals);
        }
        // an older program that gave an order has left out what it does not know
        self.record = Record { newest_format: self.record.newest_format, ..there };
    }

    fn over(&self, why: &str) -> Standing {
        self.term.end();
        Standing::Over(why.to_owned())
    }

    /// Says that this process answers nothing any more, which is so from now on.
    ///
    /// # Errors
    /// For a person: others do not know it, and wait until it is silent for long enough.
    pub fn end(&mut self) -> Result<(), String> {
        self.term.end();
        for _ in 0..MET_MAX {
            if self.tag.is_none()
                && let Err(standing) = self.read()
            {
                return match standing {
                    Standing::Late(why) => Err(why),
                    _ => Ok(()), // it is dead for all others, too
                };
            }
            let Some(tag) = self.tag.take() else { break };
            let record =
                Record { state: State::Ended, orders: self.record.orders + 1, ..self.record.clone() };
            match self.store.swap(&self.name, encode(&record), &tag) {
                Ok(_) => return Ok(()),
                Err(Failed::Conflict) => (),
                Err(Failed::Away(why)) => return Err(why),
            }
        }
        Err("the record of this server is changed by others all the time".into())
    }
}
