//! What `lee up` and `lee serve` have in common: which cell, how others reach it, and the process
//! in the background.

use crate::background::Role;
use crate::doors::Wanted;
use crate::metrics::http;
use crate::serve::{KeptBy, ServeOptions};
use crate::size;
use leeward_door::listen;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Options of both.
#[derive(Debug, clap::Args)]
pub struct Service {
    /// The cell: a directory (of a cell, an empty one, or one to be made), or s3://BUCKET/PREFIX
    ///
    /// For a bucket, AWS_ENDPOINT_URL names the object store. Region and keys come from the usual
    /// AWS variables and profiles. A cell in a bucket that another machine serves is taken over.
    #[arg(value_name = "CELL")]
    pub(super) dir: Option<PathBuf>,

    /// Answer Prometheus there: a port of this machine only (9547), or 127.0.0.1:9547, or
    /// [::1]:9547; may be given several times [else: `metrics` in the settings]
    ///
    /// The page has names of volumes and numbers of users, and is open to all who reach the
    /// address.
    #[arg(long, value_name = "ADDRESS", value_parser = http::parse)]
    pub(super) metrics: Vec<SocketAddr>,

    /// Answer S3 there: a port of this machine only (9000), an address with a port, or *:PORT; may
    /// be given several times [else: `s3` in the settings]
    ///
    /// What is published: lee bucket; who gets in: lee key. Without a certificate only on addresses
    /// of this machine.
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    pub(super) s3: Vec<String>,

    /// Answer HTTP and WebDAV there: written as for --s3; may be given several times [else: `http`
    /// in the settings]
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    pub(super) http: Vec<String>,

    /// Let other machines mount the cell there: written as for --s3, such as *:7433; may be given
    /// several times [else: `listen` in the settings]
    ///
    /// Which machines: lee host. Connections are encrypted always; the machines and the cell know
    /// each other by their keys.
    #[arg(long, value_name = "ADDRESS", value_parser = door_address)]
    pub(super) listen: Vec<String>,

    /// The certificate that doors show, in PEM format, with those that sign it; read again when it
    /// changes [else: `tls-certificate` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_certificate: Option<PathBuf>,

    /// Its key, in PEM format [else: `tls-key` in the settings]
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(super) tls_key: Option<PathBuf>,

    /// Keep what is read from object stores in this directory of a local disk; it may be deleted at
    /// any time [else: `disk-cache` in the settings]
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,

    /// Its size, such as 50G [else: `disk-cache-mib` in the settings, 10 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_space)]
    pub(super) cache_size: Option<u64>,

    /// Return as soon as it is served; the log is DIR/log, `lee status` of a cell in a bucket
    /// tells where
    ///
    /// A small process, the keeper, stays beside the server. When the server crashes, the keeper
    /// starts it again at once, and its mount is back. `lee down` ends both.
    #[arg(long)]
    pub(super) background: bool,

    /// With --background: without a keeper; a server that crashed stays away, with a dead mount
    #[arg(long, requires = "background")]
    pub(super) no_keeper: bool,
}

impl Service {
    /// The options of the process in the background, after the path of the cell. Their paths are
    /// absolute, because that process has another current directory.
    pub(super) fn command_line(&self) -> Vec<OsString> {
        let path = |file: &PathBuf| absolute(file).into_os_string();
        let mut line = Vec::new();
        let mut add = |name: &str, value: OsString| line.extend([name.into(), value]);
        self.metrics.iter().for_each(|address| add("--metrics", address.to_string().into()));
        self.s3.iter().for_each(|address| add("--s3", address.into()));
        self.http.iter().for_each(|address| add("--http", address.into()));
        self.listen.iter().for_each(|address| add("--listen", address.into()));
        self.tls_certificate.iter().for_each(|file| add("--tls-certificate", path(file)));
        self.tls_key.iter().for_each(|file| add("--tls-key", path(file)));
        self.cache.iter().for_each(|dir| add("--cache", path(dir)));
        self.cache_size.iter().for_each(|bytes| add("--cache-size", bytes.to_string().into()));
        line.push("--background".into());
        line
    }

    pub(super) fn role(&self) -> Role {
        if self.no_keeper { Role::Server } else { Role::Keeper }
    }

    /// For a process that serves this cell, and mounts nothing.
    pub(super) fn options(self, dir: PathBuf, kept: Option<KeptBy>) -> ServeOptions {
        // the server has another directory later on
        let absolute = |file: Option<PathBuf>| file.map(|file| absolute(&file));
        let (certificate, key) = (absolute(self.tls_certificate), absolute(self.tls_key));
        let doors =
            Wanted { s3: self.s3, http: self.http, listen: self.listen, certificate, key, clients: None };
        ServeOptions {
            dir,
            is_mounted: false,
            advertise: None,
            listen_usually: None,
            mount: None,
            mount_options: Vec::new(),
            metrics: self.metrics,
            doors,
            cache: self.cache,
            cache_bytes: self.cache_size,
            kept,
        }
    }
}

/// The path, absolute; a URL as it is.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let is_url = path.to_string_lossy().contains("://");
    std::path::absolute(path).ok().filter(|_| !is_url).unwrap_or_else(|| path.to_path_buf())
}

/// An address of a door, as it was written.
pub(super) fn door_address(text: &str) -> Result<String, String> {
    listen::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}
