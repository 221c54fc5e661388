//! Checks of names that lead to volumes of other shards: the name, the record of it, and what the
//! volume says of its place are of one mind.

use super::Census;
use crate::format::attached::AttachedRecord;
use crate::format::each;
use crate::format::inode::VolumeRecord;
use crate::format::keys::{self, Table};
use crate::format::stored::Stored;
use crate::shard::Shard;
use leeward_fs::{NodeId, Result};
use leeward_meta::Moment;

impl Shard {
    pub(super) fn census_attached(&self, c: &mut Census, moment: &dyn Moment) -> Result<()> {
        each(moment, keys::table_range(Table::Attached), |key, value| {
            let volume = keys::table_id(key) as u32;
            let AttachedRecord { dir, name } = AttachedRecord::decode(value)?;
            let root = NodeId::new(volume, 1);
            if c.names_beside.remove(&root) != Some(dir) {
                c.say(
                    "attached",
                    Some(dir),
                    format!("no name leads to volume {volume}, which is attached here"),
                );
            }
            let says = self.beside(root, |shard| Ok(shard.lock().volumes.get(&volume).cloned()));
            let agrees = |v: &VolumeRecord| !v.removing && v.attached_dir == dir && v.attached_name == name;
            if !says.ok().flatten().is_some_and(|v| agrees(&v)) {
                c.say(
                    "attached",
                    Some(dir),
                    format!("volume {volume}, which is attached here, says otherwise"),
                );
            }
            Ok(())
        })?;
        for (root, dir) in std::mem::take(&mut c.names_beside) {
            c.say(
                "attached",
                Some(dir),
                format!("a name leads to {root:?} of another shard, without a record"),
            );
        }
        each(moment, keys::table_range(Table::Volume), |key, value| {
            let (id, v) = (keys::table_id(key) as u32, VolumeRecord::decode(value)?);
            let has = |shard: &Shard| Ok(shard.lock().attached.contains_key(&id));
            if !v.removing && !self.which.has(v.attached_dir) && self.beside(v.attached_dir, has) != Ok(true)
            {
                c.say("attached", None, format!("volume {} has no name where it is attached", v.name));
            }
            Ok(())
        })
    }
}
