//! What doors on this machine need of the server: their requests, and what they have to know of
//! users.
//!
//! A request of several operations is several calls here, one after the other, on a thread of its
//! own. As many threads may wait as doors work on requests: who works next the doors have decided
//! already.

use super::workers::Workers;
use super::{Client, Phase};
use crate::message::{AccessCall, Call};
use leeward_env::{Ctx, Wait};
use leeward_fs::{Error, NodeId, Op, Reply, Result};
use leeward_vfs::{Answer, Backend, DoorBackend, Steps};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Threads for requests of several operations, at most: more than requests that two doors work on.
const THREADS_MAX: usize = 1536;
/// Longest that is told of users, bytes: a server that tells more is none of ours.
const ACCESS_BYTES_MAX: u64 = 256 << 20;

/// A connection to the server of a cell, for doors. Cheap to clone.
#[derive(Clone)]
pub struct ForDoors {
    client: Client,
    threads: Arc<Workers>,
}

impl Client {
    /// The same for doors.
    pub fn for_doors(&self) -> ForDoors {
        let threads = Arc::new(Workers::new(&self.0.env, "remote-door", THREADS_MAX));
        ForDoors { client: self.clone(), threads }
    }

    /// What doors have to know of users and buckets, with its version; `None`: what has the version
    /// `known`. From then on this session keeps no copies of files.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]: the server does not let this host be a gateway. [`Error::Io`]: it
    /// does not answer.
    pub fn access(&self, known: u64) -> Result<Option<(u64, Vec<u8>)>> {
        let mut all = Vec::new();
        let mut call = AccessCall::Since(known);
        loop {
            let Reply::Data(data) = self.ask_access(call)? else { return Ok(None) };
            let told = data.split_first_chunk::<8>();
            let told = told.and_then(|(version, rest)| Some((version, rest.split_first_chunk::<8>()?)));
            let Some((version, (total, piece))) = told else { return Err(nonsense()) };
            let (version, total) = (u64::from_le_bytes(*version), u64::from_le_bytes(*total));
            if !matches!(call, AccessCall::More { version: of, .. } if of == version) {
                all.clear();
            }
            all.extend_from_slice(piece);
            let offset = all.len() as u64;
            if offset > total || total > ACCESS_BYTES_MAX || piece.is_empty() && offset < total {
                return Err(nonsense());
            }
            if offset == total {
                return Ok(Some((version, all)));
            }
            call = AccessCall::More { version, offset };
        }
    }

    fn ask_access(&self, call: AccessCall) -> Result<Reply> {
        let (send, receive) = sync_channel(1);
        self.ask(Call::Access(call), None, Box::new(move |result| drop(send.send(result))));
        receive.recv().unwrap_or_else(|_| Err(Error::Io("the request was lost".into())))
    }

    /// Whether the server has said that it does not let this host in.
    pub fn is_refused(&self) -> bool {
        matches!(&self.0.state.lock().phase, Phase::Away(away) if away.refused)
    }

    /// Counts losses of the connection, and whether there is none now.
    fn losses(&self) -> (u64, bool) {
        let state = self.0.state.lock();
        (state.times_lost, !matches!(state.phase, Phase::Up(_)))
    }
}

fn nonsense() -> Error {
    Error::Io("the server answers nonsense".into())
}

/// Tells a server that failed from one that does not answer: by whether the connection was lost
/// meanwhile.
fn judged(client: &Client, before: u64, result: Result<Reply>) -> Result<Reply> {
    match (&result, client.losses()) {
        (Err(Error::Io(_)), (lost, is_away)) if is_away || lost != before => Err(Error::Unavailable),
        _ => result,
    }
}

impl DoorBackend for ForDoors {
    fn run(&self, ctx: Ctx, op: Op<'_>, answer: Answer) {
        let (client, (before, _)) = (self.client.clone(), self.client.losses());
        // a door judges by the session whether what it was told still counts
        self.client.ask_op(&ctx, op, Box::new(move |result| answer(judged(&client, before, result))));
    }

    fn run_all(&self, ctx: Ctx, _: (Op<'static>, u64), mut steps: Steps) {
        self.threads.run(move || _ = steps(&ctx.with_wait(Wait::Allowed)));
    }

    fn call(&self, ctx: &Ctx, op: Op<'_>) -> Result<Reply> {
        let (send, receive) = sync_channel(1);
        self.run(*ctx, op, Box::new(move |result| drop(send.send(result))));
        receive.recv().unwrap_or(Err(Error::Unavailable))
    }

    fn ask(&self, ctx: Ctx, op: Op<'_>, answer: Answer) {
        self.run(ctx, op, answer);
    }

    fn forget(&self, ctx: Ctx, node: NodeId, count: u64) {
        Backend::forget(&self.client, ctx, node, count);
    }

    fn session(&self) -> u64 {
        let state = self.client.0.state.lock();
        let session = state.session.map_or(0, |session| session.number);
        // of another process, too: not all that a door does is done again there
        session ^ state.instance.unwrap_or_default().rotate_left(1)
    }
}
