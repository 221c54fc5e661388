//! The answer to one request, by way of whichever channel brought it.

use super::abi::{self, InHeader};
use super::device::Device;
use super::pending::Pending;
use super::ring::Entry;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Where the answer to one request goes. Dropped without an answer, it answers EIO.
pub(crate) struct Reply(State);

enum State {
    Open(To),
    /// Answered by whoever takes it first.
    Entered(Arc<Pending>, u64),
    Over,
}

/// The way back.
pub(super) enum To {
    Device { device: Arc<Device>, unique: u64 },
    Ring(Entry),
}

impl Reply {
    /// To a request that was read from `/dev/fuse`.
    pub(crate) fn to_device(device: &Arc<Device>, unique: u64) -> Reply {
        Reply(State::Open(To::Device { device: device.clone(), unique }))
    }

    /// To a request that a ring brought.
    pub(crate) fn to_ring(entry: Entry) -> Reply {
        Reply(State::Open(To::Ring(entry)))
    }

    /// The same request as one that is answered EINTR when its asker is killed.
    pub(crate) fn interruptible(mut self, pending: &Arc<Pending>, head: &InHeader) -> Reply {
        let unique = head.unique;
        if let State::Open(to) = std::mem::replace(&mut self.0, State::Over) {
            pending.enter(unique, head.pid, to);
        }
        Reply(State::Entered(pending.clone(), unique))
    }

    /// It failed.
    pub(crate) fn error(self, errno: i32) {
        self.finish(-errno.abs(), &[]);
    }

    /// It is done, and there is nothing to say.
    pub(crate) fn done(self) {
        self.finish(0, &[]);
    }

    /// One structure of the kernel's.
    pub(crate) fn value<T: IntoBytes + Immutable>(self, value: &T) {
        self.finish(0, value.as_bytes());
    }

    /// One structure of the kernel's, which takes a reference. Where nobody waits for it any more,
    /// `lost` is called instead.
    pub(crate) fn value_or_else<T: IntoBytes + Immutable>(mut self, value: &T, lost: impl FnOnce()) {
        match self.take() {
            Some(to) => to.send(0, value.as_bytes()),
            None => lost(),
        }
    }

    /// It is done. Where nobody waits for it any more, `lost` is called instead.
    pub(crate) fn done_or_else(mut self, lost: impl FnOnce()) {
        match self.take() {
            Some(to) => to.send(0, &[]),
            None => lost(),
        }
    }

    /// Bytes.
    pub(crate) fn data(self, data: &[u8]) {
        self.finish(0, data);
    }

    /// The kernel wants no answer.
    pub(crate) fn none(mut self) {
        self.0 = State::Over;
    }

    fn finish(mut self, error: i32, payload: &[u8]) {
        if let Some(to) = self.take() {
            to.send(error, payload);
        }
    }

    fn take(&mut self) -> Option<To> {
        match std::mem::replace(&mut self.0, State::Over) {
            State::Open(to) => Some(to),
            State::Entered(pending, unique) => pending.take(unique),
            State::Over => None,
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.take() {
            to.send(-libc::EIO, &[]);
        }
    }
}

impl To {
    pub(super) fn send(self, error: i32, payload: &[u8]) {
        match self {
            To::Device { device, unique } => {
                let len = (size_of::<abi::OutHeader>() + payload.len()) as u32;
                // ENOENT: the asker was interrupted; ENODEV: the mount is gone. Nobody waits then.
                let _ = device.write(&abi::OutHeader { len, error, unique }, payload);
            }
            To::Ring(entry) => entry.answer(error, payload),
        }
    }
}
