//! The doors of a served cell: addresses, certificates, and what answers there.
//!
//! Addresses are had before the cell is opened, so that a mistake costs nothing; they are answered when it is mounted, on threads of a
//! runtime of their own, and no more before it is unmounted.

use crate::fail::{Fail, text};
use crate::locate::CellDir;
use crate::serve::Wish;
use leeward_auth::Authority;
use leeward_dav::{Dav, Remote, Settings, Transfers};
use leeward_door::Files;
use leeward_door::listen::{self, AccessLog, Bound, Serving, Site, TlsFiles, Turns};
use leeward_env::Env;
use leeward_vfs::Gate;
use leeward_volume::Config;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long requests at work may take to end.
const END_WAIT: Duration = Duration::from_secs(15);
/// Access log, in the cell's directory.
const LOG: &str = "access.log";

/// Doors that have their addresses.
pub struct Doors {
    http: Option<Bound>,
    transfers: Transfers,
}

/// Doors that are answered. Dropped, no more.
pub struct Open {
    http: Option<Serving>,
    runtime: Option<Runtime>,
}

impl Doors {
    /// Takes the addresses that were asked for, or that the settings say.
    ///
    /// # Errors
    /// Which address cannot be had, or which file cannot be used, and why.
    pub fn bind(wish: &Wish, config: &Config) -> Result<Doors, Fail> {
        let said = if wish.http.is_empty() { &config.http } else { &wish.http };
        let addresses = addresses(said)?;
        let files = |config: &Config| match (&config.tls_certificate[..], &config.tls_key[..]) {
            ("", "") => Ok(None),
            ("", _) | (_, "") => Err(Fail::new("tls-certificate and tls-key belong together: say both")),
            (certificate, key) => Ok(Some(TlsFiles { certificate: certificate.into(), key: key.into() })),
        };
        let tls = files(config)?;
        let local = addresses.iter().all(|at| at.ip().is_loopback());
        let trusted = Some(&config.tls_trusted).filter(|path| !path.is_empty()).map(PathBuf::from);
        let remote = Remote::new(trusted.as_deref(), local).map_err(Fail::new)?;
        let transfers = Transfers::new(remote, config.transfers_max as usize);
        let bound = |addresses: &[SocketAddr]| Bound::take(addresses, tls.clone()).map_err(|e| Fail::new(e.to_string()));
        let http = if addresses.is_empty() { None } else { Some(bound(&addresses)?) };
        Ok(Doors { http, transfers })
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.http.is_none()
    }

    /// Answers.
    ///
    /// # Errors
    /// Certificate and key cannot be used; the log cannot be written; the system refuses threads.
    pub fn open(self, env: &Env, dir: &CellDir, gate: &Gate, authority: &Arc<Authority>) -> Result<Open, Fail> {
        let Some(bound) = self.http else { return Ok(Open { http: None, runtime: None }) };
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name("lee-door").enable_all().build();
        let runtime = runtime.map_err(|e| Fail::new(format!("the system refused threads for the doors: {}", text(&e))))?;
        let path = dir.path().join(LOG);
        let log = AccessLog::open(env, &path)
            .map_err(|e| Fail::new(format!("{}: {}: the doors note requests there", path.display(), text(&e))))?;
        let location = bound.urls().first().cloned().unwrap_or_default();
        let settings = Settings { realm: "leeward".into(), location };
        let (files, turns) = (Files::new(gate, env), Turns::new(env));
        let site: Arc<dyn Site> = Arc::new(Dav::new(files, authority.clone(), self.transfers, turns, settings));
        let http = bound.serve(env, runtime.handle(), site, Some(log)).map_err(|e| Fail::new(e.to_string()))?;
        Ok(Open { http: Some(http), runtime: Some(runtime) })
    }
}

impl Open {
    /// Where the HTTP door is.
    pub fn http(&self) -> Vec<String> {
        self.http.as_ref().map(|serving| serving.urls().to_vec()).unwrap_or_default()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(serving) = &self.http {
            serving.end();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_WAIT);
        }
    }
}

/// All addresses of some texts.
fn addresses(said: &[String]) -> Result<Vec<SocketAddr>, Fail> {
    let mut all = Vec::new();
    for text in said {
        all.extend(listen::parse(text).map_err(|e| Fail::new(e.to_string()))?);
    }
    Ok(all)
}
