//! Methods at the HTTP door.

use super::{BOB, Got, LETTERS, PLACE, Rig, Rigs, Sent, TARGETS, Target, dir_of, heads, make, row, sent};
use crate::rights_document;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use leeward_fs::Make;
use std::collections::BTreeSet;

const HEADS: [&str; 7] = [
    "without a credential",
    "stranger",
    "member of the group",
    "owner",
    "the owner's token to read",
    "the same to make files",
    "the same for another directory",
];
const OWNER: usize = 3;

/// What is made for the requests.
struct Made {
    /// Credentials in the order of [`HEADS`]; empty: none.
    credentials: Vec<String>,
    /// Tokens of the owner's locks, one in each directory.
    locks: Vec<String>,
}

/// What a request does, its method, the file or directory, headers, content.
type Asked =
    (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

const REQUESTS: [Asked; 20] = [
    ("read a file", "GET", "/file", &[], ""),
    ("its attributes", "HEAD", "/file", &[], ""),
    ("its properties", "PROPFIND", "/file", &[("depth", "0")], ""),
    ("list a directory in a browser", "GET", "/", &[], ""),
    ("list it with properties", "PROPFIND", "/", &[("depth", "1")], ""),
    ("make a file", "PUT", "/new", &[], "content"),
    ("replace a file", "PUT", "/file", &[], "content"),
    ("remove a file", "DELETE", "/file", &[], ""),
    ("remove a directory", "DELETE", "/sub", &[], ""),
    ("make a directory", "MKCOL", "/new", &[], ""),
    ("copy a file", "COPY", "/file", &[("destination", "/new")], ""),
    ("replace a file by a copy", "COPY", "/file", &[("destination", "/other")], ""),
    ("rename a file", "MOVE", "/file", &[("destination", "/new")], ""),
    ("rename it over another", "MOVE", "/file", &[("destination", "/other")], ""),
    ("set a property", "PROPPATCH", "/file", &[], PATCH),
    ("lock a file", "LOCK", "/file", &[], LOCK),
    ("lock a name that is new", "LOCK", "/new", &[], LOCK),
    ("unlock what the owner has locked", "UNLOCK", "/locked", &[], ""),
    ("make a token for less", "POST", "/", &[("content-type", MACAROON)], CAVEATS),
    ("ask what there is", "OPTIONS", "/", &[], ""),
];
const PATCH: &str =
    "<propertyupdate xmlns=\"DAV:\"><set><prop><x xmlns=\"urn:x\">1</x></prop></set></propertyupdate>";
const LOCK: &str =
    "<lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";
const MACAROON: &str = "application/macaroon-request";
const CAVEATS: &str = "{\"caveats\":[\"activity:READ_METADATA\"],\"validity\":\"PT30M\"}";

/// Rights of tokens.
const TO_READ: &str = "activity:DOWNLOAD,LIST";
const TO_MAKE: &str = "activity:UPLOAD";

fn send(rig: &Rig, credential: &str, sent: Sent) -> Got {
    let sent = sent.header("host", "here");
    let sent = if credential.is_empty() { sent } else { sent.header("authorization", credential) };
    rig.send(&rig.http, sent)
}

/// The owner's token for what is below a path.
fn token(rig: &Rig, owner: &str, path: &str, caveat: &str) -> String {
    let body = serde_json::json!({ "caveats": [caveat], "validity": "PT30M" }).to_string();
    let got = send(rig, owner, sent("POST", path.into()).header("content-type", MACAROON).body(body));
    let said: serde_json::Value = serde_json::from_str(&got.text).unwrap_or_else(|_| panic!("{}", got.text));
    format!("Bearer {}", said["macaroon"].as_str().expect("a token"))
}

/// Another file and a directory in each directory, a lock of the owner there, and tokens.
fn furnish(rig: &Rig) -> Made {
    let basic = |asker: usize| {
        let key = rig.key(asker)?;
        let text = format!("{}:{}", key.key.access_key_id, key.secret_access_key);
        Some(format!("Basic {}", BASE64.encode(text)))
    };
    let mut credentials: Vec<String> = (0..=OWNER).map(|asker| basic(asker).unwrap_or_default()).collect();
    let owner = credentials[OWNER].clone();
    credentials.push(token(rig, &owner, &format!("{PLACE}/"), TO_READ));
    credentials.push(token(rig, &owner, &format!("{PLACE}/"), TO_MAKE));
    credentials.push(token(rig, &owner, "/elsewhere", TO_READ));
    let lock = |target: &Target| {
        let (dir, gid) = (dir_of(&rig.cell, target.name), rig.gid);
        make(&rig.cell, dir, "other", (Make::File, target.mode & 0o666), (BOB, gid));
        make(&rig.cell, dir, "sub", (Make::Dir, target.mode), (BOB, gid));
        make(&rig.cell, dir, "locked", (Make::File, target.mode & 0o666), (BOB, gid));
        let at = format!("{PLACE}/{}/locked", target.name);
        let got = send(rig, &owner, sent("LOCK", at).body(LOCK));
        got.headers["lock-token"].to_str().expect("text").to_owned()
    };
    Made { locks: TARGETS.iter().map(lock).collect(), credentials }
}

fn of_dirs(rigs: &mut Rigs<Made>, request: usize, asker: usize) -> String {
    let (what, method, leaf, headers, body) = REQUESTS[request];
    let reads = ["GET", "HEAD", "PROPFIND", "OPTIONS"].contains(&method);
    let mut letters = String::new();
    for (n, target) in TARGETS.iter().enumerate() {
        let is_answered = rigs.send(furnish, reads, |rig, made| {
            let place = format!("{PLACE}/{}", target.name);
            let mut sent = sent(method, format!("{place}{leaf}")).body(body);
            for (name, value) in headers {
                let is_path = *name == "destination";
                sent = sent.header(name, if is_path { format!("{place}{value}") } else { (*value).into() });
            }
            if method == "UNLOCK" {
                sent = sent.header("lock-token", &*made.locks[n]);
            }
            let got = send(rig, &made.credentials[asker], sent);
            assert!(!got.status.is_server_error(), "{what}: {} {}", got.status, got.text);
            // properties are set one by one, each with a status of its own
            got.status.is_success() && !got.text.contains("HTTP/1.1 403")
        });
        if is_answered {
            letters.push(target.letter);
        }
    }
    letters
}

/// The storage resource report: all of it, or what the credential covers.
fn of_report(rigs: &mut Rigs<Made>) -> Vec<String> {
    let mut shares = |asker: usize| {
        let mut count = None;
        rigs.send(furnish, true, |rig, made| {
            let got = send(rig, &made.credentials[asker], sent("GET", "/.well-known/srr".into()));
            let report: Option<serde_json::Value> =
                got.status.is_success().then(|| serde_json::from_str(&got.text).expect("JSON"));
            count = report
                .map(|report| report["storageservice"]["storageshares"].as_array().expect("shares").len());
            true
        });
        count
    };
    let all = shares(OWNER);
    let said = |count: Option<usize>| match count {
        None => "-",
        Some(0) => "nothing",
        _ if count == all => "yes",
        Some(_) => "what it is for",
    };
    (0..HEADS.len()).map(|asker| said(shares(asker)).to_string()).collect()
}

fn document() -> String {
    let mut out = format!(
        "## Methods at the HTTP door\n\n\
{LETTERS}\n\
Tokens are macaroons that the owner has made: for {PLACE} with the activities DOWNLOAD and LIST, or\n\
UPLOAD, and for another directory. What tokens of issuers may do is in docs/OPERATE.md.\n\n"
    );
    heads(&mut out, "request", &HEADS);
    let mut rigs = Rigs::default();
    for (n, (what, method, ..)) in REQUESTS.into_iter().enumerate() {
        let got: Vec<String> = (0..HEADS.len()).map(|asker| of_dirs(&mut rigs, n, asker)).collect();
        assert_eq!(got[OWNER], "ORWP", "{what}: its owner may do it");
        row(&mut out, &format!("{method}: {what}"), &got);
    }
    row(&mut out, "GET: the storage resource report, `/.well-known/srr`", &of_report(&mut rigs));
    out
}

#[test]
fn every_method_is_in_the_table() {
    let tried: BTreeSet<&str> = REQUESTS.iter().map(|(_, method, ..)| *method).collect();
    assert_eq!(tried, leeward_dav::METHODS.split(", ").collect());
}

#[test]
fn methods_are_for_whom_the_table_says() {
    rights_document::compare(&document());
}
