//! Where an open cell keeps its identity.

use crate::admin::failure::{Failure, refused};
use crate::cell::engines::{make_in_bucket, make_in_dir};
use crate::cell::identity::{self, Identity};
use crate::config::Config;
use leeward_bucket::Bucket;
use leeward_env::Env;
use leeward_env::disk::held::HeldDir;
use leeward_fs::SHARDS_MAX;

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
    /// How many shards the cell has when it is opened next; `None`: as many as it has.
    pub fn shards(&self) -> Option<usize> {
        match self {
            KeptIdentity::Dir(_, kept) | KeptIdentity::Bucket(_, kept) => Some(kept.shards),
            KeptIdentity::Nowhere | KeptIdentity::Closed => None,
        }
    }

    /// Makes so many more shards, for the next opening, durably. How many there are then.
    ///
    /// # Errors
    /// There would be too many; the disk's or the store's; the cell is closed.
    pub fn add_shards(&mut self, env: &Env, config: &Config, more: usize) -> Result<usize, Failure> {
        let before = self.shards().ok_or_else(being_closed)?;
        let count = before.saturating_add(more);
        if count > SHARDS_MAX {
            let message = format!("the cell has {before} shards, and {SHARDS_MAX} are the most");
            return Err(Failure { message, errno: libc::EINVAL });
        }
        match self {
            KeptIdentity::Nowhere | KeptIdentity::Closed => return Err(being_closed()),
            KeptIdentity::Dir(dir, kept) => {
                (before..count).try_for_each(|shard| make_in_dir(env, dir, config, shard))?;
                let new = kept.of_shards(count);
                identity::replace(dir, &new)?;
                *kept = new;
            }
            KeptIdentity::Bucket(bucket, kept) => {
                (before..count).try_for_each(|shard| make_in_bucket(env, bucket, config, shard))?;
                let more = |there: &Identity| (there.shards < count).then(|| there.of_shards(count));
                *kept = replaced(bucket, kept, more)?;
            }
        }
        Ok(count)
    }

    /// Notes, durably, that the cell has this format, if it has an older one. The format that it
    /// has then.
    ///
    /// # Errors
    /// The disk's or the store's: it is not known whether it is noted, and asking again finds out;
    /// `EAGAIN`: the cell is closed.
    pub fn raise(&mut self, format: u32) -> Result<u32, Failure> {
        match self {
            KeptIdentity::Nowhere => Ok(format),
            KeptIdentity::Closed => Err(being_closed()),
            KeptIdentity::Dir(dir, kept) => {
                identity::raise(dir, kept, format)?;
                *kept = kept.raised(format).unwrap_or_else(|| kept.clone());
                Ok(kept.format)
            }
            KeptIdentity::Bucket(bucket, kept) => {
                *kept = replaced(bucket, kept, |there| there.raised(format))?;
                Ok(kept.format)
            }
        }
    }
}

fn being_closed() -> Failure {
    let message = "the cell is being closed: try again where it is served next".to_owned();
    Failure { message, errno: libc::EAGAIN }
}

/// Changes the identity in a bucket (`None`: it is as it should be): what is there then. Where
/// servers share the cell, one that has lost it meanwhile does not overwrite what a later one has
/// written.
fn replaced(
    bucket: &Bucket,
    kept: &Identity,
    change: impl Fn(&Identity) -> Option<Identity>,
) -> Result<Identity, Failure> {
    if change(kept).is_none() {
        return Ok(kept.clone());
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
    let Some(changed) = change(&there) else { return Ok(there) };
    if bucket.look(MAP).map_err(refused)?.is_none() {
        bucket.replace(identity::NAME, changed.to_text()?.into()).map_err(refused)?;
        return Ok(changed);
    }
    match bucket.swap(identity::NAME, changed.to_text()?.into(), &tag) {
        Ok(_) => Ok(changed),
        // an answer may have been lost
        Err(e) => {
            read().ok().map(|(now, _)| now).filter(|now| change(now).is_none()).ok_or_else(|| refused(e))
        }
    }
}
