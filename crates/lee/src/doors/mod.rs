//! The doors of a served cell: their addresses, their users, their figures.
//!
//! Addresses are bound before the cell is opened ([`bind`]), so that a port in use is reported at
//! once. Doors are opened when the cell is mounted ([`Bound::open`]) and closed before it is
//! unmounted.

mod buckets;
mod here;
mod keys;
#[cfg(test)]
mod rights;
mod tally;

use crate::console::{self, Console};
use crate::fail::{Fail, text};
use crate::settings::CellSettings;
use buckets::CellBuckets;
pub use here::CellHere;
use keys::CellKeys;
use leeward_auth::Authority;
use leeward_dav::{AllowedServers, Dav, Remote, Settings, Transfers};
use leeward_door::Files;
use leeward_door::listen::{
    self, AccessLog, AddressError, Figures, Guard, Guarded, Serving, Site, TlsFiles, Turns,
};
use leeward_env::Env;
use leeward_s3::{Options, S3Door};
use leeward_volume::admin::{AnyRequest, Failure, TransferNote};
use leeward_volume::format::buckets::Buckets;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
pub use tally::Tally;
use tokio::runtime::Runtime;

/// The access log, beside the log.
const ACCESS_LOG: &str = "access.log";
/// Threads for requests that have to ask the cell or the user database, besides those of the
/// console and one for each issuer of tokens, which may be slow.
const BLOCKING_THREADS: usize = 8;
/// Time for running requests to end.
const END_WAIT: Duration = Duration::from_secs(10);

/// The wanted addresses of doors.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Addresses of the S3 door, as [`listen::parse`] reads them.
    pub s3: Vec<String>,
    /// Addresses of the HTTP door.
    pub http: Vec<String>,
    /// Addresses for other machines that mount the cell.
    pub listen: Vec<String>,
    /// Certificate, if doors are to be encrypted.
    pub certificate: Option<PathBuf>,
    /// Key of the certificate.
    pub key: Option<PathBuf>,
    /// Authorities that sign certificates of clients.
    pub clients: Option<PathBuf>,
}

impl Wanted {
    /// These addresses; those that are not given come from the settings.
    pub fn or(&self, config: &CellSettings) -> Wanted {
        let or =
            |own: &Vec<String>, other: &Vec<String>| if own.is_empty() { other.clone() } else { own.clone() };
        let path = |own: &Option<PathBuf>, other: &str| {
            own.clone().or_else(|| (!other.is_empty()).then(|| PathBuf::from(other)))
        };
        Wanted {
            s3: or(&self.s3, &config.s3),
            http: or(&self.http, &config.http),
            listen: or(&self.listen, &config.listen),
            certificate: path(&self.certificate, &config.tls_certificate),
            key: path(&self.key, &config.tls_key),
            clients: path(&self.clients, &config.tls_clients),
        }
    }

    fn tls(&self) -> Result<Option<TlsFiles>, Fail> {
        match (&self.certificate, &self.key) {
            (None, None) if self.clients.is_some() => Err(Fail::new(
                "tls-clients is for doors with TLS: name tls-certificate and tls-key".to_owned(),
            )),
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                let (certificate, key, clients) = (certificate.clone(), key.clone(), self.clients.clone());
                Ok(Some(TlsFiles { certificate, key, clients }))
            }
            _ => Err(Fail::new("TLS needs both a certificate and its key: name both".to_owned())),
        }
    }
}

/// Addresses that are bound.
pub struct Bound {
    s3: Option<listen::Bound>,
    http: Option<listen::Bound>,
}

/// Binds the addresses.
///
/// # Errors
/// When one cannot be bound.
pub fn bind(wanted: &Wanted) -> Result<Bound, Fail> {
    let tls = wanted.tls()?;
    let door = |flag: &str, addresses: &[String]| {
        take(addresses, tls.as_ref()).map_err(|e| Fail::new(format!("{flag}: {e}")))
    };
    Ok(Bound { s3: door("--s3", &wanted.s3)?, http: door("--http", &wanted.http)? })
}

fn take(addresses: &[String], tls: Option<&TlsFiles>) -> Result<Option<listen::Bound>, AddressError> {
    if addresses.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for text in addresses {
        all.extend(listen::parse(text)?);
    }
    listen::Bound::take(&all, tls.cloned()).map(Some)
}

/// What doors need of the process.
pub struct Inside<'a> {
    /// Clock and threads.
    pub env: &'a Env,
    /// The cell.
    pub cell: Arc<dyn DoorCell>,
    /// Its files.
    pub files: Files,
    /// Decides who may use a door.
    pub authority: &'a Arc<Authority>,
    /// Its settings.
    pub config: &'a CellSettings,
    /// The access log is beside this log.
    pub log: PathBuf,
    /// Where not every request can be answered at any time: what knows, and how long requests wait.
    pub guard: Option<(Arc<dyn Guard>, Duration)>,
    /// Of several machines that open doors of a cell, which one this is; empty: the server.
    pub host: String,
    /// The console, if there is to be one.
    pub console: Option<console::Parts>,
}

/// The cell, for its doors: in this process, or on another machine. Calls may wait.
pub trait DoorCell: Send + Sync + 'static {
    /// The records of buckets, as of now. Does not wait.
    fn buckets(&self) -> Arc<Buckets>;

    /// Makes, changes or removes a bucket.
    ///
    /// # Errors
    /// The cell's.
    fn change_buckets(&self, request: &AnyRequest) -> Result<(), Failure>;

    /// Adds to what went through doors.
    ///
    /// # Errors
    /// The cell's, or that it does not answer.
    fn note_transfers(&self, note: &TransferNote) -> Result<(), Failure>;

    /// The storage resource report as JSON, of these paths or of all.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn report(&self, paths: Option<Vec<String>>) -> Result<String, String>;
}

