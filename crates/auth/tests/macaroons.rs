//! Tokens of the cell: made, narrowed by whoever has them, asked for at a door, revoked. A caveat
//! never widens.

use crate::rig::{Rig, SIGNING, accounts, allowed, path, user};
use leeward_auth::{
    Activity, Grants, Identity, Macaroon, Refusal, Signer, TokenRequest, Verdict, Version, Via,
};
use leeward_env::Wait;
use leeward_fs::accounts::{AccountChange, SigningRecord};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn signer(user: &str) -> Signer<'_> {
    Signer { number: 1, secret: &SIGNING, generation: 0, user }
}

/// A token of bob for everything, for an hour.
fn token(rig: &Rig) -> String {
    let wish = TokenRequest { path: None, activities: None, until_secs: rig.now() + 3600 };
    signer("bob").mint(1, "here", &wish).expect("a token")
}

/// As its holder may narrow it, without asking anybody.
fn narrowed(token: &str, caveats: &[&str]) -> String {
    let macaroon = Macaroon::from_text(token).expect("a macaroon");
    caveats.iter().fold(macaroon, |m, caveat| m.with(*caveat)).to_text(Version::V2)
}

#[test]
fn a_token_does_what_was_wished() {
    let rig = Rig::new();
    let wish = TokenRequest {
        path: Some(path("/home/bob")),
        activities: Some(vec!["DOWNLOAD".into(), "LIST".into()]),
        until_secs: rig.now() + 60,
    };
    let token = signer("bob").mint(0xab, "here", &wish).expect("a token");
    let verdict = rig.bearer(&token).expect("good");
    assert_eq!((&*verdict.who.name, verdict.who.uid, &*verdict.who.gids), ("bob", 3000, &[3000, 60][..]));
    assert_eq!(verdict.via, Via::Macaroon("00000000000000ab".into()));
    assert!(
        allowed(&verdict, Activity::Read, "/home/bob/x") && allowed(&verdict, Activity::List, "/home/bob")
    );
    assert!(
        !allowed(&verdict, Activity::Read, "/home/bobby")
            && !allowed(&verdict, Activity::Create, "/home/bob/x")
    );
    assert_eq!(verdict.until_secs, Some(rig.now() + 60));
    rig.env.advance(Duration::from_secs(61));
    let refusal = rig.bearer(&token).expect_err("expired");
    assert_eq!(
        (refusal.kind(), refusal.status(), refusal.bearer_error()),
        ("expired", 401, Some("invalid_token"))
    );
    let odd = TokenRequest { activities: Some(vec!["EVERYTHING".into()]), ..wish };
    assert!(signer("bob").mint(1, "here", &odd).is_err());
}

#[test]
fn its_holder_can_narrow_it() {
    let rig = Rig::new();
    let whole = token(&rig);
    for (caveats, activity, at, is_allowed) in [
        (&["path:/a"][..], Activity::Delete, "/a/x", true),
        (&["path:/a"], Activity::Delete, "/ab", false),
        (&["path:/a", "path:/a/b"], Activity::Read, "/a/b", true),
        (&["path:/a", "path:/a/b"], Activity::Read, "/a/c", false),
        (&["path:/a/b", "path:/a"], Activity::Read, "/a/c", false),
        (&["path:/a", "path:/b"], Activity::Stat, "/a", false),
        (&["path:/a", "path:/b"], Activity::Stat, "/", false),
        (&["path:/a/"], Activity::Read, "/a", false),
        (&["path:/a", "path:/a/"], Activity::Read, "/a", false),
        (&["path:/a/", "path:/a"], Activity::Read, "/a", false),
        (&["activity:DOWNLOAD"], Activity::Read, "/x", true),
        (&["activity:DOWNLOAD"], Activity::List, "/", false),
        (&["activity:DOWNLOAD, LIST"], Activity::List, "/", true),
        (&["activity:DOWNLOAD,LIST", "activity:LIST,UPLOAD"], Activity::Read, "/x", false),
        (&["activity:DOWNLOAD,LIST", "activity:LIST,UPLOAD"], Activity::Create, "/x", false),
        (&["activity:DOWNLOAD,LIST", "activity:LIST,UPLOAD"], Activity::List, "/", true),
        (&["activity:UPLOAD"], Activity::Create, "/x", true),
        (&["activity:UPLOAD"], Activity::Modify, "/x", false),
        (&["activity:UPLOAD,DELETE"], Activity::Modify, "/x", true),
        (&["activity:UPLOAD,DELETE", "activity:UPLOAD"], Activity::Modify, "/x", false),
        (&["activity:"], Activity::Stat, "/", false),
        (&["activity:download"], Activity::Read, "/x", false),
        (&["activity:MANAGE"], Activity::Rename, "/x", true),
        (&["activity:READ_METADATA"], Activity::Stat, "/x", true),
        (&["activity:UPDATE_METADATA"], Activity::UpdateMetadata, "/x", true),
    ] {
        let verdict = rig.bearer(&narrowed(&whole, caveats)).expect("good");
        assert_eq!(allowed(&verdict, activity, at), is_allowed, "{caveats:?}: {activity:?} {at}");
    }
    let sooner = narrowed(&whole, &["before:2001-09-09T01:46:50.500Z", "before:2030-01-01T00:00:00Z"]);
    assert_eq!(rig.bearer(&sooner).expect("good").until_secs, Some(1_000_000_010));
}

