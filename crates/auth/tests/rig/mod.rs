//! An authority with a few users, and an issuer of our own that mints tokens of the WLCG profile:
//! what the tests share.
#![allow(dead_code, missing_docs)] // not every test needs everything

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use leeward_auth::IssuerConfig;
use leeward_auth::{Activity, Authority, CellPath, Fetch, Refusal, UserDatabase, Verdict};
use leeward_env::{Env, Wait};
use leeward_fs::accounts::{AccountChange, Accounts, KeyRecord, Numbers, Secret, SigningRecord, UserRecord};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512,
    RsaEncoding,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const ISSUER: &str = "https://issuer.example.org/";
pub const AUDIENCE: &str = "https://storage.example.org";
pub const ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";
pub const SIGNING: [u8; 32] = [7; 32];

/// Keys of an issuer, in tests only.
pub struct Minter {
    pub url: String,
    rsa_der: Vec<u8>,
    ec_der: Vec<u8>,
    /// Key ids that the issuer publishes its two keys under.
    pub rsa_id: String,
    pub ec_id: String,
}

impl Minter {
    pub fn new(url: &str) -> Minter {
        let pem: String = include_str!("rsa.pem").lines().filter(|line| !line.starts_with('-')).collect();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .expect("a key");
        Minter {
            url: url.into(),
            rsa_der: STANDARD.decode(pem).expect("base64"),
            ec_der: ec.as_ref().to_vec(),
            rsa_id: "rsa1".into(),
            ec_id: "ec1".into(),
        }
    }

    pub fn modulus(&self) -> Vec<u8> {
        PublicKeyComponents::<Vec<u8>>::from(KeyPair::from_der(&self.rsa_der).expect("a key").public()).n
    }

    /// What `jwks_uri` answers.
    pub fn jwks(&self) -> Value {
        let ec = self.ec();
        let point = ec.public_key().as_ref();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [
            {"kty": "RSA", "kid": self.rsa_id, "alg": "RS256", "use": "sig", "n": text(&self.modulus()), "e": "AQAB"},
            {"kty": "EC", "crv": "P-256", "kid": self.ec_id, "alg": "ES256",
             "x": text(&point[1..33]), "y": text(&point[33..65])},
            {"kty": "of tomorrow", "kid": "odd"},
        ]})
    }

    pub fn discovery(&self) -> Value {
        json!({"issuer": self.url, "jwks_uri": format!("{}jwk", self.url)})
    }

    /// Signed with RS256.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(claims, Some(&self.rsa_id), "RS256")
    }

    /// Signed as it says, with the key for that; with HS256 by the public key, as an attacker
    /// would.
    pub fn sign_as(&self, claims: &Value, kid: Option<&str>, algorithm: &str) -> String {
        let mut header = json!({"typ": "JWT", "alg": algorithm});
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = match algorithm {
            "RS256" => self.rsa(&RSA_PKCS1_SHA256, &message),
            "RS512" => self.rsa(&RSA_PKCS1_SHA512, &message),
            "ES256" => {
                let signed = self.ec().sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
                signed.as_ref().to_vec()
            }
            "HS256" => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, &self.modulus());
                hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            _ => panic!("{algorithm}"),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn rsa(&self, padding: &'static dyn RsaEncoding, message: &str) -> Vec<u8> {
        let key = KeyPair::from_der(&self.rsa_der).expect("a key");
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(padding, &SystemRandom::new(), message.as_bytes(), &mut signature).expect("signed");
        signature
    }

    fn ec(&self) -> EcdsaKeyPair {
        let random = SystemRandom::new();
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &self.ec_der, &random).expect("a key")
    }
}

/// Gives what an issuer would, and counts.
pub struct Given {
    pub minter: Arc<Minter>,
    pub asked: AtomicUsize,
    pub silent: AtomicBool,
}

impl Fetch for Given {
    fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.silent.load(Ordering::Relaxed) {
            return Err("no route to host".into());
        }
        let path = url.strip_prefix(&self.minter.url).ok_or("another host")?;
        match path {
            ".well-known/openid-configuration" => Ok(self.minter.discovery().to_string().into()),
            "jwk" => Ok(self.minter.jwks().to_string().into()),
            _ => Err("404".into()),
        }
    }

    fn post(&self, _: &str, _: &str, _: Option<&str>) -> Result<Vec<u8>, String> {
        Err("an issuer of tokens takes no forms".into())
    }
}

/// The user database of a machine.
pub struct Machine(pub BTreeMap<&'static str, (u32, Vec<u32>)>);

impl UserDatabase for Machine {
    fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
        Ok(self.0.get(name).cloned())
    }
}

