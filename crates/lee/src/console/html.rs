//! The frame of all pages, and what they are made of: tables, tiles, bars, forms. `maud` escapes
//! all text.

use super::form::link;
use super::sessions::{Session, Told};
use crate::size;
use hyper::StatusCode;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What is in the frame.
pub struct Page {
    /// Its title.
    pub title: String,
    /// The page of the menu that it belongs to.
    pub at: &'static str,
    /// Whether browsers bring it up to date every few seconds.
    pub is_live: bool,
    /// What it shows.
    pub body: Markup,
}

impl Page {
    /// A page that stays as it is.
    pub fn new(title: impl Into<String>, at: &'static str, body: Markup) -> Page {
        Page { title: title.into(), at, is_live: false, body }
    }
}

/// Pages of the menu: path, name, and whether only operators have it.
pub const MENU: [(&str, &str, bool); 11] = [
    ("", "Now", false),
    ("/volumes", "Volumes", false),
    ("/projects", "Projects", false),
    ("/files", "Files", false),
    ("/bin", "Recycle bin", false),
    ("/latency", "Latency", false),
    ("/pools", "Pools", true),
    ("/machines", "Machines", true),
    ("/alerts", "Alerts", true),
    ("/reports", "Reports", false),
    ("/keys", "Keys", false),
];

