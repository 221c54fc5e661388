//! Which servers the cell may be at.

use crate::message::ServerList;
use parking_lot::Mutex;

/// Of those so many are asked in a round: each may take a second, and the others wait for this
/// machine for 6.
const BEFORE_AT_ONCE: usize = 2;
/// Servers of one list, at most.
const SERVERS_MAX: usize = 64;
/// Servers that were heard of and are not there now, at most: they may come back.
const GONE_MAX: usize = 32;

/// The servers that a mount was given, and those that a server has told it of.
pub(super) struct Servers {
    known: Mutex<Known>,
}

struct Known {
    now: ServerList,
    given: Vec<String>,
    /// Heard of before.
    before: Vec<String>,
    /// Did not answer when it was asked last: asked after the others.
    silent: Option<String>,
}

impl Servers {
    /// Those that are given: host and port, with commas between them.
    pub(super) fn new(given: &str) -> Servers {
        let given = given.split(',').map(str::to_owned).collect();
        Servers {
            known: Mutex::new(Known { now: ServerList::default(), given, before: Vec::new(), silent: None }),
        }
    }

    /// All, the one first that has the cell as far as is known.
    pub(super) fn all(&self) -> Vec<String> {
        let known = self.known.lock();
        let mut all = known.now.addresses.clone();
        for before in known.before.iter().take(BEFORE_AT_ONCE).chain(&known.given) {
            if !all.contains(before) {
                all.push(before.clone());
            }
        }
        // the others keep their order
        all.sort_by_key(|server| known.silent.as_ref() == Some(server));
        all
    }

    /// A round through all begins: of those that are gone others are asked than in the last one.
    pub(super) fn begin_round(&self) {
        let mut known = self.known.lock();
        let by = BEFORE_AT_ONCE.min(known.before.len());
        known.before.rotate_left(by);
    }

    /// One does not answer.
    pub(super) fn is_silent(&self, server: &str) {
        self.known.lock().silent = Some(server.to_owned());
    }

    /// A server tells of all. False: of a time before another had the cell, of whom this client
    /// knows. Nothing is taken from such a server (docs/decisions/0038, O23).
    pub(super) fn heard(&self, mut list: ServerList) -> bool {
        list.addresses.retain(|address| is_address(address));
        list.addresses.truncate(SERVERS_MAX);
        let mut known = self.known.lock();
        if list.turn < known.now.turn {
            return false;
        }
        let before = std::mem::replace(&mut known.now, list);
        if before.turn < known.now.turn {
            known.silent = None;
        }
        for server in before.addresses {
            if !known.before.contains(&server) {
                known.before.insert(0, server);
            }
        }
        known.before.truncate(GONE_MAX);
        true
    }
}

/// Whether this may be a host, or an address, and a port.
fn is_address(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    !host.is_empty() && !host.starts_with(['.', '-']) && host.chars().all(fits) && port.parse::<u16>().is_ok()
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
        assert_eq!(servers.all(), ["c:1", "b:1", "a:1"], "those that are gone may come back");
        servers.is_silent("c:1");
        assert_eq!(servers.all(), ["b:1", "a:1", "c:1"]);
        assert!(servers.heard(list(6, &["../x:1", "/etc/x:1", "a:x", "a", ":1", "[::1]:1"])));
        assert_eq!(servers.all(), ["[::1]:1", "c:1", "b:1", "a:1"], "what makes no sense is left out");
        let many: Vec<String> = (0..9).map(|n| format!("n{n}:1")).collect();
        assert!(servers.heard(ServerList { turn: 7, addresses: many }) && servers.heard(list(8, &["d:1"])));
        let mut asked: Vec<String> = Vec::new();
        for _ in 0..8 {
            servers.begin_round();
            assert!(servers.all().len() <= 5, "this one, two that are gone, and those given");
            asked.extend(servers.all());
        }
        assert!((0..9).all(|n| asked.contains(&format!("n{n}:1"))), "each has its turn");
    }
}
