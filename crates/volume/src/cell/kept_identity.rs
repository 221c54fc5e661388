//! Where an open cell keeps its identity.

use crate::admin::failure::{Failure, refused};
use crate::cell::identity::{self, Identity};
use leeward_bucket::Bucket;
use leeward_env::disk::held::HeldDir;

/// The map of the servers of a cell that several share.
const MAP: &str = "servers/map";

/// The identity of an open cell, and where it is.
pub(crate) enum KeptIdentity {
    /// Nowhere: a cell on an engine and a store, as in tests.
    Nowhere,
    /// In its directory.
    Dir(HeldDir, Identity),
    /// In its bucket.
    Bucket(Bucket, Identity),
    /// The cell is closed: what it is called is another's to change.
    Closed,
}

impl KeptIdentity {
    /// Notes, durably, that the cell has this format, if it has an older one. The format that it
    /// has then.
    ///
    /// # Errors
    /// The disk's or the store's: it is not known whether it is noted, and asking again finds out;
    /// `EAGAIN`: the cell is closed.
    pub fn raise(&mut self, format: u32) -> Result<u32, Failure> {
        match self {
            KeptIdentity::Nowhere => Ok(format),
            KeptIdentity::Closed => {
                let message = "the cell is being closed: try again where it is served next".to_owned();
                Err(Failure { message, errno: libc::EAGAIN })
            }
            KeptIdentity::Dir(dir, kept) => {
                identity::raise(dir, kept, format)?;
                *kept = kept.raised(format).unwrap_or_else(|| kept.clone());
                Ok(kept.format)
            }
            KeptIdentity::Bucket(bucket, kept) => {
                if let Some(raised) = kept.raised(format) {
                    *kept = replaced(bucket, raised)?;
                }
                Ok(kept.format)
            }
        }
    }
}

/// Puts an identity in the place of an older one: what is there then. Where servers share the cell,
/// one that has lost it meanwhile does not overwrite what a later one has written.
fn replaced(bucket: &Bucket, raised: Identity) -> Result<Identity, Failure> {
    if bucket.look(MAP).map_err(refused)?.is_none() {
        bucket.replace(identity::NAME, raised.to_text()?.into()).map_err(refused)?;
        return Ok(raised);
    }
    let place = bucket.place().to_string();
    let at = format!("{place}/{}", identity::NAME);
    let read = || {
        let found = bucket.get_tagged(identity::NAME).map_err(refused)?;
        let gone = || Failure { message: format!("{at} is gone: restore it"), errno: libc::ENOENT };
        let (text, tag) = found.ok_or_else(gone)?;
        Ok((Identity::parse(&text, &at, &place)?, tag))
    };
    let (there, tag) = read()?;
    let Some(raised) = there.raised(raised.format) else { return Ok(there) };
    match bucket.swap(identity::NAME, raised.to_text()?.into(), &tag) {
        Ok(_) => Ok(raised),
        // an answer may have been lost
        Err(e) => read()
            .ok()
            .map(|(now, _)| now)
            .filter(|now| now.format >= raised.format)
            .ok_or_else(|| refused(e)),
    }
}
