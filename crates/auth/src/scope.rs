//! Storage scopes of the WLCG profile.
//!
//! `storage.read:/path` and the like: a right at a path, relative to the paths that the site gave
//! the issuer. A path must be there, absolute, percent-encoded and without `..`, or the whole token
//! is refused: a misread path opens somebody's files.

use crate::path::CellPath;
use crate::rights::{Activity, Grants, Rights, Rule};

/// Most storage scopes of a token.
const SCOPES_MAX: usize = 64;

/// The scopes of a token that concern storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Whether there is any capability scope: then groups do not count.
    pub is_capability: bool,
    /// Rights at paths below the issuer's base paths.
    storage: Vec<(Rights, CellPath)>,
}

/// The rights of a storage scope; `None`: it is unknown, and allows nothing.
fn rights_of(scope: &str) -> Option<Rights> {
    use Activity::*;
    Some(match scope {
        "storage.read" => Rights::of(&[Stat, List, Read]),
        "storage.create" => Rights::of(&[Stat, Create, MakeDir, Rename]),
        "storage.modify" => Rights::of(&[Stat, Create, MakeDir, Rename, Modify, Delete, UpdateMetadata]),
        "storage.stage" => Rights::of(&[Stat]),
        // about tapes only; its path follows the same rules
        "storage.poll" => Rights::NONE,
        _ => return None,
    })
}

impl Scopes {
    /// Reads the claim `scope`. Scopes that are not of the profile are left out.
    ///
    /// # Errors
    /// A storage scope without a path, with an invalid path, or too many scopes: the token must be
    /// refused.
    pub fn parse(claim: &str) -> Result<Scopes, String> {
        let mut scopes = Scopes::default();
        for scope in claim.split(' ').filter(|scope| !scope.is_empty()) {
            let (name, path) = scope.split_once(':').map_or((scope, None), |(name, path)| (name, Some(path)));
            scopes.is_capability |= name.starts_with("storage.") || name.starts_with("compute.");
            let Some(rights) = rights_of(name) else { continue };
            let path = path.ok_or_else(|| format!("scope {name} has no path"))?;
            let path = CellPath::from_encoded(path).map_err(|e| format!("path of scope {name}: {e}"))?;
            if scopes.storage.len() == SCOPES_MAX {
                return Err(format!("more than {SCOPES_MAX} storage scopes"));
            }
            scopes.storage.push((rights, path));
        }
        Ok(scopes)
    }

    /// The grants, where paths are relative to each of these.
    pub fn grants(&self, bases: &[CellPath]) -> Grants {
        let below = |base: &CellPath| {
            let parents_from = base.components().count();
            let rules = self.storage.iter().filter(|(rights, _)| !rights.is_empty());
            rules
                .map(|(rights, path)| Rule { parents_from, ..Rule::new(base.join(path), *rights) })
                // all of the base path includes the base path itself
                .map(|rule| if rule.path.components().count() == parents_from { whole(rule) } else { rule })
                .collect::<Vec<_>>()
        };
        Grants::Rules(bases.iter().flat_map(below).collect())
    }
}

fn whole(rule: Rule) -> Rule {
    Rule { path: rule.path.with_dir(false), ..rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CellPath {
        CellPath::parse(text).expect(text)
    }

    fn grants(claim: &str) -> Grants {
        Scopes::parse(claim).expect(claim).grants(&[path("/vo")])
    }

    #[test]
    fn scopes_are_rights_at_paths() {
        use Activity::*;
        for (claim, activity, at, allowed) in [
            ("storage.read:/", Read, "/vo/x", true),
            ("storage.read:/", List, "/vo", true),
            ("storage.read:/", Read, "/other", false),
            ("storage.read:/", Create, "/vo/x", false),
            ("storage.read:/foo", Read, "/vo/foo", true),
            ("storage.read:/foo", Read, "/vo/foo/bar", true),
            ("storage.read:/foo", Read, "/vo/foobar", false),
            ("storage.read:/foo/", Read, "/vo/foo", false),
            ("storage.read:/foo/", Read, "/vo/foo/bar", true),
            ("storage.read:/foo/", List, "/vo/foo/", true),
            ("storage.read:/foo%20bar", Read, "/vo/foo bar", true),
            ("storage.read://foo/./bar", Read, "/vo/foo/bar/x", true),
            ("storage.create:/foo", Create, "/vo/foo/x", true),
            ("storage.create:/foo/bar", MakeDir, "/vo/foo", true),
            ("storage.create:/foo/bar", MakeDir, "/vo/fo", false),
            ("storage.create:/foo/bar", MakeDir, "/vo", false),
            ("storage.create:/foo", Rename, "/vo/foo/x", true),
            ("storage.create:/foo", Modify, "/vo/foo/x", false),
            ("storage.create:/foo", Delete, "/vo/foo/x", false),
            ("storage.create:/foo", Read, "/vo/foo/x", false),
            ("storage.create:/foo", Stat, "/vo/foo/x", true),
            ("storage.modify:/foo", Modify, "/vo/foo/x", true),
            ("storage.modify:/foo", Create, "/vo/foo/x", true),
            ("storage.modify:/foo", Delete, "/vo/foo/x", true),
            ("storage.modify:/foo", Read, "/vo/foo/x", false),
            ("storage.stage:/foo", Stat, "/vo/foo/x", true),
            ("storage.stage:/foo", Read, "/vo/foo/x", false),
            ("storage.poll:/foo", Stat, "/vo/foo/x", false),
            ("storage.read:/a storage.create:/b", Read, "/vo/a/x", true),
            ("storage.read:/a storage.create:/b", Create, "/vo/b/x", true),
            ("storage.read:/a storage.create:/b", Create, "/vo/a/x", false),
            ("openid offline_access", Stat, "/vo", false),
            ("storage.unheard:/", Stat, "/vo", false),
        ] {
            assert_eq!(grants(claim).allow(activity, &path(at)), allowed, "{claim}: {activity:?} {at}");
        }
    }

    #[test]
    fn what_is_no_path_refuses_the_token() {
        for claim in [
            "storage.read",
            "storage.read:",
            "storage.create:foo",
            "storage.modify:/a/../b",
            "storage.modify:/a/%2e%2e/b",
            "storage.read:/a%2",
            "storage.read:/a%00b",
            "storage.read:/a storage.read",
            "storage.poll",
        ] {
            assert!(Scopes::parse(claim).is_err(), "{claim}");
        }
        let many = "storage.read:/x ".repeat(SCOPES_MAX + 1);
        assert!(Scopes::parse(&many).is_err());
    }

    #[test]
    fn any_capability_counts_as_one() {
        for (claim, is) in [
            ("storage.read:/", true),
            ("storage.other", true),
            ("compute.create", true),
            ("openid wlcg", false),
        ] {
            assert_eq!(Scopes::parse(claim).map(|s| s.is_capability), Ok(is), "{claim}");
        }
    }
}
