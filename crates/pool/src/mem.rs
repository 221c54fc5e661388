//! A store in memory, for tests of the layers above.

use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::Ctx;
use leeward_env::disk::Space;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects in memory; gone with the process.
pub struct MemStore {
    capacity_bytes: u64,
    objects: RwLock<BTreeMap<ObjectId, Arc<[u8]>>>,
}

impl MemStore {
    /// An empty store without a practical bound.
    pub fn new() -> MemStore {
        MemStore::with_capacity(1 << 50)
    }

    /// An empty store that is full when its objects have this many bytes.
    pub fn with_capacity(bytes: u64) -> MemStore {
        MemStore { capacity_bytes: bytes, objects: RwLock::default() }
    }

    fn find(&self, id: ObjectId) -> Result<Arc<[u8]>> {
        self.objects.read().get(&id).cloned().ok_or(Error::NotFound(id))
    }
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

fn used_bytes(objects: &BTreeMap<ObjectId, Arc<[u8]>>) -> u64 {
    objects.values().map(|body| body.len() as u64).sum()
}

impl Store for MemStore {
    fn put(&self, _: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let mut objects = self.objects.write();
        let replaced = objects.get(&id).map_or(0, |old| old.len() as u64);
        if used_bytes(&objects) - replaced + body.len() as u64 > self.capacity_bytes {
            return Err(Error::Full);
        }
        objects.insert(id, body[..].into());
        Ok(())
    }

    fn get(&self, _: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let body = self.find(id)?;
        let start = usize::try_from(offset).map_err(|_| Error::Short(id))?;
        let end = start.checked_add(buf.len()).ok_or(Error::Short(id))?;
        buf.copy_from_slice(body.get(start..end).ok_or(Error::Short(id))?);
        Ok(())
    }

    fn len(&self, _: &Ctx, id: ObjectId) -> Result<u64> {
        Ok(self.find(id)?.len() as u64)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.len(ctx, id).map(drop)
    }

    fn delete(&self, _: &Ctx, id: ObjectId) -> Result<()> {
        self.objects.write().remove(&id);
        Ok(())
    }

    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        Ok(self.objects.read().iter().map(|(id, body)| (*id, body.len() as u64)).collect())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space {
            total_bytes: self.capacity_bytes,
            available_bytes: self.capacity_bytes.saturating_sub(used_bytes(&self.objects.read())),
            ..Space::default()
        })
    }
}