pub fn machine() -> Arc<Machine> {
    Arc::new(Machine(BTreeMap::from([
        ("root", (0, vec![0])),
        ("alice", (1000, vec![1000, 50])),
        ("atlas", (2000, vec![2000])),
    ])))
}

pub fn config(url: &str) -> IssuerConfig {
    IssuerConfig {
        url: url.into(),
        audiences: vec![AUDIENCE.into()],
        any_audience: true,
        base_paths: vec!["/atlas".into()],
        user: Some("atlas".into()),
        subjects: BTreeMap::from([("sub-of-alice".to_string(), "alice".to_string())]),
        groups: BTreeMap::from([("/atlas/production".to_string(), "alice".to_string())]),
    }
}

pub fn user(uid: Option<u32>, disabled: bool, generation: u32) -> UserRecord {
    let numbers = uid.map(|uid| Numbers { uid, gids: vec![uid, 60] });
    UserRecord { numbers, disabled, generation, created_secs: 0 }
}

/// bob is known to the cell alone; carol is disabled.
pub fn accounts() -> Accounts {
    let mut accounts = Accounts::default();
    for (name, record) in [
        ("bob", user(Some(3000), false, 0)),
        ("carol", user(Some(3001), true, 0)),
        ("alice", user(None, false, 0)),
    ] {
        accounts.apply(AccountChange::User(name.into(), record));
    }
    for (id, of) in
        [("KEYOFBOB", "bob"), ("KEYOFCAROL", "carol"), ("KEYOFALICE", "alice"), ("KEYOFROOT", "root")]
    {
        let secret = Secret::new(format!("secret of {of}"));
        let record = KeyRecord { user: of.into(), secret, label: String::new(), host: None, created_secs: 0 };
        accounts.apply(AccountChange::Key(id.into(), Some(record)));
    }
    let record = SigningRecord { secret: SIGNING, created_secs: 0 };
    accounts.apply(AccountChange::Signing(1, Some(record)));
    accounts
}

/// Users by their certificates.
pub fn certified() -> BTreeMap<String, String> {
    let of = |subject: &str, user: &str| (subject.to_string(), user.to_string());
    BTreeMap::from([
        of("CN=bob,O=Example,C=DE", "bob"),
        of("/C=DE/O=Example/CN=alice", "alice"),
        of("CN=carol", "carol"),
        of("CN=root", "root"),
    ])
}

pub struct Rig {
    pub env: Env,
    pub minter: Arc<Minter>,
    pub given: Arc<Given>,
    pub authority: Authority,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(config(ISSUER))
    }

    pub fn with(config: IssuerConfig) -> Rig {
        let env = Env::sim(1);
        let minter = Arc::new(Minter::new(&config.url));
        let given = Arc::new(Given {
            minter: minter.clone(),
            asked: AtomicUsize::default(),
            silent: AtomicBool::default(),
        });
        let authority = Authority::new(&env, &[config], Arc::new(accounts()), machine(), given.clone())
            .expect("an authority")
            .with_certificates(&certified());
        Rig { env, minter, given, authority }
    }

    pub fn now(&self) -> i64 {
        (self.env.wall() / 1_000_000_000) as i64
    }

    /// Claims of a token that is good for an hour.
    pub fn claims(&self, scope: &str) -> Value {
        json!({
            "iss": self.minter.url, "sub": "somebody", "aud": AUDIENCE, "iat": self.now(), "nbf": self.now(),
            "exp": self.now() + 3600, "jti": "number 1", "wlcg.ver": "1.0", "scope": scope,
        })
    }

    /// Claims with some of them changed; null takes one away.
    pub fn claims_but(&self, scope: &str, changes: Value) -> Value {
        let mut claims = self.claims(scope);
        let (Some(all), Value::Object(changes)) = (claims.as_object_mut(), changes) else {
            panic!("objects")
        };
        for (name, value) in changes {
            match value {
                Value::Null => _ = all.remove(&name),
                value => _ = all.insert(name, value),
            }
        }
        claims
    }

    pub fn bearer(&self, token: &str) -> Result<Verdict, Refusal> {
        self.authority.bearer(token, Wait::Allowed)
    }

    pub fn ask(&self, claims: &Value) -> Result<Verdict, Refusal> {
        self.bearer(&self.minter.sign(claims))
    }

    pub fn asked(&self) -> usize {
        self.given.asked.load(Ordering::Relaxed)
    }
}

pub fn path(text: &str) -> CellPath {
    CellPath::parse(text).expect(text)
}

#[track_caller]
pub fn allowed(verdict: &Verdict, activity: Activity, at: &str) -> bool {
    verdict.allows(activity, &path(at))
}
