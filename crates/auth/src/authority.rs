//! The entry point: the questions that a door asks.

use crate::fetch::Fetch;
use crate::issuers::Issuer;
use crate::path::CellPath;
use crate::people::{UserCache, UserDatabase};
use crate::refusal::Refusal;
use crate::rights::Grants;
use crate::settings::IssuerConfig;
use crate::token::{self, Minted, Signer, TokenRequest};
use crate::verdict::{Identity, Verdict, Via};
use crate::{TOKEN_BYTES_MAX, wlcg};
use leeward_env::{Env, Nanos, Wait};
use leeward_fs::accounts::{Accounts, Secret};
use parking_lot::{Mutex, RwLock};
use ring::digest;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A verdict on a token is kept for this time, nanoseconds. After that the issuer's keys, or the
/// user's groups, may have changed.
const KEPT: Nanos = 300_000_000_000;
/// Most verdicts that are kept.
const KEPT_MAX: usize = 10_000;

/// Decides whether a credential opens a door. One for all doors of a cell; cheap to call from many
/// threads.
///
/// Locks are held for look-ups only, never while a user database or an issuer is asked.
pub struct Authority {
    env: Env,
    accounts: RwLock<Arc<Accounts>>,
    people: UserCache,
    issuers: Vec<Issuer>,
    fetch: Arc<dyn Fetch>,
    /// Names of users by the subjects of their certificates.
    certified: BTreeMap<String, String>,
    /// Verdicts on tokens of issuers, by the hash of the token: checking a signature takes a tenth
    /// of a millisecond.
    known: Mutex<FxHashMap<[u8; 32], Known>>,
}

/// Until when a verdict counts, the accounts that it was given with, and the verdict.
type Known = (Nanos, Arc<Accounts>, Verdict);

