//! Logging in by OpenID Connect: a provider that answers as it should, and in every wrong way.

use crate::rig::{ISSUER, Minter};
use leeward_auth::{Fetch, Gone, Refusal, SignOn, SignOnConfig, SignedOn};
use leeward_env::Env;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const BACK: &str = "https://files.example.org/console/sign-on/back";

/// A provider.
struct Provider {
    minter: Minter,
    discovery: Value,
    /// What is put over the usual claims; null takes one away.
    changes: Value,
    /// Claims of the request for the token: `code_challenge` and `nonce` that the browser brought.
    brought: Mutex<BTreeMap<String, String>>,
    posted: Mutex<Vec<(String, Option<String>)>>,
    now: i64,
}

impl Fetch for Provider {
    fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        match url.strip_prefix(ISSUER) {
            Some(".well-known/openid-configuration") => Ok(self.discovery.to_string().into()),
            Some("jwk") => Ok(self.minter.jwks().to_string().into()),
            _ => Err("404".into()),
        }
    }

    fn post(&self, url: &str, form: &str, authorization: Option<&str>) -> Result<Vec<u8>, String> {
        assert_eq!(url, format!("{ISSUER}token"));
        self.posted.lock().push((form.into(), authorization.map(String::from)));
        if !form.contains("code=good") {
            return Err("answers 400 Bad Request".into());
        }
        let mut claims = json!({
            "iss": ISSUER, "aud": "leeward", "sub": "1", "iat": self.now, "exp": self.now + 300,
            "nonce": self.brought.lock().get("nonce"), "preferred_username": "alice",
        });
        let all = claims.as_object_mut().expect("an object");
        for (name, value) in self.changes.as_object().expect("an object") {
            match value {
                Value::Null => _ = all.remove(name),
                value => _ = all.insert(name.clone(), value.clone()),
            }
        }
        Ok(json!({"id_token": self.minter.sign(&claims), "access_token": "x"}).to_string().into())
    }
}

fn config() -> SignOnConfig {
    SignOnConfig {
        url: ISSUER.into(),
        name: "Example".into(),
        client_id: "leeward".into(),
        secret_file: String::new(),
        scopes: vec!["profile".into()],
        user_claim: "preferred_username".into(),
        users: BTreeMap::from([("alice.adams".into(), "alice".into())]),
        only_these: false,
        operators: vec!["olga".into()],
    }
}

fn provider(env: &Env, changes: Value) -> Provider {
    Provider {
        minter: Minter::new(ISSUER),
        discovery: json!({
            "issuer": ISSUER, "jwks_uri": format!("{ISSUER}jwk"),
            "authorization_endpoint": format!("{ISSUER}go"), "token_endpoint": format!("{ISSUER}token"),
        }),
        changes,
        brought: Mutex::default(),
        posted: Mutex::default(),
        now: (env.wall() / 1_000_000_000) as i64,
    }
}

/// The browser goes there, and takes along what is in the address.
fn go(env: &Env, sign_on: &SignOn, provider: &Provider) -> Gone {
    let (there, gone) = sign_on.begin(env, provider, BACK).expect("an address");
    let query = there.strip_prefix(&format!("{ISSUER}go?")).expect("the provider's");
    let fields = query.split('&').filter_map(|field| field.split_once('='));
    *provider.brought.lock() = fields.map(|(name, value)| (name.into(), value.into())).collect();
    assert_eq!(provider.brought.lock()["state"], gone.state());
    gone
}

fn log_in(config: &SignOnConfig, changes: Value) -> Result<SignedOn, Refusal> {
    let env = Env::sim(1);
    let (sign_on, provider) = (SignOn::new(config, "secret").expect("settings"), provider(&env, changes));
    let gone = go(&env, &sign_on, &provider);
    sign_on.end(&env, &provider, &gone, "good")
}

#[test]
fn who_comes_back_with_a_code_is_known() {
    let user = |name: &str| Ok(SignedOn::User(name.into()));
    assert_eq!(log_in(&config(), json!({})), user("alice"));
    assert_eq!(log_in(&config(), json!({"preferred_username": "alice.adams"})), user("alice"));
    assert_eq!(log_in(&config(), json!({"aud": ["leeward"]})), user("alice"));
    assert_eq!(log_in(&config(), json!({"aud": ["leeward", "x"], "azp": "leeward"})), user("alice"));
    let operator = SignedOn::Operator { name: "olga".into() };
    assert_eq!(log_in(&config(), json!({"preferred_username": "olga"})), Ok(operator));
    let by_mail = SignOnConfig { user_claim: "email".into(), ..config() };
    assert_eq!(log_in(&by_mail, json!({"email": "alice.adams"})), user("alice"));
    let only = SignOnConfig { only_these: true, ..config() };
    assert_eq!(log_in(&only, json!({"preferred_username": "alice.adams"})), user("alice"));
    assert!(matches!(log_in(&only, json!({})), Err(Refusal::User(_))));
}

