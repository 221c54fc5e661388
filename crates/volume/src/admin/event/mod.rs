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
use serde_json::json;

/// Bytes of a request that are kept of somebody who is no operator, and those of one that is
/// longer: in JSON each may take two.
const TEXT_BYTES_MAX: usize = 1024;
const CUT_BYTES: usize = 400;

/// A request as JSON. Who is no operator does not fill the log with long ones: of these there is
/// the beginning.
fn text_of(request: &AnyRequest, is_bounded: bool) -> Vec<u8> {
    let text = serde_json::to_vec(request).unwrap_or_default();
    if !is_bounded || text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let whole = serde_json::to_value(request).unwrap_or_default();
    let begin = String::from_utf8_lossy(&text[..CUT_BYTES]);
    json!({"request": whole["request"], "bytes": text.len(), "cut": begin}).to_string().into()
}

impl Shard {
    /// Keeps in the event log of the cell that somebody asks for this, if that is kept of it. To be
    /// called before it is done.
    pub(crate) fn note_request(&self, ctx: &Ctx, request: &AnyRequest) {
        if !request.is_noted() {
            return;
        }
        let event = Event {
            at: self.env.wall(),
            by: actor_of(ctx),
            node: NodeId(0),
            kind: Kind::Dir,
            what: What::Asked(text_of(request, ctx.delegate.is_some()).into()),
        };
        // it is in the commit of what the request changes first, or in one before
        self.lock().events.add(CELL_LOG, &event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{BinEmpty, VolumeRename};

    #[test]
    fn of_a_long_request_the_beginning_is_kept_unless_an_operator_asks() {
        let long = |volume: String| AnyRequest::from(BinEmpty { volume: Some(volume) });
        for text in ["a".repeat(1 << 20), "\"\u{1}".repeat(5_000), "\u{10348}".repeat(5_000)] {
            let kept = text_of(&long(text.clone()), true);
            assert!(kept.len() <= TEXT_BYTES_MAX, "{} bytes", kept.len());
            let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
            assert_eq!(kept["request"], "bin-empty");
            assert!(kept["bytes"].as_u64() > Some(5_000) && kept["cut"].is_string(), "{kept}");
            let whole = text_of(&long(text), false);
            assert!(whole.len() > 5_000, "what operators ask is kept as it came");
        }
        let short = AnyRequest::from(VolumeRename { name: "a".into(), to: "b".into() });
        let whole = json!({"request": "volume-rename", "name": "a", "to": "b"});
        let kept: serde_json::Value = serde_json::from_slice(&text_of(&short, true)).expect("JSON");
        assert_eq!(kept, whole);
    }
}
