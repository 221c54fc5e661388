//! Turns of users of the machine that serves a cell: one who sends many commands leaves turns to
//! others, and all together leave some to operators.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Commands of users at the same time: of all, and of one. Operators have the rest.
const COMMANDS_MAX: usize = 16;
const COMMANDS_OF_USER_MAX: usize = 4;

/// Commands at work, by user.
#[derive(Default)]
pub struct Turns(Mutex<BTreeMap<u32, usize>>);

impl Turns {
    /// A turn of a user; `None`: this user, or all together, have too many commands at work.
    pub fn take(&self, uid: u32) -> Option<Turn<'_>> {
        let mut all = self.0.lock();
        let of_user = all.get(&uid).copied().unwrap_or(0);
        let is_full = of_user >= COMMANDS_OF_USER_MAX || all.values().sum::<usize>() >= COMMANDS_MAX;
        (!is_full).then(|| {
            all.insert(uid, of_user + 1);
            Turn { turns: self, uid }
        })
    }
}

/// A command of a user, until it is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    uid: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.0.lock();
        match all.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = all.remove(&self.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_no_turn_of_others() {
        let turns = Turns::default();
        let turn = |uid| turns.take(uid);
        let mut ann: Vec<_> = (0..4).map(|_| turn(1).expect("a turn")).collect();
        assert!(turn(1).is_none());
        let others: Vec<_> = (2..14).map(|uid| turn(uid).expect("a turn")).collect();
        assert!(turn(20).is_none(), "all are taken");
        ann.pop();
        assert!(turn(20).is_some());
        drop((ann, others));
        assert!(turns.0.lock().is_empty());
    }
}
