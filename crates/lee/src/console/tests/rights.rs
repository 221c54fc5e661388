//! Who gets which page, tried with every page, and the part of `docs/RIGHTS.md` that says so.

use super::rig::{Got, Rig};
use crate::console::pages::{For, ROUTES, Route};
use crate::console::sessions::{Told, Who};
use crate::rights_document;
use leeward_volume::admin::KeyList;
use std::fmt::Write as _;

/// What is sent to a page that is about what a user has.
fn fields(rig: &Rig, route: &Route, user: &str) -> String {
    match route.path {
        "/volume" => format!("name={user}"),
        "/project" => format!("name=lab-{user}"),
        "/files" => format!("path=/{user}"),
        "/file" => format!("path=/{user}/notes.txt"),
        "/snapshots" => format!("path=/{user}"),
        "/snapshots/create" => format!("path=/{user}&name=new"),
        "/snapshots/remove" => format!("path=/{user}&name=before&back=/{user}"),
        "/restore" => format!("in=/{user}/.snap/before&what=gone.txt"),
        "/bin/restore" => format!("path=/{user}/gone.txt"),
        "/keys/create" => format!("user={user}&label=test"),
        "/keys/revoke" => {
            let keys = rig.admin(KeyList { user: Some(user.into()) }).keys;
            format!("user={user}&id={}", keys[0].access_key_id)
        }
        "/keys/token" => format!("user={user}&path=/{user}&may=read&for=3600"),
        "/keys/void" => format!("user={user}"),
        "/keys/end" => "number=0".into(),
        "/machines/end" => "session=1&host=node".into(),
        "/help" => "page=LeewardDown".into(),
        _ => String::new(),
    }
}

/// Whether a page shows, or a form does, what it is to.
fn is_done(rig: &Rig, cookie: &str, route: &Route, got: &Got) -> bool {
    match route.is_post {
        false => got.status.is_success(),
        true if route.path == "/logout" => got.location() == "/console/login",
        true => {
            got.status.as_u16() == 303
                && matches!(rig.told(cookie, got), Some(Told::Done(_) | Told::Secret { .. }))
        }
    }
}

fn send(rig: &Rig, cookie: &str, route: &Route, user: &str) -> Got {
    let (path, fields) = (format!("/console{}", route.path), fields(rig, route, user));
    match route.is_post {
        false if fields.is_empty() => rig.get(&path, cookie),
        false => rig.get(&format!("{path}?{fields}"), cookie),
        true => rig.post(&path, cookie, &fields),
    }
}

/// What alice gets: of hers, of bob's; what is hers anyway is the same for both.
fn of_user(route: &Route) -> &'static str {
    let got = |of: &str| {
        let rig = Rig::new();
        let cookie = rig.log_in(Who::User("alice".into()));
        let got = send(&rig, &cookie, route, of);
        assert!(of == "alice" || !got.text.contains("secret of the owner"), "{}: {}", route.path, got.text);
        assert!(of == "bob" || !got.text.contains("bob"), "{} tells of others: {}", route.path, got.text);
        is_done(&rig, &cookie, route, &got)
    };
    let rig = Rig::new();
    let is_about_somebody = fields(&rig, route, "alice") != fields(&rig, route, "bob");
    match (got("alice"), is_about_somebody && got("bob")) {
        (false, _) => "-",
        // whatever the form says, the key is of who sends it
        (true, true) if ["/keys/create", "/keys/token", "/keys/void"].contains(&route.path) => "own",
        (true, false) if is_about_somebody => "own",
        (true, false) => "yes",
        (true, true) => "of others, too",
    }
}

fn of_nobody(rig: &Rig, route: &Route) -> &'static str {
    let got = send(rig, "", route, "alice");
    match (route.who, got.location().starts_with("/console/login")) {
        (For::Everybody, _) => "yes",
        (_, true) => "log in",
        (_, false) => panic!("{}: {}", route.path, got.status),
    }
}

fn of_operator(route: &Route) -> &'static str {
    let rig = Rig::new();
    let cookie = rig.log_in(Who::Operator("root".into()));
    let got = send(&rig, &cookie, route, "alice");
    assert!(
        route.who == For::Everybody || is_done(&rig, &cookie, route, &got),
        "{}: {} {}",
        route.path,
        got.status,
        got.text
    );
    "yes"
}

fn document() -> String {
    let rig = Rig::new();
    let mut out = String::from(
        "## Pages of the console\n\n\
The console asks the cell what commands ask, as the user who is logged in, and files as that user.\n\
*own*: of what is the user's; of what is another's it is refused.\n\n\
| page, or what a form does | nobody | user | operator |\n|---|---|---|---|\n",
    );
    for route in &ROUTES {
        let what =
            format!("`{}/console{}`: {}", if route.is_post { "POST " } else { "" }, route.path, route.what);
        let user = if route.who == For::Everybody { "yes" } else { of_user(route) };
        let _ = writeln!(out, "| {what} | {} | {user} | {} |", of_nobody(&rig, route), of_operator(route));
    }
    out
}

#[test]
fn pages_are_for_whom_the_table_says() {
    rights_document::compare(&document());
}
