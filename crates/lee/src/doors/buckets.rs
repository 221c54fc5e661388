//! The buckets of the S3 door: the cell's records, and what users may do with them.

use super::DoorCell;
use leeward_door::{Files, Path, Principal, Tree, W, X};
use leeward_env::Door;
use leeward_fs::Error;
use leeward_fs::buckets::is_name;
use leeward_s3::{Bucket, BucketError, Buckets, PublicPolicy};
use leeward_volume::admin::{self, AnyRequest};
use leeward_volume::format::buckets::{BucketRecord, Buckets as Records};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The buckets of a cell.
pub struct CellBuckets {
    cell: Arc<dyn DoorCell>,
    files: Files,
    threads: Handle,
    /// The directory in which users make buckets; empty: they cannot.
    new_in: String,
    /// The records at the last look, and the buckets made from them.
    known: Mutex<Known>,
}

type Known = (Arc<Records>, Arc<BTreeMap<String, Arc<Bucket>>>);

impl CellBuckets {
    /// The buckets of a cell. `new_in`: the directory in which users make buckets; empty: they
    /// cannot.
    pub fn new(cell: &Arc<dyn DoorCell>, files: &Files, threads: &Handle, new_in: String) -> CellBuckets {
        let known = Mutex::default();
        CellBuckets { cell: cell.clone(), files: files.clone(), threads: threads.clone(), new_in, known }
    }

    fn known(&self) -> Arc<BTreeMap<String, Arc<Bucket>>> {
        let records = self.cell.buckets();
        let mut known = self.known.lock();
        if !Arc::ptr_eq(&known.0, &records) {
            let all = records.iter().filter_map(|(name, record)| Some((name.clone(), bucket(name, record)?)));
            let all = Arc::new(all.collect());
            *known = (records, all);
        }
        known.1.clone()
    }

    /// Asks the cell, on a thread that may wait.
    async fn ask(&self, request: impl Into<AnyRequest>) -> Result<(), BucketError> {
        let (cell, request) = (self.cell.clone(), request.into());
        let asked = self.threads.spawn_blocking(move || cell.change_buckets(&request)).await;
        let asked = asked.map_err(|e| BucketError::Failed(e.to_string()))?;
        asked.map_err(|failure| match failure.errno {
            libc::EEXIST => BucketError::Taken,
            libc::ENOENT => BucketError::Unknown,
            _ => BucketError::Failed(failure.message),
        })
    }

    /// The directory in which a user's buckets are made, and the name of one there.
    fn place(&self, who: &Principal, name: &str) -> Result<(Tree, Path), BucketError> {
        if self.new_in.is_empty() {
            let why = "Users make no buckets here: an operator publishes a directory with lee bucket create";
            return Err(BucketError::Refused(format!("{why} {name} --path DIR.")));
        }
        if !is_name(name) {
            return Err(BucketError::Refused("This cannot be the name of a bucket.".into()));
        }
        let base =
            Path::parse_absolute(self.new_in.as_bytes()).map_err(|e| BucketError::Failed(e.to_string()))?;
        let at = Path::parse(name.as_bytes()).map_err(|e| BucketError::Failed(e.to_string()))?;
        Ok((self.files.tree(who, Door::S3, &base), at))
    }

    /// A bucket whose directory this user owns: only the owner may change it.
    async fn own(&self, who: &Principal, name: &str) -> Result<Arc<Bucket>, BucketError> {
        let bucket = self.get(name).ok_or(BucketError::Unknown)?;
        let tree = self.files.tree(who, Door::S3, &bucket.path);
        let found = tree.stat(&Path::default(), &[]).await.map_err(refused)?;
        if found.attr.uid == who.uid {
            return Ok(bucket);
        }
        Err(BucketError::Refused("Only the owner of the bucket's directory may do this.".into()))
    }
}

fn bucket(name: &str, record: &BucketRecord) -> Option<Arc<Bucket>> {
    Some(Arc::new(Bucket {
        name: name.into(),
        path: Path::parse_absolute(record.path.as_bytes()).ok()?,
        created_secs: record.created_secs,
        public: record.public,
        cors: record.cors.as_str().into(),
    }))
}

fn refused(e: Error) -> BucketError {
    match e {
        Error::Access | Error::NotPermitted | Error::Busy => {
            BucketError::Refused(format!("The directory: {e}."))
        }
        Error::Exists => BucketError::Taken,
        Error::NotFound => BucketError::Unknown,
        e => BucketError::Failed(e.to_string()),
    }
}

#[async_trait::async_trait]
impl Buckets for CellBuckets {
    fn get(&self, name: &str) -> Option<Arc<Bucket>> {
        self.known().get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<Bucket>> {
        self.known().values().cloned().collect()
    }

    async fn create(&self, who: &Principal, name: &str) -> Result<(), BucketError> {
        let (tree, at) = self.place(who, name)?;
        if self.get(name).is_some() {
            let own = self.own(who, name).await;
            return Err(own.map_or(BucketError::Taken, |_| BucketError::Yours));
        }
        // only its owner may enter, until the owner opens it
        tree.make_private_dir(&at).await.map_err(refused)?;
        let path = tree.base().join(&at).to_string();
        let made = self.ask(admin::BucketCreate { name: name.into(), path, public: false }).await;
        if made.is_err() {
            // it is as it was
            let _ = tree.remove_dir(&at).await;
        }
        made
    }

    async fn remove(&self, who: &Principal, name: &str) -> Result<(), BucketError> {
        let bucket = self.get(name).ok_or(BucketError::Unknown)?;
        let (tree, at) = self.place(who, name)?;
        if bucket.path != tree.base().join(&at) {
            let why = "An operator has published this directory: lee bucket remove takes that back.";
            return Err(BucketError::Refused(why.into()));
        }
        match tree.remove_dir(&at).await {
            Ok(()) => {}
            // the directory was removed before, and the record was not: another user may make a
            // bucket of this name
            Err(Error::NotFound) => {
                tree.access(&Path::default(), W | X).await.map_err(refused)?;
            }
            Err(e) => return Err(refused(e)),
        }
        self.ask(admin::BucketRemove { name: name.into() }).await
    }

    async fn set_public(&self, who: &Principal, name: &str, policy: PublicPolicy) -> Result<(), BucketError> {
        let bucket = self.own(who, name).await?;
        let open = policy == PublicPolicy::Read;
        let tree = self.files.tree(who, Door::S3, &bucket.path);
        tree.open_to_all(&Path::default(), open).await.map_err(refused)?;
        let public = Some(open);
        self.ask(admin::BucketSet { name: name.into(), public, cors: None }).await
    }

    async fn set_cors(&self, who: &Principal, name: &str, cors: &str) -> Result<(), BucketError> {
        self.own(who, name).await?;
        self.ask(admin::BucketSet { name: name.into(), public: None, cors: Some(cors.into()) }).await
    }
}
