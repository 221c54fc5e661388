//! A repository: its keys, its files, and what is in it.

use crate::chunk::{Polynomial, Tables};
use crate::crypto::{Key, KeyFile, USUAL_COST};
use crate::files::{FILE_BYTES_MAX, Files, UNFINISHED};
use crate::index::{Index, IndexFile};
use crate::pack::{self, Blob, BlobKind};
use crate::snapshot::Snapshot;
use crate::tree::{self, EachNode, Moment};
use crate::{Error, ErrorKind, Id, Result};
use leeward_env::Env;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// The version of the format: with compression.
const VERSION: u32 = 2;
/// The first byte of a compressed file of a repository.
const COMPRESSED: u8 = 2;
/// Bytes of a pack that are read at once for trees, and how many such parts are kept.
const PART_BYTES: u64 = 2 << 20;
const PARTS_MAX: usize = 16;

/// The file `config`.
#[derive(Serialize, Deserialize)]
struct Config {
    version: u32,
    id: Id,
    chunker_polynomial: String,
}

/// A repository that is open.
pub struct Repository {
    pub(crate) env: Env,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) key: Key,
    pub(crate) tables: Tables,
    pub(crate) index: Mutex<Index>,
    /// Files below `index` that are in `index`.
    pub(crate) index_files: Mutex<Vec<Id>>,
    id: Id,
    parts: Mutex<VecDeque<Part>>,
}

/// Snapshots, with their ids.
pub type Snapshots = Vec<(Id, Snapshot)>;

/// What of the index of a repository is not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packs that are missing, or too short.
    pub packs: usize,
    /// Why files of it cannot be read.
    pub damaged: Vec<Error>,
}

impl Lost {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.packs == 0 && self.damaged.is_empty()
    }
}

/// A part of a pack.
struct Part {
    pack: Id,
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

impl Repository {
    /// Makes a repository where there is none, or where making one was cut short.
    ///
    /// # Errors
    /// The place's; also where there is one.
    pub fn create(env: &Env, files: &Arc<dyn Files>, password: &str, hostname: &str) -> Result<()> {
        Repository::create_with_cost(env, files, (password, USUAL_COST), hostname)
    }

    /// As [`Repository::create`]; a password costs this much to try (the binary logarithm of
    /// scrypt's N): for tests, which open many.
    ///
    /// # Errors
    /// As those.
    pub fn create_with_cost(
        env: &Env,
        files: &Arc<dyn Files>,
        (password, cost): (&str, u8),
        hostname: &str,
    ) -> Result<()> {
        let place = files.place();
        check_password(password)?;
        if files.get("config")?.is_some() {
            return Err(Error::new(ErrorKind::Failed, format!("there is a repository in {place} already")));
        }
        for dir in ["data", "index", "snapshots"] {
            if files.list(dir)?.iter().any(|(name, _)| Id::parse(name).is_some()) {
                let text = format!(
                    "{place} has {dir} of a repository, and no config: name another place, or restore that file"
                );
                return Err(Error::new(ErrorKind::Failed, text));
            }
        }
        let keys = files.list("keys")?;
        let of_one = |name: &str| Id::parse(name).is_some() || name.ends_with(UNFINISHED);
        if let Some((other, _)) = keys.iter().find(|(name, _)| !of_one(name)) {
            let text = format!("{place} has keys/{other}, which is of no repository: name another place");
            return Err(Error::new(ErrorKind::Failed, text));
        }
        files.prepare()?;
        // without a config there is nothing that keys open
        keys.iter().try_for_each(|(name, _)| files.remove(&format!("keys/{name}")))?;
        if !keys.is_empty() {
            files.settle_removals("keys")?;
        }
        let key = Key::random(env);
        let created = Moment { secs: (env.wall() / 1_000_000_000) as i64, nanos: 0 }.to_string();
        let file = KeyFile::seal(env, &key, (password, cost), (created, hostname.into()))?;
        let text = to_json(&file);
        files.put(&format!("keys/{}", Id::of(&text)), text)?;
        let config = Config {
            version: VERSION,
            id: Id(env.secret()),
            chunker_polynomial: format!("{:x}", Polynomial::random(env).0),
        };
        files.put("config", key.seal(env, &to_json(&config)))
    }

