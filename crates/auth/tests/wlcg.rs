//! Tokens of the WLCG profile: who they are, what they allow, and those that must be refused.

use crate::rig;
use crate::rig::{ANY, AUDIENCE, ISSUER, Rig, accounts, allowed, config, user};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leeward_auth::{Activity, Refusal, TOKEN_BYTES_MAX, Via};
use leeward_env::Wait;
use leeward_fs::accounts::AccountChange;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn a_token_acts_as_the_user_that_the_site_says_and_where_its_scopes_say() {
    let rig = Rig::new();
    let verdict = rig.ask(&rig.claims("storage.read:/ storage.create:/user")).expect("good");
    assert_eq!((&*verdict.who.name, verdict.who.uid, verdict.who.gid()), ("atlas", 2000, 2000));
    assert!(allowed(&verdict, Activity::Read, "/atlas/x"));
    assert!(allowed(&verdict, Activity::Create, "/atlas/user/x"));
    assert!(!allowed(&verdict, Activity::Create, "/atlas/x"));
    assert!(!allowed(&verdict, Activity::Read, "/cms/x"));
    assert_eq!(verdict.until_secs, Some(rig.now() + 3600 + 60));
    let via = Via::Wlcg { issuer: ISSUER.into(), subject: "somebody".into(), id: "number 1".into() };
    assert_eq!(verdict.via, via);

    let of_alice = rig.claims_but("storage.read:/", json!({"sub": "sub-of-alice"}));
    let verdict = rig.ask(&of_alice).expect("good");
    assert_eq!(
        (verdict.who.uid, &*verdict.who.gids, verdict.who.other_gids()),
        (1000, &[1000, 50][..], &[50][..])
    );
}

#[test]
fn both_algorithms_and_all_forms_of_claims_are_read() {
    let rig = Rig::new();
    let es256 = rig.minter.sign_as(&rig.claims("storage.read:/"), Some("ec1"), "ES256");
    assert!(rig.bearer(&es256).is_ok());
    let no_kid = rig.minter.sign_as(&rig.claims("storage.read:/"), None, "RS256");
    assert!(rig.bearer(&no_kid).is_ok(), "there is one key for it");
    for changes in [
        json!({"aud": ANY}),
        json!({"aud": ["https://other.example.org", AUDIENCE]}),
        json!({"wlcg.ver": "1.3"}),
        json!({"nbf": null}),
        json!({"exp": rig.now() as f64 + 100.5}),
        json!({"acr": "https://refeds.org/profile/mfa", "eduperson_assurance": ["x"], "unheard": {"of": 1}}),
        json!({"wlcg.groups": ["/atlas"]}),
    ] {
        let claims = rig.claims_but("openid storage.read:/ offline_access", changes.clone());
        assert!(rig.ask(&claims).is_ok(), "{changes}");
    }
}

