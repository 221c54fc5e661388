//! A client's side.

use super::{FromClient, Lease, Peer, Pending, Recalls, Right, Rule, State, ToClient, Want};

impl Recalls {
    pub(crate) fn send_write(&self, state: &mut State, client: usize) {
        let value = state.next_write();
        let peer = &mut state.peers[client];
        peer.writes += 1;
        peer.write = Some(Pending::default());
        if self.keeps(Rule::OwnCopyGoesFirst) {
            peer.lease = None;
        }
        peer.up.push(FromClient::Request(Want::Write(value)));
    }

    pub(crate) fn receive(&self, peer: &mut Peer, message: ToClient) {
        match message {
            ToClient::Value(value, lease) => {
                let pending = peer.read.take().unwrap_or_default();
                if let Some(lease) = lease
                    && (peer.write.is_none() || !self.keeps(Rule::OwnCopyGoesFirst))
                {
                    self.install(peer, pending, value, lease);
                }
                self.go_on_with_recall(peer);
            }
            ToClient::Written(value, lease) => {
                let pending = peer.write.take().unwrap_or_default();
                self.install(peer, pending, value, lease);
            }
            ToClient::Flushed(value) => {
                peer.note_flushed(value);
                self.go_on_with_recall(peer);
            }
            ToClient::Recall { up_to, keeps_r } => self.follow_recall(peer, up_to, keeps_r),
        }
    }

    /// Takes a lease, unless a recall was faster. What was written under W is not overwritten.
    fn install(&self, peer: &mut Peer, pending: Pending, value: u8, lease: Lease) {
        if lease.number <= pending.void_up_to && self.keeps(Rule::RecallVoidsGrantsUnderWay) {
            return;
        }
        let has_w = peer.lease.is_some_and(|held| held.right == Right::W);
        if !has_w {
            peer.copy = value;
        }
        if !has_w || lease.right == Right::W {
            peer.lease = peer.lease.max(Some(lease));
        }
    }

    fn follow_recall(&self, peer: &mut Peer, up_to: u8, keeps_r: bool) {
        for pending in [&mut peer.read, &mut peer.write].into_iter().flatten() {
            pending.void_up_to = up_to;
        }
        peer.recall = Some(keeps_r);
        if peer.dirty && peer.flushing.is_none() {
            peer.flush();
        }
        if self.keeps(Rule::FlushBeforeAnswer) {
            self.go_on_with_recall(peer);
        } else {
            peer.answer_recall();
        }
    }

    /// Answers a recall when all was flushed and the kernel can drop its pages: those of a read
    /// under way are locked.
    fn go_on_with_recall(&self, peer: &mut Peer) {
        let keeps_pages = peer.recall == Some(true);
        let locked = peer.read.is_some() && !keeps_pages;
        if peer.recall.is_some() && peer.flushing.is_none() && !peer.dirty && !locked {
            peer.answer_recall();
        }
    }
}

impl State {
    pub(crate) fn write_copy(&mut self, client: usize) {
        let value = self.next_write();
        self.latest = value;
        let peer = &mut self.peers[client];
        peer.writes += 1;
        peer.copy = value;
        peer.dirty = true;
    }
}

impl Peer {
    pub(crate) fn send_read(&mut self) {
        self.reads += 1;
        self.read = Some(Pending::default());
        self.up.push(FromClient::Request(Want::Read));
    }

    pub(crate) fn flush(&mut self) {
        self.flushing = Some(self.copy);
        self.up.push(FromClient::Flush(self.copy));
    }

    pub(crate) fn release(&mut self) {
        self.releases += 1;
        if let Some(lease) = self.lease.take() {
            self.up.push(FromClient::Release(lease.number));
        }
    }

    fn note_flushed(&mut self, value: u8) {
        self.flushing = None;
        self.dirty &= self.copy != value;
        if self.recall.is_some() && self.dirty {
            self.flush();
        }
    }

    fn answer_recall(&mut self) {
        let keeps_r = self.recall.take() == Some(true);
        self.dirty = false;
        self.lease = self.lease.filter(|_| keeps_r).map(|lease| Lease { right: Right::R, ..lease });
        self.up.push(FromClient::Recalled);
    }
}
