//! Weight and ceilings of each user at the gate: computed once from the operator's settings for the
//! user and its groups, and kept.

use crate::people::Answers;
use leeward_env::Nanos;
use leeward_fs::flows::FlowSettings;
use leeward_gate::Share;

/// After this time a user's groups are looked up again, nanoseconds.
const GOOD: Nanos = 300_000_000_000;
/// Users whose shares are kept.
const USERS_MAX: usize = 4096;

/// The shares of users.
pub(crate) struct UserShares {
    settings: FlowSettings,
    known: Answers<u32, Share>,
}

impl Default for UserShares {
    fn default() -> UserShares {
        // old groups are better than none, for however long the user database does not answer
        UserShares { settings: FlowSettings::default(), known: Answers::new(GOOD, Nanos::MAX, USERS_MAX) }
    }
}

impl UserShares {
    /// Sets new settings.
    pub(crate) fn set(&mut self, settings: FlowSettings) {
        self.settings = settings;
        self.known.clear();
    }

    /// The share of a user; and whether the caller must make sure that somebody looks up the user's
    /// groups.
    pub(crate) fn of(&mut self, uid: u32, now: Nanos) -> (Share, bool) {
        if self.settings.is_empty() {
            return (Share::USUAL, false);
        }
        if !self.settings.has_groups() {
            return (self.with_groups(uid, &[]), false);
        }
        let (known, ask) = self.known.get(uid, now);
        (known.unwrap_or_else(|| self.with_groups(uid, &[])), ask)
    }

    /// Users whose groups have to be looked up.
    pub(crate) fn wanted(&mut self) -> Vec<u32> {
        self.known.wanted()
    }

    /// Enters the groups of a user.
    pub(crate) fn found(&mut self, uid: u32, gids: &[u32], now: Nanos) {
        let share = self.with_groups(uid, gids);
        self.known.put(uid, share, now);
    }

    fn with_groups(&self, uid: u32, gids: &[u32]) -> Share {
        let force = self.settings.in_force(uid, gids);
        Share { weight: force.weight, ops_per_sec: force.ops_per_sec, bytes_per_sec: force.bytes_per_sec }
    }
}