impl Authority {
    /// An authority from the cell's accounts (`Cell::accounts`), the settings of issuers, and the
    /// user database and client to ask.
    ///
    /// # Errors
    /// What is wrong in the settings.
    pub fn new(
        env: &Env,
        issuers: &[IssuerConfig],
        accounts: Arc<Accounts>,
        database: Arc<dyn UserDatabase>,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Authority, String> {
        Ok(Authority {
            env: env.clone(),
            accounts: RwLock::new(accounts),
            people: UserCache::new(database),
            issuers: issuers.iter().map(Issuer::new).collect::<Result<_, _>>()?,
            fetch,
            certified: BTreeMap::new(),
            known: Mutex::default(),
        })
    }

    /// Adds users by the subjects of their certificates.
    #[must_use]
    pub fn with_certificates(self, users: &BTreeMap<String, String>) -> Authority {
        Authority { certified: users.clone(), ..self }
    }

    /// Sets the cell's new accounts, for every request from now on.
    pub fn set_accounts(&self, accounts: Arc<Accounts>) {
        *self.accounts.write() = accounts;
        self.known.lock().clear();
    }

    fn accounts(&self) -> Arc<Accounts> {
        self.accounts.read().clone()
    }

    fn now_secs(&self) -> i64 {
        (self.env.wall() / 1_000_000_000) as i64
    }

    /// The secret of an S3 key, to check a signature with, and the verdict if the signature is
    /// right.
    ///
    /// # Errors
    /// [`Refusal::NoSuchKey`], [`Refusal::User`], [`Refusal::WouldBlock`].
    pub fn s3_key(&self, access_key_id: &str, wait: Wait) -> Result<(Secret, Verdict), Refusal> {
        let accounts = self.accounts();
        let key = accounts.key(access_key_id).ok_or(Refusal::NoSuchKey)?;
        let who = self.people.identify(&self.env, &accounts, &key.user, wait)?;
        let via = Via::Key(access_key_id.into());
        Ok((key.secret.clone(), Verdict { who, grants: Grants::All, until_secs: None, via }))
    }

    /// The verdict on a bearer token: one of the cell's macaroons, or of the WLCG profile.
    ///
    /// # Errors
    /// Any but those of keys and requests.
    pub fn bearer(&self, token: &str, wait: Wait) -> Result<Verdict, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Malformed(format!("it has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let accounts = self.accounts();
        self.token(&accounts, token, (None, wait))
    }

    /// The user who logs in at a machine by a token, until when that lasts as seconds since 1970.
    /// Rights of files are those of the user, so a token with limits of its own is refused: it
    /// would give more than it says.
    ///
    /// # Errors
    /// As of [`Authority::bearer`]; [`Refusal::OutOfScope`] of a token that is limited.
    pub fn login(&self, token: &str, host: &str, wait: Wait) -> Result<(Identity, Option<i64>), Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Malformed(format!("it has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let verdict = self.token(&self.accounts(), token, (Some(host), wait))?;
        if !verdict.grants.is_all() {
            let text = "a login with a token for some paths or activities: take one for all \
                (lee token create USER --read --write)";
            return Err(Refusal::OutOfScope(text.into()));
        }
        Ok((verdict.who, verdict.until_secs))
    }

    fn token(
        &self,
        accounts: &Arc<Accounts>,
        token: &str,
        (host, wait): (Option<&str>, Wait),
    ) -> Result<Verdict, Refusal> {
        // base64 has no dots
        if token.contains('.') {
            self.wlcg(accounts, token, wait)
        } else {
            self.own(accounts, token, (host, wait))
        }
    }

    fn own(
        &self,
        accounts: &Accounts,
        token: &str,
        (host, wait): (Option<&str>, Wait),
    ) -> Result<Verdict, Refusal> {
        let read = token::read(accounts, token, host, self.now_secs())?;
        let who = self.people.identify(&self.env, accounts, &read.user, wait)?;
        let via = Via::Macaroon(read.id.as_str().into());
        Ok(Verdict { who, grants: read.grants, until_secs: read.until_secs, via })
    }

    fn wlcg(&self, accounts: &Arc<Accounts>, token: &str, wait: Wait) -> Result<Verdict, Refusal> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        let now = self.env.now();
        if let Some((until, of, verdict)) = self.known.lock().get(&hash)
            && now < *until
            && Arc::ptr_eq(of, accounts)
            && verdict.is_good_at(self.env.wall())
        {
            // groups may be others since
            let who = self.people.identify(&self.env, accounts, &verdict.who.name, wait)?;
            return Ok(Verdict { who, ..verdict.clone() });
        }
        let believed = wlcg::read(&self.env, &self.issuers, &*self.fetch, token, wait)?;
        let who = self.people.identify(&self.env, accounts, &believed.user, wait)?;
        let (issuer, subject, id) = (&believed.issuer[..], &believed.subject[..], &believed.id[..]);
        let via = Via::Wlcg { issuer: issuer.into(), subject: subject.into(), id: id.into() };
        let verdict = Verdict { who, grants: believed.grants, until_secs: Some(believed.until_secs), via };
        let mut known = self.known.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(hash, (now + KEPT, accounts.clone(), verdict.clone()));
        Ok(verdict)
    }

    /// The verdict on a name and a password, for clients that support nothing else: an access key
    /// id and its secret; or a token as the password, with the user's name or none.
    ///
    /// # Errors
    /// As of [`Authority::s3_key`] and [`Authority::bearer`].
    pub fn basic(&self, name: &str, password: &str, wait: Wait) -> Result<Verdict, Refusal> {
        match self.s3_key(name, wait) {
            Err(Refusal::NoSuchKey) => (),
            Err(refusal) => return Err(refusal),
            Ok((secret, verdict)) => {
                // the time to compare hashes tells nothing about what was hashed
                let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec();
                if hash(secret.reveal()) == hash(password) {
                    return Ok(verdict);
                }
                return Err(Refusal::Invalid("the secret is not that of this key".into()));
            }
        }
        let verdict = self.bearer(password, wait).map_err(|refusal| match refusal {
            Refusal::Malformed(_) => {
                Refusal::Invalid("the name is that of no key, the password is no token".into())
            }
            refusal => refusal,
        })?;
        if name.is_empty() || *verdict.who.name == *name {
            return Ok(verdict);
        }
        Err(Refusal::Invalid("the token is of another user".into()))
    }

    /// The verdict on a certificate that a connection has shown and that its handshake accepted.
    /// `subject` has all the forms in which the subject is written. The certificate is valid until
    /// `until_secs`, seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal::Expired`], [`Refusal::User`], [`Refusal::WouldBlock`], [`Refusal::Unavailable`].
    pub fn certificate(&self, subject: &[&str], until_secs: i64, wait: Wait) -> Result<Verdict, Refusal> {
        if until_secs <= self.now_secs() {
            return Err(Refusal::Expired);
        }
        let shown = subject.first().copied().unwrap_or_default();
        let user = subject.iter().find_map(|name| self.certified.get(*name)).ok_or_else(|| {
            Refusal::User(format!(
                "no user has the certificate of {shown}: [tls-users] in the settings says who"
            ))
        })?;
        let who = self.people.identify(&self.env, &self.accounts(), user, wait)?;
        let via = Via::Certificate(shown.into());
        Ok(Verdict { who, grants: Grants::All, until_secs: Some(until_secs), via })
    }

    /// The user of this name, for work on behalf of a user who shows no credential, such as a
    /// bucket's owner.
    ///
    /// # Errors
    /// [`Refusal::User`], [`Refusal::WouldBlock`].
    pub fn user(&self, name: &str, wait: Wait) -> Result<Identity, Refusal> {
        self.people.identify(&self.env, &self.accounts(), name, wait)
    }

    /// A token of a user, as its user asks for it.
    ///
    /// # Errors
    /// As [`Authority::user`]; [`Refusal::BadRequest`]; [`Refusal::Unavailable`] as of
    /// [`Authority::macaroon`].
    pub fn token_of(&self, user: &str, wish: &TokenRequest, wait: Wait) -> Result<String, Refusal> {
        self.user(user, wait)?;
        let accounts = self.accounts();
        let signer = signer(&accounts, user)?;
        signer.mint(self.env.random(), "leeward", wish).map_err(|e| Refusal::BadRequest(e.to_string()))
    }

    /// Answers `POST` at a path with a body of `application/macaroon-request`: a token that grants
    /// no more than `verdict` does at this path and below. `location` is the door's URL; the token
    /// carries it as a hint.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`], [`Refusal::OutOfScope`]; [`Refusal::Unavailable`] when the cell has
    /// no key to sign with (`Cell::prepare_tokens` makes one).
    pub fn macaroon(
        &self,
        verdict: &Verdict,
        at: &CellPath,
        body: &[u8],
        location: &str,
    ) -> Result<Minted, Refusal> {
        if verdict.via == Via::Nothing {
            return Err(Refusal::OutOfScope("a token for nobody".into()));
        }
        let accounts = self.accounts();
        let signer = signer(&accounts, &verdict.who.name)?;
        token::answer(&signer, verdict, at, body, (self.env.random(), location, self.now_secs()))
    }
}

/// Signs tokens for a user.
fn signer<'a>(accounts: &'a Accounts, user: &'a str) -> Result<Signer<'a>, Refusal> {
    let none = || Refusal::Unavailable("the cell has no key to sign tokens with".into());
    Signer::of(accounts, user).ok_or_else(none)
}