#[test]
fn a_wrong_token_is_refused() {
    for changes in [
        json!({"iss": "https://other.example.org/"}),
        json!({"aud": "other"}),
        json!({"aud": ["leeward", "other"]}),
        json!({"aud": ["other", "more"], "azp": "leeward"}),
        json!({"azp": "other"}),
        json!({"exp": 1}),
        json!({"exp": null}),
        json!({"nonce": "of another"}),
        json!({"nonce": null}),
        json!({"preferred_username": null}),
        json!({"preferred_username": ""}),
        json!({"preferred_username": 7}),
    ] {
        log_in(&config(), changes.clone()).expect_err(&changes.to_string());
    }
    // signed by somebody else
    let env = Env::sim(1);
    let (sign_on, mut provider) = (SignOn::new(&config(), "").expect("settings"), provider(&env, json!({})));
    let gone = go(&env, &sign_on, &provider);
    provider.minter.rsa_id = "of another".into();
    sign_on.end(&env, &provider, &gone, "good").expect("the key is there by that name");
    let other = go(&env, &sign_on, &provider);
    sign_on.end(&env, &provider, &gone, "good").expect_err("the answer to another request");
    sign_on.end(&env, &provider, &other, "bad").expect_err("no such code");
}

#[test]
fn the_proof_and_the_secret_go_to_the_provider_only() {
    let env = Env::sim(1);
    let (sign_on, provider) =
        (SignOn::new(&config(), "a:b%\n").expect("settings"), provider(&env, json!({})));
    let gone = go(&env, &sign_on, &provider);
    let brought = provider.brought.lock().clone();
    assert_eq!(brought["code_challenge_method"], "S256");
    assert_eq!(brought["redirect_uri"], "https%3A%2F%2Ffiles.example.org%2Fconsole%2Fsign-on%2Fback");
    assert_eq!(brought["scope"], "openid%20profile");
    sign_on.end(&env, &provider, &gone, "good").expect("logged in");
    let (form, authorization) = provider.posted.lock()[0].clone();
    assert!(!form.contains(&brought["code_challenge"]) && form.contains("code_verifier="), "{form}");
    // leeward:a%3Ab%25
    assert_eq!(authorization.as_deref(), Some("Basic bGVld2FyZDphJTNBYiUyNQ=="));
    assert_eq!(format!("{gone:?}"), "Gone(..)");
}

#[test]
fn a_provider_that_does_not_answer_is_not_asked_for_each_browser() {
    let env = Env::sim(1);
    let (sign_on, mut provider) = (SignOn::new(&config(), "").expect("settings"), provider(&env, json!({})));
    let good = provider.discovery.clone();
    for wrong in [
        json!({"issuer": "https://other.example.org/"}),
        json!({"token_endpoint": "http://issuer.example.org/token"}),
        json!({"authorization_endpoint": "javascript:alert(1)"}),
        json!({"authorization_endpoint": null}),
    ] {
        provider.discovery = good.clone();
        for (name, value) in wrong.as_object().expect("an object") {
            provider.discovery[name] = value.clone();
        }
        env.sleep(Duration::from_secs(10));
        let refused = sign_on.begin(&env, &provider, BACK).expect_err(&wrong.to_string());
        assert_eq!(refused.status(), 503, "{refused}");
    }
    provider.discovery = good;
    sign_on.begin(&env, &provider, BACK).expect_err("not at once");
    env.sleep(Duration::from_secs(10));
    sign_on.begin(&env, &provider, BACK).expect("now");
}

#[test]
fn wrong_settings_are_refused() {
    for wrong in [
        SignOnConfig { url: "http://sso.example.org".into(), ..config() },
        SignOnConfig { client_id: " ".into(), ..config() },
        SignOnConfig { name: String::new(), ..config() },
        SignOnConfig { user_claim: String::new(), ..config() },
    ] {
        let why = wrong.check().expect_err("wrong");
        assert!(why.starts_with("console-login: "), "{why}");
    }
}
