//! The bodies of PROPFIND, PROPPATCH and LOCK.

use super::Name;
use super::answer::escaped;
use super::tree::{BadXml, Element};

/// Most bytes of such a body.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Most properties in a request.
const PROPERTIES_MAX: usize = 256;
/// Most bytes of their names: an answer repeats them for each file.
const NAMES_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a client's description of a lock's owner, as it is kept.
const OWNER_BYTES_MAX: usize = 4 << 10;

/// The properties that a PROPFIND wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    /// All properties, and these in addition.
    All(Vec<Name>),
    /// The names of all properties.
    Names,
    /// These properties.
    These(Vec<Name>),
}

impl Find {
    /// Reads a body; an empty one wants all.
    ///
    /// # Errors
    /// It is no well-formed `propfind`.
    pub fn parse(body: &[u8]) -> Result<Find, BadXml> {
        if body.trim_ascii().is_empty() {
            return Ok(Find::All(Vec::new()));
        }
        let root = root(body, "propfind")?;
        if let Some(these) = root.child("prop") {
            return Ok(Find::These(names(these)?));
        }
        if root.child("propname").is_some() {
            return Ok(Find::Names);
        }
        match root.child("allprop") {
            Some(_) => Ok(Find::All(root.child("include").map(names).transpose()?.unwrap_or_default())),
            None => Err(BadXml("a propfind has prop, propname or allprop in it".into())),
        }
    }
}

/// The names in an element, if they are not too many for an answer.
fn names(element: &Element) -> Result<Vec<Name>, BadXml> {
    let names: Vec<Name> = element.elements().map(|e| e.name.clone()).collect();
    let bytes: usize = names.iter().map(|name| escaped(&name.space).len() + name.local.len()).sum();
    if names.len() > PROPERTIES_MAX || bytes > NAMES_BYTES_MAX { Err(too_many()) } else { Ok(names) }
}

fn too_many() -> BadXml {
    BadXml(format!("it is about more than {PROPERTIES_MAX} properties, or their names are too long"))
}

/// One change of a PROPPATCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Sets the property to this value, which is self-contained XML.
    Set(Name, String),
    /// Removes the property.
    Remove(Name),
}

impl Patch {
    /// The property.
    pub fn name(&self) -> &Name {
        match self {
            Patch::Set(name, _) | Patch::Remove(name) => name,
        }
    }

    /// Reads a body: changes in the order in which they are to be made.
    ///
    /// # Errors
    /// It is no well-formed `propertyupdate` with a change in it.
    pub fn parse(body: &[u8]) -> Result<Vec<Patch>, BadXml> {
        let root = root(body, "propertyupdate")?;
        let mut patches = Vec::new();
        for change in root.elements() {
            let set = change.name.is("set");
            if !set && !change.name.is("remove") {
                continue;
            }
            for property in change.elements().filter(|e| e.name.is("prop")).flat_map(Element::elements) {
                if patches.len() == PROPERTIES_MAX {
                    return Err(too_many());
                }
                let name = property.name.clone();
                patches.push(if set { Patch::Set(name, property.inner()) } else { Patch::Remove(name) });
            }
        }
        if patches.is_empty() {
            Err(BadXml("a propertyupdate has a property in it".into()))
        } else {
            Ok(patches)
        }
    }
}

/// The lock that a LOCK wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Whether others may have such a lock, too.
    pub shared: bool,
    /// The client's description of its user: self-contained XML.
    pub owner: Option<String>,
}

impl LockInfo {
    /// Reads a body; an empty one refreshes a lock.
    ///
    /// # Errors
    /// It is no well-formed `lockinfo` of a lock for writing.
    pub fn parse(body: &[u8]) -> Result<Option<LockInfo>, BadXml> {
        if body.trim_ascii().is_empty() {
            return Ok(None);
        }
        let root = root(body, "lockinfo")?;
        let write = root.child("locktype").is_some_and(|kind| kind.child("write").is_some());
        let scope = root.child("lockscope").ok_or_else(|| BadXml("a lockinfo has lockscope in it".into()))?;
        let shared = scope.child("shared").is_some();
        if !write || shared == scope.child("exclusive").is_some() {
            return Err(BadXml("a lock is for writing, and exclusive or shared".into()));
        }
        let owner = root.child("owner").map(Element::inner);
        if owner.as_ref().is_some_and(|owner| owner.len() > OWNER_BYTES_MAX) {
            return Err(BadXml(format!("the owner of a lock has at most {OWNER_BYTES_MAX} bytes")));
        }
        Ok(Some(LockInfo { shared, owner }))
    }
}

