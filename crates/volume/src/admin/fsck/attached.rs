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
    /// Names and records, as of one moment; and what both sides say now, while no volume gets or
    /// loses its name.
    pub(super) fn census_attached(&self, c: &mut Census, moment: &dyn Moment) -> Result<()> {
        each(moment, keys::table_range(Table::Attached), |key, value| {
            let (volume, at) = (keys::table_id(key) as u32, AttachedRecord::decode(value)?);
            if c.names_beside.remove(&NodeId::new(volume, 1)) != Some(at.dir) {
                let detail = format!("no name leads to volume {volume}, which is attached here");
                c.say("attached", Some(at.dir), detail);
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
        let _alone = self.naming().lock();
        let attached = self.lock().attached.clone();
        for (volume, at) in attached {
            let says =
                self.beside(NodeId::new(volume, 1), |shard| Ok(shard.lock().volumes.get(&volume).cloned()));
            let agrees =
                |v: &VolumeRecord| !v.removing && v.attached_dir == at.dir && v.attached_name == at.name;
            if !says.ok().flatten().is_some_and(|v| agrees(&v)) {
                let detail = format!("volume {volume}, which is attached here, says otherwise");
                c.say("attached", Some(at.dir), detail);
            }
        }
        for (id, v) in self.volumes_named_beside() {
            let has = |shard: &Shard| Ok(shard.lock().attached.contains_key(&id));
            if self.beside(v.attached_dir, has) != Ok(true) {
                c.say("attached", None, format!("volume {} has no name where it is attached", v.name));
            }
        }
        Ok(())
    }
}
