//! The groups of the programs that ask, which the server must know for some operations.

use leeward_env::{Ctx, Nanos};
use leeward_fs::Op;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How long groups are taken to be the same.
const KNOWN_FOR: Nanos = 1_000_000_000;
/// Programs that are remembered.
const PROGRAMS_MAX: usize = 4096;

/// Groups of programs, by thread, as they were within the last second.
#[derive(Default)]
pub(super) struct GroupsOfPrograms(Mutex<FxHashMap<u32, Known>>);

struct Known {
    at: Nanos,
    uid: u32,
    gid: u32,
    gids: Arc<[u32]>,
}

impl GroupsOfPrograms {
    /// All groups of the caller.
    pub(super) fn of(&self, ctx: &Ctx, now: Nanos) -> Arc<[u32]> {
        if ctx.pid == 0 {
            return ctx.groups().into(); // no program asks
        }
        let is_it = |known: &&Known| {
            (known.uid, known.gid) == (ctx.uid, ctx.gid) && now.saturating_sub(known.at) < KNOWN_FOR
        };
        if let Some(known) = self.0.lock().get(&ctx.pid).filter(is_it) {
            return known.gids.clone();
        }
        let gids: Arc<[u32]> = ctx.groups().into();
        let mut all = self.0.lock();
        if all.len() >= PROGRAMS_MAX {
            all.clear();
        }
        all.insert(ctx.pid, Known { at: now, uid: ctx.uid, gid: ctx.gid, gids: gids.clone() });
        gids
    }
}

/// Whether the server must know all groups of the caller for this.
pub(super) fn matter_to(ctx: &Ctx, op: &Op<'_>) -> bool {
    match op {
        Op::SetAttr { .. } | Op::SetXattr { .. } => true,
        // whether a file keeps setgid; root changes nothing about it
        Op::Write { .. } | Op::Append { .. } | Op::Allocate { .. } | Op::CopyRange { .. } => ctx.uid != 0,
        // who may make and remove snapshots
        Op::Make { dir, .. } | Op::RmDir { dir, .. } | Op::Rename { to_dir: dir, .. } => dir.is_view(),
        _ => false,
    }
}