#[test]
fn hostile_tokens_are_refused_with_the_right_code() {
    let rig = Rig::new();
    let now = rig.now();
    let good = "storage.read:/";
    for (why, scope, changes, kind) in [
        ("wrong audience", good, json!({"aud": "https://other.example.org"}), "invalid"),
        ("audience in another case", good, json!({"aud": AUDIENCE.to_uppercase()}), "invalid"),
        ("audience with a slash", good, json!({"aud": format!("{AUDIENCE}/")}), "invalid"),
        ("no audience among several", good, json!({"aud": []}), "invalid"),
        ("audience missing", good, json!({"aud": null}), "malformed"),
        ("expired", good, json!({"exp": now - 61}), "expired"),
        ("not yet valid", good, json!({"nbf": now + 120}), "too-early"),
        ("of tomorrow", good, json!({"iat": now + 86_400, "nbf": null}), "too-early"),
        ("expiry missing", good, json!({"exp": null}), "malformed"),
        ("expiry no number", good, json!({"exp": "soon"}), "malformed"),
        ("unknown issuer", good, json!({"iss": "https://evil.example.org/"}), "invalid"),
        ("issuer without its slash", good, json!({"iss": "https://issuer.example.org"}), "invalid"),
        ("issuer missing", good, json!({"iss": null}), "malformed"),
        ("version missing", good, json!({"wlcg.ver": null}), "malformed"),
        ("version 2", good, json!({"wlcg.ver": "2.0"}), "invalid"),
        ("version 11", good, json!({"wlcg.ver": "11"}), "invalid"),
        ("subject missing", good, json!({"sub": null}), "malformed"),
        ("subject empty", good, json!({"sub": ""}), "invalid"),
        ("number missing", good, json!({"jti": null}), "malformed"),
        ("scope without a path", "storage.read", json!({}), "malformed"),
        ("scope with an empty path", "storage.read:", json!({}), "malformed"),
        ("one scope of two without a path", "storage.read:/ storage.modify", json!({}), "malformed"),
        ("scope with a relative path", "storage.read:foo", json!({}), "malformed"),
        ("traversal", "storage.read:/foo/../..", json!({}), "malformed"),
        ("encoded traversal", "storage.read:/foo/%2e%2e/%2E%2e", json!({}), "malformed"),
        ("broken encoding", "storage.read:/foo%2", json!({}), "malformed"),
        ("encoded NUL", "storage.read:/foo%00", json!({}), "malformed"),
        ("scope as a list", good, json!({"scope": ["storage.read:/"]}), "malformed"),
        ("no scope and no group", "", json!({}), "out-of-scope"),
        (
            "no scope and a group that nobody acts for",
            "openid",
            json!({"wlcg.groups": ["/atlas"]}),
            "out-of-scope",
        ),
    ] {
        let refusal = rig.ask(&rig.claims_but(scope, changes)).expect_err(why);
        assert_eq!(refusal.kind(), kind, "{why}: {refusal}");
        let status = if kind == "out-of-scope" { 403 } else { 401 };
        assert_eq!(refusal.status(), status, "{why}");
    }
    assert!(rig.ask(&rig.claims(good)).is_ok(), "the same without any of that");
}

/// A token of these parts, whatever its signature.
fn forged(header: Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(&header), part(claims))
}

#[test]
fn forged_signatures_are_refused() {
    let rig = Rig::new();
    let claims = rig.claims("storage.modify:/");
    let good = rig.minter.sign(&claims);
    let (_, signature) = good.rsplit_once('.').expect("a signature");
    let hmac = rig.minter.sign_as(&claims, Some("rsa1"), "HS256");
    let more = rig.claims("storage.modify:/ storage.read:/");
    let other_minter = rig::Minter::new(ISSUER);
    for (why, token) in [
        ("algorithm none", forged(json!({"alg": "none"}), &claims, "")),
        ("algorithm none, with a key", forged(json!({"alg": "None", "kid": "rsa1"}), &claims, signature)),
        ("HS256 with the public key", hmac),
        ("other claims", forged(json!({"alg": "RS256", "kid": "rsa1"}), &more, signature)),
        ("no signature", forged(json!({"alg": "RS256", "kid": "rsa1"}), &claims, "")),
        ("an extension", forged(json!({"alg": "RS256", "kid": "rsa1", "crit": ["exp"]}), &claims, signature)),
        ("the key of another algorithm", forged(json!({"alg": "ES256", "kid": "rsa1"}), &claims, signature)),
        ("another algorithm of the key", rig.minter.sign_as(&claims, Some("rsa1"), "RS512")),
        ("foreign key id", rig.minter.sign_as(&claims, Some("of another"), "RS256")),
        (
            "a key that says where it is",
            forged(
                json!({"alg": "RS256", "kid": "x", "jku": "https://evil.example.org/jwk"}),
                &claims,
                signature,
            ),
        ),
        ("another's key", other_minter.sign_as(&claims, Some("ec1"), "ES256")),
    ] {
        let refusal = rig.bearer(&token).expect_err(why);
        assert_eq!((refusal.kind(), refusal.status()), ("invalid", 401), "{why}: {refusal}");
        assert_eq!(refusal.bearer_error(), Some("invalid_token"), "{why}");
    }
    assert!(rig.bearer(&good).is_ok());
}

