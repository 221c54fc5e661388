//! All files below a directory in the order of their paths as bytes, from any point on: the listing
//! of S3.
//!
//! A directory's names are kept in the order of their bytes, but `/` sorts among other bytes. Below
//! a directory `a` are `a/...`, which come after the file `a-b` and before `a0`. So a directory is
//! deferred when it is met, until its turn comes, which is before the first name that is greater
//! than `a/`. At any time the deferred directories are prefixes of one name, so they are few.
//!
//! A listing is one step at the gate for each part of a directory. It holds nothing between steps,
//! and is right from any key on without having seen those before. So a page costs what is on it, in
//! a directory of any size.

use crate::files::{LOOK, Tree};
use crate::limits::LIST_STEP;
use crate::path::{PATH_BYTES_MAX, Path};
use crate::steps::{Base, Steps};
use leeward_env::limits::NAME_BYTES_MAX;
use leeward_fs::rights::R;
use leeward_fs::{Attr, Entry, Error, Kind, NodeId, Op, Result};
use std::collections::{BTreeMap, VecDeque};

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only keys with this prefix.
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Vec<u8>,
    /// Whether everything below a directory is listed as one [`Key::Prefix`].
    pub by_directory: bool,
    /// An extended attribute to return for each file.
    pub note: Option<&'static [u8]>,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A file, by its path; with the requested attribute, where it has it.
    File(Vec<u8>, Attr, Option<Vec<u8>>),
    /// An empty directory, by its path with `/` at the end.
    Empty(Vec<u8>, Attr),
    /// A directory that has entries, by its path with `/` at the end.
    Prefix(Vec<u8>),
}

impl Key {
    /// Path of the key.
    pub fn name(&self) -> &[u8] {
        match self {
            Key::File(name, ..) | Key::Empty(name, _) | Key::Prefix(name) => name,
        }
    }
}

/// A listing in progress. Symbolic links, and anything else that is neither file nor directory, are
/// not in it.
pub struct Keys {
    tree: Tree,
    wanted: Wanted,
    levels: Vec<Level>,
    /// The directory to begin in, until it was looked up.
    begin: Option<Vec<u8>>,
}

/// A directory that is being listed.
struct Level {
    /// Its path with `/` at the end; empty for the tree's root.
    prefix: Vec<u8>,
    /// The last name that was fetched.
    after: Vec<u8>,
    fetched: VecDeque<(Entry, Option<Vec<u8>>)>,
    at_end: bool,
    /// Deferred directories, by name with `/`; with the last key in them that was listed before.
    aside: BTreeMap<Vec<u8>, (Attr, Vec<u8>)>,
    /// Only names with this prefix are wanted.
    begins: Vec<u8>,
}

impl Keys {
    /// A listing of a tree.
    pub fn new(tree: &Tree, wanted: Wanted) -> Keys {
        let at = wanted.prefix.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let begin = Some(wanted.prefix[..at].to_vec());
        Keys { tree: tree.clone(), wanted, levels: Vec::new(), begin }
    }