/// Doors that are served, until this is dropped.
pub struct Doors {
    serving: Vec<Serving>,
    runtime: Option<Runtime>,
    tally: Option<Arc<Tally>>,
}

impl Bound {
    /// Whether there is to be an HTTP door.
    pub fn has_http(&self) -> bool {
        self.http.is_some()
    }

    /// Whether there is to be none at all.
    pub fn is_empty(&self) -> bool {
        self.s3.is_none() && self.http.is_none()
    }

    /// Opens the doors.
    ///
    /// # Errors
    /// Certificate and key cannot be used, or the access log cannot be opened.
    pub fn open(self, mut inside: Inside<'_>) -> Result<Doors, Fail> {
        if self.is_empty() {
            return Ok(Doors { serving: Vec::new(), runtime: None, tally: None });
        }
        let runtime = runtime(inside.config.issuer.len())?;
        let path = inside.log.with_file_name(ACCESS_LOG);
        let log = AccessLog::open(inside.env, &path).map_err(|e| {
            Fail::new(format!("{}: {}: make room for the access log", path.display(), text(&e)))
        })?;
        let mut sites: Vec<(listen::Bound, Arc<dyn Site>)> = Vec::new();
        if let Some(bound) = self.s3 {
            sites.push((bound, guarded(&inside, s3(&inside, &runtime)?)));
        }
        if let Some(bound) = self.http {
            let location = bound.urls().first().cloned().unwrap_or_default();
            let mut site = http(&inside, &runtime, location)?;
            if let Some(parts) = inside.console.take() {
                site = Arc::new(Console::new(site, parts));
            }
            sites.push((bound, guarded(&inside, site)));
        }
        let serve = |(bound, site): (listen::Bound, _)| {
            bound.serve(inside.env, runtime.handle(), site, Some(log.clone()))
        };
        let serving: Vec<Serving> =
            sites.into_iter().map(serve).collect::<Result<_, _>>().map_err(|e| Fail::new(e.to_string()))?;
        let figures: Vec<_> = serving.iter().map(|serving| serving.figures().clone()).collect();
        let tally = Some(Tally::begin(inside.env, &inside.cell, move || tally::of_doors(&figures)));
        Ok(Doors { serving, runtime: Some(runtime), tally })
    }
}

fn runtime(issuers: usize) -> Result<Runtime, Fail> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS + console::PAGES_MAX + issuers)
        .thread_name("lee-door")
        .enable_all()
        .build()
        .map_err(|e| Fail::new(format!("cannot start threads for doors: {}", text(&e))))
}

fn guarded(inside: &Inside<'_>, site: Arc<dyn Site>) -> Arc<dyn Site> {
    match &inside.guard {
        Some((guard, patience)) => Arc::new(Guarded::new(site, guard.clone(), *patience)),
        None => site,
    }
}

fn s3(inside: &Inside<'_>, runtime: &Runtime) -> Result<Arc<dyn Site>, Fail> {
    let keys = Arc::new(CellKeys::new(inside.authority));
    let new_in = inside.config.s3_new_buckets.clone();
    let buckets = Arc::new(CellBuckets::new(&inside.cell, &inside.files, runtime.handle(), new_in));
    let options = Options { domains: inside.config.s3_domains.clone(), region: String::new() };
    let door = S3Door::new(&inside.files, keys, buckets, options)
        .map_err(|e| Fail::new(format!("s3-domains: {e}: write names of hosts, such as s3.example.org")))?;
    Ok(Arc::new(door))
}

fn http(inside: &Inside<'_>, runtime: &Runtime, location: String) -> Result<Arc<dyn Site>, Fail> {
    let trusted = Some(&inside.config.tls_trusted).filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = inside.config;
    let reach =
        AllowedServers::new(&config.transfers_networks, &config.transfers_ports, config.transfers_local)
            .map_err(|e| Fail::new(format!("transfers-networks: {e}")))?;
    let remote =
        Remote::new(trusted.as_deref(), reach).map_err(|e| Fail::new(format!("tls-trusted: {e}")))?;
    let transfers = Transfers::new(remote, inside.config.transfers_max as usize);
    let cell = inside.cell.clone();
    let report = Arc::new(move |paths| cell.report(paths));
    let settings = Settings { location, report, host: inside.host.clone() };
    let turns = Turns::new(inside.env);
    let dav = Dav::new(inside.files.clone(), inside.authority.clone(), transfers, turns, settings);
    if let Err(e) = runtime.block_on(dav.sweep()) {
        tracing::warn!("copies that a crash may have left are not looked for: {e}");
    }
    Ok(Arc::new(dav))
}

impl Doors {
    /// Names of the doors and their URLs.
    pub fn urls(&self) -> Vec<(String, String)> {
        let of = |s: &Serving| {
            let name = s.figures().door().name().to_owned();
            s.urls().iter().map(|url| (name.clone(), url.clone())).collect::<Vec<_>>()
        };
        self.serving.iter().flat_map(of).collect()
    }

    /// Figures of the doors.
    pub fn figures(&self) -> Vec<Arc<Figures>> {
        self.serving.iter().map(|s| s.figures().clone()).collect()
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        self.serving.iter().for_each(Serving::end);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_WAIT);
        }
        if let Some(tally) = &self.tally {
            tally.end();
        }
    }
}
