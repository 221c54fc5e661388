//! A bucket as a store. Each object is one object of the bucket, named as the files of a
//! [`crate::DirStore`] are.
//!
//! * A put creates (`If-None-Match: *`) and never replaces. The name may be taken, by an earlier
//!   attempt of ours whose answer was lost or by another process. Then the existing object is read
//!   and compared.
//! * [`Store::replace`] replaces only the object that it has looked at (`If-Match`). If somebody
//!   else has repaired it meanwhile, that object stays.
//! * An object is put in one request: the longest has 16 MiB and a little.
//! * Deadlines and retries are those of [`leeward_bucket`]. Listing is needed only for
//!   [`Store::list`].

use crate::dir::{dir_name, file_name, parse_name};
use crate::label::LABEL;
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use bytes::Bytes;
use leeward_bucket::{Bucket, Error as BucketError};
use leeward_env::Ctx;
use leeward_env::disk::Space;

/// The size and free space that a bucket reports, as the real ones are unknown: 1 PiB.
const SPACE_BYTES: u64 = 1 << 50;
/// How often a put is repeated that finds the name taken, and then no object under it.
const CREATES_MAX: u32 = 3;

/// A store in a bucket.
pub struct S3Store {
    bucket: Bucket,
    prefix: String,
}

impl S3Store {
    /// A store below `prefix` (empty: the bucket's own). This call makes no request.
    pub fn new(bucket: Bucket, prefix: &str) -> S3Store {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        S3Store { bucket, prefix }
    }

    /// Checks within seconds that the bucket answers and accepts our credentials.
    ///
    /// # Errors
    /// Refused, Away, Busy.
    pub fn reach(&self) -> Result<()> {
        self.bucket.look(&self.path(LABEL)).map(drop).map_err(|e| error(LABEL, e))
    }

    /// The name of an object below the bucket's prefix. For messages and for tests that damage it.
    pub fn path(&self, id: ObjectId) -> String {
        format!("{}{}/{}", self.prefix, dir_name(id), file_name(id))
    }

    /// Why a range could not be read. The failed request does not tell whether the object ends
    /// before the range, so this asks for the length.
    fn why_not(&self, id: ObjectId, end: u64, e: BucketError) -> Error {
        match e {
            BucketError::Failed(_) => match self.bucket.len(&self.path(id)) {
                Ok(len) if len < end => Error::Short(id),
                Err(e @ BucketError::Missing(_)) => error(id, e),
                _ => error(id, e),
            },
            e => error(id, e),
        }
    }
}

fn error(id: ObjectId, e: BucketError) -> Error {
    match e {
        BucketError::Missing(_) => Error::NotFound(id),
        BucketError::Exists(_) => Error::Exists(id),
        BucketError::Full(_) => Error::Full,
        BucketError::Busy(text) => Error::Busy(text),
        BucketError::Away(text) => Error::Away(text),
        BucketError::Refused(text) | BucketError::NoBucket(text) | BucketError::Wrong(text) => {
            Error::Refused(text)
        }
        BucketError::Failed(text) => Error::Io(std::io::Error::other(text)),
    }
}

impl Store for S3Store {
    fn put(&self, _: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let path = self.path(id);
        let body = Bytes::copy_from_slice(body);
        for _ in 0..CREATES_MAX {
            match self.bucket.create(&path, body.clone()) {
                Err(BucketError::Exists(_)) => (),
                other => return other.map_err(|e| error(id, e)),
            }
            match self.bucket.get(&path).map_err(|e| error(id, e))? {
                Some(there) if there == body => return Ok(()),
                Some(_) => return Err(Error::Exists(id)),
                None => (), // it was being deleted, or another create was under way and failed
            }
        }
        Err(Error::Busy(format!(
            "{}/{path}: made and removed by others again and again",
            self.bucket.place()
        )))
    }

    fn replace(&self, _: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let path = self.path(id);
        let body = Bytes::copy_from_slice(body);
        for _ in 0..CREATES_MAX {
            let swapped = match self.bucket.get_tagged(&path).map_err(|e| error(id, e))? {
                None => self.bucket.create(&path, body.clone()),
                Some((there, _)) if there == body => return Ok(()),
                Some((_, tag)) => self.bucket.swap(&path, body.clone(), &tag).map(drop),
            };
            match swapped {
                // another writer was faster, or it was an earlier attempt of ours whose answer was
                // lost: look
                Err(BucketError::Exists(_)) => (),
                other => return other.map_err(|e| error(id, e)),
            }
        }
        Err(Error::Exists(id))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        if buf.is_empty() {
            return if self.len(ctx, id)? < end { Err(Error::Short(id)) } else { Ok(()) };
        }
        let read = self.bucket.get_range(&self.path(id), offset, buf.len() as u64);
        let read = read.map_err(|e| self.why_not(id, end, e))?;
        if read.len() < buf.len() {
            return Err(Error::Short(id));
        }
        buf.copy_from_slice(&read[..buf.len()]);
        Ok(())
    }

    fn len(&self, _: &Ctx, id: ObjectId) -> Result<u64> {
        self.bucket.len(&self.path(id)).map_err(|e| error(id, e))
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.len(ctx, id).map(drop)
    }

    fn delete(&self, _: &Ctx, id: ObjectId) -> Result<()> {
        self.bucket.delete(&self.path(id)).map_err(|e| error(id, e))
    }

    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let found =
            self.bucket.list(&self.prefix).map_err(|e| error(ObjectId { segment: 0, generation: 0 }, e))?;
        let mut all: Vec<_> = found
            .into_iter()
            .filter_map(|(name, len)| {
                let (dir, file) = name.strip_prefix(&self.prefix)?.split_once('/')?;
                parse_name(file).filter(|id| dir_name(*id) == dir).map(|id| (id, len))
            })
            .collect();
        all.sort_unstable();
        Ok(all)
    }

    fn space(&self) -> Result<Space> {
        Ok(Space { total_bytes: SPACE_BYTES, available_bytes: SPACE_BYTES, ..Space::default() })
    }
}
