//! Operations by path, such as `d/sub/file`.

use crate::rig::Rig;
use leeward_fs::{Attr, Kind, Make, NodeId, Op, Precondition, RenameMode, Reply, Result, SetAttr};

/// The longest name of this number.
pub fn long_name(n: usize) -> String {
    format!("{n:0255}")
}

impl Rig {
    /// The directory and the name in it.
    pub fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }

    pub fn at(&self, path: &str) -> Result<NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(NodeId::ROOT, |dir, name| {
            match self.call(Op::Lookup { dir, name: name.as_bytes() })? {
                Reply::Attr(attr) => Ok(attr.node),
                other => panic!("{other:?}"),
            }
        })
    }

    pub fn attr(&self, node: NodeId) -> Attr {
        match self.call(Op::GetAttr { node }) {
            Ok(Reply::Attr(attr)) => attr,
            other => panic!("{other:?}"),
        }
    }

    pub fn make(&self, path: &str, make: Make<'_>) -> Result<NodeId> {
        let (dir, name) = Self::split(path);
        let dir = self.at(dir)?;
        match self.call(Op::Make { dir, name: name.as_bytes(), make, mode: 0o755, umask: 0 })? {
            Reply::Attr(attr) => Ok(attr.node),
            other => panic!("{other:?}"),
        }
    }

    pub fn dir(&self, path: &str) -> NodeId {
        self.make(path, Make::Dir).expect(path)
    }

    /// A directory in another.
    pub fn level_in(&self, dir: NodeId, name: &str) -> NodeId {
        let name = name.as_bytes();
        match self.call(Op::Make { dir, name, make: Make::Dir, mode: 0o755, umask: 0 }).expect("made") {
            Reply::Attr(attr) => attr.node,
            other => panic!("{other:?}"),
        }
    }

    /// Directories in one another, with the longest names: the outermost first.
    pub fn chain(&self, top: NodeId, levels: usize) -> Vec<NodeId> {
        let below = |dir: &mut NodeId, n: usize| {
            *dir = self.level_in(*dir, &long_name(n));
            Some(*dir)
        };
        (0..levels).scan(top, below).collect()
    }

    /// A file with this content, made or overwritten.
    pub fn file(&self, path: &str, data: &[u8]) -> NodeId {
        let node = match self.at(path) {
            Ok(node) => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                self.call(Op::SetAttr { node, set }).expect("cut");
                node
            }
            Err(_) => self.make(path, Make::File).expect(path),
        };
        self.write(node, 0, data).expect(path);
        node
    }

    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        for (n, part) in data.chunks(1 << 20).enumerate() {
            self.call(Op::Write { node, offset: offset + ((n as u64) << 20), data: part })?;
        }
        Ok(())
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let node = self.at(path)?;
        let mut all = Vec::new();
        loop {
            match self.call(Op::Read { node, offset: all.len() as u64, len: 1 << 20 })? {
                Reply::Data(data) if data.is_empty() => return Ok(all),
                Reply::Data(data) => all.extend(data),
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn unlink(&self, path: &str) {
        let (dir, name) = Self::split(path);
        self.call(Op::Unlink {
            dir: self.at(dir).expect(dir),
            name: name.as_bytes(),
            over: Precondition::Any,
        })
        .expect(path);
    }

    pub fn rmdir(&self, path: &str) -> Result<Reply> {
        let (dir, name) = Self::split(path);
        self.call(Op::RmDir { dir: self.at(dir)?, name: name.as_bytes() })
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<Reply> {
        let ((from_dir, from_name), (to_dir, to_name)) = (Self::split(from), Self::split(to));
        self.call(Op::Rename {
            from_dir: self.at(from_dir)?,
            from_name: from_name.as_bytes(),
            to_dir: self.at(to_dir)?,
            to_name: to_name.as_bytes(),
            mode: RenameMode::Replace,
        })
    }

    pub fn list(&self, path: &str) -> Vec<(String, Kind)> {
        let dir = self.at(path).expect(path);
        match self.call(Op::List { dir, after: b"", limit: 100_000, attrs: true }).expect(path) {
            Reply::Entries(all) => {
                all.iter().map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.kind)).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}
