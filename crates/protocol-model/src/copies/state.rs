//! What clients and server have, and what each step does to it.

use super::{Action, Copies, Rule};
use stateright::Representative;

/// Everything.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// The value.
    pub latest: u8,
    /// The clients, and what the server knows of each.
    pub clients: Vec<Client>,
}

/// A client, and what the server knows of it.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// What it keeps.
    pub copy: Option<u8>,
    /// Reads that are under way.
    pub reads: Vec<Read>,
    /// Its change that is under way.
    pub change: Option<Change>,
    /// The reference that it returns.
    pub forget: Option<Change>,
    /// At the server: it has a lease; it is asked for that.
    pub held: bool,
    /// See `held`.
    pub asked: bool,
    /// A recall is on its way to it; its answer to one.
    pub recall: bool,
    /// See `recall`.
    pub given_back: bool,
    /// What it has done so far.
    pub asked_for: u8,
    /// See `asked_for`.
    pub changed: u8,
    /// See `asked_for`.
    pub forgot: u8,
}

/// A read that is under way. `void`: nothing of it is kept.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// The server has not run it.
    Asked {
        /// See above.
        void: bool,
    },
    /// It has.
    Run {
        /// What it read.
        value: u8,
        /// Whether it got a lease.
        granted: bool,
        /// See above.
        void: bool,
    },
    /// The answer is on its way.
    Left {
        /// What it read.
        value: u8,
        /// Whether the answer says that there is a lease.
        granted: bool,
        /// See above.
        void: bool,
    },
}

/// How far something is that has an answer without content.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The server has not done it.
    Sent,
    /// It has; the answer is on its way.
    Made,
}

impl Client {
    fn void_reads(&mut self) {
        for read in &mut self.reads {
            let (Read::Asked { void } | Read::Run { void, .. } | Read::Left { void, .. }) = read;
            *void = true;
        }
    }
}

impl State {
    /// All clients but one.
    pub fn others(&self, but: usize) -> impl Iterator<Item = &Client> {
        self.clients.iter().enumerate().filter(move |(n, _)| *n != but).map(|(_, client)| client)
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        let is_quiet = |c: &Client| c.reads.is_empty() && c.change.is_none() && c.forget.is_none();
        self.clients.iter().all(|client| is_quiet(client) && !client.recall && !client.given_back)
    }

    pub(super) fn take(&mut self, model: &Copies, action: Action) {
        let latest = self.latest;
        match action {
            Action::Make(_) => self.latest += 1,
            Action::Ask(n) => {
                let client = &mut self.clients[n];
                client.asked_for += 1;
                let changes = client.change.is_some() && model.keeps(Rule::OwnChangeVoids);
                let forgets = client.forget.is_some() && model.keeps(Rule::ForgetVoids);
                client.reads.push(Read::Asked { void: changes || forgets });
            }
            _ => (),
        }
        match action {
            Action::Run(n, read) | Action::Leave(n, read) | Action::Learn(n, read) => {
                self.clients[n].go_on(model, read, latest);
            }
            Action::Send(n) => self.clients[n].send(model),
            Action::AskBack(n) => (self.clients[n].asked, self.clients[n].recall) = (true, true),
            Action::Void(n) => self.clients[n].void(model),
            Action::GivenBack(n) => {
                let client = &mut self.clients[n];
                (client.held, client.asked, client.given_back) = (false, false, false);
            }
            Action::Make(n) => self.clients[n].change = Some(Change::Made),
            Action::Made(n) => {
                self.clients[n].change = None;
                if model.keeps(Rule::OwnChangeVoids) {
                    self.clients[n].void_reads();
                }
            }
            Action::Forget(n) => self.clients[n].return_last(model),
            Action::Forgotten(n) => {
                (self.clients[n].held, self.clients[n].forget) = (false, Some(Change::Made));
            }
            Action::ForgetDone(n) => {
                self.clients[n].forget = None;
                if model.keeps(Rule::ForgetVoids) {
                    self.clients[n].void_reads();
                }
            }
            Action::Ask(_) => (),
        }
    }
}

impl Client {
    fn go_on(&mut self, model: &Copies, read: usize, latest: u8) {
        let may_grant = !self.asked || !model.keeps(Rule::NoneWhileAsked);
        match self.reads[read] {
            Read::Asked { void } => {
                self.held |= may_grant;
                self.reads[read] = Read::Run { value: latest, granted: may_grant, void };
            }
            Read::Run { value, granted, void } => {
                let granted = if model.keeps(Rule::GrantWhenRun) { granted } else { self.held && may_grant };
                self.reads[read] = Read::Left { value, granted, void };
            }
            Read::Left { value, granted, void } => {
                self.reads.remove(read);
                if granted && !void {
                    self.copy = Some(value);
                }
            }
        }
    }

    fn send(&mut self, model: &Copies) {
        (self.change, self.changed) = (Some(Change::Sent), self.changed + 1);
        if model.keeps(Rule::OwnChangeVoids) {
            self.copy = None;
            self.void_reads();
        }
    }

    fn void(&mut self, model: &Copies) {
        (self.copy, self.recall, self.given_back) = (None, false, true);
        if model.keeps(Rule::RecallVoids) {
            self.void_reads();
        }
    }

    fn return_last(&mut self, model: &Copies) {
        (self.forget, self.forgot) = (Some(Change::Sent), self.forgot + 1);
        self.copy = None;
        if model.keeps(Rule::ForgetVoids) {
            self.void_reads();
        }
    }
}

impl Representative for State {
    fn representative(&self) -> State {
        let mut sorted = self.clone();
        sorted.clients.sort_unstable();
        sorted
    }
}
