//! The server's side.

use super::{FromClient, Lease, Peer, Recalls, Right, Rule, State, ToClient, Want};

impl Recalls {
    /// While a request waits for recalls, a write waits behind it. A read does so only if it would
    /// need a recall itself; else it is answered at once, without a lease.
    pub(crate) fn may_serve(&self, state: &State, client: usize, message: FromClient) -> bool {
        match message {
            FromClient::Request(want) if state.has_waiting() => {
                let conflicts = |(other, peer): (usize, &Peer)| other != client && peer.conflicts_with(want);
                want == Want::Read
                    && self.keeps(Rule::ReadsDoNotQueue)
                    && !state.peers.iter().enumerate().any(conflicts)
            }
            _ => true,
        }
    }

    pub(crate) fn serve(&self, state: &mut State, client: usize, message: FromClient) {
        match message {
            FromClient::Request(want) => self.begin(state, client, want),
            FromClient::Flush(value) => {
                state.value = value;
                state.peers[client].down.push(ToClient::Flushed(value));
            }
            FromClient::Recalled => {
                state.peers[client].note_recalled();
                self.go_on(state);
            }
            FromClient::Release(number) => {
                let peer = &mut state.peers[client];
                let newest = peer.granted.is_none_or(|lease| lease.number <= number);
                if newest || !self.keeps(Rule::ReleaseNamesItsGrant) {
                    peer.granted = None;
                }
            }
        }
    }

    fn begin(&self, state: &mut State, client: usize, want: Want) {
        for (other, peer) in state.peers.iter_mut().enumerate() {
            if other != client && peer.conflicts_with(want) {
                peer.recall(want == Want::Read);
            }
        }
        let waits = state.peers.iter().any(|peer| peer.recalling.is_some());
        if !waits || !self.keeps(Rule::RecallBeforeConflict) || state.has_waiting() {
            self.run(state, client, want);
        } else {
            state.peers[client].waiting = Some(want);
        }
    }

    fn go_on(&self, state: &mut State) {
        if state.peers.iter().any(|peer| peer.recalling.is_some()) {
            return;
        }
        for client in 0..state.peers.len() {
            if let Some(want) = state.peers[client].waiting.take() {
                self.run(state, client, want);
            }
        }
    }

    fn run(&self, state: &mut State, client: usize, want: Want) {
        match want {
            Want::Read => {
                let has_w = state.peers[client].granted.is_some_and(|lease| lease.right == Right::W);
                state.stale_answer |= state.value != state.latest && !has_w;
                let may_grant = !state.has_waiting() || !self.keeps(Rule::NothingNewMeanwhile);
                let lease = may_grant.then(|| self.grant(&mut state.peers[client], Right::R));
                state.peers[client].down.push(ToClient::Value(state.value, lease));
            }
            Want::Write(value) => {
                state.value = value;
                state.latest = value;
                let lease = self.grant(&mut state.peers[client], Right::W);
                state.peers[client].down.push(ToClient::Written(value, lease));
            }
        }
    }

    fn grant(&self, peer: &mut Peer, right: Right) -> Lease {
        peer.last_number += 1;
        let held = peer.granted.map(|lease| lease.right).filter(|_| self.keeps(Rule::GrantNeverWeakens));
        let lease = Lease { right: held.map_or(right, |held| held.max(right)), number: peer.last_number };
        peer.granted = Some(lease);
        lease
    }
}

impl State {
    fn has_waiting(&self) -> bool {
        self.peers.iter().any(|peer| peer.waiting.is_some())
    }
}

impl Peer {
    fn conflicts_with(&self, want: Want) -> bool {
        self.granted.is_some_and(|lease| want != Want::Read || lease.right == Right::W)
    }

    fn recall(&mut self, keeps_r: bool) {
        if self.recalling.is_none() {
            self.recalling = Some(keeps_r);
            self.down.push(ToClient::Recall { up_to: self.last_number, keeps_r });
        }
    }

    fn note_recalled(&mut self) {
        let keeps_r = self.recalling.take() == Some(true);
        self.granted = self.granted.filter(|_| keeps_r).map(|lease| Lease { right: Right::R, ..lease });
    }
}
