//! Every key of `leeward.toml`, for the process that serves a cell: it passes the settings to the
//! file system, the gate, the doors and the reports. Each default suits most cells.

use leeward_auth::{IssuerConfig, SignOnConfig};
use leeward_volume::Config;
use leeward_volume::config::Compression;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the jobs of a user are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jobs {
    /// Not at all.
    #[default]
    None,
    /// By the cgroup of the calling process: a job of a batch system, a container, a session.
    Cgroup,
}

/// The settings of a cell. Units are in the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellSettings {
    /// How file data is compressed.
    pub compression: Compression,
    /// Memory for data on its way to the store. 16 to 65536.
    pub dirty_mib: u32,
    /// Memory for cached file data. 1 to 65536.
    pub cache_mib: u32,
    /// Memory for cached metadata. 8 to 65536.
    pub metadata_cache_mib: u32,
    /// Longest time between a write and its commit without fsync. 10 to 60000.
    pub commit_interval_ms: u32,
    /// Whether the gate shares the cell fairly between users. Without it requests are served as
    /// they come.
    pub fair: bool,
    /// Most transfers to or from one store (a directory, a bucket) at a time. 1 to 1024. Only with
    /// `fair`.
    pub store_transfers: u32,
    /// A directory on a disk of this machine for a cache of file data of pools on object stores.
    /// Empty: none.
    pub disk_cache: String,
    /// Its size. 16 to 16777216.
    pub disk_cache_mib: u32,
    /// How the jobs of a user are told apart: they share equally what the user gets, and `lee top`
    /// shows them.
    pub jobs: Jobs,
    /// Addresses for Prometheus: ports of this machine only, or addresses with a port. None: no
    /// metrics.
    pub metrics: Vec<String>,
    /// Addresses of the S3 door: ports of this machine only, addresses with a port, or `*:PORT`.
    /// None: no S3 door.
    pub s3: Vec<String>,
    /// Names of the host at the S3 door: a name before one of them is a bucket. None: buckets are
    /// in paths only.
    pub s3_domains: Vec<String>,
    /// An upload in parts to which nothing is added is kept this long, days. 1 to 3650.
    pub upload_rest_days: u32,
    /// The directory in which users make buckets, by S3's CreateBucket. Empty: only operators make
    /// any.
    pub s3_new_buckets: String,
    /// Addresses of the HTTP and WebDAV door: ports of this machine only, addresses with a port, or
    /// `*:PORT`. None: no such door.
    pub http: Vec<String>,
    /// Whether the HTTP door has the console, at `/console`.
    pub console: bool,
    /// The URL of the HTTP door as browsers reach it, for links of `lee console`, such as
    /// `"https://files.example.org:8443"`. Empty: by the addresses of the door.
    pub console_url: String,
    /// Addresses where other machines mount the cell: ports of this machine only, addresses with a
    /// port, or `*:PORT`. None: no other machine mounts it.
    pub listen: Vec<String>,
    /// CA certificates that third-party copies trust besides those of the machine: a file with
    /// certificates in PEM, or a directory of such.
    pub tls_trusted: String,
    /// Third-party copies at a time. 1 to 10000.
    pub transfers_max: u32,
    /// Networks that are not public and that third-party copies reach all the same, such as
    /// `"10.1.0.0/16"`. None: public addresses only.
    pub transfers_networks: Vec<String>,
    /// Ports that third-party copies reach. None: any.
    pub transfers_ports: Vec<u16>,
    /// Whether third-party copies may reach any address and port, also of this machine, and without
    /// TLS: for trials. Any user who may upload can then reach everything that listens there.
    pub transfers_local: bool,
    /// The certificate that doors show, with those that sign it: a file in PEM format. Empty: doors
    /// are not encrypted, and of this machine only.
    pub tls_certificate: String,
    /// The certificate's key, in PEM format.
    pub tls_key: String,
    /// Authorities that sign certificates of clients: a file with certificates in PEM format.
    /// Empty: doors ask for none.
    pub tls_clients: String,
    /// Users by the subjects of their certificates: `"CN=Alice Adams,O=Example,C=DE"` or
    /// `"/C=DE/O=Example/CN=Alice Adams"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tls_users: BTreeMap<String, String>,
    /// Issuers whose tokens open the doors. None: no tokens of issuers are accepted.
    pub issuer: Vec<IssuerConfig>,
    /// Where people log in to the console besides, by OpenID Connect: `[console-login]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_login: Option<SignOnConfig>,
    /// Settings of the storage resource report.
    pub srr: SrrConfig,
}

