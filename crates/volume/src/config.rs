//! What can be set in a cell's `leeward.toml`. Every key has a default that is right for most.

use leeward_env::limits::STORE_TRANSFERS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Compression of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// LZ4 where it pays.
    #[default]
    Lz4,
    /// None.
    None,
}

/// How the jobs of a user are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jobs {
    /// Not at all.
    #[default]
    None,
    /// By the cgroup of the process that asks: a job of a batch system, a container, a session.
    Cgroup,
}

/// The settings of a cell. Units are in the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
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
    /// Whether the gate shares the cell fairly between users. Without it requests are served as they come.
    pub fair: bool,
    /// Most transfers on their way to or from one store (a directory, a bucket) at a time. 1 to 1024. Only with `fair`.
    pub store_transfers: u32,
    /// A directory on a disk of this machine for a cache of file data of pools on object stores. Empty: none.
    pub disk_cache: String,
    /// Its size. 16 to 16777216.
    pub disk_cache_mib: u32,
    /// How the jobs of a user are told apart: they share equally what he gets, and `lee top` shows them.
    pub jobs: Jobs,
    /// Where Prometheus finds metrics: ports of this machine only, or addresses with a port. None: nowhere.
    pub metrics: Vec<String>,
    /// Where the S3 door is: ports of this machine only, addresses with a port, or `*:PORT`. None: nowhere.
    pub s3: Vec<String>,
    /// Names of the host at the S3 door: a name before one of them is a bucket. None: buckets are in paths only.
    pub s3_domains: Vec<String>,
    /// So long an upload in parts is kept to which nothing is added, days. 1 to 3650.
    pub upload_rest_days: u32,
    /// The directory that users make buckets in, by S3's CreateBucket. Empty: only operators make any.
    pub s3_new_buckets: String,
    /// Where HTTP and WebDAV are answered: ports of this machine only, addresses with a port, or `*:PORT`. None: nowhere.
    pub http: Vec<String>,
    /// Whom third-party copies trust besides those whom the machine trusts: a file with certificates in PEM, or a directory of such.
    pub tls_trusted: String,
    /// Third-party copies at a time. 1 to 10000.
    pub transfers_max: u32,
    /// Networks that are not public and that third-party copies reach all the same, such as `"10.1.0.0/16"`. None: public addresses only.
    pub transfers_networks: Vec<String>,
    /// Ports that third-party copies reach. None: any.
    pub transfers_ports: Vec<u16>,
    /// Whether third-party copies reach any address and port, also of this machine, and without TLS: for trials. Whoever may upload reaches all that listens there.
    pub transfers_local: bool,
    /// The certificate that doors show, with those that sign it: a file in PEM format. Empty: doors are not encrypted, and of this machine only.
    pub tls_certificate: String,
    /// Its key, in PEM format.
    pub tls_key: String,
    /// Those that sign certificates of clients: a file with certificates in PEM format. Empty: doors ask for none.
    pub tls_clients: String,
    /// Users by the subjects of their certificates: `"CN=Alice Adams,O=Example,C=DE"` or `"/C=DE/O=Example/CN=Alice Adams"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tls_users: BTreeMap<String, String>,
    /// Issuers whose tokens open the doors. None: nobody's.
    pub issuer: Vec<IssuerConfig>,
    /// What the storage resource report says.
    pub srr: SrrConfig,
}

/// What `lee report srr` says of the site: `[srr]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SrrConfig {
    /// Name of the storage service. None: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How much it is to be relied on.
    pub quality_level: QualityLevel,
    /// Where it is reached.
    pub endpoint: Vec<SrrEndpoint>,
    /// Its shares. None: each volume is one, of the VO with its name.
    pub share: Vec<SrrShare>,
}

/// How much a storage service is to be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QualityLevel {
    /// It is being made.
    Development,
    /// It is being tried.
    Testing,
    /// Before production.
    PreProduction,
    /// In production.
    #[default]
    Production,
}