#[test]
fn what_is_no_token_is_malformed() {
    let rig = Rig::new();
    let good = rig.minter.sign(&rig.claims("storage.read:/"));
    let long = format!("{good}.{}", "x".repeat(TOKEN_BYTES_MAX));
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "RS256"}).to_string());
    for token in [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        &long,
        &format!("{header}.!.x"),
        &format!("{header}.e30.x"),
        "WyJSUzI1NiJd.e30.eHg",
    ] {
        let refusal = rig.bearer(token).expect_err("malformed");
        assert_eq!((refusal.kind(), refusal.status()), ("malformed", 401), "{refusal}");
    }
    let claims = format!(
        r#"{{"iss":"{ISSUER}","iss":"{ISSUER}","sub":"s","aud":"{AUDIENCE}","exp":{0},"iat":{0},"jti":"1","wlcg.ver":"1.0"}}"#,
        rig.now()
    );
    let twice = format!("{header}.{}.eHg", URL_SAFE_NO_PAD.encode(claims));
    assert_eq!(rig.bearer(&twice).expect_err("a claim twice").kind(), "malformed");
}

#[test]
fn clocks_may_be_a_minute_apart() {
    let rig = Rig::new();
    for (changes, good) in [
        (json!({"exp": rig.now() - 55}), true),
        (json!({"exp": rig.now() - 65}), false),
        (json!({"nbf": rig.now() + 55}), true),
        (json!({"nbf": rig.now() + 65}), false),
        (json!({"exp": i64::MAX}), true),
        (json!({"exp": u64::MAX}), true),
        (json!({"exp": -1e300}), false),
        (json!({"nbf": 1e300}), false),
    ] {
        assert_eq!(rig.ask(&rig.claims_but("storage.read:/", changes.clone())).is_ok(), good, "{changes}");
    }
}

#[test]
fn groups_count_without_capabilities_only() {
    let rig = Rig::new();
    let of = |scope: &str, groups: &[&str]| rig.ask(&rig.claims_but(scope, json!({"wlcg.groups": groups})));
    let verdict = of("openid", &["/atlas", "/atlas/production"]).expect("a group that the site knows");
    assert_eq!(verdict.who.uid, 1000);
    assert!(allowed(&verdict, Activity::Delete, "/atlas/x"), "all that its user may, below the base path");
    assert!(!allowed(&verdict, Activity::Read, "/cms/x"));
    assert!(of("", &["/atlas/production/x"]).is_err(), "a child is not its parent");
    assert!(of("", &["/Atlas/production"]).is_err());
    let verdict = of("storage.read:/", &["/atlas/production"]).expect("good");
    assert_eq!(verdict.who.uid, 2000, "the group does not count");
    assert!(!allowed(&verdict, Activity::Create, "/atlas/x"));
    let verdict = of("compute.read", &["/atlas/production"]).expect("good, and good for nothing");
    assert!(!allowed(&verdict, Activity::Stat, "/atlas"));
}

#[test]
fn the_audience_of_all_can_be_refused() {
    let rig = Rig::with(leeward_auth::IssuerConfig { any_audience: false, ..config(ISSUER) });
    assert!(rig.ask(&rig.claims_but("storage.read:/", json!({"aud": ANY}))).is_err());
    assert!(rig.ask(&rig.claims_but("storage.read:/", json!({"aud": [ANY, AUDIENCE]}))).is_ok());
}

#[test]
fn a_disabled_user_is_refused_whatever_the_token_says_and_at_once() {
    let rig = Rig::new();
    let token = rig.minter.sign(&rig.claims("storage.read:/"));
    assert!(rig.bearer(&token).is_ok());
    let mut changed = accounts();
    changed.apply(AccountChange::User("atlas".into(), user(None, true, 0)));
    rig.authority.set_accounts(Arc::new(changed));
    let refusal = rig.bearer(&token).expect_err("disabled");
    assert_eq!((refusal.kind(), refusal.status(), refusal.s3_code()), ("user", 403, "AccessDenied"));
}

