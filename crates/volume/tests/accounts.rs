//! Users, S3 keys and signing keys, and that they last.

use crate::rig::Rig;
use leeward_env::Ctx;
use leeward_fs::accounts::Secret;
use leeward_volume::admin::{self, AnyRequest, KeyInfo, NewKey, UserInfo};
use leeward_volume::format::accounts::KEYS_PER_USER_MAX;

fn create(name: &str, uid: Option<u32>, gids: &[u32]) -> admin::UserCreate {
    admin::UserCreate { name: name.into(), uid, gids: gids.into() }
}

fn set(name: &str, disabled: Option<bool>, gids: Option<&[u32]>) -> admin::UserSet {
    admin::UserSet { name: name.into(), disabled, gids: gids.map(<[u32]>::to_vec) }
}

fn key_for(rig: &Rig, user: &str) -> NewKey {
    rig.admin(&admin::KeyCreate { user: user.into(), label: "laptop".into(), host: None })
}

fn users(rig: &Rig) -> Vec<UserInfo> {
    rig.admin(&admin::UserList).users
}

fn keys(rig: &Rig, user: Option<&str>) -> Vec<KeyInfo> {
    rig.admin(&admin::KeyList { user: user.map(String::from) }).keys
}

/// The number of the cell's key, the key, and the generation of the user's tokens.
fn token_key(rig: &Rig, user: &str) -> (u32, [u8; 32], u32) {
    rig.admin(&token(user));
    let accounts = rig.cell.accounts();
    let (number, key) = accounts.newest_signing_key().expect("a key");
    (number, key.secret, accounts.generation(user))
}

fn token(user: &str) -> admin::TokenMake {
    admin::TokenMake {
        user: user.into(),
        path: "/".into(),
        activities: Vec::new(),
        until_secs: 1,
        host: None,
    }
}

#[test]
fn users_and_keys_last() {
    let mut rig = Rig::new();
    rig.admin(&create("bob", Some(4_000_001), &[4_000_001, 50]));
    rig.admin(&create("alice", None, &[]));
    let key = key_for(&rig, "bob");
    assert!(key.key.access_key_id.len() == 20 && key.secret_access_key.len() == 40);
    assert_ne!(key_for(&rig, "bob").secret_access_key, key.secret_access_key);
    rig.admin(&set("alice", Some(true), None));
    let before = (users(&rig), keys(&rig, None));
    assert_eq!(
        before.0.iter().map(|u| (&*u.name, u.uid, u.disabled, u.keys)).collect::<Vec<_>>(),
        [("alice", None, true, 0), ("bob", Some(4_000_001), false, 2)]
    );
    rig.reopen();
    assert_eq!((users(&rig), keys(&rig, None)), before);
    let accounts = rig.cell.accounts();
    let stored = accounts.key(&key.key.access_key_id).expect("the key");
    assert_eq!((&*stored.user, &stored.secret), ("bob", &Secret::new(key.secret_access_key.as_str())));
    assert!(rig.findings().is_empty());

    rig.admin(&set("bob", None, Some(&[7])));
    let revoke = admin::KeyRevoke { user: "bob".into(), access_key_id: Some(key.key.access_key_id.clone()) };
    rig.admin(&revoke);
    assert_eq!(rig.ask(&revoke).expect_err("gone").errno, libc::ENOENT);
    rig.reopen();
    assert_eq!(users(&rig)[1].gids, [7]);
    assert_eq!(keys(&rig, Some("bob")).len(), 1);
    assert!(keys(&rig, Some("alice")).is_empty());
    assert_eq!(accounts.keys().len(), 2, "who holds the accounts has them as they were");
    rig.admin(&admin::KeyRevoke { user: "bob".into(), access_key_id: None });
    assert!(keys(&rig, None).is_empty());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rig = Rig::new();
    rig.admin(&create("bob", Some(7), &[]));
    rig.admin(&create("host", None, &[]));
    let wrong: [(AnyRequest, i32); 16] = [
        (create("bob", Some(8), &[]).into(), libc::EEXIST),
        (create("", Some(8), &[]).into(), libc::EINVAL),
        (create("a:b", Some(8), &[]).into(), libc::EINVAL),
        (create("1000", Some(8), &[]).into(), libc::EINVAL),
        (create("-x", Some(8), &[]).into(), libc::EINVAL),
        (create(&"x".repeat(65), Some(8), &[]).into(), libc::EINVAL),
        (create("root2", Some(0), &[]).into(), libc::EINVAL),
        (create("system", Some(u32::MAX), &[]).into(), libc::EINVAL),
        (create("many", Some(8), &[1; 257]).into(), libc::EINVAL),
        (set("nobody", Some(true), None).into(), libc::ENOENT),
        (set("host", None, Some(&[1])).into(), libc::EINVAL),
        (admin::KeyCreate { user: "nobody".into(), label: String::new(), host: None }.into(), libc::ENOENT),
        (admin::KeyCreate { user: "bob".into(), label: "x".repeat(129), host: None }.into(), libc::EINVAL),
        (admin::KeyCreate { user: "bob".into(), label: "a\nb".into(), host: None }.into(), libc::EINVAL),
        (admin::TokenRevoke { user: Some("nobody".into()) }.into(), libc::ENOENT),
        (token("a b").into(), libc::ENOENT),
    ];
    for (request, errno) in wrong {
        let failure = rig.cell.admin_any(&Ctx::system(), &request, &mut |_| ()).expect_err("refused");
        assert_eq!(failure.errno, errno, "{request:?}: {failure}");
    }
    (0..KEYS_PER_USER_MAX).for_each(|_| _ = key_for(&rig, "bob"));
    let more = admin::KeyCreate { user: "bob".into(), label: String::new(), host: None };
    assert_eq!(rig.ask(&more).expect_err("too many").errno, libc::ENOSPC);
}