    /// Whether there is one.
    ///
    /// # Errors
    /// The place's.
    pub fn exists(files: &Arc<dyn Files>) -> Result<bool> {
        Ok(files.get("config")?.is_some())
    }

    /// Opens one.
    ///
    /// # Errors
    /// NoRepository, Password, Damaged; the place's.
    pub fn open(env: &Env, files: &Arc<dyn Files>, password: &str) -> Result<Repository> {
        let place = files.place();
        check_password(password)?;
        let none = || Error::new(ErrorKind::NoRepository, format!("there is no repository in {place}"));
        let config = files.get("config")?.ok_or_else(none)?;
        let key = find_key(files, password)?;
        let damaged = || {
            Error::damaged(format!("{place}/config is damaged: copy it from another copy of the repository"))
        };
        let text = key.open(config).ok_or_else(damaged)?;
        let config: Config = serde_json::from_slice(&text).map_err(|_| damaged())?;
        if config.version != VERSION {
            let text = format!(
                "the repository {place} has version {}, and this program knows {VERSION}: run restic migrate, or make \
                 another repository",
                config.version
            );
            return Err(Error::new(ErrorKind::Failed, text));
        }
        let polynomial = u64::from_str_radix(&config.chunker_polynomial, 16).ok().map(Polynomial);
        let polynomial = polynomial.filter(|p| p.is_irreducible()).ok_or_else(damaged)?;
        Ok(Repository {
            env: env.clone(),
            files: files.clone(),
            key,
            tables: Tables::new(polynomial),
            index: Mutex::default(),
            index_files: Mutex::default(),
            id: config.id,
            parts: Mutex::default(),
        })
    }

    /// Its id, which tells it from others.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The place, for messages.
    pub fn place(&self) -> String {
        self.files.place()
    }

    /// Seals a file that is no pack.
    fn seal(&self, plain: Vec<u8>) -> Vec<u8> {
        let stored = pack::Compressed::new(plain);
        if stored.plain_len == 0 {
            return self.key.seal(&self.env, &stored.bytes);
        }
        let mut bytes = vec![COMPRESSED];
        bytes.extend_from_slice(&stored.bytes);
        self.key.seal(&self.env, &bytes)
    }

    pub(crate) fn put_json(&self, dir: &str, value: &impl Serialize) -> Result<Id> {
        let sealed = self.seal(to_json(value));
        let id = Id::of(&sealed);
        self.files.put(&format!("{dir}/{id}"), sealed)?;
        Ok(id)
    }

    fn open_file(&self, dir: &str, id: &Id) -> Result<Option<Vec<u8>>> {
        let Some(sealed) = self.files.get(&format!("{dir}/{id}"))? else { return Ok(None) };
        let damaged =
            || Error::damaged(format!("{}/{dir}/{id} is damaged: run lee backup check", self.place()));
        if Id::of(&sealed) != *id {
            return Err(damaged());
        }
        let stored = self.key.open(sealed).ok_or_else(damaged)?;
        match stored.first() {
            Some(&COMPRESSED) => {
                let mut plain = Vec::new();
                let from = zstd::stream::read::Decoder::new(&stored[1..]).map_err(|_| damaged())?;
                let mut from = std::io::Read::take(from, FILE_BYTES_MAX);
                std::io::Read::read_to_end(&mut from, &mut plain).map_err(|_| damaged())?;
                Ok(Some(plain))
            }
            Some(b'{' | b'[') => Ok(Some(stored)),
            _ => Err(damaged()),
        }
    }

