//! An issuer of our own on loopback: keys come by HTTP as a real issuer gives them.

use crate::rig;
use crate::rig::{Minter, accounts, config, machine};
use leeward_auth::{Authority, Fetch, HttpFetch};
use leeward_env::{Env, Wait};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};

/// Serves what `answer` says for each path, until the process ends.
fn serve(env: &Env, answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    env.spawn("issuer", move || {
        for stream in listener.incoming().flatten() {
            // who goes away early is no concern of a test
            let _ = reply(stream, &answer);
        }
    });
    url
}

fn reply(mut stream: TcpStream, answer: &dyn Fn(&str) -> (u16, Vec<u8>)) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (status, body) = answer(first.split(' ').nth(1).unwrap_or_default());
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nlocation: /x\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

#[test]
fn keys_come_over_http() {
    let env = Env::real();
    let minter: Arc<OnceLock<Minter>> = Arc::default();
    let given = minter.clone();
    let url = serve(&env, move |path| match (path, given.get()) {
        ("/.well-known/openid-configuration", Some(minter)) => (200, minter.discovery().to_string().into()),
        ("/jwk", Some(minter)) => (200, minter.jwks().to_string().into()),
        _ => (404, Vec::new()),
    });
    let minter = minter.get_or_init(|| Minter::new(&url));
    let authority =
        Authority::new(&env, &[config(&url)], Arc::new(accounts()), machine(), Arc::new(HttpFetch::new()))
            .expect("an authority");
    let now = (env.wall() / 1_000_000_000) as i64;
    let claims = json!({
        "iss": url, "sub": "s", "aud": rig::AUDIENCE, "iat": now, "exp": now + 600, "jti": "1", "wlcg.ver": "1.0",
        "scope": "storage.read:/",
    });
    let verdict = authority.bearer(&minter.sign(&claims), Wait::Allowed).expect("good");
    assert_eq!(verdict.who.uid, 2000);
    let es256 = minter.sign_as(&claims, Some("ec1"), "ES256");
    assert!(authority.bearer(&es256, Wait::Never).is_ok(), "the keys are known");
}

#[test]
fn odd_answers_are_refused() {
    let env = Env::real();
    let url = serve(&env, |path| match path {
        "/large" => (200, vec![b'x'; 300 << 10]),
        "/moved" => (302, Vec::new()),
        _ => (500, Vec::new()),
    });
    for path in ["large", "moved", "other"] {
        let refused = HttpFetch::new().get(&format!("{url}{path}"));
        assert!(refused.as_ref().is_err_and(|why| why.contains(path)), "{refused:?}");
    }
    let nobody = HttpFetch::new().get("http://127.0.0.1:1/");
    assert!(nobody.is_err());
}
