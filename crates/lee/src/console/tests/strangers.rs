//! Fuzz target: requests to the console in all shapes, of nobody and of a user.
//! `docs/TESTING.md` says how it is run for longer.

use super::rig::{BOB, Rig, make, node};
use crate::console::pages::ROUTES;
use crate::console::sessions::Who;
use bolero::{ValueGenerator, check, produce};
use leeward_volume::admin;
use soup::{one, text};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};

#[path = "../../../../door/tests/soup/mod.rs"]
mod soup;

/// The name and the content of a file that nobody but its owner hears of.
const SECRET: &str = "zanzibar";
const SECRET_CONTENT: &str = "secret of the owner";

/// Besides the pages that there are.
const NO_PAGES: [&str; 8] = [
    "/console/",
    "/console/%2e%2e",
    "/console/console.css",
    "/console/none",
    "/consoles",
    "//console",
    "/console?",
    "/console/volume/x",
];
const FIELDS: &str = "\
    path=|in=|what=|name=|q=|by=|of=|page=|from=|to=|why=|next=|told=|user=|id=|label=|code=|token=|secret=|\
    number=|at=|may=|for=|volume=|&|&&|=|;|/|/alice|/bob|/bob/|/alice/.snap/before|/bob/.snap/before|/.snap|..|\
    /..|%2e%2e|%2f|%00|%25|%2500|%zz|%|+|%C3%A9|%ff|é|alice|bob|lab-alice|lab-bob|notes.txt|gone.txt|before|\
    0|1|-1|18446744073709551616|9999-99-99|2026-01-01|volume|project|user|group|read|both|3600|none|\
    <script>|\"><script>|'|\"|<|>|&lt;|javascript:|//evil.example|https://evil.example|\\|\n|\r\n|\t|\
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const HEADERS: &str = "\
    origin: http://files.example|origin: http://evil.example|origin: null|origin: |sec-fetch-site: same-origin|\
    sec-fetch-site: cross-site|sec-fetch-site: none|cookie: leeward=|cookie: leeward=x; leeward=y|cookie: a|\
    content-type: application/x-www-form-urlencoded|content-type: multipart/form-data|content-length: 0|\
    host: evil.example|host: |x-forwarded-for: ::1|range: bytes=0-|if-none-match: *|accept: */*|te: x";

const FORMS: &str = "\
    path=/bob&name=new|path=/bob&name=before&back=/bob|in=/bob/.snap/before&what=gone.txt|path=/bob/gone.txt|\
    user=bob&label=x|user=bob&id=|user=bob&path=/bob&may=read&for=3600|user=bob|number=0|path=/alice&name=new|\
    in=/alice/.snap/before&what=gone.txt|path=/alice/gone.txt|label=x|path=/&may=both&for=60|user=alice|session=1";

/// A path, by any number.
fn page() -> impl ValueGenerator<Output = String> {
    produce::<u8>().map_gen(|n| {
        let pages = ROUTES.iter().map(|route| format!("/console{}", route.path));
        let all: Vec<String> = pages.chain(NO_PAGES.map(String::from)).collect();
        all[usize::from(n) % all.len()].clone()
    })
}

/// What a form could change that is of alice, of bob, or of the cell.
fn state(rig: &Rig) -> String {
    let snapshots = rig.admin(admin::SnapList { path: None, volume: None }).snapshots;
    let bin = rig.admin(admin::BinList { path: None, newest: None }).entries;
    let keys = rig.admin(admin::KeyList { user: None }).keys;
    format!("{snapshots:?} {bin:?} {keys:?} {:?}", rig.admin(admin::UserList).users)
}

/// Nobody, or somebody else, sees or changes anything; no page runs what was in the request.
#[test]
fn strangers_see_and_change_nothing() {
    let rig = AssertUnwindSafe(Rig::new());
    make(&rig.cell, node(&rig.cell, "/bob"), SECRET, BOB);
    let cookie = rig.log_in(Who::User("alice".into()));
    let (before, pages) = (state(&rig), AtomicU32::new(0));
    let request = (
        one("GET|GET|GET|POST|POST|HEAD|PUT|DELETE|OPTIONS|PROPFIND"),
        page(),
        text(FIELDS),
        produce::<Vec<u8>>().with().len(0usize..4),
        text(FIELDS),
        produce::<bool>(),
    );
    check!().with_iterations(6_000).with_generator(request).for_each(
        |(method, page, query, heads, form, known)| {
            // what a URL has no letter for, a browser escapes
            let query: String =
                query.chars().filter(|c| c.is_ascii_graphic() && !"<>\"\\#".contains(*c)).collect();
            let all: Vec<&str> = HEADERS.split('|').collect();
            let mut headers: Vec<(&str, &str)> = heads
                .iter()
                .filter_map(|n| all[usize::from(*n) % all.len()].split_once(": "))
                .filter(|(name, _)| !*known || *name != "cookie")
                .collect();
            if *known {
                headers.push(("cookie", &cookie));
            }
            let got = rig.ask(method, &format!("{page}?{query}"), &headers, form);
            assert!(!got.status.is_server_error(), "{method} {page}?{query}: {} {}", got.status, got.text);
            assert!(!got.text.contains(SECRET), "{method} {page}?{query}: {}", got.text);
            if !*known {
                assert!(!got.text.contains(SECRET_CONTENT), "{method} {page}?{query}: {}", got.text);
            }
            let is_page = got.header("content-type").starts_with("text/html");
            assert!(!is_page || !got.text.contains("<script>"), "{method} {page}?{query}: {}", got.text);
            pages.fetch_add(u32::from(is_page && *known && got.status.is_success()), Ordering::Relaxed);
            let goes_to = got.location();
            assert!(
                goes_to.is_empty() || goes_to.starts_with("/console"),
                "{method} {page}?{query}: to {goes_to}"
            );
        },
    );
    // the token of a session is 32 bytes of chance: nobody's form counts
    assert_eq!(state(&rig), before);
    assert!(pages.into_inner() > 50, "most requests of hers are nonsense");
}

/// What a user's own forms do is done to what is the user's.
#[test]
fn forms_of_a_user_change_nothing_of_others() {
    let rig = AssertUnwindSafe(Rig::new());
    let of_bob = || {
        let snapshots = rig.admin(admin::SnapList { path: Some("/bob".into()), volume: None }).snapshots;
        let mut bin = rig.admin(admin::BinList { path: None, newest: None }).entries;
        bin.retain(|entry| entry.volume == "bob");
        let keys = rig.admin(admin::KeyList { user: Some("bob".into()) }).keys;
        let mut users = rig.admin(admin::UserList).users;
        users.retain(|user| user.name != "alice");
        format!("{snapshots:?} {bin:?} {keys:?} {users:?} {:?}", rig.admin(admin::ProjectList).projects)
    };
    let before = of_bob();
    let request = (page(), one(FORMS), text(FIELDS), produce::<bool>());
    let cookie = AssertUnwindSafe(RefCell::new(String::new()));
    check!().with_iterations(3_000).with_generator(request).for_each(|(page, form, more, whole)| {
        let more = if *whole { "" } else { more };
        let mut cookie = cookie.borrow_mut();
        if rig.get("/console", &cookie).status != hyper::StatusCode::OK {
            *cookie = rig.log_in(Who::User("alice".into()));
        }
        let got = rig.post(page.trim_end_matches('?'), &cookie, &format!("{form}&{more}"));
        assert!(!got.status.is_server_error(), "{page} {form}&{more}: {} {}", got.status, got.text);
    });
    assert_eq!(of_bob(), before);
    let keys = rig.admin(admin::KeyList { user: Some("alice".into()) }).keys.len();
    assert!(keys > 1, "none of her forms counted");
}
