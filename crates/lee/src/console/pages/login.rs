//! The way in and out.
//!
//! A link has a code. Reading the page that it leads to uses nothing up: programs that look at
//! links in mails do that, too. The form on that page logs in.

use crate::console::form::{encoded, link};
use crate::console::html::{Page, note, sentence};
use crate::console::sealed::OnItsWay;
use crate::console::sessions::{By, Who};
use crate::console::visit::{Made, Visit};
use crate::console::{Cookie, Problem, Reply};
use hyper::StatusCode;
use leeward_auth::{HttpFetch, Refusal, SignedOn, Via};
use leeward_env::Wait;
use maud::{Markup, html};

/// The page.
pub fn show(visit: &Visit<'_>) -> Made {
    let form = visit.form();
    let (code, why, next) = (form.get("code"), form.get("why"), next(form.get("next")));
    let body = match visit.sessions().whose(code) {
        Some(who) if !code.is_empty() => of_link(code, &who, &next),
        _ => of_key(visit, !code.is_empty(), why, &next),
    };
    Ok(Reply::Page(Page::new("Log in", "/login", body)))
}

/// Where to go on: a page of the console.
fn next(text: &str) -> String {
    let is_own = text == "/console" || text.starts_with("/console/") || text.starts_with("/console?");
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if is_own && is_plain { text.to_owned() } else { "/console".to_owned() }
}

fn of_link(code: &str, who: &Who, next: &str) -> Markup {
    html! {
        form .login method="post" action="/console/login" {
            input type="hidden" name="code" value=(code);
            input type="hidden" name="next" value=(next);
            p { "This link logs in as " strong { (who.to_string()) } "." }
            button autofocus { "Log in" }
        }
    }
}

fn of_key(visit: &Visit<'_>, is_old: bool, why: &str, next: &str) -> Markup {
    html! {
        @if is_old { p .told.bad role="alert" { (sentence("This link was used already, or is older than five minutes: `lee console` makes another.")) } }
        @if !why.is_empty() { p .told.bad role="alert" { (why) } }
        (note("On a machine that serves or mounts the cell `lee console` prints a link that logs you in. Or log in with an S3 key:"))
        @if let Some(sign_on) = visit.sign_on() {
            p { a .button href=(link("/sign-on", &[("next", next)])) { "Log in with " (sign_on.name()) } }
        }
        form .login method="post" action="/console/login" {
            input type="hidden" name="next" value=(next);
            label { "Access key" input name="id" autocomplete="username" required; }
            label { "Secret key" input name="secret" type="password" autocomplete="current-password" required; }
            button { "Log in" }
        }
    }
}

/// Logs in.
pub fn enter(visit: &Visit<'_>) -> Made {
    let form = visit.form();
    let next = next(form.get("next"));
    let (who, by) = match form.get("code") {
        "" => match by_key(visit) {
            Ok(found) => found,
            Err(refusal) if refusal.is_passing() => {
                return Err(later(&refusal));
            }
            Err(Refusal::User(why)) => {
                return Ok(Reply::See(link("/login", &[("why", &why), ("next", &next)])));
            }
            Err(_) => {
                let why = "There is no such key, or that is not its secret.";
                return Ok(Reply::See(link("/login", &[("why", why), ("next", &next)])));
            }
        },
        code => match visit.sessions().redeem(code) {
            Some(found) => found,
            None => return Ok(Reply::See(format!("/console/login?code={}", encoded("used")))),
        },
    };
    Ok(begin(visit, who, by, &next))
}

/// Begins a session.
fn begin(visit: &Visit<'_>, who: Who, by: By, next: &str) -> Reply {
    if let Ok(old) = visit.session() {
        visit.sessions().end(&old.who, old.number);
    }
    let secret = visit.sessions().begin(who, by, visit.address().to_owned());
    Reply::Cookies(next.to_owned(), vec![Cookie::Session(secret), Cookie::SignOn(String::new())])
}

/// Goes to the provider. Who is logged in stays that: another site can lead a browser here.
pub fn go(visit: &Visit<'_>) -> Made {
    let Some(sign_on) = visit.sign_on() else { return Err(no_provider()) };
    let next = next(visit.form().get("next"));
    if visit.session().is_ok() {
        return Ok(Reply::See(next));
    }
    let begun = visit.at_provider(|env| sign_on.begin(env, &HttpFetch::new(), &visit.sign_on_back()));
    let (there, gone) = begun.map_err(|refusal| later(&refusal))?;
    Ok(Reply::Cookies(there, vec![Cookie::SignOn(visit.sealed(gone, &next))]))
}

/// Comes back from it. What it says is in the address: the cookie shows that this browser was sent
/// there.
pub fn back(visit: &Visit<'_>) -> Made {
    let Some(sign_on) = visit.sign_on() else { return Err(no_provider()) };
    let form = visit.form();
    let refused = |why: &str| Ok(Reply::See(link("/login", &[("why", why)])));
    let Some(OnItsWay { gone, next, .. }) = visit.unsealed(form.get("state")) else {
        return refused(
            "This login was begun in another browser, or more than ten minutes ago: begin again.",
        );
    };
    if visit.session().is_ok() {
        return Ok(Reply::See(next));
    }
    if form.get("code").is_empty() {
        let error = [form.get("error"), form.get("error_description")].join(" ");
        return refused(&format!("{} says: {}", sign_on.name(), error.trim()));
    }
    let ended = visit.at_provider(|env| sign_on.end(env, &HttpFetch::new(), &gone, form.get("code")));
    match ended {
        Ok(SignedOn::Operator { name }) => {
            let by = By::Provider(sign_on.name().to_owned(), name.clone());
            Ok(begin(visit, Who::Operator(name.into()), by, &next))
        }
        Ok(SignedOn::User(name)) => {
            let by = By::Provider(sign_on.name().to_owned(), name.clone());
            Ok(begin(visit, Who::User(name.into()), by, &next))
        }
        Err(refusal) if refusal.is_passing() => Err(later(&refusal)),
        Err(refusal) => refused(&refusal.to_string()),
    }
}

fn no_provider() -> Problem {
    Problem::of(StatusCode::NOT_FOUND, "this console has no provider to log in at: log in by a link or a key")
}

fn later(refusal: &Refusal) -> Problem {
    Problem::of(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string())
}

/// Only by a key: a token may be for less than all that its user may.
fn by_key(visit: &Visit<'_>) -> Result<(Who, By), Refusal> {
    let (id, secret) = (visit.form().get("id").trim(), visit.form().get("secret").trim());
    let verdict = visit.authority().basic(id, secret, Wait::Allowed)?;
    match &verdict.via {
        Via::Key(id) => Ok((Who::User(verdict.who.name.clone()), By::Key(id.to_string()))),
        _ => Err(Refusal::NoSuchKey),
    }
}

/// Logs out.
pub fn leave(visit: &Visit<'_>) -> Made {
    let session = visit.session()?;
    visit.sessions().end(&session.who, session.number);
    Ok(Reply::Cookies("/console/login".into(), vec![Cookie::Session(String::new())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_on_at_a_page_of_the_console_only() {
        for own in ["/console", "/console/volumes", "/console?x=1", "/console/files?path=/a%20b"] {
            assert_eq!(next(own), own);
        }
        for other in [
            "",
            "/",
            "//evil.example",
            "https://evil.example/console",
            "/consoles",
            "/console/\\evil",
            "/console/a b",
            "/console/\r\nX: y",
        ] {
            assert_eq!(next(other), "/console", "{other:?}");
        }
    }
}
