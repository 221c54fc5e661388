//! How records are stored: keys and encodings. docs/FORMAT.md has them, golden bytes under test.

pub mod accounts;
pub mod attached;
pub mod backups;
pub mod buckets;
pub mod events;
pub mod extents;
pub mod flows;
pub mod groups;
pub mod inode;
pub mod keys;
pub mod mirrors;
mod numbers;
pub mod owned;
pub mod projects;
pub mod samples;
pub mod stored;
pub mod transfers;
pub(crate) mod versions;

pub mod schedule;
pub mod scrub;
mod sessions;
mod uploads;

pub(crate) use uploads::{plain_orphan, text};

use crate::format::keys::Key;
use leeward_meta::Moment;

/// Calls `f` with all records of a range as of one moment, a page at a time.
pub(crate) fn each(
    moment: &dyn Moment,
    range: (Key, Key),
    mut f: impl FnMut(&Key, &[u8]) -> leeward_fs::Result<()>,
) -> leeward_fs::Result<()> {
    const PAGE: usize = 4096;
    let (mut from, to) = range;
    loop {
        let page = moment.scan(&from, &to, PAGE)?;
        for (key, value) in &page {
            f(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => from = keys::after(last),
            _ => return Ok(()),
        }
    }
}
