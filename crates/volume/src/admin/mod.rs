//! What operators ask of a cell: each request is a struct with its fields, its reply and what it
//! does.
//!
//! `request.rs` has the list of all requests. A family of requests, such as quotas, is a file; one
//! that does more, such as volumes, is a folder with a file for each request. Requests and replies
//! are plain data with serde: the control socket carries them as JSON, and `--json` prints replies
//! as they are. `failure.rs`, `scrub_status.rs` and `snap/changes.rs` are words that the rooms
//! below use, too.
//!
//! Paths are absolute within the cell: `/` is the root of the root volume.

/// Most bytes of a list that is answered in one piece, about.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Bytes of a row of such a list without its paths and names, about.
const ROW_BYTES: usize = 200;

mod accounts;
mod acl;
mod backup;
mod bin;
mod bucket;
mod df;
mod event;
pub(crate) mod failure;
pub(crate) mod figures;
mod flow;
mod format;
mod fsck;
mod group;
mod host;
mod key;
mod limits;
mod mirror;
mod owner;
mod pool;
mod project;
mod quota;
mod report;
mod request;
mod schedule;
mod scrub;
mod scrub_status;
mod shard;
mod snap;
mod stats;
mod sync;
mod token;
mod usage;
mod user;
mod volume;

pub use acl::*;
pub use backup::*;
pub use bin::*;
pub use bucket::*;
pub use df::*;
pub use event::*;
pub use failure::{Failure, Progress};
pub use flow::*;
pub use format::*;
pub use fsck::*;
pub use group::*;
pub use host::*;
pub use key::*;
pub use limits::*;
pub use mirror::*;
pub use owner::*;
pub use pool::*;
pub use project::*;
pub use quota::*;
pub use report::*;
pub use request::*;
pub use schedule::*;
pub use scrub::*;
pub use scrub_status::*;
pub use shard::*;
pub use snap::*;
pub use stats::*;
pub use sync::*;
pub use token::*;
pub use usage::*;
pub use user::*;
pub use volume::*;
