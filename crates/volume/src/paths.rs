//! Paths within the cell: for operators, messages and reports. No operation of a front end goes by
//! path.

use crate::format::inode::Dentry;
use crate::format::keys::{self, tag};
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::{Error, NodeId, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

impl Shard {
    /// The inode at an absolute path; symbolic links are not followed.
    pub(crate) fn resolve(&self, path: &str) -> Result<NodeId> {
        // for somebody, who may have made it just now on another machine
        let ctx = Ctx::user(0, 0);
        let mut node = NodeId::ROOT;
        for part in Path::new(path).components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let entry = self.transact(&ctx, |tx| tx.dentry(node, name.as_bytes()))?;
                    node = entry.ok_or(Error::NotFound)?.node;
                }
                _ => return Err(Error::Invalid),
            }
        }
        Ok(node)
    }

    /// What is at a path, outside of snapshots; `Err`: the last on the way that is there.
    pub(crate) fn nearest(&self, path: &str) -> std::result::Result<NodeId, NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(NodeId::ROOT, |dir, name| {
            let found = self.transact(&Ctx::user(0, 0), |tx| tx.dentry(dir, name.as_bytes()));
            found.ok().flatten().map(|entry| entry.node).filter(|node| !node.is_view()).ok_or(dir)
        })
    }

    /// One path of an inode; `None` when it has none.
    pub(crate) fn path_of(&self, node: NodeId) -> Option<String> {
        let ctx = Ctx::system();
        let mut names: Vec<String> = Vec::new();
        let mut at = node;
        while at != NodeId::ROOT {
            let (dir, name) = if at.inode() == 1 {
                let st = self.lock();
                let volume = st.volumes.get(&at.volume())?;
                (volume.attached_dir, volume.attached_name.clone())
            } else {
                let inode = self.transact(&ctx, |tx| tx.inode(at)).ok()?;
                let dir = NodeId::new(at.volume(), inode.parent);
                (dir, self.name_in(dir, at, inode.name)?)
            };
            if dir.inode() == 0 || names.len() > 4096 {
                return None;
            }
            names.push(String::from_utf8_lossy(&name).into_owned());
            at = dir;
        }
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }

    /// The name of `node` in `dir`: `hint`, if that leads there, else the result of a search
    /// through the directory.
    fn name_in(&self, dir: NodeId, node: NodeId, hint: Option<Box<[u8]>>) -> Option<Box<[u8]>> {
        if let Some(name) = hint
            && self.transact(&Ctx::system(), |tx| tx.dentry(dir, &name)).ok()?.is_some_and(|d| d.node == node)
        {
            return Some(name);
        }
        let (mut from, to) = keys::tag_range(dir, tag::DENTRY);
        loop {
            let (page, next) = self.scan(&from, &to, 1024).ok()?;
            for (key, value) in &page {
                if Dentry::decode(value).is_ok_and(|d| d.node == node) {
                    return keys::parse(key).map(|p| p.rest.into());
                }
            }
            from = next?;
        }
    }
}
