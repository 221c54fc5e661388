//! The `If` header of WebDAV (RFC 4918, 10.4): conditions on locks and entity tags, of this
//! resource or of others.

use super::{BadHeader, destination_path, once};
use crate::path::DavPath;
use http::HeaderMap;

/// Most conditions of one header.
const CONDITIONS_MAX: usize = 256;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether the test is negated.
    pub not: bool,
    /// The test.
    pub what: What,
}

/// The test of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The resource is locked under this token.
    Token(String),
    /// The resource has this entity tag, with quotes.
    Tag(String),
}

/// Conditions that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The resource; `None`: that of the request.
    pub of: Option<DavPath>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A header `If`. It holds when one of its groups does; without any it always does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IfHeader(pub Vec<Group>);

impl IfHeader {
    /// The header of a request; without groups where there is none.
    ///
    /// # Errors
    /// It does not follow the grammar, or is too long.
    pub fn of(headers: &HeaderMap) -> Result<IfHeader, BadHeader> {
        once(headers, "if")?.map_or(Ok(IfHeader::default()), IfHeader::parse)
    }

    /// Reads the text.
    ///
    /// # Errors
    /// As [`IfHeader::of`].
    pub fn parse(text: &str) -> Result<IfHeader, BadHeader> {
        let mut rest = Unparsed(text.trim());
        let (mut groups, mut count) = (Vec::new(), 0);
        let mut of = None;
        let tagged = rest.0.starts_with('<');
        while !rest.0.is_empty() {
            if rest.0.starts_with('<') {
                if !tagged {
                    return Err(wrong("resources are named for all lists or for none"));
                }
                of = Some(destination_path(rest.between('<', '>')?)?);
                if !rest.0.starts_with('(') {
                    return Err(wrong("a resource is named without a list"));
                }
            }
            let conditions = rest.group()?;
            count += conditions.len();
            if count > CONDITIONS_MAX {
                return Err(wrong("there are too many conditions"));
            }
            groups.push(Group { of: of.clone(), conditions });
        }
        if groups.is_empty() { Err(wrong("it is empty")) } else { Ok(IfHeader(groups)) }
    }

    /// All lock tokens in the header: a client that knows one names it here.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|group| &group.conditions).filter_map(|condition| match &condition.what {
            What::Token(token) => Some(token.as_str()),
            What::Tag(_) => None,
        })
    }

    /// Whether it holds: `is` tells for a resource (`None`: the request's) whether a test is true.
    pub fn hold(&self, mut is: impl FnMut(Option<&DavPath>, &What) -> bool) -> bool {
        let mut group = |group: &Group| {
            group.conditions.iter().all(|condition| is(group.of.as_ref(), &condition.what) != condition.not)
        };
        self.0.is_empty() || self.0.iter().any(&mut group)
    }
}

fn wrong(why: &str) -> BadHeader {
    BadHeader(format!("If cannot be read: {why}"))
}

/// The text that is still to be read.
struct Unparsed<'t>(&'t str);

impl<'t> Unparsed<'t> {
    /// The text between two characters, the first of which is next.
    fn between(&mut self, open: char, close: char) -> Result<&'t str, BadHeader> {
        let inner = self.0.strip_prefix(open).and_then(|rest| rest.split_once(close));
        let (inner, rest) = inner.ok_or_else(|| wrong("a bracket is missing"))?;
        self.0 = rest.trim_start();
        Ok(inner)
    }

    /// `( [Not] <token> [etag] ... )`.
    fn group(&mut self) -> Result<Vec<Condition>, BadHeader> {
        self.0 =
            self.0.strip_prefix('(').ok_or_else(|| wrong("a list begins with a parenthesis"))?.trim_start();
        let mut conditions = Vec::new();
        while !self.0.starts_with(')') {
            conditions.push(self.condition()?);
        }
        self.0 = self.0[1..].trim_start();
        if conditions.is_empty() { Err(wrong("a list is empty")) } else { Ok(conditions) }
    }

    fn condition(&mut self) -> Result<Condition, BadHeader> {
        let not = self.0.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
        if not {
            self.0 = self.0[3..].trim_start();
        }
        let what = if self.0.starts_with('[') {
            What::Tag(self.between('[', ']')?.into())
        } else {
            What::Token(self.between('<', '>')?.into())
        };
        Ok(Condition { not, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(not: bool, token: &str) -> Condition {
        Condition { not, what: What::Token(token.into()) }
    }

    fn tag(tag: &str) -> Condition {
        Condition { not: false, what: What::Tag(tag.into()) }
    }

    #[test]
    fn lists_with_and_without_resources() {
        let ifs = IfHeader::parse("(<urn:a> [\"x\"]) (Not <DAV:no-lock>)").unwrap();
        let expected = [vec![token(false, "urn:a"), tag("\"x\"")], vec![token(true, "DAV:no-lock")]];
        let expected: Vec<_> =
            expected.into_iter().map(|conditions| Group { of: None, conditions }).collect();
        assert_eq!(ifs.0, expected);
        assert_eq!(ifs.tokens().collect::<Vec<_>>(), ["urn:a", "DAV:no-lock"]);

        let ifs = IfHeader::parse("<http://h/a%20b> (<urn:a>)(<urn:b>) </c> (<urn:c>)").unwrap();
        let of = |n: usize| ifs.0[n].of.as_ref().unwrap().encoded();
        assert_eq!((of(0), of(1), of(2)), ("/a%20b".into(), "/a%20b".into(), "/c".into()));
    }

    #[test]
    fn it_holds_when_one_list_does() {
        let ifs = IfHeader::parse("(<urn:a> [\"x\"]) (Not <urn:b>)").unwrap();
        let holds = |known: &[&str]| {
            ifs.hold(|_, what| match what {
                What::Token(t) | What::Tag(t) => known.contains(&t.as_str()),
            })
        };
        assert!(holds(&["urn:a", "\"x\"", "urn:b"]) && holds(&[]) && !holds(&["urn:a", "urn:b"]));
        assert!(IfHeader::default().hold(|_, _| false));
    }

    #[test]
    fn what_does_not_follow_the_grammar_is_refused() {
        let many = "(<urn:a>)".repeat(CONDITIONS_MAX + 1);
        for text in [
            "",
            "x",
            "(",
            "()",
            "(<a",
            "(<a>",
            "<http://h/a>",
            "(<a>) </b> (<c>)",
            "</a/../b> (<c>)",
            "(Not)",
            "([a)",
            &many,
        ] {
            assert!(IfHeader::parse(text).is_err(), "{text}");
        }
    }
}