/// Where a storage service is reached: `[[srr.endpoint]]`.
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

/// A part of the storage that is accounted by itself: `[[srr.share]]`.
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

/// An issuer of tokens of the WLCG profile, and as whom its tokens act: `[[issuer]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IssuerConfig {
    /// Its URL, exactly as its tokens have it in `iss`.
    pub url: String,
    /// What its tokens may have in `aud`, exactly.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Whether tokens for every audience are for this one, too.
    #[serde(default = "yes")]
    pub any_audience: bool,
    /// The paths in the cell that paths of its scopes are relative to.
    pub base_paths: Vec<String>,
    /// The user as whom tokens with storage scopes act, unless their subject has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Users by `sub`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subjects: BTreeMap<String, String>,
    /// Users by `wlcg.groups`, for tokens without any capability scope.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

impl IssuerConfig {
    fn check(&self) -> Result<(), String> {
        check_issuer_url(&self.url).map_err(|why| format!("issuer: url = {}: {why}", self.url))?;
        if self.base_paths.is_empty() {
            return Err(format!("issuer: {}: base-paths: name at least one", self.url));
        }
        let bad = self.base_paths.iter().find(|p| !p.starts_with('/') || p.split('/').any(|c| c == ".."));
        if let Some(path) = bad {
            return Err(format!("issuer: {}: base-paths: {path} is no absolute path", self.url));
        }
        if self.user.is_none() && self.subjects.is_empty() && self.groups.is_empty() {
            return Err(format!(
                "issuer: {}: name whom its tokens act for: user, subjects or groups",
                self.url
            ));
        }
        Ok(())
    }
}

/// Keys of issuers come by HTTPS; by plain HTTP from this machine only.
///
/// # Errors
/// What is wrong with the URL.
pub fn check_issuer_url(url: &str) -> Result<(), String> {
    if url.contains(char::is_whitespace) || url.contains(char::is_control) {
        return Err("a URL has no blanks".into());
    }
    let host = |rest: &str| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default().to_string(),
            None => authority.split(':').next().unwrap_or_default().to_string(),
        }
    };
    if let Some(rest) = url.strip_prefix("https://") {
        return if host(rest).is_empty() { Err("no host in it".into()) } else { Ok(()) };
    }
    let here = |host: &str| host == "localhost" || host == "127.0.0.1" || host == "::1";
    match url.strip_prefix("http://") {
        // a name before an @ would not be the host
        Some(rest) if here(&host(rest)) && !rest.contains('@') => Ok(()),
        _ => Err("write https://".into()),
    }
}

/// Where servers of the grid answer by HTTPS: the usual one, XRootD, dCache, StoRM and dCache.
const TRANSFERS_PORTS: [u16; 6] = [443, 1094, 1095, 2880, 8443, 8446];

impl Default for Config {
    fn default() -> Config {
        Config {
            compression: Compression::Lz4,
            dirty_mib: 96,
            cache_mib: 64,
            metadata_cache_mib: 96,
            commit_interval_ms: 500,
            fair: true,
            store_transfers: STORE_TRANSFERS_MAX as u32,
            disk_cache: String::new(),
            disk_cache_mib: 10_240,
            jobs: Jobs::None,
            metrics: Vec::new(),
            s3: Vec::new(),
            http: Vec::new(),
            tls_trusted: String::new(),
            transfers_max: 64,
            transfers_networks: Vec::new(),
            transfers_ports: TRANSFERS_PORTS.to_vec(),
            transfers_local: false,
            s3_domains: Vec::new(),
            upload_rest_days: 7,
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

impl Config {
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
        let twice =
            self.issuer.iter().enumerate().find(|(n, i)| self.issuer[..*n].iter().any(|o| o.url == i.url));
        twice.map_or(Ok(()), |(_, issuer)| Err(format!("issuer: {} is there twice", issuer.url)))
    }
}
