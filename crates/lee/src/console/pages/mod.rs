//! The pages of the console, one file each, and the table of them.
//!
//! A page that shows something is read (GET) and changes nothing. A form is sent (POST), does one
//! thing, and goes on to a page that says how that went.

mod alerts;
mod bin;
mod files;
mod keys;
mod latency;
mod login;
mod machines;
mod now;
mod pools;
mod projects;
mod reports;
mod restore;
mod snapshots;
mod volumes;

pub use files::door_path;

use super::sessions::Who;
use super::visit::{Made, Visit};

/// Whose a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Anybody's, who need not be logged in.
    Everybody,
    /// Who is logged in; the cell tells each what is his.
    Users,
    /// Operators'.
    Operators,
}

/// A page, or what a form does.
pub struct Route {
    /// Its path, below `/console`.
    pub path: &'static str,
    /// Whether it is sent a form.
    pub is_post: bool,
    /// Whose it is.
    pub who: For,
    /// What it shows or does, for docs/RIGHTS.md.
    pub what: &'static str,
    /// Makes it.
    pub make: fn(&Visit<'_>) -> Made,
}

const fn get(path: &'static str, who: For, what: &'static str, make: fn(&Visit<'_>) -> Made) -> Route {
    Route { path, is_post: false, who, what, make }
}

const fn post(path: &'static str, who: For, what: &'static str, make: fn(&Visit<'_>) -> Made) -> Route {
    Route { path, is_post: true, who, what, make }
}

/// All of them.
pub static ROUTES: [Route; 34] = [
    get("", For::Users, "what goes on now: who does what, who waits behind whom", now::show),
    get("/volumes", For::Users, "volumes, of users those that they own or look after", volumes::list),
    get("/volume", For::Users, "one of these volumes, with its history and snapshots", volumes::show),
    get("/projects", For::Users, "projects, of users those that they look after", projects::list),
    get("/project", For::Users, "one of these projects, with its history and volumes", projects::show),
    get("/files", For::Users, "a directory, as far as the user may list it", files::list),
    get("/file", For::Users, "the content of a file that the user may read", files::content),
    get("/snapshots", For::Users, "the snapshots that show a directory", snapshots::list),
    post("/snapshots/create", For::Users, "takes a snapshot, as `lee snap create`", snapshots::create),
    post("/snapshots/remove", For::Users, "removes a snapshot, as `lee snap remove`", snapshots::remove),
    post(
        "/restore",
        For::Users,
        "brings a file or a tree back from a snapshot, to who may read it there",
        restore::restore,
    ),
    get("/bin", For::Users, "recycle bins, of users what they removed or own", bin::list),
    post("/bin/restore", For::Users, "brings something of that back, as `lee bin restore`", bin::restore),
    get(
        "/latency",
        For::Users,
        "how long operations took over the day, by volume; of stores for operators",
        latency::show,
    ),
    get("/reports", For::Users, "usage over time, of users their own", reports::show),
    get("/reports/csv", For::Users, "the same as comma-separated values", reports::csv),
    get("/month", For::Operators, "the month on a page, as `lee report month`", reports::month),
    get("/month/csv", For::Operators, "the same as comma-separated values", reports::month_csv),
    get("/pools", For::Operators, "pools and stores, and how they are", pools::show),
    get("/machines", For::Operators, "other machines and their sessions", machines::show),
    post(
        "/machines/end",
        For::Operators,
        "ends the session of a machine, as `lee session end`",
        machines::end,
    ),
    get("/alerts", For::Operators, "what an operator should look at", alerts::show),
    get("/help", For::Users, "what to do about an alert or a disaster", alerts::help),
    get("/keys", For::Users, "S3 keys, of users their own, tokens, and sessions of the console", keys::show),
    post("/keys/create", For::Users, "makes a key, users for themselves", keys::create),
    post("/keys/revoke", For::Users, "revokes a key, users their own", keys::revoke),
    post(
        "/keys/token",
        For::Users,
        "makes a token, users for themselves, as `lee token create`",
        keys::make_token,
    ),
    post(
        "/keys/void",
        For::Users,
        "makes all tokens void, users their own, as `lee token revoke`",
        keys::void_tokens,
    ),
    post("/keys/end", For::Users, "ends a session of one's own in the console", keys::end),
    get("/login", For::Everybody, "the way in", login::show),
    post("/login", For::Everybody, "logs in by the code of a link, or by a key", login::enter),
    get(
        "/sign-on",
        For::Everybody,
        "goes to the provider of the site, where there is one, to log in there",
        login::go,
    ),
    get("/sign-on/back", For::Everybody, "comes back from it, in the browser that went", login::back),
    post("/logout", For::Users, "logs out", login::leave),
];

/// The page of this path, below `/console`.
pub fn find(path: &str, is_post: bool) -> Option<&'static Route> {
    let path = path.trim_end_matches('/');
    ROUTES.iter().find(|route| route.path == path && route.is_post == is_post)
}

impl Route {
    /// Whether it is for who is logged in like this.
    pub fn is_for(&self, who: Option<&Who>) -> bool {
        match self.who {
            For::Everybody => true,
            For::Users => who.is_some(),
            For::Operators => who.is_some_and(Who::is_operator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_its_path_and_method() {
        assert!(
            find("", false).is_some() && find("/", false).is_some() && find("/volumes/", false).is_some()
        );
        assert!(find("/login", true).is_some() && find("/logout", true).is_some());
        assert!(
            find("/logout", false).is_none()
                && find("/volumes", true).is_none()
                && find("/x", false).is_none()
        );
        let user = Who::User("alice".into());
        let pools = find("/pools", false).expect("a page");
        assert!(
            pools.is_for(Some(&Who::Operator("root".into())))
                && !pools.is_for(Some(&user))
                && !pools.is_for(None)
        );
        let volumes = find("/volumes", false).expect("a page");
        assert!(volumes.is_for(Some(&user)) && !volumes.is_for(None));
        for (index, route) in ROUTES.iter().enumerate() {
            assert!(!ROUTES[index + 1..].iter().any(|o| (o.path, o.is_post) == (route.path, route.is_post)));
        }
    }

    #[test]
    fn the_menu_leads_to_pages_of_who_sees_it() {
        for (path, _, for_operators) in crate::console::html::MENU {
            let route = find(path, false).expect(path);
            assert_eq!(route.who == For::Operators, for_operators, "{path}");
        }
    }
}