fn root(body: &[u8], local: &str) -> Result<Element, BadXml> {
    let root = Element::parse(body)?;
    if root.name.is(local) { Ok(root) } else { Err(BadXml(format!("it is no {local} of {}", super::DAV))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_propfind_wants() {
        assert_eq!(Find::parse(b" "), Ok(Find::All(vec![])));
        let these = br#"<propfind xmlns="DAV:"><prop><getetag/><x xmlns="u:"/></prop></propfind>"#;
        let x = Name { space: "u:".into(), local: "x".into() };
        assert_eq!(Find::parse(these), Ok(Find::These(vec![Name::dav("getetag"), x])));
        assert_eq!(Find::parse(b"<propfind xmlns='DAV:'><propname/></propfind>"), Ok(Find::Names));
        let all = b"<propfind xmlns='DAV:'><allprop/><include><acl/></include></propfind>";
        assert_eq!(Find::parse(all), Ok(Find::All(vec![Name::dav("acl")])));
        for body in ["<propfind/>", "<propfind xmlns='DAV:'/>", "<x xmlns='DAV:'><prop/></x>", "<propfind"] {
            assert!(Find::parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn what_would_be_said_again_and_again_is_bounded() {
        let find = |names: &str| {
            Find::parse(format!("<propfind xmlns='DAV:'><prop>{names}</prop></propfind>").as_bytes())
        };
        assert!(find(&"<a/>".repeat(PROPERTIES_MAX)).is_ok());
        assert!(find(&"<a/>".repeat(PROPERTIES_MAX + 1)).is_err());
        let long = format!("<x:a xmlns:x='{}'/>", "u".repeat(1000));
        assert!(find(&long.repeat(16)).is_ok() && find(&long.repeat(17)).is_err());
        let patch = |n| {
            format!(
                "<propertyupdate xmlns='DAV:'><set><prop>{}</prop></set></propertyupdate>",
                "<a/>".repeat(n)
            )
        };
        assert!(Patch::parse(patch(PROPERTIES_MAX).as_bytes()).is_ok());
        assert!(Patch::parse(patch(PROPERTIES_MAX + 1).as_bytes()).is_err());
        let lock = |owner: &str| {
            let kind = "<lockscope><shared/></lockscope><locktype><write/></locktype>";
            LockInfo::parse(
                format!("<lockinfo xmlns='DAV:'>{kind}<owner>{owner}</owner></lockinfo>").as_bytes(),
            )
        };
        assert!(lock(&"x".repeat(OWNER_BYTES_MAX)).is_ok());
        // as it would be kept
        assert!(lock(&"x".repeat(OWNER_BYTES_MAX + 1)).is_err() && lock(&"<a/>".repeat(500)).is_err());
    }

    #[test]
    fn changes_keep_their_order() {
        let body = br#"<D:propertyupdate xmlns:D="DAV:" xmlns:u="u:">
            <D:set><D:prop><u:a>1<u:b/></u:a></D:prop></D:set>
            <D:remove><D:prop><u:c/></D:prop></D:remove>
            <D:set><D:prop><u:c>2</u:c></D:prop></D:set></D:propertyupdate>"#;
        let name = |local: &str| Name { space: "u:".into(), local: local.into() };
        let expected = vec![
            Patch::Set(name("a"), "1<b xmlns=\"u:\"/>".into()),
            Patch::Remove(name("c")),
            Patch::Set(name("c"), "2".into()),
        ];
        assert_eq!(Patch::parse(body), Ok(expected));
        assert!(Patch::parse(b"<propertyupdate xmlns='DAV:'/>").is_err());
        assert!(Patch::parse(b"").is_err());
    }

    #[test]
    fn what_a_lock_wants() {
        let body = |scope: &str| {
            format!(
                "<lockinfo xmlns='DAV:'><lockscope>{scope}</lockscope><locktype><write/></locktype>\
                 <owner><href>me</href></owner></lockinfo>"
            )
        };
        let of = |scope: &str| LockInfo::parse(body(scope).as_bytes());
        let owner = Some("<href xmlns=\"DAV:\">me</href>".to_string());
        assert_eq!(of("<exclusive/>"), Ok(Some(LockInfo { shared: false, owner: owner.clone() })));
        assert_eq!(of("<shared/>"), Ok(Some(LockInfo { shared: true, owner })));
        assert!(of("").is_err() && of("<shared/><exclusive/>").is_err());
        assert_eq!(LockInfo::parse(b""), Ok(None));
    }
}
