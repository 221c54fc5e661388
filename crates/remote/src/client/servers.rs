//! Which servers the cell may be at.

use crate::message::ServerList;
use parking_lot::Mutex;

/// The servers that a mount was given, and those that a server has told it of.
pub(super) struct Servers {
    given: Vec<String>,
    known: Mutex<ServerList>,
}

impl Servers {
    /// Those that are given: host and port, with commas between them.
    pub(super) fn new(given: &str) -> Servers {
        Servers { given: given.split(',').map(str::to_owned).collect(), known: Mutex::default() }
    }

    /// All, the one first that has the cell as far as is known.
    pub(super) fn all(&self) -> Vec<String> {
        let mut all = self.known.lock().addresses.clone();
        for given in &self.given {
            if !all.contains(given) {
                all.push(given.clone());
            }
        }
        all
    }

    /// A server tells of all. False: of a time before another had the cell, of whom this client knows. Nothing is taken
    /// from such a server (docs/decisions/0038, O23).
    pub(super) fn heard(&self, list: ServerList) -> bool {
        let mut known = self.known.lock();
        if list.turn < known.turn {
            return false;
        }
        *known = list;
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
        assert_eq!(servers.all(), ["c:1", "a:1", "b:1"]);
    }
}
