//! Hosts: that they last, who may enrol as one, and that a token is good once.

use crate::rig::{Rig, engine};
use leeward_env::{Ctx, Env};
use leeward_fs::accounts::{Identity, Trust, UidRange};
use leeward_fs::invitation::InvitationToken;
use leeward_meta::{Batch, Kv};
use leeward_volume::Stored;
use leeward_volume::admin::{self, AnyRequest, Failure, HostAdd, HostInfo, NewHost};
use leeward_volume::format::keys;
use leeward_volume::{Cell, Config, FORMAT, FORMAT_KEPT};
use std::time::Duration;

const DAY_SECS: u32 = 86_400;
const KEY: [u8; 32] = [0xa1; 32];
const OTHER_KEY: [u8; 32] = [0xb2; 32];

fn host(name: &str) -> HostAdd {
    HostAdd {
        name: name.into(),
        volumes: Vec::new(),
        read_only: false,
        uids: Vec::new(),
        root_squash: false,
        gateway: false,
        mirror: false,
        trust: Trust::Host,
        valid_secs: DAY_SECS,
    }
}

fn range(first: u32, last: u32) -> UidRange {
    UidRange { first, last }
}

fn secret(new: &NewHost) -> [u8; 16] {
    InvitationToken::parse(&new.token).expect("a token").secret
}

impl Rig {
    fn host(&self, name: &str) -> HostInfo {
        self.admin(&admin::HostShow { name: name.into() })
    }

    fn enrol(&self, new: &NewHost, key: [u8; 32]) -> Result<String, Failure> {
        self.cell.enrol_host(&secret(new), key)
    }

    fn invite(&self, name: &str) -> NewHost {
        self.admin(&admin::HostInvite { name: name.into(), valid_secs: DAY_SECS })
    }

    fn remove(&self, name: &str) {
        self.admin(&admin::HostRemove { name: name.into(), revoke_keys: None });
    }

    /// Cuts the power, and opens what is on the disk then.
    fn name_of_key(&self, key: &[u8; 32]) -> Option<String> {
        self.cell.accounts().host_of_key(key).map(|(name, _)| name.into())
    }

    fn identity(&self) -> Identity {
        self.cell.accounts().identity().expect("a key pair").clone()
    }

    /// The token of `new` lets nobody in, and the answer is that to any bad token.
    #[track_caller]
    fn refuses(&self, new: &NewHost) {
        let stranger = self.cell.enrol_host(&[7; 16], OTHER_KEY).expect_err("no token");
        let refused = self.enrol(new, OTHER_KEY).expect_err("refused");
        assert_eq!((refused.errno, &refused), (libc::EACCES, &stranger));
        assert!(refused.message.contains("lee host invite NAME"), "{refused}");
        assert_eq!(self.name_of_key(&OTHER_KEY), None);
    }
}

#[test]
fn hosts_last_and_may_what_they_were_given() {
    let mut rig = Rig::new();
    for name in ["home", "atlas"] {
        let at = format!("/{name}");
        rig.admin(&admin::VolumeCreate { name: name.into(), at, uid: 0, gid: 0, pool: None });
    }
    assert!(rig.cell.accounts().identity().is_none());
    let first = rig.admin(&host("a.example.org"));
    let identity = rig.identity();
    let token = InvitationToken::parse(&first.token).expect("a token");
    assert_eq!(token.cell_key, identity.public);
    let limited = rig.admin(&HostAdd {
        volumes: vec!["home".into(), "atlas".into(), "home".into()],
        read_only: true,
        uids: vec![range(2500, 2500), range(1000, 1499), range(1500, 1999), range(1200, 1300)],
        root_squash: true,
        valid_secs: 60,
        ..host("b")
    });
    assert_ne!(secret(&first), secret(&limited));
    assert_eq!(rig.identity(), identity, "made once");
    let expected = HostInfo {
        name: "b".into(),
        enrolled_secs: None,
        key: None,
        invited_until_secs: Some(rig.now_secs() + 60),
        volumes: vec!["home".into(), "atlas".into()],
        read_only: true,
        uids: vec![range(1000, 1999), range(2500, 2500)],
        root_squash: true,
        trust: Trust::Host,
        gateway: false,
        mirror: false,
        created_secs: rig.now_secs(),
    };
    assert_eq!(limited.host, expected);
    rig.reopen();
    assert_eq!(rig.identity(), identity);
    assert_eq!(rig.admin(&admin::HostList).hosts, [first.host, expected.clone()]);
    let accounts = rig.cell.accounts();
    let stored = accounts.host("b").expect("there");
    assert!(!stored.may_use_volume(0) && stored.volumes.iter().all(|volume| stored.may_use_volume(*volume)));

    rig.admin(&admin::VolumeRemove { name: "home".into() });
    rig.idle();
    rig.reopen();
    assert_eq!(rig.host("b").volumes, ["1", "atlas"], "one that is gone does not become all");
    let set = admin::HostSet { name: "b".into(), ..Default::default() };
    assert_eq!(rig.admin(&set).uids, expected.uids);
    let changed = admin::HostSet {
        volumes: Some(Vec::new()),
        read_only: Some(false),
        uids: Some(vec![range(0, 5)]),
        root_squash: Some(false),
        ..set
    };
    let changed = rig.admin(&changed);
    let invited_until_secs = expected.invited_until_secs;
    let expected = HostInfo { invited_until_secs, uids: vec![range(0, 5)], ..first_like(&expected) };
    assert_eq!(changed, expected);
    rig.reopen();
    assert_eq!(rig.host("b"), expected);
    rig.remove("b");
    rig.reopen();
    assert_eq!(rig.admin(&admin::HostList).hosts.len(), 1);
    rig.clean();
}