#[test]
fn caveats_that_are_not_understood_are_refused() {
    let rig = Rig::new();
    let whole = token(&rig);
    for caveat in [
        "",
        "path",
        "path:",
        "path:a",
        "path:/a/../b",
        "path: /a",
        "before:",
        "before:tomorrow",
        "before:2030-01-01T00:00:00+01:00",
        "ip:127.0.0.1",
        "Path:/a",
        "PATH:/a",
    ] {
        let refusal = rig.bearer(&narrowed(&whole, &[caveat])).expect_err(caveat);
        assert_eq!((refusal.kind(), refusal.status()), ("invalid", 401), "{caveat}");
    }
}

#[test]
fn what_others_made_is_refused() {
    let rig = Rig::new();
    let wish = TokenRequest { path: None, activities: None, until_secs: rig.now() + 3600 };
    let mint = |signer: Signer<'_>| signer.mint(1, "here", &wish).expect("a token");
    let cases = [
        ("another key", mint(Signer { secret: &[8; 32], ..signer("bob") }), "invalid"),
        ("a number that no key has", mint(Signer { number: 2, ..signer("bob") }), "invalid"),
        ("a later generation", mint(Signer { generation: 1, ..signer("bob") }), "invalid"),
        ("a disabled user", mint(signer("carol")), "user"),
        ("root", mint(signer("root")), "user"),
        ("nobody", mint(signer("nobody-knows-me")), "user"),
        (
            "another identifier",
            Macaroon::new("here", "leeward:2:1:0:1:bob", &SIGNING).to_text(Version::V1),
            "invalid",
        ),
        ("no identifier", Macaroon::new("here", "", &SIGNING).to_text(Version::V1), "invalid"),
        ("no text", "%%%".into(), "malformed"),
        ("empty", String::new(), "malformed"),
        ("cut off", token(&rig)[..100].into(), "malformed"),
    ];
    for (why, token, kind) in cases {
        assert_eq!(rig.bearer(&token).expect_err(why).kind(), kind, "{why}");
    }
    let rig_alice = rig.bearer(&mint(signer("alice"))).expect("a user of the machine");
    assert_eq!(rig_alice.who.uid, 1000);
}

#[test]
fn revoking_ends_tokens_at_once() {
    let rig = Rig::new();
    let token = token(&rig);
    assert!(rig.bearer(&token).is_ok());
    let mut changed = accounts();
    changed.apply(AccountChange::User("bob".into(), user(Some(3000), false, 1)));
    rig.authority.set_accounts(Arc::new(changed));
    assert_eq!(rig.bearer(&token).expect_err("revoked").status(), 401);
    let mut changed = accounts();
    changed.apply(AccountChange::Signing(1, None));
    changed.apply(AccountChange::Signing(2, Some(SigningRecord { secret: SIGNING, created_secs: 0 })));
    rig.authority.set_accounts(Arc::new(changed));
    assert_eq!(rig.bearer(&token).expect_err("revoked with its key").status(), 401);
    let mut changed = accounts();
    changed.apply(AccountChange::User("bob".into(), user(Some(3000), true, 0)));
    rig.authority.set_accounts(Arc::new(changed));
    assert_eq!(rig.bearer(&token).expect_err("disabled").status(), 403);
}

fn all_of_bob() -> Verdict {
    let who = Identity { name: "bob".into(), uid: 3000, gids: Arc::new([3000]) };
    Verdict { who, grants: Grants::All, until_secs: None, via: Via::Key("KEYOFBOB".into()) }
}

fn request(rig: &Rig, verdict: &Verdict, at: &str, body: Value) -> Result<(Verdict, i64), Refusal> {
    let body = body.to_string();
    let minted = rig.authority.macaroon(verdict, &path(at), body.as_bytes(), "https://door.example.org")?;
    let macaroon = Macaroon::from_text(&minted.macaroon).expect("a macaroon");
    assert_eq!(macaroon.location, b"https://door.example.org");
    Ok((rig.bearer(&minted.macaroon).expect("good"), minted.expires_in))
}

#[test]
fn a_door_gives_tokens_for_a_path() {
    let rig = Rig::new();
    let body = json!({"caveats": ["activity:DOWNLOAD,LIST"], "validity": "PT30M"});
    let (verdict, expires_in) = request(&rig, &all_of_bob(), "/data/x", body).expect("a token");
    assert_eq!((&*verdict.who.name, expires_in), ("bob", 1800));
    assert!(allowed(&verdict, Activity::Read, "/data/x/y") && !allowed(&verdict, Activity::Read, "/data"));
    assert!(!allowed(&verdict, Activity::Create, "/data/x/y"));
    let (verdict, expires_in) = request(&rig, &all_of_bob(), "/", json!({})).expect("a token");
    assert_eq!((verdict.grants, expires_in), (Grants::All, 86_400));
    let (_, expires_in) = request(&rig, &all_of_bob(), "/", json!({"validity": "P365D"})).expect("a token");
    assert_eq!(expires_in, 7 * 86_400);
    let minted =
        rig.authority.macaroon(&all_of_bob(), &path("/"), b" ", "x").expect("an empty body asks for all");
    assert!(rig.bearer(&minted.macaroon).is_ok());
}

