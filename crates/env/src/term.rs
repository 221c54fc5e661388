//! Until when this process may answer for a cell that several servers share.

use crate::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a term that has ended for ever.
const ENDED: Nanos = 0;
/// Of one that was never extended.
const BEFORE: Nanos = 1;

/// A term of office. Who answers with what is in memory looks at it for each answer, after it has
/// received the request (docs/decisions/0038, O9 and O12): a process that was stopped, or cut off
/// from the store, must not answer in the place of another that has taken over meanwhile. Cheap to
/// clone; clones are the same term.
///
/// Times are those of [`crate::Env::now`], which goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Term(Option<Arc<AtomicU64>>);

impl Term {
    /// One without an end: nobody else can serve the cell.
    pub fn endless() -> Term {
        Term(None)
    }

    /// One that has not begun.
    pub fn not_begun() -> Term {
        Term(Some(Arc::new(AtomicU64::new(BEFORE))))
    }

    /// It lasts at least until then, unless it was ended.
    pub fn extend(&self, until: Nanos) {
        let Some(ends) = &self.0 else { return };
        let later = |ends: Nanos| (ends != ENDED).then(|| ends.max(until));
        let _ = ends.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Ends it for ever.
    pub fn end(&self) {
        if let Some(ends) = &self.0 {
            ends.store(ENDED, Ordering::Release);
        }
    }

    /// Whether it was ended for ever.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|ends| ends.load(Ordering::Acquire) == ENDED)
    }

    /// Whether it lasts at this moment.
    pub fn holds(&self, now: Nanos) -> bool {
        self.0.as_ref().is_none_or(|ends| now < ends.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_lasts_until_it_was_extended_to_and_never_again_after_its_end() {
        assert!(Term::endless().holds(Nanos::MAX) && !Term::endless().is_over());
        let term = Term::not_begun();
        assert!(!term.holds(5) && !term.is_over());
        term.clone().extend(10);
        term.extend(8);
        assert!(term.holds(9) && !term.holds(10));
        term.end();
        term.extend(20);
        assert!(!term.holds(9) && term.is_over());
    }
}
