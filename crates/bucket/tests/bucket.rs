//! A bucket against the server in memory: what is told apart, and what is repeated.

use leeward_bucket::server::{Fault, KEY, Server};
use leeward_bucket::{Bucket, Error, Location};
use leeward_env::Env;
use std::time::Duration;

fn open(place: &Location) -> Bucket {
    Bucket::with_keys(place, KEY, "secret").expect("a bucket")
}

#[test]
fn a_bucket() {
    let server = Server::start("b");
    let bucket = open(&server.place("a/prefix"));
    assert_eq!(bucket.look("x"), Ok(None));
    assert_eq!(bucket.create("x", "one".into()), Ok(()));
    assert!(matches!(bucket.create("x", "two".into()), Err(Error::Exists(_))));
    assert_eq!(bucket.get("x"), Ok(Some("one".into())));
    assert_eq!(bucket.replace("x", "three".into()), Ok(()));
    assert_eq!(bucket.get_range("x", 1, 3), Ok("hre".into()));
    assert_eq!(bucket.get_range("x", 1, 100), Ok("hree".into()));
    assert_eq!(bucket.len("x"), Ok(5));
    assert_eq!(bucket.create("dir/y", "y".into()), Ok(()));
    assert_eq!(bucket.names(), Ok(vec!["dir/".into(), "x".into()]));
    assert_eq!(bucket.list("dir"), Ok(vec![("dir/y".into(), 1)]));
    assert_eq!(bucket.delete("x"), Ok(()));
    assert_eq!(bucket.delete("x"), Ok(()));
    assert!(matches!(bucket.len("x"), Err(Error::Missing(_))));
    assert_eq!(server.names(), ["a/prefix/dir/y"]);

    let many = 2300;
    (0..many).for_each(|n| bucket.create(&format!("many/{n:05}"), "z".into()).expect("a put"));
    assert_eq!(bucket.list("many").expect("a list").len(), many);

    faults(&server, &bucket);
    refusals(&server);
}

/// The kernel puts an acknowledgement off for 40 ms, and the body of each answer waits for one.
#[test]
fn answers_in_two_pieces_are_not_waited_for() {
    const ANSWERS: u32 = 50;
    let (server, env) = (Server::start("b"), Env::real());
    let bucket = open(&server.place("a"));
    bucket.create("x", "one".into()).expect("a put");
    let begun = env.now();
    (0..ANSWERS).for_each(|_| assert_eq!(bucket.get("x"), Ok(Some("one".into()))));
    let each = Duration::from_nanos(env.now() - begun) / ANSWERS;
    assert!(each < Duration::from_millis(20), "{each:?} each");
}

fn faults(server: &Server, bucket: &Bucket) {
    for fault in [Fault::Busy, Fault::FailsBefore] {
        server.fail("PUT", "again", fault, 1);
        let name = format!("again-{fault:?}");
        assert_eq!(bucket.create(&name, "x".into()), Ok(()));
        server.fail("GET", "again", fault, 1);
        assert_eq!(bucket.get(&name), Ok(Some("x".into())));
    }
    // the first attempt was successful, which nobody was told
    server.fail("PUT", "after", Fault::FailsAfter, 1);
    assert!(matches!(bucket.create("after", "x".into()), Err(Error::Exists(_))));
    server.fail("PUT", "always", Fault::Busy, 100);
    assert!(matches!(bucket.create("always", "x".into()), Err(Error::Busy(m)) if m.contains("slow down")));
    server.heal();
    server.set_down(true);
    let away = bucket.look("x").expect_err("nobody is there");
    assert!(away.is_passing(), "{away}");
    server.set_down(false);
    assert_eq!(bucket.look("x"), Ok(None));
}

fn refusals(server: &Server) {
    let mut wrong = server.place("p");
    wrong.url.bucket = "other".into();
    let none = open(&wrong).look("x").expect_err("no such bucket");
    assert!(matches!(&none, Error::NoBucket(m) if m.contains("create it")), "{none}");
    let nobody = Location { endpoint: Some("http://127.0.0.1:1".into()), ..server.place("p") };
    let away = open(&nobody).look("x").expect_err("nobody");
    assert!(matches!(&away, Error::Away(m) if m.contains("AWS_ENDPOINT_URL")), "{away}");
    let refused = Bucket::with_keys(&server.place("p"), "somebody", "x")
        .expect("a bucket")
        .look("x")
        .expect_err("a wrong key");
    assert!(matches!(&refused, Error::Refused(m) if m.contains("AWS_ACCESS_KEY_ID")), "{refused}");
}
