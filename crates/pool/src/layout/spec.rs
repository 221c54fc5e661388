//! What a pool is made of: its layout and its stores, as the cell keeps them in a record.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Most stores in one redundancy group.
pub const STORES_MAX: usize = 64;
/// Most copies of a replicated pool.
pub const COPIES_MAX: u8 = 8;

/// How an object is spread over the stores of a pool. Written as `single`, `replica(2)`,
/// `erasure(11+3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    /// One store has the whole object.
    Single,
    /// Each store has the whole object.
    Replica {
        /// Number of copies, from 2 on.
        copies: u8,
    },
    /// Each store has one piece; any `data` pieces are enough to read.
    Erasure {
        /// Pieces that an object is cut into.
        data: u8,
        /// Pieces computed from these; this many may be lost.
        parity: u8,
    },
}

impl Layout {
    /// Pieces that are needed to read an object.
    pub fn data(self) -> usize {
        match self {
            Layout::Single | Layout::Replica { .. } => 1,
            Layout::Erasure { data, .. } => usize::from(data),
        }
    }

    /// Pieces that may be lost.
    pub fn parity(self) -> usize {
        match self {
            Layout::Single => 0,
            Layout::Replica { copies } => usize::from(copies).saturating_sub(1),
            Layout::Erasure { parity, .. } => usize::from(parity),
        }
    }

    /// Pieces, and stores in a group.
    pub fn pieces(self) -> usize {
        self.data() + self.parity()
    }

    fn check(self) -> Result<Layout, SpecError> {
        let wrong = |why: String| Err(SpecError(format!("layout {self}: {why}")));
        match self {
            Layout::Single => Ok(self),
            Layout::Replica { copies } if (2..=COPIES_MAX).contains(&copies) => Ok(self),
            Layout::Replica { .. } => wrong(format!("from 2 to {COPIES_MAX} copies are possible")),
            Layout::Erasure { data, .. } if data < 2 => {
                wrong("at least 2 data pieces are needed; for copies use replica(N)".into())
            }
            Layout::Erasure { parity: 0, .. } => wrong("at least 1 parity piece is needed".into()),
            Layout::Erasure { .. } if self.pieces() > STORES_MAX => {
                wrong(format!("at most {STORES_MAX} stores can be in one group"))
            }
            Layout::Erasure { .. } => Ok(self),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Single => write!(f, "single"),
            Layout::Replica { copies } => write!(f, "replica({copies})"),
            Layout::Erasure { data, parity } => write!(f, "erasure({data}+{parity})"),
        }
    }
}

impl FromStr for Layout {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Layout, SpecError> {
        let unknown =
            || SpecError(format!("`{text}` is no layout: use single, replica(2) or erasure(11+3), say"));
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        let number = |digits: &str| digits.trim().parse::<u8>().map_err(|_| unknown());
        if text == "single" {
            return Ok(Layout::Single);
        }
        if let Some(copies) = inside("replica") {
            return Layout::Replica { copies: number(copies)? }.check();
        }
        let (data, parity) = inside("erasure").and_then(|both| both.split_once('+')).ok_or_else(unknown)?;
        Layout::Erasure { data: number(data)?, parity: number(parity)? }.check()
    }
}

impl TryFrom<String> for Layout {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Layout, SpecError> {
        text.parse()
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

/// What is to be done with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreState {
    /// It is written and read.
    Active,
    /// Its pieces are being moved to the active store of the same slot; it is read, not written.
    Draining,
    /// It is given up and never called. Its pieces are rebuilt when an active store takes the slot.
    Missing,
}

/// One store of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpec {
    /// Position in the group, from 0.
    pub slot: u16,
    /// Id of the store, as its label has it: 128 random bits in hex, for ever.
    pub id: String,
    /// URL such as `file:///disk7` or `s3://bucket/prefix`. For messages.
    pub url: String,
    /// What the operator wants done with it.
    pub state: StoreState,
}

