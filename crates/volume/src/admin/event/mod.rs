//! Requests about event logs: what changed in a volume, and what operators asked.

mod list;
mod places;
mod verify;

pub use list::*;
pub use verify::*;

use crate::admin::AnyRequest;
use crate::format::events::{Event, What};
use crate::format::keys::CELL_LOG;
use crate::ops::events::actor_of;
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::{Kind, NodeId};

impl Shard {
    /// Keeps in the event log of the cell that somebody asks for this, if that is kept of it. To be
    /// called before it is done.
    pub(crate) fn note_request(&self, ctx: &Ctx, request: &AnyRequest) {
        if !request.is_noted() {
            return;
        }
        let text = serde_json::to_vec(request).unwrap_or_default();
        let event = Event {
            at: self.env.wall(),
            by: actor_of(ctx),
            node: NodeId(0),
            kind: Kind::Dir,
            what: What::Asked(text.into()),
        };
        // it is in the commit of what the request changes first, or in one before
        self.lock().events.add(CELL_LOG, &event);
    }
}