/// The whole page. `told`: what is said at its top.
pub fn whole(name: &str, session: Option<&Session>, told: Option<&Told>, page: &Page) -> String {
    let is_operator = session.is_some_and(|session| session.who.is_operator());
    let shown = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " · " (name) }
                link rel="stylesheet" href="/console/style.css";
                link rel="icon" href="/console/icon.svg";
                script src="/console/console.js" defer {}
            }
            body {
                a .skip href="#main" { "To the content" }
                header {
                    a .name href="/console" { (name) }
                    @if let Some(session) = session { (user(session)) }
                }
                @if session.is_some() {
                    nav aria-label="Pages" {
                        ul {
                            @for (path, title, for_operators) in MENU {
                                @if is_operator || !for_operators {
                                    li {
                                        a href={ "/console" (path) } aria-current=[(path == page.at).then_some("page")] {
                                            (title)
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                main #main tabindex="-1" {
                    @if let Some(told) = told { (said(told)) }
                    h1 { (page.title) }
                    div data-live[page.is_live] { (page.body) }
                }
                footer { "Leeward " (env!("CARGO_PKG_VERSION")) ". All times are UTC." }
            }
        }
    };
    shown.into_string()
}

fn user(session: &Session) -> Markup {
    html! {
        form .who method="post" action="/console/logout" {
            (token(session))
            span { (session.who.to_string()) }
            button { "Log out" }
        }
    }
}

/// The hidden field that every form has.
pub fn token(session: &Session) -> Markup {
    html! { input type="hidden" name="token" value=(session.token); }
}

fn said(told: &Told) -> Markup {
    match told {
        Told::Done(text) => html! { p .told role="status" { (text) } },
        Told::Failed(text) => html! { p .told.bad role="alert" { (text) } },
        Told::Secret { text, parts } => html! {
            div .told role="status" {
                p { (text) }
                dl { @for (name, value) in parts { dt { (name) } dd { code { (value) } } } }
                p { "The secret is not shown again: store it now." }
            }
        },
    }
}

/// A page that says why there is none.
pub fn problem(name: &str, status: StatusCode, why: &str) -> String {
    let title = status.canonical_reason().unwrap_or("That did not work");
    let body = html! {
        p .told.bad role="alert" { (why) }
        p { a href="/console" { "To the first page" } }
    };
    whole(name, None, None, &Page::new(title, "?", body))
}

/// A side of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that can be scrolled by itself, also with the keyboard. `empty`: what is said where it
/// has no rows. The first cell of a row is its heading.
pub fn table(caption: &str, columns: &[(&str, Side)], rows: &[Vec<Markup>], empty: &str) -> Markup {
    if rows.is_empty() {
        return html! { p .none { (sentence(empty)) } };
    }
    let class = |side: Side| (side == Side::Right).then_some("n");
    html! {
        div .scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for (title, side) in columns { th scope="col" class=[class(*side)] { (title) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, (cell, (_, side))) in row.iter().zip(columns).enumerate() {
                                @if at == 0 {
                                    th scope="row" class=[class(*side)] { (cell) }
                                } @else {
                                    td class=[class(*side)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names and values.
pub fn facts(all: &[(&str, Markup)]) -> Markup {
    html! { dl .facts { @for (name, value) in all { div { dt { (name) } dd { (value) } } } } }
}

/// A sentence in small print.
pub fn note(text: &str) -> Markup {
    html! { p .none { (sentence(text)) } }
}

/// Text, as a cell of a table.
pub fn text(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A sentence of ours, with `commands` between such marks.
pub fn sentence(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A link, as a cell of a table.
pub fn to(page: &str, fields: &[(&str, &str)], text: &str) -> Markup {
    html! { a href=(link(page, fields)) { (text) } }
}

/// How full something is.
pub fn share(used: u64, limit: u64) -> Markup {
    if limit == 0 {
        return html! { "-" };
    }
    let percent = u128::from(used) * 100 / u128::from(limit);
    html! {
        meter min="0" max="100" high="90" optimum="0" value=(percent.min(100)) { (percent) " %" }
        " " (percent) " %"
    }
}

/// A count and the most that it may be; 0: there is no limit.
pub fn of_limit(used: u64, limit: u64) -> Markup {
    html! { (size::count(used)) @if limit > 0 { " of " (size::count(limit)) } }
}

/// A limit in bytes, and how full it is.
pub fn quota(used: u64, limit: u64) -> Markup {
    html! { (size::bytes_limit(limit)) @if limit > 0 { " " (share(used, limit)) } }
}

/// A form with one button: what is sent besides the token, and the words on it. `why`: a longer
/// name for who does not see the rest of the row.
pub fn button(session: &Session, page: &str, fields: &[(&str, &str)], words: &str, why: &str) -> Markup {
    html! {
        form .inline method="post" action=(link(page, &[])) {
            (token(session))
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button aria-label=(format!("{words}: {why}")) { (words) }
        }
    }
}

/// A drawing that was made here, which is markup already.
pub fn drawing(svg: &str) -> Markup {
    html! { div .chart { (PreEscaped(svg)) } }
}

/// Links to the pages of a long list.
pub fn turning(page: &str, fields: &[(&str, &str)], at: usize, pages: usize) -> Markup {
    let turn = |to: usize| {
        let number = to.to_string();
        let all: Vec<(&str, &str)> = fields.iter().copied().chain([("page", number.as_str())]).collect();
        link(page, &all)
    };
    html! {
        @if pages > 1 {
            nav .turning aria-label="Parts of the list" {
                @if at > 0 { a rel="prev" href=(turn(at - 1)) { "Before" } }
                span { "Part " (at + 1) " of " (pages) }
                @if at + 1 < pages { a rel="next" href=(turn(at + 1)) { "Next" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::sessions::{By, Who};

    #[test]
    fn what_people_called_things_is_only_text() {
        let evil = "\"><script>alert(1)</script>";
        let session =
            Session { who: Who::User(evil.into()), token: evil.into(), by: By::Link(None), number: 1 };
        let rows = [vec![text(evil), to("/files", &[("path", evil)], evil)]];
        let body = html! {
            (table(evil, &[(evil, Side::Left), ("B", Side::Right)], &rows, ""))
            (facts(&[(evil, text(evil))]))
            (button(&session, "/x", &[("a", evil)], evil, evil))
            (turning("/x", &[("q", evil)], 1, 3))
        };
        for told in [
            Told::Done(evil.into()),
            Told::Failed(evil.into()),
            Told::Secret { text: evil.into(), parts: vec![("id", evil.into())] },
        ] {
            let page = Page::new(evil, "", body.clone());
            let whole = whole(evil, Some(&session), Some(&told), &page);
            assert!(!whole.contains("<script>") && whole.contains("&lt;script&gt;"), "{whole}");
        }
        assert!(!problem(evil, StatusCode::NOT_FOUND, evil).contains("<script>"));
    }

    #[test]
    fn only_operators_have_pages_for_operators() {
        let of = |who| {
            let session = Session { who, token: String::new(), by: By::Link(None), number: 1 };
            whole("cell", Some(&session), None, &Page::new("T", "/volumes", html! {}))
        };
        let (user, operator) = (of(Who::User("alice".into())), of(Who::Operator("root".into())));
        assert!(operator.contains("/console/pools") && !user.contains("/console/pools"));
        assert!(user.contains(r#"href="/console/volumes" aria-current="page""#), "{user}");
    }
}
