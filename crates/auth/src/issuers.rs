//! Issuers that the site trusts, and their keys: fetched when needed, kept, and fetched again after
//! some hours.
//!
//! The issuer's URL leads to its `.well-known/openid-configuration`, that to `jwks_uri`, and that
//! to the keys. An unknown key id causes another fetch, but not more often than once a minute: a
//! sender of garbage must not make us send requests. One thread at a time fetches for an issuer,
//! and no other waits for it. Threads that have valid keys go on with them; clients of the others
//! are told to come again. So a slow issuer holds one thread, whoever sends tokens that name it.

use crate::fetch::Fetch;
use crate::jws::{Algorithm, Jwk, PublicKey};
use crate::path::CellPath;
use crate::refusal::Refusal;
use crate::settings::{IssuerConfig, check_issuer_url};
use leeward_env::{Env, Nanos, Wait};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;

const SECOND: Nanos = 1_000_000_000;
/// Keys of this age are fetched again.
const REFRESH: Nanos = 6 * 3600 * SECOND;
/// Keys of this age are not used any more.
const EXPIRE: Nanos = 48 * 3600 * SECOND;
/// Before this time an issuer is not asked again because of an unknown key id.
const AGAIN: Nanos = 60 * SECOND;
/// Before this time an issuer is not asked again after a failure.
const AGAIN_AFTER_FAILURE: Nanos = 10 * SECOND;
/// Most keys of an issuer.
const KEYS_MAX: usize = 64;

/// A trusted issuer.
pub(crate) struct Issuer {
    pub(crate) config: IssuerConfig,
    /// Paths that its scopes are relative to.
    pub(crate) bases: Vec<CellPath>,
    state: Mutex<IssuerState>,
}

#[derive(Default)]
struct IssuerState {
    keys: Arc<Vec<IssuerKey>>,
    /// Time when the keys were fetched; `None`: never.
    fetched: Option<Nanos>,
    /// Time of the last attempt; whether and why it failed.
    tried: Option<Nanos>,
    failure: Option<String>,
    fetching: bool,
}

struct IssuerKey {
    id: Option<String>,
    key: PublicKey,
}

enum Next {
    Found(Arc<Vec<IssuerKey>>, usize),
    Fetch,
    Wait,
    Refused(Refusal),
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// # Errors
    /// What is wrong with its base paths.
    pub(crate) fn new(config: &IssuerConfig) -> Result<Issuer, String> {
        let base = |path: &String| CellPath::parse(path).map_err(|e| format!("base path {path}: {e}"));
        let bases = config.base_paths.iter().map(base).collect::<Result<_, _>>()?;
        Ok(Issuer { config: config.clone(), bases, state: Mutex::default() })
    }

    /// Runs `with` on the key that a token names.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] without such a key, [`Refusal::Unavailable`] when the issuer does not
    /// answer, [`Refusal::Fetching`] while another thread asks it, [`Refusal::WouldBlock`].
    pub(crate) fn with_key<T>(
        &self,
        env: &Env,
        fetch: &dyn Fetch,
        (id, algorithm): (Option<&str>, Algorithm),
        wait: Wait,
        with: impl FnOnce(&PublicKey) -> T,
    ) -> Result<T, Refusal> {
        let mut state = self.state.lock();
        loop {
            let next = state.next(env.now(), id, algorithm);
            match next {
                Next::Found(keys, n) => {
                    drop(state);
                    return Ok(with(&keys[n].key));
                }
                Next::Refused(refusal) => return Err(refusal),
                Next::Wait => return Err(Refusal::Fetching),
                Next::Fetch if wait == Wait::Never => return Err(Refusal::WouldBlock),
                Next::Fetch => {
                    state.fetching = true;
                    state.tried = Some(env.now());
                    drop(state);
                    let fetched = self.fetch(fetch);
                    state = self.state.lock();
                    state.take(env.now(), fetched);
                }
            }
        }
    }

    fn fetch(&self, fetch: &dyn Fetch) -> Result<Vec<IssuerKey>, String> {
        let ours = self.config.url.trim_end_matches('/');
        let at = format!("{ours}/.well-known/openid-configuration");
        let found: Discovery =
            serde_json::from_slice(&fetch.get(&at)?).map_err(|e| format!("{at}: cannot be read: {e}"))?;
        if found.issuer.trim_end_matches('/') != ours {
            return Err(format!("{at}: is of another issuer"));
        }
        check_issuer_url(&found.jwks_uri).map_err(|why| format!("{at}: jwks_uri: {why}"))?;
        if ours.starts_with("https://") && !found.jwks_uri.starts_with("https://") {
            return Err(format!("{at}: jwks_uri: an issuer with HTTPS has its keys there, too"));
        }
        let body = fetch.get(&found.jwks_uri)?;
        // one unknown key must not hide the others
        let set: Keys =
            serde_json::from_slice(&body).map_err(|e| format!("{}: cannot be read: {e}", found.jwks_uri))?;
        let ours = |key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            Some(IssuerKey { key: PublicKey::from_jwk(&jwk)?, id: jwk.kid })
        };
        let keys: Vec<IssuerKey> = set.keys.into_iter().filter_map(ours).take(KEYS_MAX).collect();
        if keys.is_empty() {
            return Err(format!("{}: has no key for RS256 or ES256", found.jwks_uri));
        }
        Ok(keys)
    }
}

/// A set of keys, each of which is parsed separately.
#[derive(Deserialize)]
struct Keys {
    keys: Vec<serde_json::Value>,
}

impl IssuerState {
    fn next(&self, now: Nanos, id: Option<&str>, algorithm: Algorithm) -> Next {
        let age = self.fetched.map(|at| now.saturating_sub(at)).filter(|age| *age < EXPIRE);
        let found = age.and_then(|_| self.find(id, algorithm));
        let pause = if self.failure.is_some() { AGAIN_AFTER_FAILURE } else { AGAIN };
        let rests = self.tried.is_some_and(|at| now.saturating_sub(at) < pause);
        let wanted = found.is_none() || age.is_some_and(|age| age > REFRESH);
        match found {
            _ if wanted && !rests && !self.fetching => Next::Fetch,
            Some(n) => Next::Found(self.keys.clone(), n),
            None if self.fetching => Next::Wait,
            None => Next::Refused(match &self.failure {
                Some(why) if age.is_none() => {
                    Refusal::Unavailable(format!("the issuer's keys cannot be fetched: {why}"))
                }
                _ => Refusal::Invalid("the issuer has no such key".into()),
            }),
        }
    }

    /// The key of this id; without an id the only one for this algorithm.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<usize> {
        let fits =
            |key: &IssuerKey| key.key.algorithm() == algorithm && (id.is_none() || key.id.as_deref() == id);
        let mut fitting = (0..self.keys.len()).filter(|n| fits(&self.keys[*n]));
        let first = fitting.next()?;
        (id.is_some() || fitting.next().is_none()).then_some(first)
    }

    fn take(&mut self, now: Nanos, fetched: Result<Vec<IssuerKey>, String>) {
        self.fetching = false;
        match fetched {
            Ok(keys) => {
                self.keys = Arc::new(keys);
                self.fetched = Some(now);
                self.failure = None;
            }
            Err(why) => self.failure = Some(why),
        }
    }
}
