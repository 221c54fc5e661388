//! Logging in by OpenID Connect: the authorization code flow, with a proof key (PKCE, RFC 7636).
//!
//! The browser goes to the provider with a number of ours and comes back with a code. The code, the
//! proof and our secret get an ID token from the provider, over a connection of our own. The token
//! is verified all the same: issuer, signature, audience, times, and the number that the browser
//! went with.

use crate::fetch::Fetch;
use crate::issuers::Issuer;
use crate::jws::Signed;
use crate::refusal::Refusal;
use crate::settings::{IssuerConfig, check_issuer_url};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use leeward_env::{Env, Nanos, Wait};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Clocks may differ by this time, seconds.
const SKEW_SECS: i64 = 60;
/// What a provider says of itself is used for this time, nanoseconds.
const GOOD: Nanos = 600_000_000_000;
/// After a failure it is not asked again before this time, nanoseconds.
const AGAIN: Nanos = 5_000_000_000;
/// How long a request waits for another one that asks it.
const ASKING_MAX: Duration = Duration::from_millis(200);

/// A provider, and who its users are here: `[console-login]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SignOnConfig {
    /// Its URL, exactly as its tokens have it in `iss`.
    pub url: String,
    /// What people call it, on the button.
    pub name: String,
    /// What it calls this service.
    pub client_id: String,
    /// A file with the secret that it has given to this service. Empty: none.
    #[serde(default)]
    pub secret_file: String,
    /// What is asked for besides `openid`.
    #[serde(default = "usual_scopes")]
    pub scopes: Vec<String>,
    /// The claim that names the user.
    #[serde(default = "usual_claim")]
    pub user_claim: String,
    /// Users by that claim, where they are called otherwise here. With `only-these` nobody else is
    /// let in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, String>,
    /// Whether only who is in `users` or `operators` is let in.
    #[serde(default)]
    pub only_these: bool,
    /// Values of the claim of those who log in as operators.
    #[serde(default)]
    pub operators: Vec<String>,
}

fn usual_scopes() -> Vec<String> {
    vec!["profile".into()]
}

fn usual_claim() -> String {
    "preferred_username".into()
}

impl SignOnConfig {
    /// Checks it.
    ///
    /// # Errors
    /// What is wrong, beginning with the name of the table.
    pub fn check(&self) -> Result<(), String> {
        check_issuer_url(&self.url).map_err(|why| format!("console-login: url = {}: {why}", self.url))?;
        let empty = [("name", &self.name), ("client-id", &self.client_id), ("user-claim", &self.user_claim)];
        match empty.iter().find(|(_, value)| value.trim().is_empty()) {
            Some((key, _)) => Err(format!("console-login: {key} is empty")),
            None => Ok(()),
        }
    }
}

/// As whom somebody is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedOn {
    /// An operator.
    Operator {
        /// What the provider calls him.
        name: String,
    },
    /// The user of this name.
    User(String),
}

/// What is kept of somebody who has gone to the provider, until he comes back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    state: String,
    nonce: String,
    proof: String,
    back: String,
}

impl fmt::Debug for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gone(..)")
    }
}

impl Gone {
    /// The number by which he is known when he comes back.
    pub fn state(&self) -> &str {
        &self.state
    }
}

/// The provider of a site.
pub struct SignOn {
    config: SignOnConfig,
    secret: String,
    issuer: Issuer,
    known: Mutex<Known>,
}

/// What a provider says of itself.
#[derive(Default)]
struct Known {
    /// When it was asked, and what it said.
    found: Option<(Nanos, Endpoints)>,
    /// When asking failed last, and why.
    failed: Option<(Nanos, String)>,
}

#[derive(Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: f64,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    More(Vec<String>),
}