    /// Up to `limit` more entries; fewer only at the end.
    ///
    /// # Errors
    /// As for `readdir` of one of the directories. A prefix that leads nowhere gives nothing.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Key>> {
        if let Some(prefix) = self.begin.take() {
            self.begin_at(prefix).await?;
        }
        let mut keys = Vec::new();
        while keys.len() < limit && !self.levels.is_empty() {
            if let Some(key) = self.step(limit - keys.len()).await? {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Looks up the directory that the prefix names.
    async fn begin_at(&mut self, prefix: Vec<u8>) -> Result<()> {
        // a text that cannot be a path names nothing
        let Ok(path) = Path::parse(&prefix) else { return Ok(()) };
        let begins = self.wanted.prefix[prefix.len()..].to_vec();
        let after = match self.wanted.after.strip_prefix(&prefix[..]) {
            Some(rest) => rest.to_vec(),
            None if self.wanted.after < prefix => Vec::new(),
            // all wanted keys come before
            None => return Ok(()),
        };
        if after > begins && !after.starts_with(&begins) {
            return Ok(());
        }
        let dir = match self.tree.access(&path, R).await {
            Err(Error::NotFound | Error::NotDir | Error::NameTooLong) => return Ok(()),
            other => other?,
        };
        if dir.size == 0 && begins.is_empty() && !prefix.is_empty() && self.wanted.after < prefix {
            // the directory itself, where there is nothing else
            let entry = Entry { name: Box::default(), node: dir.node, kind: Kind::Dir, attr: Some(dir) };
            let level = Level { fetched: [(entry, None)].into(), ..Level::new(prefix, begins) };
            self.levels.push(Level { at_end: true, ..level });
            return Ok(());
        }
        self.enter(prefix, begins, after).await
    }

    /// Begins with a directory, after a key in it.
    async fn enter(&mut self, prefix: Vec<u8>, begins: Vec<u8>, after: Vec<u8>) -> Result<()> {
        let mut level = Level::new(prefix, begins);
        // names before this one are not wanted
        let from = if after < level.begins { level.begins.clone() } else { after.clone() };
        if from.is_empty() {
            self.levels.push(level);
            return Ok(());
        }
        let slash = from.iter().position(|b| *b == b'/');
        let head = from[..slash.unwrap_or(from.len())].to_vec();
        // a directory with a shorter name than the first may still come after it: these are
        // deferred
        let shortest = level.begins.len().max(1);
        for len in shortest..=head.len().min(NAME_BYTES_MAX) {
            let comes_later = len == head.len() || head[len] < b'/';
            if comes_later {
                self.look_at(&mut level, &head[..len], &after).await?;
            }
        }
        level.after = from[..slash.map_or(from.len(), |at| at + 1)].to_vec();
        self.levels.push(level);
        Ok(())
    }

    /// Handles a name that listing will not meet: a directory is deferred, a file is listed if it
    /// comes after `after`.
    async fn look_at(&self, level: &mut Level, name: &[u8], after: &[u8]) -> Result<()> {
        let Ok(path) = Path::parse(&[&level.prefix[..], name].concat()) else { return Ok(()) };
        let note = self.wanted.note;
        let look = move |steps: &Steps<'_>, base: &Base| {
            let walked = steps.walk(base, &path, false)?;
            // snapshots are listed only if the listing begins in them, as in `Steps::list`
            let shown = |attr: &Attr| !attr.node.is_view() || walked.dir().node.is_view();
            let Some(attr) = walked.attr.filter(shown) else { return Ok(None) };
            Ok(Some((attr, noted(steps, attr.node, attr.kind, note)?)))
        };
        let (attr, note) = match self.tree.run(LOOK, look).await {
            Ok(Some(found)) => found,
            Ok(None) | Err(Error::NotFound | Error::NameTooLong) => return Ok(()),
            Err(e) => return Err(e),
        };
        match attr.kind {
            Kind::Dir => level.defer(name, attr, after, self.wanted.by_directory),
            Kind::File if name > after => {
                let entry = Entry { name: name.into(), node: attr.node, kind: attr.kind, attr: Some(attr) };
                level.fetched.push_back((entry, note));
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes one step; returns a key if it has met one.
    async fn step(&mut self, limit: usize) -> Result<Option<Key>> {
        let by_directory = self.wanted.by_directory;
        let level = self.levels.last_mut().expect("the caller looked");
        if level.fetched.is_empty() && !level.at_end {
            let (tree, limit) = (self.tree.clone(), (limit + 1).min(LIST_STEP));
            return level.fetch(&tree, limit, self.wanted.note).await.map(|()| None);
        }
        let next = level.fetched.front().map(|(entry, _)| entry);
        let aside = level.aside.first_key_value().map(|(name, _)| name);
        if let Some(name) = aside.filter(|name| next.is_none_or(|e| name[..] < e.name[..])) {
            let name = name.clone();
            let (attr, after) = level.aside.remove(&name).expect("just seen");
            let path = [&level.prefix[..], &name].concat();
            if by_directory {
                return Ok(Some(Key::Prefix(path)));
            }
            if attr.size == 0 && after.is_empty() {
                return Ok(Some(Key::Empty(path, attr)));
            }
            self.enter(path, Vec::new(), after).await?;
            return Ok(None);
        }
        let Some((entry, note)) = level.fetched.pop_front() else {
            self.levels.pop();
            return Ok(None);
        };
        let Some(attr) = entry.attr else { return Ok(None) };
        let path = [&level.prefix[..], &entry.name].concat();
        if path.len() >= PATH_BYTES_MAX {
            // made in the mount, deeper than a path can say
            return Ok(None);
        }
        match entry.kind {
            Kind::Dir if entry.name.is_empty() => Ok(Some(Key::Empty(path, attr))),
            Kind::Dir => {
                level.defer(&entry.name, attr, b"", by_directory);
                Ok(None)
            }
            Kind::File => Ok(Some(Key::File(path, attr, note))),
            _ => Ok(None),
        }
    }
}

impl Level {
    fn new(prefix: Vec<u8>, begins: Vec<u8>) -> Level {
        let (after, fetched, aside) = (Vec::new(), VecDeque::new(), BTreeMap::new());
        Level { prefix, after, fetched, at_end: false, aside, begins }
    }

    /// Defers a directory. `after`: the last key in it that was listed before; if that is all of
    /// the directory, it has no turn.
    fn defer(&mut self, name: &[u8], attr: Attr, after: &[u8], by_directory: bool) {
        let key = [name, b"/"].concat();
        let rest = match after.strip_prefix(&key[..]) {
            // it was listed as a whole
            Some(_) if by_directory => return,
            // it was empty, and listed as itself
            Some(b"") if attr.size == 0 => return,
            Some(rest) => rest.to_vec(),
            None if key[..] <= *after => return,
            None => Vec::new(),
        };
        self.aside.insert(key, (attr, rest));
    }

    async fn fetch(&mut self, tree: &Tree, limit: usize, note: Option<&'static [u8]>) -> Result<()> {
        let (prefix, after) = (self.prefix.clone(), self.after.clone());
        let Ok(path) = Path::parse(&prefix) else { return Err(Error::Invalid) };
        let like = (Op::List { dir: NodeId::ROOT, after: b"", limit: 0, attrs: true }, 0);
        let listed = tree
            .run(like, move |steps, base| {
                let walked = steps.walk(base, &path, true)?;
                let (entries, at_end) = steps.list(walked.found()?, &after, limit, true)?;
                let with_note = |entry: Entry| Ok((noted(steps, entry.node, entry.kind, note)?, entry));
                let entries = entries.into_iter().map(with_note).collect::<Result<Vec<_>>>()?;
                Ok((entries, at_end))
            })
            .await;
        let (entries, at_end) = match listed {
            // it went away meanwhile
            Err(Error::NotFound) => (Vec::new(), true),
            other => other?,
        };
        self.at_end = at_end;
        if let Some((_, last)) = entries.last() {
            self.after = last.name.to_vec();
            self.at_end |= !last.name.starts_with(&self.begins) && last.name[..] > self.begins[..];
        }
        let wanted = entries.into_iter().filter(|(_, e)| e.name.starts_with(&self.begins));
        self.fetched.extend(wanted.map(|(note, entry)| (entry, note)));
        Ok(())
    }
}

/// The requested attribute of a file.
fn noted(steps: &Steps<'_>, node: NodeId, kind: Kind, note: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    match note {
        Some(name) if kind == Kind::File => match steps.xattr(node, name) {
            // removed just now
            Err(Error::Stale) => Ok(None),
            other => other,
        },
        _ => Ok(None),
    }
}
