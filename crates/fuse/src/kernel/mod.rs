//! The kernel's FUSE protocol: structures, requests, replies, and the channels that carry them.
//!
//! * `abi`: what `linux/fuse.h` says. `request` and `reply`: one of each.
//! * `attach`: mounting. `device`: `/dev/fuse`. `ring`: io_uring, where the kernel has it.
//! * `pending`: requests whose asker may be killed while they wait.
//! * `session`: the handshake and the threads.
//!
//! Nothing here knows of Leeward's file system: requests go to a [`Handler`].

pub(crate) mod abi;
pub(crate) mod attach;
mod device;
mod pending;
mod reply;
mod request;
mod ring;
mod session;

pub(crate) use device::Device;
pub(crate) use pending::Pending;
pub(crate) use reply::Reply;
pub(crate) use request::{Call, Request};
pub(crate) use session::{Channel, Limits, Rings, Session};

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one, now or later, on this thread or another.
    fn handle(&self, request: Request<'_>, reply: Reply);

    /// Whether something waits for a thread of a ring: asked between requests.
    fn has_turns(&self) -> bool;

    /// Does one of those things; false: none may begin now.
    fn take_turn(&self) -> bool;
}

/// Whatever happens the request is answered: a reply that is dropped in a panic says EIO.
fn handle(handler: &impl Handler, request: Request<'_>, reply: Reply) {
    if catch_unwind(AssertUnwindSafe(|| handler.handle(request, reply))).is_err() {
        tracing::error!("a request of the kernel ended in a panic");
    }
}