#[test]
fn a_gateway_is_believed_in_everything() {
    let mut rig = Rig::new();
    let new = rig.admin(&HostAdd { gateway: true, ..host("a") });
    assert!(new.host.gateway && rig.cell.accounts().newest_signing_key().is_some());
    rig.reopen();
    assert!(rig.host("a").gateway);
    let set = |name: &str| admin::HostSet { name: name.into(), ..Default::default() };
    assert!(rig.admin(&admin::HostSet { read_only: Some(true), ..set("a") }).gateway);
    let volume = admin::VolumeCreate { name: "v".into(), at: "/v".into(), uid: 0, gid: 0, pool: None };
    rig.admin(&volume);
    let refused: [AnyRequest; 7] = [
        HostAdd { gateway: true, root_squash: true, ..host("b") }.into(),
        HostAdd { gateway: true, uids: vec![range(1, 5)], ..host("b") }.into(),
        HostAdd { gateway: true, volumes: vec!["v".into()], ..host("b") }.into(),
        HostAdd { gateway: true, trust: Trust::User, ..host("b") }.into(),
        admin::HostSet { root_squash: Some(true), ..set("a") }.into(),
        admin::HostSet { uids: Some(vec![range(0, 5)]), ..set("a") }.into(),
        admin::HostSet { volumes: Some(vec!["v".into()]), ..set("a") }.into(),
    ];
    for request in refused {
        let failure = rig.cell.admin_any(&Ctx::system(), &request, &mut |_| ()).expect_err("refused");
        assert_eq!(failure.errno, libc::EINVAL, "{request:?}");
    }
    assert!(!rig.admin(&admin::HostSet { gateway: Some(false), ..set("a") }).gateway);
    rig.admin(&admin::HostSet { root_squash: Some(true), ..set("a") });
    let limited = admin::HostSet { gateway: Some(true), ..set("a") };
    assert!(rig.cell.admin(&limited, &mut |_| ()).is_err() && !rig.host("a").gateway);
    rig.clean();
}

/// The host with nothing that limits it.
fn first_like(host: &HostInfo) -> HostInfo {
    let (read_only, root_squash) = (false, false);
    HostInfo { volumes: Vec::new(), uids: Vec::new(), read_only, root_squash, ..host.clone() }
}

#[test]
fn a_token_is_good_once_also_after_reopening() {
    let mut rig = Rig::new();
    let new = rig.admin(&host("a"));
    rig.reopen();
    rig.env.advance(Duration::from_secs(100));
    assert_eq!(rig.enrol(&new, KEY).as_deref(), Ok("a"));
    let enrolled = rig.host("a");
    assert_eq!(enrolled.enrolled_secs, Some(rig.now_secs()));
    assert_eq!((enrolled.invited_until_secs, enrolled.key), (None, Some("a1".repeat(32))));
    rig.refuses(&new);
    assert_eq!(rig.enrol(&new, KEY).expect_err("used").errno, libc::EACCES, "also with the same key");
    rig.reopen();
    rig.refuses(&new);
    assert_eq!(rig.name_of_key(&KEY).as_deref(), Some("a"));
    rig.clean();
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    let mut rig = Rig::new();
    let new = rig.admin(&host("a"));
    rig.power_cut(1);
    assert_eq!(rig.enrol(&new, KEY).as_deref(), Ok("a"));
    let enrolled = rig.host("a");
    rig.power_cut(2);
    assert_eq!((rig.host("a"), rig.name_of_key(&KEY).as_deref()), (enrolled, Some("a")));
    rig.refuses(&new);
    rig.remove("a");
    rig.power_cut(3);
    assert_eq!(rig.name_of_key(&KEY), None);
    assert_eq!(rig.identity().public, InvitationToken::parse(&new.token).expect("a token").cell_key);
}

