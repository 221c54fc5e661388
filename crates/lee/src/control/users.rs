//! Turns of users of this machine at a socket: one who asks much leaves turns to others, and all
//! together leave some to operators.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Turns that are taken, by user.
pub struct Turns {
    taken: Mutex<BTreeMap<u32, usize>>,
    of_user_max: usize,
    max: usize,
}

impl Turns {
    /// So many of one user, and of all.
    pub fn new(of_user_max: usize, max: usize) -> Turns {
        Turns { taken: Mutex::default(), of_user_max, max }
    }

    /// A turn of a user; `None`: this user, or all together, have too many.
    pub fn take(&self, uid: u32) -> Option<Turn<'_>> {
        let mut all = self.taken.lock();
        let of_user = all.get(&uid).copied().unwrap_or(0);
        let is_full = of_user >= self.of_user_max || all.values().sum::<usize>() >= self.max;
        (!is_full).then(|| {
            all.insert(uid, of_user + 1);
            Turn { turns: self, uid }
        })
    }
}

/// A turn, until it is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    uid: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.taken.lock();
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
        let turns = Turns::new(4, 16);
        let turn = |uid| turns.take(uid);
        let mut ann: Vec<_> = (0..4).map(|_| turn(1).expect("a turn")).collect();
        assert!(turn(1).is_none());
        let others: Vec<_> = (2..14).map(|uid| turn(uid).expect("a turn")).collect();
        assert!(turn(20).is_none(), "all are taken");
        ann.pop();
        assert!(turn(20).is_some());
        drop((ann, others));
        assert!(turns.taken.lock().is_empty());
    }
}
