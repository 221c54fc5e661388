//! The gate's questions about users and processes: answers may take a while, and are kept.

use leeward_env::Nanos;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Knows users and processes of this machine. Called on threads that may wait, never on one that
/// reads requests.
pub trait People: Send + Sync + 'static {
    /// The groups of a user.
    fn groups_of(&self, uid: u32) -> Vec<u32>;
    /// The job of a process, if the process exists and has one.
    fn job_of(&self, pid: u32) -> Option<String>;
    /// The owners of users of containers, if they have changed since the last call.
    fn subordinates(&self) -> Option<Vec<Subordinates>> {
        None
    }
}

/// Users of containers who belong to one user, as in `/etc/subuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subordinates {
    /// Id of the first of them.
    pub first: u32,
    /// Number of users.
    pub count: u32,
    /// User id of the owner.
    pub owner: u32,
}

/// A [`People`] that knows nobody.
pub(crate) struct UnknownUsers;

impl People for UnknownUsers {
    fn groups_of(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn job_of(&self, _: u32) -> Option<String> {
        None
    }
}

/// Answers by question. An old one is returned while somebody looks for a newer one, a very old one
/// is not.
pub(crate) struct Answers<K, V> {
    known: FxHashMap<K, Answer<V>>,
    wanted: Vec<K>,
    asking: bool,
    /// For this time an answer is current, nanoseconds.
    good: Nanos,
    /// For this time it is better than none, nanoseconds.
    kept: Nanos,
    /// Most answers that are kept.
    most: usize,
}

struct Answer<V> {
    value: V,
    at: Nanos,
    /// Whether a newer answer was asked for.
    asked: bool,
}

impl<K: Copy + Eq + Hash, V: Copy> Answers<K, V> {
    pub(crate) fn new(good: Nanos, kept: Nanos, most: usize) -> Answers<K, V> {
        Answers { known: FxHashMap::default(), wanted: Vec::new(), asking: false, good, kept, most }
    }

    /// The known answer, and whether the caller must make sure that somebody looks for more, see
    /// [`Answers::wanted`].
    pub(crate) fn get(&mut self, key: K, now: Nanos) -> (Option<V>, bool) {
        let age = |a: &Answer<V>| now.saturating_sub(a.at);
        let known = self.known.get_mut(&key).filter(|a| age(a) <= self.kept);
        let value = known.as_ref().map(|a| a.value);
        let ask = match &known {
            Some(answer) => !answer.asked && age(answer) > self.good,
            None => !self.wanted.contains(&key),
        };
        // what is too much is asked for with its next request
        if !ask || self.wanted.len() >= WANTED_MAX {
            return (value, false);
        }
        if let Some(answer) = known {
            answer.asked = true;
        }
        self.wanted.push(key);
        (value, !std::mem::replace(&mut self.asking, true))
    }

    /// The questions to answer now; empty: the caller may stop.
    pub(crate) fn wanted(&mut self) -> Vec<K> {
        self.asking = !self.wanted.is_empty();
        std::mem::take(&mut self.wanted)
    }

    /// Enters an answer.
    pub(crate) fn put(&mut self, key: K, value: V, now: Nanos) {
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
            let good = self.good;
            self.known.retain(|_, a| now.saturating_sub(a.at) <= good);
            if self.known.len() >= self.most {
                self.known.clear();
            }
        }
        self.known.insert(key, Answer { value, at: now, asked: false });
    }

    /// Drops all answers.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

/// Most questions at a time: they are searched one by one.
const WANTED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_is_given_while_a_new_one_is_found() {
        let mut answers = Answers::<u32, char>::new(10, 100, 3);
        assert_eq!(answers.get(1, 0), (None, true), "nothing is known: ask");
        assert_eq!(answers.get(1, 0), (None, false), "somebody asks already");
        assert_eq!(answers.get(2, 0), (None, false), "the same one asks for this, too");
        assert_eq!(answers.wanted(), [1, 2]);
        assert_eq!(answers.get(3, 0), (None, false), "the one who asks will look again");
        answers.put(1, 'a', 0);
        answers.put(2, 'b', 0);
        assert_eq!(answers.wanted(), [3]);
        assert!(answers.wanted().is_empty());
        assert_eq!(answers.get(1, 10), (Some('a'), false), "still good");
        assert_eq!(answers.get(1, 11), (Some('a'), true));
        assert_eq!(answers.get(1, 11), (Some('a'), false));
        assert_eq!(answers.wanted(), [1]);
        answers.put(1, 'c', 12);
        assert_eq!(answers.get(1, 13), (Some('c'), false));
        assert_eq!(answers.get(2, 101).0, None, "worse than none");
    }

    #[test]
    fn it_is_bounded() {
        let mut answers = Answers::<u32, u32>::new(10, 100, 3);
        for key in 0..50 {
            answers.put(key, key, u64::from(key));
            assert!(answers.known.len() <= 3);
        }
        assert_eq!(answers.get(49, 50).0, Some(49));
        (0..10_000).for_each(|key| _ = answers.get(100 + key, 60));
        assert_eq!(answers.wanted().len(), WANTED_MAX);
    }
}