#[test]
fn a_token_ends_at_its_time() {
    let rig = Rig::new();
    let short = rig.admin(&HostAdd { valid_secs: 60, ..host("a") });
    let long = rig.admin(&host("b"));
    rig.env.advance(Duration::from_secs(60));
    rig.refuses(&short);
    assert_eq!(rig.enrol(&long, KEY).as_deref(), Ok("b"));
    let again = rig.invite("a");
    rig.env.advance(Duration::from_secs(59));
    assert_eq!(rig.enrol(&again, OTHER_KEY).as_deref(), Ok("a"));
}

#[test]
fn another_token_ends_the_one_before_and_the_key_stays_until_it_is_used() {
    let mut rig = Rig::new();
    let first = rig.admin(&host("a"));
    let second = rig.invite("a");
    rig.refuses(&first);
    rig.enrol(&second, KEY).expect("enrolled");
    let third = rig.invite("a");
    rig.reopen();
    assert_eq!(rig.name_of_key(&KEY).as_deref(), Some("a"), "still the host");
    assert_eq!(rig.host("a").invited_until_secs, Some(rig.now_secs() + i64::from(DAY_SECS)));
    rig.enrol(&third, OTHER_KEY).expect("enrolled again");
    assert_eq!((rig.name_of_key(&KEY), rig.name_of_key(&OTHER_KEY).as_deref()), (None, Some("a")));
    let fourth = rig.invite("a");
    assert_eq!(rig.enrol(&fourth, OTHER_KEY).as_deref(), Ok("a"), "with the key that it has");
}

#[test]
fn a_key_is_that_of_one_host() {
    let rig = Rig::new();
    let (a, b) = (rig.admin(&host("a")), rig.admin(&host("b")));
    rig.enrol(&a, KEY).expect("enrolled");
    let refused = rig.enrol(&b, KEY).expect_err("taken");
    assert_eq!(refused.errno, libc::EEXIST);
    assert!(refused.message.contains("host a has this key"), "{refused}");
    assert_eq!(rig.name_of_key(&KEY).as_deref(), Some("a"));
    assert_eq!(rig.enrol(&b, OTHER_KEY).as_deref(), Ok("b"), "the token was not used up");
    rig.remove("a");
    let again = rig.invite("b");
    assert_eq!(rig.enrol(&again, KEY).as_deref(), Ok("b"), "free since its host is gone");
}

#[test]
fn a_host_that_was_removed_is_out() {
    let mut rig = Rig::new();
    let (a, b) = (rig.admin(&host("a")), rig.admin(&host("b")));
    rig.enrol(&a, KEY).expect("enrolled");
    rig.remove("a");
    rig.remove("b");
    for _ in 0..2 {
        assert_eq!(rig.name_of_key(&KEY), None);
        rig.refuses(&b);
        rig.reopen();
    }
    let again = rig.admin(&host("a"));
    rig.refuses(&a);
    assert_eq!(rig.host("a").enrolled_secs, None);
    rig.enrol(&again, KEY).expect("enrolled");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rig = Rig::new();
    rig.admin(&host("a"));
    let uids = |uids: &[UidRange]| HostAdd { uids: uids.into(), ..host("b") }.into();
    let many = (0..257).map(|n| range(10 * n, 10 * n)).collect::<Vec<_>>();
    let volumes = || vec!["nowhere".to_string()];
    let set = |name: &str| admin::HostSet { name: name.into(), ..Default::default() };
    let wrong: [(AnyRequest, i32); 14] = [
        (host("a").into(), libc::EEXIST),
        (host("").into(), libc::EINVAL),
        (host("a/b").into(), libc::EINVAL),
        (host("-x").into(), libc::EINVAL),
        (host(&"x".repeat(65)).into(), libc::EINVAL),
        (HostAdd { valid_secs: 0, ..host("b") }.into(), libc::EINVAL),
        (HostAdd { volumes: volumes(), ..host("b") }.into(), libc::ENOENT),
        (uids(&[range(7, 6)]), libc::EINVAL),
        (uids(&[range(7, u32::MAX)]), libc::EINVAL),
        (uids(&many), libc::E2BIG),
        (set("b").into(), libc::ENOENT),
        (admin::HostSet { volumes: Some(volumes()), ..set("a") }.into(), libc::ENOENT),
        (admin::HostInvite { name: "b".into(), valid_secs: 1 }.into(), libc::ENOENT),
        (admin::HostRemove { name: "b".into(), revoke_keys: None }.into(), libc::ENOENT),
    ];
    for (request, errno) in wrong {
        let failure = rig.cell.admin_any(&Ctx::system(), &request, &mut |_| ()).expect_err("refused");
        assert_eq!(failure.errno, errno, "{request:?}: {failure}");
    }
    assert_eq!(rig.ask(&admin::HostShow { name: "b".into() }).expect_err("none").errno, libc::ENOENT);
    assert_eq!(rig.admin(&admin::HostList).hosts.len(), 1);
}