    pub(crate) fn get_json<T: DeserializeOwned>(&self, dir: &str, id: &Id) -> Result<Option<T>> {
        let Some(text) = self.open_file(dir, id)? else { return Ok(None) };
        let damaged = |e| Error::damaged(format!("{}/{dir}/{id} cannot be read: {e}", self.place()));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Reads which blobs there are. To be called again after others have changed that.
    ///
    /// # Errors
    /// Damaged; the place's.
    pub fn load_index(&self) -> Result<()> {
        let damaged = self.load_index_of(|_, _| true)?;
        damaged.into_iter().next().map_or(Ok(()), Err)
    }

    /// As [`Repository::load_index`], without what was in packs that are not there any more, or too
    /// short, and what is in files that cannot be read.
    ///
    /// # Errors
    /// The place's.
    pub fn load_index_of_what_is_there(&self) -> Result<Lost> {
        let there: FxHashMap<Id, u64> = {
            let all = self.files.list("data")?;
            all.into_iter().filter_map(|(name, len)| Some((Id::parse(&name)?, len))).collect()
        };
        let mut lost = FxHashSet::default();
        let damaged = self.load_index_of(|pack, blobs| {
            let is_there = there.get(pack).is_some_and(|len| blobs.iter().all(|blob| blob.end() <= *len));
            if !is_there {
                lost.insert(*pack);
            }
            is_there
        })?;
        Ok(Lost { packs: lost.len(), damaged })
    }

    /// Returns why files of it cannot be read.
    pub(crate) fn load_index_of(
        &self,
        mut is_wanted: impl FnMut(&Id, &[Blob]) -> bool,
    ) -> Result<Vec<Error>> {
        let (mut index, mut files, mut damaged) = (Index::default(), Vec::new(), Vec::new());
        let mut add = |pack: Id, blobs: &[Blob]| {
            if is_wanted(&pack, blobs) {
                index.add(pack, blobs);
            }
        };
        for (name, _) in self.files.list("index")? {
            let Some(id) = Id::parse(&name) else { continue };
            // gone meanwhile: another one has what was in it, and was listed or will be
            match self.read_index(&id, |pack, blobs| add(pack, &blobs)) {
                Ok(true) => files.push(id),
                Ok(false) => (),
                Err(e) if e.kind == ErrorKind::Damaged => damaged.push(e),
                Err(e) => return Err(e),
            }
        }
        *self.index.lock() = index;
        *self.index_files.lock() = files;
        Ok(damaged)
    }

    /// Reads an index; false: it is gone.
    pub(crate) fn read_index(&self, id: &Id, each: impl FnMut(Id, Vec<Blob>)) -> Result<bool> {
        let Some(text) = self.open_file("index", id)? else { return Ok(false) };
        IndexFile::parse(&text)?.each(each);
        Ok(true)
    }

    /// All snapshots, oldest first.
    ///
    /// # Errors
    /// Damaged; the place's.
    pub fn snapshots(&self) -> Result<Snapshots> {
        let (all, damaged) = self.readable_snapshots()?;
        damaged.into_iter().next().map_or(Ok(all), Err)
    }

    /// Snapshots that can be read, oldest first, and why others cannot.
    ///
    /// # Errors
    /// The place's.
    pub fn readable_snapshots(&self) -> Result<(Snapshots, Vec<Error>)> {
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        for (name, _) in self.files.list("snapshots")? {
            let Some(id) = Id::parse(&name) else { continue };
            match self.get_json::<Snapshot>("snapshots", &id) {
                Ok(found) => all.extend(found.map(|snapshot| (id, snapshot))),
                Err(e) if e.kind == ErrorKind::Damaged => damaged.push(e),
                Err(e) => return Err(e),
            }
        }
        all.sort_by_key(|(id, s)| (s.time.secs, s.time.nanos, *id));
        Ok((all, damaged))
    }

    /// Adds a snapshot, whose tree is stored.
    ///
    /// # Errors
    /// The place's.
    pub fn add_snapshot(&self, snapshot: &Snapshot) -> Result<Id> {
        self.put_json("snapshots", snapshot)
    }

    /// Removes a snapshot. What only it refers to stays until the repository is pruned.
    ///
    /// # Errors
    /// The place's.
    pub fn remove_snapshot(&self, id: &Id) -> Result<()> {
        self.files.remove(&format!("snapshots/{id}"))
    }

    pub(crate) fn find(&self, kind: BlobKind, id: &Id) -> Result<(Id, Blob)> {
        let found = self.index.lock().find(kind, id);
        found.ok_or_else(|| {
            Error::damaged(format!("the repository {} has no blob {id}: run lee backup check", self.place()))
        })
    }

    /// What is stored of a blob, opened but not decompressed.
    fn stored(&self, pack: &Id, blob: &Blob) -> Result<Vec<u8>> {
        let (offset, len) = (u64::from(blob.offset), u64::from(blob.len));
        let end = offset + len;
        let mut parts = self.parts.lock();
        let has = |part: &Part| {
            part.pack == *pack && part.offset <= offset && part.offset + part.bytes.len() as u64 >= end
        };
        let part = match parts.iter().position(has).and_then(|at| parts.remove(at)) {
            Some(part) => part,
            None => {
                drop(parts);
                let part = self.read_part(pack, offset, len)?;
                parts = self.parts.lock();
                part
            }
        };
        let (bytes, from) = (part.bytes.clone(), (offset - part.offset) as usize);
        parts.push_front(part);
        parts.truncate(PARTS_MAX);
        drop(parts);
        let sealed = bytes.get(from..from + len as usize).unwrap_or_default().to_vec();
        let damaged = || Error::damaged(format!("blob {} is damaged: run lee backup check", blob.id));
        self.key.open(sealed).ok_or_else(damaged)
    }

    /// The part of a pack from here on, as far as its blobs are known to go.
    fn read_part(&self, pack: &Id, offset: u64, len: u64) -> Result<Part> {
        // chunks and directories are mostly read in the order in which they were written
        let end = self.index.lock().end_of(pack).max(offset + len);
        let len = (end - offset).min(PART_BYTES).max(len);
        let bytes = Arc::new(self.files.get_range(&pack.pack_name(), offset, len)?);
        Ok(Part { pack: *pack, offset, bytes })
    }

    /// Reads a tree node by node.
    ///
    /// # Errors
    /// Damaged; the place's; those of `each`.
    pub fn tree(&self, id: &Id, each: &mut EachNode<'_>) -> Result<()> {
        let (pack, blob) = self.find(BlobKind::Tree, id)?;
        tree::read_stored(id, self.stored(&pack, &blob)?, blob.plain_len, each)
    }

    /// The length of a chunk of a file, as the index says: [`Repository::data`] gives so much.
    ///
    /// # Errors
    /// Damaged.
    pub fn data_len(&self, id: &Id) -> Result<u64> {
        Ok(self.find(BlobKind::Data, id)?.1.size())
    }

    /// A chunk of a file.
    ///
    /// # Errors
    /// Damaged; the place's.
    pub fn data(&self, id: &Id) -> Result<Vec<u8>> {
        let (pack, blob) = self.find(BlobKind::Data, id)?;
        pack::plain(&blob, self.stored(&pack, &blob)?)
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and strings make JSON")
}

fn check_password(password: &str) -> Result<()> {
    match password {
        "" => Err(Error::new(ErrorKind::Password, "the password is empty: write one to its file")),
        _ => Ok(()),
    }
}

fn find_key(files: &Arc<dyn Files>, password: &str) -> Result<Key> {
    for (name, _) in files.list("keys")?.into_iter().filter(|(name, _)| Id::parse(name).is_some()) {
        let Some(text) = files.get(&format!("keys/{name}"))? else { continue };
        let Ok(file) = serde_json::from_slice::<KeyFile>(&text) else { continue };
        // of a file that is damaged: another one may be right
        if let Ok(Some(key)) = file.open(password) {
            return Ok(key);
        }
    }
    let text = format!(
        "the password opens no key of the repository {}: check the file of the password",
        files.place()
    );
    Err(Error::new(ErrorKind::Password, text))
}