/// The site's part of `lee report srr`: `[srr]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SrrConfig {
    /// Name of the storage service. None: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How reliable it is.
    pub quality_level: QualityLevel,
    /// Its endpoints.
    pub endpoint: Vec<SrrEndpoint>,
    /// Its shares. None: each volume is one, of the VO with its name.
    pub share: Vec<SrrShare>,
}

/// How reliable a storage service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QualityLevel {
    /// Under development.
    Development,
    /// Under test.
    Testing,
    /// Before production.
    PreProduction,
    /// In production.
    #[default]
    Production,
}

/// An endpoint of a storage service: `[[srr.endpoint]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SrrEndpoint {
    /// Name, unique here.
    pub name: String,
    /// URL.
    pub url: String,
    /// Protocol: `https`, `s3`, `root`.
    pub interface: String,
}

/// A part of the storage that is accounted separately: `[[srr.share]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SrrShare {
    /// Name, unique here.
    pub name: String,
    /// A directory of the cell; volumes attached below belong to it.
    pub path: String,
    /// Virtual organisations that use it.
    pub vos: Vec<String>,
}

/// Ports of HTTPS on servers of the grid: the usual one, XRootD, dCache, StoRM and dCache.
const TRANSFERS_PORTS: [u16; 6] = [443, 1094, 1095, 2880, 8443, 8446];

impl Default for CellSettings {
    fn default() -> CellSettings {
        let engine = Config::default();
        CellSettings {
            compression: engine.compression,
            dirty_mib: engine.dirty_mib,
            cache_mib: engine.cache_mib,
            metadata_cache_mib: engine.metadata_cache_mib,
            commit_interval_ms: engine.commit_interval_ms,
            fair: engine.fair,
            store_transfers: engine.store_transfers,
            disk_cache: engine.disk_cache,
            disk_cache_mib: engine.disk_cache_mib,
            jobs: Jobs::None,
            metrics: Vec::new(),
            s3: Vec::new(),
            http: Vec::new(),
            console: true,
            console_url: String::new(),
            console_login: None,
            listen: Vec::new(),
            tls_trusted: String::new(),
            transfers_max: 64,
            transfers_networks: Vec::new(),
            transfers_ports: TRANSFERS_PORTS.to_vec(),
            transfers_local: false,
            s3_domains: Vec::new(),
            upload_rest_days: engine.upload_rest_days,
            s3_new_buckets: String::new(),
            tls_certificate: String::new(),
            tls_key: String::new(),
            tls_clients: String::new(),
            tls_users: BTreeMap::new(),
            issuer: Vec::new(),
            srr: SrrConfig::default(),
        }
    }
}

impl CellSettings {
    /// The settings of the file system.
    pub fn engine(&self) -> Config {
        Config {
            compression: self.compression,
            dirty_mib: self.dirty_mib,
            cache_mib: self.cache_mib,
            metadata_cache_mib: self.metadata_cache_mib,
            commit_interval_ms: self.commit_interval_ms,
            fair: self.fair,
            store_transfers: self.store_transfers,
            disk_cache: self.disk_cache.clone(),
            disk_cache_mib: self.disk_cache_mib,
            upload_rest_days: self.upload_rest_days,
        }
    }

    /// Checks ranges; the error names the key, the value and the range.
    pub fn check(&self) -> Result<(), String> {
        let ranges = [
            ("dirty-mib", self.dirty_mib, 16, 65536),
            ("cache-mib", self.cache_mib, 1, 65536),
            ("metadata-cache-mib", self.metadata_cache_mib, 8, 65536),
            ("store-transfers", self.store_transfers, 1, 1024),
            ("disk-cache-mib", self.disk_cache_mib, 16, 16_777_216),
            ("commit-interval-ms", self.commit_interval_ms, 10, 60000),
            ("transfers-max", self.transfers_max, 1, 10000),
            ("upload-rest-days", self.upload_rest_days, 1, 3650),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(format!("{key} = {value} is out of range: {low} to {high}"));
            }
        }
        if !self.tls_users.is_empty() && self.tls_clients.is_empty() {
            return Err(
                "tls-users says whose certificates are whose: name those who sign them, tls-clients".into()
            );
        }
        self.issuer.iter().try_for_each(IssuerConfig::check)?;
        self.console_login.iter().try_for_each(SignOnConfig::check)?;
        if self.console_login.is_some() && self.console_url.is_empty() {
            return Err(
                "console-login: the provider sends browsers back to console-url: set that, too".into()
            );
        }
        let twice =
            self.issuer.iter().enumerate().find(|(n, i)| self.issuer[..*n].iter().any(|o| o.url == i.url));
        twice.map_or(Ok(()), |(_, issuer)| Err(format!("issuer: {} is there twice", issuer.url)))
    }
}
