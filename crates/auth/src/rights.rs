//! What a credential is limited to: activities on paths.
//!
//! Two languages are translated to [`Rights`]: activities of macaroons and storage scopes of
//! tokens. Limits only take away: the user must also be allowed to do what [`Grants`] allow.

use crate::path::CellPath;
use std::fmt;

/// An action at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Activity {
    /// See that it exists, and its attributes.
    Stat = 1,
    /// See the names in a directory.
    List = 2,
    /// Read a file.
    Read = 4,
    /// Make a file that does not exist, with its content.
    Create = 8,
    /// Make a directory.
    MakeDir = 16,
    /// Change a file, or replace it.
    Modify = 32,
    /// Give it another name. The new name needs [`Activity::Create`], or [`Activity::Modify`] where
    /// it replaces something.
    Rename = 64,
    /// Remove it.
    Delete = 128,
    /// Change attributes, owner, mode, properties.
    UpdateMetadata = 256,
}

impl Activity {
    /// All of them.
    pub const ALL: [Activity; 9] = [
        Activity::Stat,
        Activity::List,
        Activity::Read,
        Activity::Create,
        Activity::MakeDir,
        Activity::Modify,
        Activity::Rename,
        Activity::Delete,
        Activity::UpdateMetadata,
    ];
}

/// A set of activities.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rights(u16);

impl Rights {
    /// No activities.
    pub const NONE: Rights = Rights(0);
    /// All activities.
    pub const ALL: Rights = Rights(511);

    /// The set of these activities.
    pub fn of(activities: &[Activity]) -> Rights {
        Rights(activities.iter().fold(0, |all, one| all | *one as u16))
    }

    /// Whether this one is among them.
    pub fn has(self, activity: Activity) -> bool {
        self.0 & activity as u16 != 0
    }

    /// Whether all of `other` are among them.
    pub fn has_all(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// The activities that both sets have.
    #[must_use]
    pub fn within(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Activity::ALL.into_iter().filter(|a| self.has(*a))).finish()
    }
}

/// Rights at a path and everywhere below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The path. With a slash at its end it covers a directory of this name only, and its content.
    pub path: CellPath,
    /// The rights.
    pub rights: Rights,
    /// How many components of the path exist in any case. Directories above the path but below that
    /// many may be made, as [`Activity::MakeDir`] says. The length of the path where none may be
    /// made.
    pub parents_from: usize,
}

impl Rule {
    /// Rights at a path, without those to make directories above it.
    pub fn new(path: CellPath, rights: Rights) -> Rule {
        let parents_from = path.components().count();
        Rule { path, rights, parents_from }
    }

    fn allows(&self, activity: Activity, at: &CellPath) -> bool {
        if self.covers(at) {
            return self.rights.has(activity);
        }
        // a credential for a path may see the directories above it
        at.contains(&self.path)
            && match activity {
                Activity::Stat => !self.rights.is_empty(),
                Activity::MakeDir => self.rights.has(activity) && at.components().count() > self.parents_from,
                _ => false,
            }
    }

    fn covers(&self, at: &CellPath) -> bool {
        self.path.contains(at)
            && (!self.path.is_dir() || at.is_dir() || at.as_bytes() != self.path.as_bytes())
    }
}

/// What a credential is limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grants {
    /// No limit: all that its user may do.
    All,
    /// Everything that any of these rules allows.
    Rules(Vec<Rule>),
}

impl Grants {
    /// Whether they limit nothing, at any path.
    pub fn is_all(&self) -> bool {
        let is_everything = |rule: &Rule| rule.path.is_root() && rule.rights.has_all(Rights::ALL);
        match self {
            Grants::All => true,
            Grants::Rules(rules) => rules.iter().any(is_everything),
        }
    }

    /// Whether they allow this at this path. For a rule with a slash at its end, the caller must
    /// say whether the path is a directory: [`CellPath::with_dir`].
    pub fn allow(&self, activity: Activity, at: &CellPath) -> bool {
        match self {
            Grants::All => true,
            Grants::Rules(rules) => rules.iter().any(|rule| rule.allows(activity, at)),
        }
    }

    /// The rights at this path and everywhere below it.
    pub fn rights_below(&self, at: &CellPath) -> Rights {
        match self {
            Grants::All => Rights::ALL,
            Grants::Rules(rules) => rules
                .iter()
                .filter(|rule| rule.covers(at))
                .fold(Rights::NONE, |rights, rule| rights.and(rule.rights)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CellPath {
        CellPath::parse(text).expect(text)
    }

    #[test]
    fn rules_cover_what_is_below_and_show_the_way() {
        let read = Rights::of(&[Activity::Stat, Activity::List, Activity::Read]);
        let grants = Grants::Rules(vec![Rule::new(path("/atlas/data"), read)]);
        for (activity, at, allowed) in [
            (Activity::Read, "/atlas/data", true),
            (Activity::Read, "/atlas/data/x/y", true),
            (Activity::Read, "/atlas/database", false),
            (Activity::Read, "/atlas", false),
            (Activity::List, "/atlas", false),
            (Activity::Stat, "/atlas", true),
            (Activity::Stat, "/", true),
            (Activity::Stat, "/at", false),
            (Activity::Create, "/atlas/data/x", false),
        ] {
            assert_eq!(grants.allow(activity, &path(at)), allowed, "{activity:?} {at}");
        }
        assert!(Grants::All.allow(Activity::Delete, &path("/")));
        assert!(!Grants::Rules(vec![]).allow(Activity::Stat, &path("/")));
        assert_eq!(grants.rights_below(&path("/atlas/data/x")), read);
        assert_eq!(grants.rights_below(&path("/atlas")), Rights::NONE);
    }

    #[test]
    fn a_slash_at_the_end_covers_directories_only() {
        let grants = Grants::Rules(vec![Rule::new(path("/a/b/"), Rights::ALL)]);
        assert!(!grants.allow(Activity::Create, &path("/a/b")));
        assert!(grants.allow(Activity::MakeDir, &path("/a/b").with_dir(true)));
        assert!(grants.allow(Activity::Create, &path("/a/b/c")));
        assert!(grants.rights_below(&path("/a/b")).is_empty());
    }

    #[test]
    fn directories_above_can_be_made_where_a_rule_says_so() {
        let make = Rights::of(&[Activity::Create, Activity::MakeDir]);
        let rule = Rule { parents_from: 1, ..Rule::new(path("/vo/a/b/c"), make) };
        let grants = Grants::Rules(vec![rule]);
        for (at, allowed) in
            [("/", false), ("/vo", false), ("/vo/a", true), ("/vo/a/b", true), ("/vo/a/x", false)]
        {
            assert_eq!(grants.allow(Activity::MakeDir, &path(at)), allowed, "{at}");
            assert!(!grants.allow(Activity::Create, &path(at)), "{at}");
        }
        let grants = Grants::Rules(vec![Rule::new(path("/vo/a/b"), make)]);
        assert!(!grants.allow(Activity::MakeDir, &path("/vo/a")));
    }

    #[test]
    fn all_rights_are_all_activities() {
        assert_eq!(Rights::of(&Activity::ALL), Rights::ALL);
    }
}