#[test]
fn nobody_acts_as_root_or_as_who_is_not_there() {
    for name in ["root", "nobody-knows-me"] {
        let rig = Rig::with(leeward_auth::IssuerConfig { user: Some(name.into()), ..config(ISSUER) });
        assert_eq!(rig.ask(&rig.claims("storage.read:/")).expect_err(name).kind(), "user");
    }
}

#[test]
fn several_base_paths_and_the_whole_cell() {
    let bases = vec!["/atlas/data".to_string(), "/scratch".to_string()];
    let rig = Rig::with(leeward_auth::IssuerConfig { base_paths: bases, ..config(ISSUER) });
    let verdict = rig.ask(&rig.claims("storage.read:/x")).expect("good");
    assert!(
        allowed(&verdict, Activity::Read, "/atlas/data/x/y")
            && allowed(&verdict, Activity::Read, "/scratch/x")
    );
    assert!(!allowed(&verdict, Activity::Read, "/x") && !allowed(&verdict, Activity::Read, "/scratch"));
    let root = vec!["/".to_string()];
    let rig = Rig::with(leeward_auth::IssuerConfig { base_paths: root, ..config(ISSUER) });
    let verdict = rig.ask(&rig.claims("storage.read:/home")).expect("good");
    assert!(allowed(&verdict, Activity::Read, "/home/bob/x") && !allowed(&verdict, Activity::Read, "/homes"));
}

const HOUR: Duration = Duration::from_secs(3600);

/// A token that is good for a year.
fn lasting(rig: &Rig, kid: &str, number: u32) -> String {
    let year = json!({"exp": rig.now() + 365 * 86_400, "jti": number.to_string()});
    rig.minter.sign_as(&rig.claims_but("storage.read:/", year), Some(kid), "RS256")
}

#[test]
fn keys_are_fetched_once_refreshed_and_outlive_an_issuer_that_is_away_for_two_days() {
    let rig = Rig::new();
    let mut number = 0;
    let mut ask = || {
        number += 1;
        rig.bearer(&lasting(&rig, "rsa1", number))
    };
    assert!(ask().is_ok() && ask().is_ok());
    assert_eq!(rig.asked(), 2, "once: where the keys are, and the keys");
    rig.env.advance(5 * HOUR);
    assert!(ask().is_ok());
    assert_eq!(rig.asked(), 2);
    rig.env.advance(2 * HOUR);
    assert!(ask().is_ok());
    assert_eq!(rig.asked(), 4, "refreshed");
    rig.given.silent.store(true, Ordering::Relaxed);
    rig.env.advance(40 * HOUR);
    assert!(ask().is_ok() && ask().is_ok());
    assert_eq!(rig.asked(), 5, "a failure is not repeated at once");
    rig.env.advance(9 * HOUR);
    let refusal = ask().expect_err("too old");
    assert_eq!((refusal.kind(), refusal.status()), ("unavailable", 503));
    rig.given.silent.store(false, Ordering::Relaxed);
    rig.env.advance(Duration::from_secs(11));
    assert!(ask().is_ok());
}

#[test]
fn unknown_key_ids_do_not_make_us_ask_again_and_again() {
    let rig = Rig::new();
    assert!(rig.bearer(&lasting(&rig, "rsa1", 0)).is_ok());
    rig.env.advance(HOUR);
    for number in 0..100 {
        let refusal = rig.bearer(&lasting(&rig, "foreign", number)).expect_err("foreign");
        assert_eq!(refusal.kind(), "invalid");
    }
    assert_eq!(rig.asked(), 4, "once more for all of them");
    rig.env.advance(Duration::from_secs(61));
    assert!(rig.bearer(&lasting(&rig, "foreign", 0)).is_err());
    assert_eq!(rig.asked(), 6);
}

