//! Which servers the cell may be at.

use crate::message::ServerList;
use parking_lot::Mutex;

/// Servers that were heard of and are not there now, at most: they may come back.
const GONE_MAX: usize = 32;

/// The servers that a mount was given, and those that a server has told it of.
pub(super) struct Servers {
    known: Mutex<Known>,
}

struct Known {
    now: ServerList,
    /// Given, or heard of before.
    before: Vec<String>,
    /// Did not answer when it was asked last: asked after the others.
    silent: Option<String>,
}

impl Servers {
    /// Those that are given: host and port, with commas between them.
    pub(super) fn new(given: &str) -> Servers {
        let before = given.split(',').map(str::to_owned).collect();
        Servers { known: Mutex::new(Known { now: ServerList::default(), before, silent: None }) }
    }

    /// All, the one first that has the cell as far as is known.
    pub(super) fn all(&self) -> Vec<String> {
        let known = self.known.lock();
        let mut all = known.now.addresses.clone();
        for before in &known.before {
            if !all.contains(before) {
                all.push(before.clone());
            }
        }
        // the others keep their order
        all.sort_by_key(|server| known.silent.as_ref() == Some(server));
        all
    }

    /// One does not answer.
    pub(super) fn is_silent(&self, server: &str) {
        self.known.lock().silent = Some(server.to_owned());
    }

    /// A server tells of all. False: of a time before another had the cell, of whom this client knows. Nothing is taken
    /// from such a server (docs/decisions/0038, O23).
    pub(super) fn heard(&self, list: ServerList) -> bool {
        let mut known = self.known.lock();
        if list.turn < known.now.turn {
            return false;
        }
        let before = std::mem::replace(&mut known.now, list);
        known.silent = None;
        for server in before.addresses {
            if !known.before.contains(&server) {
                known.before.insert(0, server);
            }
        }
        known.before.truncate(GONE_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_cell_is_asked_first_and_nobody_of_a_time_before() {
        let servers = Servers::new("a:1,b:1");
        let list = |turn, addresses: &[&str]| ServerList {
            turn,
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        };
        assert_eq!(servers.all(), ["a:1", "b:1"]);
        assert!(servers.heard(list(5, &["b:1", "c:1"])));
        assert_eq!(servers.all(), ["b:1", "c:1", "a:1"]);
        assert!(!servers.heard(list(4, &["a:1"])) && servers.heard(list(5, &["c:1"])));
        assert_eq!(servers.all(), ["c:1", "a:1", "b:1"], "those that are gone may come back");
        servers.is_silent("c:1");
        assert_eq!(servers.all(), ["a:1", "b:1", "c:1"]);
    }
}
