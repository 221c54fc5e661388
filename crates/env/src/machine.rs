//! Names of machines in contexts and notes that are copied.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;

/// Another machine, by the name of its host.
///
/// Each name that ever occurred is kept for the life of the process. Operators give these names, so
/// there are few.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Machine(&'static str);

/// All names that ever occurred.
static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Machine {
    /// The machine of this name.
    pub fn named(name: &str) -> Machine {
        let mut known = KNOWN.lock();
        if let Some(name) = known.get(name) {
            return Machine(name);
        }
        let name: &'static str = Box::leak(name.into());
        known.insert(name);
        Machine(name)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