#[test]
fn signing_keys_and_generations_end_tokens() {
    let mut rig = Rig::new();
    assert!(rig.cell.accounts().newest_signing_key().is_none());
    rig.admin(&create("bob", Some(7), &[]));
    let first = token_key(&rig, "bob");
    rig.reopen();
    assert_eq!(token_key(&rig, "bob"), first);
    assert_eq!(rig.ask(&token("host")).expect_err("no record").errno, libc::ENOENT);
    rig.admin(&create("host", None, &[]));
    assert_eq!(token_key(&rig, "host").2, 0);
    rig.admin(&admin::TokenRevoke { user: Some("bob".into()) });
    rig.reopen();
    assert_eq!(token_key(&rig, "bob"), (first.0, first.1, 1));
    assert_eq!(token_key(&rig, "host").2, 0);
    rig.admin(&admin::TokenRevoke { user: None });
    rig.reopen();
    let second = token_key(&rig, "bob");
    assert_eq!((second.0, rig.cell.accounts().signing_keys().count()), (2, 1));
    assert_ne!(second.1, first.1);
    rig.admin(&set("bob", Some(true), None));
    assert_eq!(rig.ask(&token("bob")).expect_err("disabled").errno, libc::EACCES);
}

#[test]
fn no_answer_shows_a_secret_by_accident() {
    let rig = Rig::new();
    rig.admin(&create("bob", Some(7), &[]));
    let key = key_for(&rig, "bob");
    let shown = format!("{key:?} {:?} {:?}", rig.cell.accounts(), token_key(&rig, "bob"));
    assert!(!shown.contains(&key.secret_access_key));
    assert!(!shown.contains("secret: ["), "{shown}");
    let listed = serde_json::to_string(&rig.admin(&admin::KeyList { user: None })).expect("JSON");
    assert!(!listed.contains(&key.secret_access_key) && listed.contains(&key.key.access_key_id));
}
