//! Dead properties: those that mean something only to clients. They are kept with the file or
//! directory in one extended attribute, which the mount shows: a list in JSON of namespace, name
//! and value, the value as self-contained XML.

use crate::xml::Name;
use crate::xml::answer::Property;
use crate::xml::request::Patch;
use std::collections::BTreeMap;

/// The attribute.
pub(crate) const ATTRIBUTE: &[u8] = b"user.leeward.properties";
/// Most bytes of it.
pub(crate) const BYTES_MAX: usize = 60 << 10;

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dead(BTreeMap<Name, String>);

impl Dead {
    /// The properties in an attribute; none if it cannot be read.
    pub(crate) fn of(attribute: Option<&[u8]>) -> Dead {
        let list: Vec<(String, String, String)> =
            attribute.and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
        Dead(list.into_iter().map(|(space, local, value)| (Name { space, local }, value)).collect())
    }

    /// The attribute for these properties; `None`: there are none.
    pub(crate) fn to_attribute(&self) -> Option<Vec<u8>> {
        let list: Vec<_> = self.0.iter().map(|(name, value)| (&name.space, &name.local, value)).collect();
        (!list.is_empty()).then(|| serde_json::to_vec(&list).expect("texts are JSON"))
    }

    pub(crate) fn apply(&mut self, patch: &Patch) {
        match patch {
            Patch::Set(name, value) => drop(self.0.insert(name.clone(), value.clone())),
            Patch::Remove(name) => drop(self.0.remove(name)),
        }
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Property> {
        self.0.get(name).map(|value| Property { name: name.clone(), value: Some(value.clone()) })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Property> {
        self.0.iter().map(|(name, value)| Property { name: name.clone(), value: Some(value.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_come_and_go() {
        let name = |local: &str| Name { space: "u:".into(), local: local.into() };
        let mut dead = Dead::default();
        assert_eq!(dead.to_attribute(), None);
        dead.apply(&Patch::Set(name("a"), "1".into()));
        dead.apply(&Patch::Set(name("b"), "<x xmlns=\"\"/>".into()));
        let stored = dead.to_attribute().unwrap();
        assert_eq!(Dead::of(Some(&stored)), dead);
        dead.apply(&Patch::Remove(name("a")));
        assert_eq!((dead.get(&name("a")), dead.all().count()), (None, 1));
        assert_eq!(Dead::of(Some(b"{")), Dead::default());
        assert_eq!(Dead::of(None), Dead::default());
    }
}
