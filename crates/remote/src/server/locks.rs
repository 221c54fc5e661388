//! Locks of the programs of clients. The table is the gate's; here is what a client may ask of it.
//!
//! A call about locks is answered at once, so that it keeps no slot: a request that waits is
//! answered [`LockReply::Waits`], and the client hears later how it went by [`ToClient::Granted`].
//! That message may be lost with its connection. So a client that comes back asks again for what it
//! waits for, and no slot keeps the answer to a request: it would be told for ever that it waits,
//! or that it has what was taken from it since.
//!
//! Locks that others want are taken from a client that is silent ([`Shared::take_locks`],
//! `docs/decisions/0049`).

use super::session::{Answer, Session};
use super::{Shared, rights};
use crate::message::{Caller, ToClient, frame};
use leeward_fs::locks::{LockCall, LockReply, LockRequest, OwnedLock};
use leeward_fs::{Error, Op, Reply, Result};
use leeward_vfs::locks::LockTable;
use std::sync::Arc;

/// Runs a call about locks.
pub(super) fn run(
    shared: &Shared,
    session: &Arc<Session>,
    (caller, call): (&Caller, LockCall),
    answer: Answer,
) {
    let (table, number) = (&shared.locks, session.id.number);
    let result = match call {
        LockCall::Set { request, ticket } => {
            return set(shared, session, caller, (request, ticket), answer.for_once());
        }
        LockCall::Test(request) => return test(shared, session, (caller, request), answer),
        LockCall::Unlock { node, owner, range } => {
            table.unlock(number, node, owner, range).map(|()| Reply::Done)
        }
        LockCall::Cancel { ticket } if table.cancel(number, ticket) => Ok(Reply::Done),
        LockCall::Cancel { .. } => Ok(Reply::Lock(LockReply::NotWaiting)),
        LockCall::Release { node, owner } => {
            table.release(number, node, owner);
            Ok(Reply::Done)
        }
        LockCall::Tell(locks) => Ok(Reply::Lock(LockReply::Lost(tell(table, session, &locks)))),
    };
    answer.give(None, result);
}

fn set(
    shared: &Shared,
    session: &Arc<Session>,
    caller: &Caller,
    (request, ticket): (LockRequest, u64),
    answer: Answer,
) {
    let node = request.node;
    let (ctx, is_restricted) = match session.admit(caller, &Op::GetAttr { node }) {
        Ok(admitted) => admitted,
        Err(e) => return refuse(&shared.locks, session, (e, ticket), answer),
    };
    if !is_restricted {
        return ask(&shared.locks, session, (caller.uid, request, ticket), answer);
    }
    // it may be cancelled while it is checked
    if let Err(e) = shared.locks.announce(session.id.number, ticket) {
        return refuse(&shared.locks, session, (e, ticket), answer);
    }
    let (table, of, uid) = (shared.locks.clone(), session.clone(), caller.uid);
    rights::may_open(&shared.gate, session, ctx, node, move |permitted| match permitted {
        Ok(()) => ask(&table, &of, (uid, request, ticket), answer),
        Err(e) => {
            table.forget_announced(of.id.number, ticket);
            refuse(&table, &of, (e, ticket), answer);
        }
    });
}

/// Refuses a request. It may be in line, if it was asked for before.
fn refuse(table: &LockTable, session: &Session, (why, ticket): (Error, u64), answer: Answer) {
    table.cancel(session.id.number, ticket);
    answer.give(None, Err(why));
}

/// Asks the table. `uid`: the user of that machine, of whose share it is.
fn ask(
    table: &LockTable,
    session: &Arc<Session>,
    (uid, request, ticket): (u32, LockRequest, u64),
    answer: Answer,
) {
    let of = session.clone();
    let later = Box::new(move |result| {
        if let Some(connection) = of.connection() {
            connection.pipe.send(&frame(&ToClient::Granted { ticket, result }));
        }
    });
    match table.set((session.id.number, uid), &request, ticket, later) {
        Some((_, result)) => answer.give(None, result.map(|()| Reply::Done)),
        None => answer.give(None, Ok(Reply::Lock(LockReply::Waits))),
    }
}

fn test(shared: &Shared, session: &Arc<Session>, (caller, request): (&Caller, LockRequest), answer: Answer) {
    let node = request.node;
    let (ctx, is_restricted) = match session.admit(caller, &Op::GetAttr { node }) {
        Ok(admitted) => admitted,
        Err(e) => return answer.give(None, Err(e)),
    };
    let (table, number) = (shared.locks.clone(), session.id.number);
    let found = move |permitted: Result<()>| {
        let found = permitted.and_then(|()| table.test(number, &request));
        let reply = |lock| Reply::Lock(Option::map_or(lock, LockReply::Free, LockReply::Held));
        answer.give(None, found.map(reply));
    };
    if is_restricted { rights::may_open(&shared.gate, session, ctx, node, found) } else { found(Ok(())) }
}

/// Takes what the client had before; positions of what it does not get.
fn tell(table: &LockTable, session: &Arc<Session>, locks: &[OwnedLock]) -> Vec<u32> {
    let host = session.host();
    session.tells_locks(locks);
    let may_have = |told: &OwnedLock| {
        // the process before may have given them to others
        if session.was_expelled() {
            return false;
        }
        // users of restricted hosts have to show that they may open the file
        let is_known = !host.grant.is_restricted() && (!told.node.is_view() || session.knows(told.node));
        is_known && host.grant.has(told.node)
    };
    let is_lost = |told: &&OwnedLock| !may_have(told) || !table.tell(session.id.number, told);
    let positions = (0u32..).zip(locks);
    positions.filter(|(_, told)| is_lost(told)).map(|(position, _)| position).collect()
}