#[test]
fn a_token_for_a_token_gives_no_more() {
    let rig = Rig::new();
    let narrow = narrowed(&token(&rig), &["path:/data", "activity:DOWNLOAD,LIST,UPLOAD"]);
    let verdict = rig.bearer(&narrow).expect("good");
    let asked = json!({"caveats": ["activity:DOWNLOAD,DELETE,MANAGE"]});
    let (got, expires_in) = request(&rig, &verdict, "/data/x", asked).expect("a token");
    assert!(allowed(&got, Activity::Read, "/data/x") && !allowed(&got, Activity::Delete, "/data/x"));
    assert!(expires_in <= 3600);
    for (at, body) in
        [("/", json!({})), ("/other", json!({})), ("/data", json!({"caveats": ["activity:DELETE"]}))]
    {
        let refusal = request(&rig, &verdict, at, body).expect_err(at);
        assert_eq!((refusal.status(), refusal.bearer_error()), (403, Some("insufficient_scope")), "{at}");
    }
    let refusal = rig.authority.macaroon(&Verdict::anonymous(), &path("/"), b"{}", "x").map(|_| ());
    assert_eq!(refusal.expect_err("anonymous").status(), 403);
}

#[test]
fn bad_requests_for_tokens_are_refused() {
    let rig = Rig::new();
    let large = json!({"caveats": ["x".repeat(9000)]});
    for body in [
        json!([]),
        json!({"caveats": "activity:LIST"}),
        json!({"caveats": ["colour:blue"]}),
        json!({"caveats": ["path:../x"]}),
        json!({"caveats": vec!["activity:LIST"; 33]}),
        json!({"validity": "tomorrow"}),
        json!({"validity": "P1M"}),
        large,
    ] {
        let refusal = request(&rig, &all_of_bob(), "/", body.clone()).expect_err("bad");
        assert_eq!((refusal.kind(), refusal.status()), ("bad-request", 400), "{body}");
    }
    for body in [json!({"validity": "PT0S"}), json!({"caveats": ["before:2001-01-01T00:00:00Z"]})] {
        assert_eq!(request(&rig, &all_of_bob(), "/", body).expect_err("over").status(), 403);
    }
}

#[test]
fn keys_of_s3_and_passwords() {
    let rig = Rig::new();
    let key = |id| rig.authority.s3_key(id, Wait::Allowed);
    let (secret, verdict) = key("KEYOFBOB").expect("good");
    assert_eq!((secret.reveal(), verdict.who.uid, &verdict.grants), ("secret of bob", 3000, &Grants::All));
    assert!(!format!("{secret:?}{verdict:?}").contains("secret of"));
    for (id, code, status) in [
        ("KEYOFCAROL", "AccessDenied", 403),
        ("KEYOFROOT", "AccessDenied", 403),
        ("KEYOFNOBODY", "InvalidAccessKeyId", 403),
        ("", "InvalidAccessKeyId", 403),
    ] {
        let refusal = key(id).expect_err(id);
        assert_eq!((refusal.s3_code(), refusal.status()), (code, status), "{id}");
    }
    let never = rig.authority.s3_key("KEYOFALICE", Wait::Never);
    assert_eq!(never.expect_err("who is she").kind(), "would-block");
    assert_eq!(key("KEYOFALICE").expect("good").1.who.uid, 1000);
    assert!(rig.authority.s3_key("KEYOFALICE", Wait::Never).is_ok(), "known for a while");
    rig.env.advance(Duration::from_secs(301));
    assert!(rig.authority.s3_key("KEYOFALICE", Wait::Never).is_err());

    let basic = |name: &str, password: &str| rig.authority.basic(name, password, Wait::Allowed);
    assert_eq!(basic("KEYOFBOB", "secret of bob").map(|v| v.who.uid), Ok(3000));
    assert_eq!(basic("bob", &token(&rig)).map(|v| v.who.uid), Ok(3000));
    assert_eq!(basic("", &token(&rig)).map(|v| v.who.uid), Ok(3000));
    for (name, password) in [
        ("KEYOFBOB", "secret of bo"),
        ("KEYOFBOB", ""),
        ("alice", &token(&rig)),
        ("bob", "secret of bob"),
        ("", ""),
    ] {
        assert_eq!(basic(name, password).expect_err(name).status(), 401, "{name}");
    }
    assert_eq!(basic("KEYOFCAROL", "secret of carol").expect_err("disabled").status(), 403);
    assert_eq!(rig.authority.user("bob", Wait::Never).map(|who| who.uid), Ok(3000));
}
