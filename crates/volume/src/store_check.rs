//! Whether a store keeps what it promises of conditional puts. The safety of a cell in a bucket
//! rests on that: of several processes that want to write at the same time one must win, and all
//! must see which.
//!
//! Asked once, before a cell is made. A store that answers one request after the other as it should
//! may still let two win that ask at the same moment, so many ask at once. Objects that are made
//! (`If-None-Match`) keep a process out that another one has taken over from. Objects that are
//! replaced (`If-Match`) are for several servers of one cell only (`docs/decisions/0038`): where
//! two win, the log says so.

use crate::admin::failure::{Failure, refused};
use bytes::Bytes;
use leeward_bucket::{Bucket, Error, Tag};
use leeward_env::Env;
use std::sync::mpsc::{Receiver, channel};

/// Writers that ask at the same time, and how often they do.
const WRITERS: u8 = 32;
const ROUNDS: usize = 3;
/// The conditions.
const MAKING: &str = "If-None-Match";
const REPLACING: &str = "If-Match";
/// What to use instead.
const OTHERS: &str = "use one that does, such as Ceph 16.2 or later, MinIO or AWS S3";

/// What a store that breaks a promise is refused with.
const UNFIT: i32 = libc::EOPNOTSUPP;

type Asked = Result<(), Error>;

/// What is asked, and how often it was before.
#[derive(Clone, Copy)]
struct Round {
    condition: &'static str,
    number: usize,
}

/// Refuses a store without conditional puts, or one in which two win that make an object: there
/// nothing keeps two processes from writing to one cell.
///
/// # Errors
/// Which store it is, what it does, and what to use instead; or what the store says.
pub(crate) fn check(env: &Env, bucket: &Bucket) -> Result<(), Failure> {
    match check_for_servers(env, bucket) {
        Err(Broken { failure, condition: Some(REPLACING) }) => {
            tracing::warn!("one server at a time may serve a cell here: {}", failure.message);
            Ok(())
        }
        checked => checked.map_err(|broken| broken.failure),
    }
}

/// Refuses also one in which two win that replace an object: there several servers would own one
/// cell.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_for_servers(env: &Env, bucket: &Bucket) -> Result<(), Broken> {
    let name = format!("probe-{:016x}", env.random());
    let checked =
        knows_conditions(bucket, &name).map_err(Broken::from).and_then(|()| one_wins(env, bucket, &name));
    // also of one that is not used
    let removed = bucket.delete(&name).map_err(refused);
    checked.and(removed.map_err(Broken::from))
}

/// Why a store was not found to be good.
pub(crate) struct Broken {
    pub failure: Failure,
    /// The condition that it does not keep, if that is why.
    condition: Option<&'static str>,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Broken {
        Broken { failure, condition: None }
    }
}

/// One after the other.
fn knows_conditions(bucket: &Bucket, name: &str) -> Result<(), Failure> {
    let body = body(WRITERS, Round { condition: MAKING, number: 0 });
    match bucket.create(name, body.clone()) {
        // nobody else knows the name: an answer was lost
        Ok(()) | Err(Error::Exists(_)) => (),
        Err(e) => return Err(refused(e)),
    }
    match bucket.create(name, body) {
        Err(Error::Exists(_)) => Ok(()),
        Ok(()) => {
            let what = "does not know conditional puts (If-None-Match), without which two processes could write to \
                        one cell";
            Err(unfit(bucket, what))
        }
        Err(e) => Err(refused(e)),
    }
}

/// All at once: as often as is asked first to make an object, and only then to replace it. A store
/// that breaks both promises is to be refused for the first one.
fn one_wins(env: &Env, bucket: &Bucket, name: &str) -> Result<(), Broken> {
    let make = |number| {
        bucket.delete(name).map_err(refused)?;
        let put = |bucket: &Bucket, name: &str, body| bucket.create(name, body);
        one_round(env, bucket, (name, Round { condition: MAKING, number }), put)
    };
    for number in 1..ROUNDS {
        make(number)?;
    }
    let mut tag = make(ROUNDS)?;
    for number in 1..=ROUNDS {
        let swap = move |bucket: &Bucket, name: &str, body| bucket.swap(name, body, &tag).map(drop);
        tag = one_round(env, bucket, (name, Round { condition: REPLACING, number }), swap)?;
    }
    Ok(())
}

