//! Where an open cell keeps its identity.

use crate::admin::failure::{Failure, refused};
use crate::cell::identity::{self, Identity};
use leeward_bucket::Bucket;
use leeward_env::disk::held::HeldDir;

/// The identity of an open cell, and where it is.
pub(crate) enum KeptIdentity {
    /// Nowhere: a cell on an engine and a store, as in tests.
    Nowhere,
    /// In its directory.
    Dir(HeldDir, Identity),
    /// In its bucket; `shared`: other servers may replace it, too.
    Bucket { bucket: Bucket, shared: bool, identity: Identity },
}

impl KeptIdentity {
    /// Notes, durably, that the cell has this format, if it has an older one.
    ///
    /// # Errors
    /// The disk's or the store's; the format is what it was, or this one.
    pub fn raise(&mut self, format: u32) -> Result<(), Failure> {
        let raised = match self {
            KeptIdentity::Nowhere => return Ok(()),
            KeptIdentity::Dir(_, identity) | KeptIdentity::Bucket { identity, .. } => identity.raised(format),
        };
        let Some(raised) = raised else { return Ok(()) };
        match self {
            KeptIdentity::Nowhere => (),
            KeptIdentity::Dir(dir, identity) => {
                identity::raise(dir, identity, format)?;
                *identity = raised;
            }
            KeptIdentity::Bucket { bucket, shared, identity } => {
                replace(bucket, *shared, &raised)?;
                *identity = raised;
            }
        }
        Ok(())
    }
}

/// Puts the identity in the place of an older one. Where servers share the cell, one that has lost
/// it meanwhile does not overwrite what a later one has written.
fn replace(bucket: &Bucket, shared: bool, raised: &Identity) -> Result<(), Failure> {
    let text = raised.to_text()?;
    if !shared {
        return bucket.replace(identity::NAME, text.into()).map_err(refused);
    }
    let place = bucket.place().to_string();
    let at = format!("{place}/{}", identity::NAME);
    let gone = || Failure { message: format!("{at} is gone: restore it"), errno: libc::ENOENT };
    let (there, tag) = bucket.get_tagged(identity::NAME).map_err(refused)?.ok_or_else(gone)?;
    match Identity::parse(&there, &at, &place)?.raised(raised.format) {
        Some(raised) => {
            bucket.swap(identity::NAME, raised.to_text()?.into(), &tag).map(drop).map_err(refused)
        }
        None => Ok(()),
    }
}
