//! The volumes of a cell, by number and by name: commands name them, and there may be 100,000.

use crate::format::inode::VolumeRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Volumes by number. Those that are not being removed by name, which is unique among them and is
/// exactly that of the record; the others apart: the background looks for them again and again.
#[derive(Default)]
pub struct Volumes {
    by_number: BTreeMap<u32, VolumeRecord>,
    by_name: BTreeMap<String, u32>,
    removing: BTreeSet<u32>,
}

impl Deref for Volumes {
    type Target = BTreeMap<u32, VolumeRecord>;

    fn deref(&self) -> &BTreeMap<u32, VolumeRecord> {
        &self.by_number
    }
}

impl Volumes {
    /// The volume of this name that is not being removed.
    pub fn named(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// How many are not being removed.
    pub fn named_count(&self) -> usize {
        self.by_name.len()
    }

    /// Those that are being removed, by number.
    pub fn removing(&self) -> impl Iterator<Item = u32> {
        self.removing.iter().copied()
    }

    /// There is a volume, with a number that none has.
    pub fn insert(&mut self, id: u32, record: VolumeRecord) {
        match record.removing {
            false => drop(self.by_name.insert(record.name.clone(), id)),
            true => drop(self.removing.insert(id)),
        }
        self.by_number.insert(id, record);
    }

    /// A volume is gone.
    pub fn remove(&mut self, id: u32) {
        self.forget_name(id);
        self.removing.remove(&id);
        self.by_number.remove(&id);
    }

    /// A record, to be changed; its name by [`Volumes::rename`], whether it is being removed by
    /// [`Volumes::begin_removal`] only.
    pub fn get_mut(&mut self, id: &u32) -> Option<&mut VolumeRecord> {
        self.by_number.get_mut(id)
    }

    /// All of them, as [`Volumes::get_mut`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut VolumeRecord)> {
        self.by_number.iter_mut()
    }

    /// A volume has another name.
    pub fn rename(&mut self, id: u32, to: &str) {
        self.forget_name(id);
        if let Some(record) = self.by_number.get_mut(&id) {
            record.name = to.into();
            if !record.removing {
                self.by_name.insert(to.into(), id);
            }
        }
    }

    /// A volume is being removed: another one may get its name.
    pub fn begin_removal(&mut self, id: u32) {
        self.forget_name(id);
        if let Some(record) = self.by_number.get_mut(&id) {
            record.removing = true;
            self.removing.insert(id);
        }
    }

    fn forget_name(&mut self, id: u32) {
        if let Some(record) = self.by_number.get(&id).filter(|record| !record.removing) {
            self.by_name.remove(&record.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::inode::Properties;
    use leeward_fs::NodeId;

    fn record(name: &str) -> VolumeRecord {
        VolumeRecord {
            name: name.into(),
            uid: 0,
            next_inode: 2,
            epoch: 1,
            created_secs: 0,
            attached_dir: NodeId::ROOT,
            attached_name: (*b"x").into(),
            removing: false,
            properties: Properties::default(),
        }
    }

    #[test]
    fn a_name_is_that_of_the_volume_that_has_it() {
        let mut volumes = Volumes::default();
        volumes.insert(1, record("a"));
        volumes.insert(2, record("b"));
        volumes.insert(3, VolumeRecord { removing: true, ..record("c") });
        assert_eq!(["a", "b", "c"].map(|name| volumes.named(name)), [Some(1), Some(2), None]);
        assert_eq!((volumes.len(), volumes.named_count()), (3, 2));
        volumes.rename(1, "c");
        assert_eq!(["a", "c"].map(|name| volumes.named(name)), [None, Some(1)]);
        volumes.begin_removal(1);
        assert_eq!(volumes.removing().collect::<Vec<_>>(), [1, 3]);
        volumes.insert(4, record("c"));
        // that of the volume that is being removed stays free for the other one
        volumes.remove(1);
        volumes.remove(3);
        assert_eq!(volumes.removing().next(), None);
        assert_eq!((volumes.named("c"), volumes.len()), (Some(4), 2));
        volumes.remove(4);
        assert_eq!((volumes.named("c"), volumes.named("b")), (None, Some(2)));
    }
}