/// What a pool is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Number in the cell, never used again.
    pub id: u32,
    /// Name, for people.
    pub name: String,
    /// How objects are spread.
    pub layout: Layout,
    /// The stores: one per slot of the layout, and while a store is being filled from an old one,
    /// the old one as well.
    pub stores: Vec<StoreSpec>,
}

impl PoolSpec {
    /// Checks that a pool can be made of this spec.
    ///
    /// # Errors
    /// The text says what is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |why: String| Err(SpecError(format!("pool {}: {why}", self.name)));
        self.layout.check()?;
        let slots = self.layout.pieces();
        let mut homes: BTreeMap<u16, &StoreSpec> = BTreeMap::new();
        let mut draining: BTreeMap<u16, &StoreSpec> = BTreeMap::new();
        for store in &self.stores {
            if usize::from(store.slot) >= slots {
                return wrong(format!("{} has slot {}, {} has {slots}", store.url, store.slot, self.layout));
            }
            let of_kind = if store.state == StoreState::Draining { &mut draining } else { &mut homes };
            if let Some(other) = of_kind.insert(store.slot, store) {
                return wrong(format!("{} and {} both have slot {}", other.url, store.url, store.slot));
            }
        }
        if homes.len() < slots {
            let empty = (0..slots as u16).find(|slot| !homes.contains_key(slot)).unwrap_or_default();
            return wrong(match draining.get(&empty) {
                Some(old) => format!("{} is draining, but slot {empty} has no store to move to", old.url),
                None => format!(
                    "{} needs {slots} stores, there are {}: slot {empty} is empty",
                    self.layout,
                    homes.len()
                ),
            });
        }
        Ok(())
    }
}

/// A layout or a pool that cannot be; says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub(crate) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_as_they_are_written() {
        for text in ["single", "replica(2)", "replica(8)", "erasure(2+1)", "erasure(11+3)", "erasure(60+4)"] {
            let layout: Layout = text.parse().unwrap();
            assert_eq!(layout.to_string(), text);
            assert_eq!(serde_json::to_string(&layout).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Layout>(&format!("\"{text}\"")).unwrap(), layout);
        }
        assert_eq!("erasure( 8 + 3 )".parse(), Ok(Layout::Erasure { data: 8, parity: 3 }));
        for (text, why) in [
            ("", "no layout"),
            ("mirror", "no layout"),
            ("replica", "no layout"),
            ("replica(two)", "no layout"),
            ("replica(1)", "from 2 to 8"),
            ("replica(9)", "from 2 to 8"),
            ("erasure(11)", "no layout"),
            ("erasure(11,3)", "no layout"),
            ("erasure(1+1)", "replica"),
            ("erasure(4+0)", "parity"),
            ("erasure(62+3)", "64"),
            ("erasure(300+3)", "no layout"),
            ("single(1)", "no layout"),
        ] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    fn spec(layout: &str, stores: &[(u16, StoreState)]) -> PoolSpec {
        let store = |(slot, state): &(u16, StoreState)| StoreSpec {
            slot: *slot,
            id: format!("{slot:032x}"),
            url: format!("file:///disk{slot}"),
            state: *state,
        };
        PoolSpec {
            id: 1,
            name: "cold".into(),
            layout: layout.parse().unwrap(),
            stores: stores.iter().map(store).collect(),
        }
    }

    #[test]
    fn each_slot_has_its_store() {
        use StoreState::{Active, Draining, Missing};
        let good = [
            spec("single", &[(0, Active)]),
            spec("single", &[(0, Active), (0, Draining)]),
            spec("replica(2)", &[(1, Active), (0, Missing)]),
        ];
        for spec in good {
            assert_eq!(spec.check(), Ok(()));
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<PoolSpec>(&json).unwrap(), spec);
        }
        for (stores, why) in [
            (vec![(0, Active)], "slot 1 is empty"),
            (vec![(0, Active), (0, Missing), (1, Active)], "both have slot 0"),
            (vec![(0, Active), (1, Draining)], "no store to move to"),
            (vec![(0, Active), (1, Active), (2, Active)], "has slot 2"),
        ] {
            let error = spec("replica(2)", &stores).check().unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("pool cold: "), "{error}");
        }
    }
}
