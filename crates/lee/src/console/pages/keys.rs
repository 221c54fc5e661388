//! S3 keys, tokens, and sessions of the console.

use crate::console::html::{Side, button, table, text, token};
use crate::console::sessions::{By, Listed, Told};
use crate::console::visit::{Made, Visit, page};
use crate::control::NewToken;
use crate::when;
use leeward_auth::activities;
use leeward_env::Wait;
use leeward_volume::admin::{
    Failure, KeyCreate, KeyInfo, KeyList, KeyRevoke, TokenMake, TokenRevoke, UserCreate, UserList,
};
use maud::{Markup, html};

/// What a token may: its name in the form, in words, whether to read, and to change.
const RIGHTS: [(&str, &str, bool, bool); 3] = [
    ("read", "read", true, false),
    ("write", "change, not read", false, true),
    ("both", "read and change", true, true),
];
/// How long a token is good, seconds.
const SPANS: [(i64, &str); 4] =
    [(3600, "an hour"), (12 * 3600, "12 hours"), (86_400, "a day"), (7 * 86_400, "a week")];

/// Longest path of a token, bytes: a token with a longer one may be too long to be accepted.
const PATH_BYTES_MAX: usize = 1024;

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
        p { "A token lets who has it read, or change, what is at a path and below, as its user, until a time." }
        (tokens(visit)?)
        h2 { "Sessions of this console" }
        (sessions(visit, &visit.sessions().of(&session.who))?)
    };
    page("Keys", "/keys", body)
}

/// The forms for tokens.
fn tokens(visit: &Visit<'_>) -> Result<Markup, crate::console::Problem> {
    let session = visit.session()?;
    let user = html! {
        @if visit.is_operator() { label { "User " input name="user" required maxlength="64"; } }
    };
    let home = visit.user().map_or("/".to_owned(), |user| format!("/{user}"));
    Ok(html! {
        form .search method="post" action="/console/keys/token" {
            (token(session))
            (user)
            label { "Path " input name="path" required maxlength="1024" value=(home); }
            label { "May " select name="may" {
                @for (name, words, ..) in RIGHTS { option value=(name) { (words) } }
            } }
            label { "For " select name="for" {
                @for (secs, words) in SPANS { option value=(secs) { (words) } }
            } }
            button { "Make a token" }
        }
        form .search method="post" action="/console/keys/void" {
            (token(session))
            (user)
            button { "Make all tokens void" }
        }
    })
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

/// The user whom a form is about: who sends it, or whom an operator names.
fn user_of(visit: &Visit<'_>) -> String {
    visit.user().unwrap_or(visit.form().get("user")).to_owned()
}

/// The cell gets a record of a user of the machine, as by `lee key create`; not of one whom nobody
/// knows.
fn ensure(visit: &Visit<'_>, user: &str) -> Result<(), Failure> {
    if visit.ask(&UserList).is_ok_and(|reply| reply.users.iter().any(|of| of.name == user)) {
        return Ok(());
    }
    if let Err(refusal) = visit.authority().user(user, Wait::Allowed) {
        return Err(Failure { message: refusal.to_string(), errno: libc::ENOENT });
    }
    visit.ask(&UserCreate { name: user.to_owned(), uid: None, gids: Vec::new() }).map(drop)
}

/// Who has taken a key would have others, and tokens, when that is revoked.
fn is_by_a_key(visit: &Visit<'_>) -> Result<bool, crate::console::Problem> {
    Ok(matches!(visit.session()?.by, By::Key(_)))
}

const NOT_BY_A_KEY: &str = "a key makes no keys and no tokens, or who has taken one would keep others: log in by a link or at the provider";

/// Makes a token, which is shown once and stored nowhere.
pub fn make_token(visit: &Visit<'_>) -> Made {
    if is_by_a_key(visit)? {
        return visit.after_telling(Told::Failed(NOT_BY_A_KEY.into()), "/keys", &[]);
    }
    let (user, form) = (user_of(visit), visit.form());
    let told = match token_of(visit, &user, (form.get("path"), form.get("may"), form.get("for"))) {
        Ok(NewToken { token, path, .. }) => {
            let text =
                format!("Made a token of {user} for {path}. Programs send it as Authorization: Bearer.");
            Told::Secret { text, parts: vec![("token", token)] }
        }
        Err(why) => Told::Failed(why),
    };
    visit.after_telling(told, "/keys", &[])
}

fn token_of(
    visit: &Visit<'_>,
    user: &str,
    (path, may, span): (&str, &str, &str),
) -> Result<NewToken, String> {
    let rights = RIGHTS.iter().find(|(name, ..)| *name == may);
    let span = SPANS.iter().find(|(secs, _)| secs.to_string() == span);
    let (Some((_, _, reads, writes)), Some((secs, _))) = (rights, span) else {
        return Err("there is no such right, or time".into());
    };
    if path.len() > PATH_BYTES_MAX {
        return Err("the path is too long".into());
    }
    let (activities, until_secs) = (activities(*reads, *writes), visit.now_secs() + secs);
    let wanted =
        TokenMake { user: user.to_owned(), path: path.to_owned(), activities, until_secs, host: None };
    ensure(visit, user).and_then(|()| visit.make_token(wanted)).map_err(|failure| failure.message)
}

/// Makes all tokens of the user void.
pub fn void_tokens(visit: &Visit<'_>) -> Made {
    let user = user_of(visit);
    let done = ensure(visit, &user).and_then(|()| visit.ask(&TokenRevoke { user: Some(user.clone()) }));
    visit.after(done.map(|_| format!("All tokens of {user} until now are void.")), "/keys", &[])
}

/// Makes a key.
pub fn create(visit: &Visit<'_>) -> Made {
    if is_by_a_key(visit)? {
        return visit.after_telling(Told::Failed(NOT_BY_A_KEY.into()), "/keys", &[]);
    }
    let user = user_of(visit);
    let label = visit.form().get("label").to_owned();
    let told = match ensure(visit, &user).and_then(|()| visit.ask(&KeyCreate { user, label, host: None })) {
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
    let user = user_of(visit);
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
