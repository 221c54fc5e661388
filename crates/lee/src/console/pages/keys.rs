//! S3 keys, tokens, and sessions of the console.

use crate::console::html::{Side, button, note, table, text, token};
use crate::console::sessions::{By, Listed, Told};
use crate::console::visit::{Made, Visit, page};
use crate::when;
use leeward_volume::admin::{KeyCreate, KeyInfo, KeyList, KeyRevoke, UserCreate, UserList};
use maud::{Markup, html};

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    let keys = visit.ask(&KeyList { user: visit.user().map(str::to_owned) });
    let failed = keys.as_ref().err().map(|failure| failure.message.clone());
    let keys = keys.map(|reply| reply.keys).unwrap_or_default();
    let columns = [
        ("Access key", Side::Left),
        ("User", Side::Left),
        ("Label", Side::Left),
        ("Made", Side::Left),
        ("Action", Side::Left),
    ];
    let row = |key: &KeyInfo| {
        let fields = [("user", key.user.as_str()), ("id", &key.access_key_id)];
        vec![
            html! { code { (key.access_key_id) } },
            text(&key.user),
            text(&key.label),
            text(when::utc(key.created_secs)),
            button(session, "/keys/revoke", &fields, "Revoke", &format!("key {}", key.access_key_id)),
        ]
    };
    let rows: Vec<Vec<Markup>> = keys.iter().map(row).collect();
    let body = html! {
        p { "A key opens the S3 door and, as name and password, the WebDAV door, with all rights of its user." }
        @match &failed {
            Some(why) => p .none { (why) },
            None => (table("S3 keys", &columns, &rows, "No keys.")),
        }
        form .search method="post" action="/console/keys/create" {
            (token(session))
            @if visit.is_operator() { label { "User " input name="user" required maxlength="64"; } }
            label { "Label " input name="label" maxlength="100"; }
            button { "Make a key" }
        }
        h2 { "Tokens" }
        (note("Tokens for HTTP are made with `lee token create`, and taken back with `lee token revoke`, on the server."))
        h2 { "Sessions of this console" }
        (sessions(visit, &visit.sessions().of(&session.who))?)
    };
    page("Keys", "/keys", body)
}

fn sessions(visit: &Visit<'_>, all: &[Listed]) -> Result<Markup, crate::console::Problem> {
    let session = visit.session()?;
    let columns = [
        ("Who", Side::Left),
        ("From", Side::Left),
        ("By", Side::Left),
        ("Began", Side::Left),
        ("Used", Side::Left),
        ("Action", Side::Left),
    ];
    let row = |one: &Listed| {
        let number = one.number.to_string();
        let end = match one.number == session.number {
            true => text("this one"),
            false => button(
                session,
                "/keys/end",
                &[("number", &number)],
                "End",
                &format!("session from {}", one.address),
            ),
        };
        vec![
            text(one.who.to_string()),
            text(&one.address),
            text(one.by.to_string()),
            text(format!("{} ago", when::ago(one.age_secs))),
            text(format!("{} ago", when::ago(one.idle_secs))),
            end,
        ]
    };
    let rows: Vec<Vec<Markup>> = all.iter().map(row).collect();
    Ok(table("Sessions", &columns, &rows, "None."))
}

/// Makes a key. The cell gets a record of a user of the machine first, as `lee key create` does.
pub fn create(visit: &Visit<'_>) -> Made {
    if matches!(visit.session()?.by, By::Key(_)) {
        let message = "a key makes no keys, or who has taken one would keep others: log in by a link or at the provider";
        return visit.after_telling(Told::Failed(message.into()), "/keys", &[]);
    }
    let user = visit.user().unwrap_or(visit.form().get("user")).to_owned();
    let label = visit.form().get("label").to_owned();
    let is_known = visit.ask(&UserList).is_ok_and(|reply| reply.users.iter().any(|of| of.name == user));
    let made = match is_known {
        true => Ok(()),
        false => visit.ask(&UserCreate { name: user.clone(), uid: None, gids: Vec::new() }).map(drop),
    };
    let told = match made.and_then(|()| visit.ask(&KeyCreate { user, label })) {
        Ok(new) => Told::Secret {
            text: format!("Made a key for {}.", new.key.user),
            parts: vec![
                ("access_key_id", new.key.access_key_id),
                ("secret_access_key", new.secret_access_key),
            ],
        },
        Err(failure) => Told::Failed(failure.message),
    };
    visit.after_telling(told, "/keys", &[])
}

/// Revokes a key.
pub fn revoke(visit: &Visit<'_>) -> Made {
    let user = visit.user().unwrap_or(visit.form().get("user")).to_owned();
    let id = visit.form().get("id").to_owned();
    let done = visit.ask(&KeyRevoke { user, access_key_id: Some(id.clone()) });
    visit.after(done.map(|_| format!("Revoked key {id}: it opens no door from now on.")), "/keys", &[])
}

/// Ends a session of the console.
pub fn end(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    let number = visit.form().number("number").unwrap_or(0);
    let text = match visit.sessions().end(&session.who, number) {
        true => "The session is ended.",
        false => "That session had ended already.",
    };
    visit.after(Ok(text.into()), "/keys", &[])
}