/// One round: the tag of the object that was put.
fn one_round(
    env: &Env,
    bucket: &Bucket,
    (name, round): (&str, Round),
    put: impl Fn(&Bucket, &str, Bytes) -> Asked + Clone + Send + 'static,
) -> Result<Tag, Broken> {
    let answers = at_once(env, bucket, (name, round), put)?;
    winner(bucket, name, (&answers, round)).map_err(|failure| {
        let is_broken = failure.errno == UNFIT;
        Broken { failure, condition: is_broken.then_some(round.condition) }
    })
}

/// What each writer was answered.
fn at_once(
    env: &Env,
    bucket: &Bucket,
    (name, round): (&str, Round),
    put: impl Fn(&Bucket, &str, Bytes) -> Asked + Clone + Send + 'static,
) -> Result<Vec<(u8, Asked)>, Failure> {
    let (said, heard) = channel();
    let mut starts = Vec::new();
    for writer in 0..WRITERS {
        let (bucket, name, put, said) = (bucket.clone(), name.to_owned(), put.clone(), said.clone());
        let (start, started): (_, Receiver<()>) = channel();
        let write = move || {
            // nobody begins before all are there
            let _ = started.recv();
            let _ = said.send((writer, put(&bucket, &name, body(writer, round))));
        };
        env.try_spawn("store-check", write).map_err(|e| Failure {
            message: format!("the store cannot be checked: {e}"),
            errno: libc::EAGAIN,
        })?;
        starts.push(start);
    }
    drop((said, starts));
    Ok(heard.iter().collect())
}

/// Whether one has won at most, and the object is what it wrote. A winner may not know that it is
/// one: then its first answer was lost, and the second attempt found its own object. The object's
/// tag.
fn winner(bucket: &Bucket, name: &str, (answers, round): (&[(u8, Asked)], Round)) -> Result<Tag, Failure> {
    let condition = round.condition;
    let winners: Vec<u8> =
        answers.iter().filter(|(_, said)| said.is_ok()).map(|(writer, _)| *writer).collect();
    if winners.len() > 1 {
        let what = format!(
            "lets {} of {WRITERS} writers win that ask at the same time with {condition}: two processes could write to \
             one cell",
            winners.len()
        );
        return Err(unfit(bucket, &what));
    }
    let failed = answers.iter().find_map(|(_, said)| match said {
        Err(Error::Exists(_)) | Ok(()) => None,
        Err(e) => Some(e.clone()),
    });
    let found = bucket.get_tagged(name).map_err(refused)?;
    match (found, winners.first(), failed) {
        (Some((found, tag)), Some(winner), _) if found == body(*winner, round) => Ok(tag),
        (_, None, Some(e)) => Err(refused(e)),
        (Some((found, tag)), None, None) if (0..WRITERS).any(|writer| found == body(writer, round)) => {
            Ok(tag)
        }
        _ => {
            let what =
                format!("does not show what was just written with {condition}: a cell would lose changes");
            Err(unfit(bucket, &what))
        }
    }
}

/// What a writer writes in a round. No two are the same: in most stores a tag is a hash of the
/// content, and one writer that wins twice with the same would let others win after it.
fn body(writer: u8, Round { condition, number }: Round) -> Bytes {
    let text = format!(
        "Leeward asks whether this store keeps conditions: {condition}, {number}, by writer {writer}\n"
    );
    text.into()
}

fn unfit(bucket: &Bucket, what: &str) -> Failure {
    let message = format!("{}: this store {what}: {OTHERS}", bucket.place());
    Failure { message, errno: UNFIT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_is_written_twice() {
        let rounds = [MAKING, REPLACING]
            .into_iter()
            .flat_map(|condition| (0..=ROUNDS).map(move |number| Round { condition, number }));
        let all: Vec<Bytes> =
            rounds.flat_map(|round| (0..=WRITERS).map(move |writer| body(writer, round))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