#[test]
fn who_may_not_wait_is_told_so_and_does_not_wait_for_what_is_known() {
    let rig = Rig::new();
    let token = lasting(&rig, "rsa1", 0);
    assert_eq!(rig.authority.bearer(&token, Wait::Never), Err(Refusal::WouldBlock));
    assert_eq!(rig.asked(), 0);
    assert!(rig.bearer(&token).is_ok());
    assert!(rig.authority.bearer(&token, Wait::Never).is_ok());
    assert!(rig.authority.bearer(&lasting(&rig, "rsa1", 1), Wait::Never).is_ok());
    rig.env.advance(7 * HOUR);
    rig.given.silent.store(true, Ordering::Relaxed);
    let other = lasting(&rig, "rsa1", 2);
    assert_eq!(
        rig.authority.bearer(&other, Wait::Never),
        Err(Refusal::WouldBlock),
        "somebody has to refresh"
    );
    assert!(rig.bearer(&other).is_ok());
    assert!(rig.authority.bearer(&lasting(&rig, "rsa1", 3), Wait::Never).is_ok(), "it was tried just now");
}

#[test]
fn a_verdict_that_is_kept_ends_with_its_token() {
    let rig = Rig::new();
    let token = rig.minter.sign(&rig.claims_but("storage.read:/", json!({"exp": rig.now() + 30})));
    assert!(rig.bearer(&token).is_ok());
    rig.env.advance(Duration::from_secs(80));
    assert!(rig.bearer(&token).is_ok(), "clocks may be apart");
    rig.env.advance(Duration::from_secs(11));
    assert_eq!(rig.bearer(&token), Err(Refusal::Expired));
}

/// Asks the authority about another token while it fetches keys for the first.
#[derive(Default)]
struct Meanwhile {
    given: std::sync::OnceLock<Arc<rig::Given>>,
    authority: std::sync::OnceLock<std::sync::Weak<leeward_auth::Authority>>,
    token: std::sync::OnceLock<String>,
    answers: std::sync::Mutex<Vec<Refusal>>,
}

impl leeward_auth::Fetch for Meanwhile {
    fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let authority = self.authority.get().and_then(std::sync::Weak::upgrade).expect("it asks");
        let token = self.token.get().expect("set");
        let mut answers = self.answers.lock().expect("nobody failed");
        for wait in [Wait::Allowed, Wait::Never] {
            answers.push(authority.bearer(token, wait).expect_err("there are no keys yet"));
        }
        drop(answers);
        self.given.get().expect("set").get(url)
    }

    fn post(&self, _: &str, _: &str, _: Option<&str>) -> Result<Vec<u8>, String> {
        Err("an issuer of tokens takes no forms".into())
    }
}

#[test]
fn nobody_waits_for_keys_that_another_fetches() {
    let rig = Rig::new();
    let meanwhile = Arc::new(Meanwhile::default());
    let authority = leeward_auth::Authority::new(
        &rig.env,
        &[config(ISSUER)],
        Arc::new(accounts()),
        rig::machine(),
        meanwhile.clone(),
    );
    let authority = Arc::new(authority.expect("an authority"));
    let _ = meanwhile.given.set(rig.given.clone());
    let _ = meanwhile.authority.set(Arc::downgrade(&authority));
    let _ = meanwhile.token.set(lasting(&rig, "rsa1", 1));
    assert!(authority.bearer(&lasting(&rig, "rsa1", 0), Wait::Allowed).is_ok());
    let answers = meanwhile.answers.lock().expect("nobody failed").clone();
    assert_eq!(answers, vec![Refusal::Fetching; 4], "for each of the two documents");
    assert_eq!((answers[0].status(), answers[0].kind()), (503, "unavailable"));
    assert!(authority.bearer(&lasting(&rig, "rsa1", 1), Wait::Never).is_ok());
}