impl SignOn {
    /// A provider. `secret`: what it has given to this service; empty: nothing.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(config: &SignOnConfig, secret: &str) -> Result<SignOn, String> {
        config.check()?;
        let issuer = Issuer::new(&IssuerConfig {
            url: config.url.clone(),
            audiences: Vec::new(),
            any_audience: false,
            base_paths: Vec::new(),
            user: None,
            subjects: BTreeMap::new(),
            groups: BTreeMap::new(),
        })?;
        let (config, secret) = (config.clone(), secret.trim().to_owned());
        Ok(SignOn { config, secret, issuer, known: Mutex::default() })
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Where the browser is to go, and what to keep until it comes back to `back`. Waits for the
    /// provider.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`].
    pub fn begin(&self, env: &Env, fetch: &dyn Fetch, back: &str) -> Result<(String, Gone), Refusal> {
        let endpoints = self.endpoints(env, fetch)?;
        let random = || URL_SAFE_NO_PAD.encode(env.secret::<32>());
        let gone = Gone { state: random(), nonce: random(), proof: random(), back: back.to_owned() };
        let scopes = format!("openid {}", self.config.scopes.join(" "));
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, gone.proof.as_bytes()));
        let fields = [
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", back),
            ("scope", scopes.trim()),
            ("state", &gone.state),
            ("nonce", &gone.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let at = &endpoints.authorization_endpoint;
        let join = if at.contains('?') { '&' } else { '?' };
        Ok((format!("{at}{join}{}", form(&fields)), gone))
    }

    /// Who has come back with this code. Waits for the provider.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]; [`Refusal::Invalid`] when the provider or its token says no;
    /// [`Refusal::User`] when it is nobody here.
    pub fn end(&self, env: &Env, fetch: &dyn Fetch, gone: &Gone, code: &str) -> Result<SignedOn, Refusal> {
        let endpoints = self.endpoints(env, fetch)?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &gone.back),
            ("code_verifier", &gone.proof),
        ];
        let authorization = match self.secret.is_empty() {
            true => {
                fields.push(("client_id", &self.config.client_id));
                None
            }
            // both are encoded as fields before they are joined (RFC 6749, 2.3.1)
            false => {
                let pair = format!("{}:{}", encoded(&self.config.client_id), encoded(&self.secret));
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
        };
        let answer = fetch.post(&endpoints.token_endpoint, &form(&fields), authorization.as_deref());
        let answer =
            answer.map_err(|why| Refusal::Invalid(format!("{} gives no token: {why}", self.name())))?;
        let tokens: Tokens = serde_json::from_slice(&answer)
            .map_err(|e| Refusal::Invalid(format!("{} gives no ID token: {e}", self.name())))?;
        let user = self.verified(env, fetch, gone, &tokens.id_token)?;
        self.who(user)
    }

    fn endpoints(&self, env: &Env, fetch: &dyn Fetch) -> Result<Endpoints, Refusal> {
        let mut known = self.known.try_lock_for(ASKING_MAX).ok_or_else(|| {
            Refusal::Unavailable(format!("{} is just being asked where logins go: try again", self.name()))
        })?;
        let now = env.now();
        match (&known.found, &known.failed) {
            (Some((at, endpoints)), _) if now.saturating_sub(*at) < GOOD => return Ok(endpoints.clone()),
            (_, Some((at, why))) if now.saturating_sub(*at) < AGAIN => {
                return Err(Refusal::Unavailable(why.clone()));
            }
            _ => (),
        }
        match self.fetch(fetch) {
            Ok(endpoints) => {
                *known = Known { found: Some((now, endpoints.clone())), failed: None };
                Ok(endpoints)
            }
            Err(why) => {
                known.failed = Some((now, why.clone()));
                Err(Refusal::Unavailable(why))
            }
        }
    }

    fn fetch(&self, fetch: &dyn Fetch) -> Result<Endpoints, String> {
        let ours = self.config.url.trim_end_matches('/');
        let at = format!("{ours}/.well-known/openid-configuration");
        let found: Endpoints =
            serde_json::from_slice(&fetch.get(&at)?).map_err(|e| format!("{at}: cannot be read: {e}"))?;
        if found.issuer.trim_end_matches('/') != ours {
            return Err(format!("{at}: is of another issuer"));
        }
        for (name, url) in [
            ("authorization_endpoint", &found.authorization_endpoint),
            ("token_endpoint", &found.token_endpoint),
        ] {
            check_issuer_url(url).map_err(|why| format!("{at}: {name}: {why}"))?;
            if ours.starts_with("https://") && !url.starts_with("https://") {
                return Err(format!("{at}: {name}: a provider with HTTPS has all with HTTPS"));
            }
        }
        Ok(found)
    }

    /// The user that an ID token names.
    fn verified(&self, env: &Env, fetch: &dyn Fetch, gone: &Gone, token: &str) -> Result<String, Refusal> {
        let invalid = |why: &str| Err(Refusal::Invalid(format!("the ID token: {why}")));
        if token.len() > crate::TOKEN_BYTES_MAX {
            return invalid("it is too long");
        }
        let signed = Signed::parse(token)?;
        let named = (signed.key_id.as_deref(), signed.algorithm);
        if !self.issuer.with_key(env, fetch, named, Wait::Allowed, |key| signed.is_signed_by(key))? {
            return invalid("its signature is wrong");
        }
        let claims: Claims = signed.claims()?;
        let ours = &self.config.client_id;
        let is_for_us = match &claims.aud {
            Audience::One(audience) => audience == ours,
            Audience::More(audiences) => audiences.contains(ours),
        };
        let is_sole = !matches!(&claims.aud, Audience::More(all) if all.len() > 1);
        if claims.iss != self.config.url {
            return invalid("it is of another issuer");
        }
        if !is_for_us
            || claims.azp.as_ref().is_some_and(|azp| azp != ours)
            || (!is_sole && claims.azp.is_none())
        {
            return invalid("it is for another service");
        }
        let now = (env.wall() / 1_000_000_000) as i64;
        if claims.exp as i64 + SKEW_SECS <= now {
            return Err(Refusal::Expired);
        }
        if claims.nonce.as_deref() != Some(&gone.nonce) {
            return invalid("it is the answer to another request");
        }
        match claims.others.get(&self.config.user_claim).and_then(Value::as_str) {
            Some(user) if !user.is_empty() => Ok(user.to_owned()),
            _ => invalid(&format!("it has no {}", self.config.user_claim)),
        }
    }

    fn who(&self, user: String) -> Result<SignedOn, Refusal> {
        if self.config.operators.contains(&user) {
            return Ok(SignedOn::Operator { name: user });
        }
        match self.config.users.get(&user) {
            Some(name) => Ok(SignedOn::User(name.clone())),
            None if self.config.only_these => Err(Refusal::User(format!("{user} is nobody here"))),
            None => Ok(SignedOn::User(user)),
        }
    }
}

/// `a=b&c=d`.
fn form(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    fields.join("&")
}

fn encoded(value: &str) -> String {
    let byte = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    value.bytes().map(byte).collect()
}