#[test]
fn no_answer_shows_a_secret_by_accident() {
    let rig = Rig::new();
    let new = rig.admin(&host("a"));
    let shown = format!("{new:?} {:?}", rig.cell.accounts());
    assert!(!shown.contains(&new.token) && !shown.contains("leeward-host"), "{shown}");
    let seed = format!("{:?}", rig.identity().seed);
    assert!(!shown.contains(&seed) && !shown.contains("secret_hash"), "{shown}");
    let listed = serde_json::to_string(&rig.admin(&admin::HostList)).expect("JSON");
    assert!(!listed.contains(&new.token) && listed.contains("\"invited_until_secs\":"), "{listed}");
}

#[test]
fn fsck_finds_two_hosts_with_one_key_and_hosts_without_a_cell() {
    let mut rig = Rig::new();
    let new = rig.admin(&host("a"));
    rig.enrol(&new, KEY).expect("enrolled");
    rig.clean();
    let record = rig.cell.accounts().host("a").expect("there").encode();
    rig.cell.close().expect("a clean close");
    let kv = engine(&rig.env, &rig.disk);
    let writes = vec![(keys::host("b"), Some(record)), (keys::identity(), None)];
    kv.commit(&Batch { writes, inline_data: Vec::new() }).expect("changed");
    drop(kv);
    rig.start();
    let findings: Vec<_> = rig.findings().into_iter().map(|f| (f.kind, f.detail)).collect();
    let expected = ["2 hosts, and no key pair that they know the cell by", "hosts a and b have one key"];
    assert_eq!(findings, expected.map(|detail| ("host".to_string(), detail.to_string())));
}

#[test]
fn an_older_cell_gets_hosts_when_it_is_opened() {
    let (env, dir) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let config = Config { dirty_mib: 16, cache_mib: 1, metadata_cache_mib: 8, ..Config::default() };
    Cell::create(&env, dir.path(), &config).expect("made");
    let path = dir.path().join("cell");
    let read = || std::fs::read_to_string(&path).expect("read");
    let ours = format!("\"format\": {FORMAT},");
    let older = read().replace(&ours, "\"format\": 9,");
    assert_ne!(older, read());
    std::fs::write(&path, older).expect("written");
    let open = || Cell::open(&env, dir.path(), &config).expect("opened");
    let cell = open();
    assert!(read().contains(&format!("\"format\": {FORMAT_KEPT},")), "{}", read());
    assert_eq!((cell.accounts().hosts().len(), cell.accounts().identity()), (0, None));
    let new = cell.admin(&host("a"), &mut |_| ()).expect("added");
    cell.enrol_host(&secret(&new), KEY).expect("enrolled");
    let before = cell.accounts();
    cell.close().expect("closed");
    let cell = open();
    assert_eq!(cell.accounts(), before);
    cell.close().expect("closed");
}

#[test]
fn keys_that_users_made_on_a_host_go_with_it_or_stay_as_is_asked() {
    let mut rig = Rig::new();
    rig.admin(&admin::UserCreate { name: "bob".into(), uid: Some(7), gids: Vec::new() });
    let key = |rig: &Rig, host: Option<&str>| {
        let host = host.map(String::from);
        rig.ask(&admin::KeyCreate { user: "bob".into(), label: String::new(), host }).map(|new| new.key)
    };
    for name in ["a", "b", "c"] {
        rig.admin(&host(name));
    }
    rig.admin(&HostAdd { read_only: true, ..host("bounded") });
    for other in ["bounded", "gone"] {
        assert_eq!(key(&rig, Some(other)).expect_err("not from there").errno, libc::EPERM, "{other}");
    }
    let (here, on_a) = (key(&rig, None).expect("here"), key(&rig, Some("a")).expect("on a"));
    let on_b = key(&rig, Some("b")).expect("on b");
    assert_eq!((here.host.as_deref(), on_a.host.as_deref()), (None, Some("a")));
    rig.reopen();
    let remove =
        |rig: &Rig, name: &str, revoke_keys| rig.ask(&admin::HostRemove { name: name.into(), revoke_keys });
    let refused = remove(&rig, "a", None).expect_err("it has a key");
    assert!(refused.errno == libc::EBUSY && refused.message.contains("--revoke-keys"), "{refused}");
    assert_eq!(remove(&rig, "a", Some(true)).expect("removed").keys, [on_a]);
    assert_eq!(remove(&rig, "b", Some(false)).expect("removed").keys, std::slice::from_ref(&on_b));
    assert_eq!(remove(&rig, "c", None).expect("removed").keys, []);
    rig.reopen();
    let mut left = rig.admin(&admin::KeyList { user: None }).keys;
    left.sort_by_key(|key| key.host.clone());
    assert_eq!(left, [here, on_b]);
}
