//! Tells gateways what their doors have to know of users: secrets too, so nobody else is told.

use super::Shared;
use super::session::Session;
use crate::message::AccessCall;
use leeward_fs::{Error, Reply, Result};

/// Bytes that are told at a time.
const PIECE_BYTES: usize = 512 << 10;

/// Answers a gateway. No other host is told anything.
pub(super) fn tell(shared: &Shared, session: &Session, call: AccessCall) -> Result<Reply> {
    if !session.host().grant.gateway {
        return Err(Error::NotPermitted);
    }
    if session.is_of_gateway() {
        let _ = shared.lasting.send(super::lasting::Job::Forget(session.id.number));
    }
    let (version, all) = shared.hosts.access();
    let from = match call {
        AccessCall::Since(known) if known == version => return Ok(Reply::Done),
        AccessCall::More { version: known, offset } if known == version => {
            usize::try_from(offset).ok().filter(|from| *from <= all.len()).ok_or(Error::Invalid)?
        }
        AccessCall::Since(_) | AccessCall::More { .. } => 0,
    };
    let piece = &all[from..all.len().min(from + PIECE_BYTES)];
    Ok(Reply::Data([&version.to_le_bytes()[..], &(all.len() as u64).to_le_bytes(), piece].concat()))
}
