//! From a request to a page: which one, who asks, whether the form may be believed, and the place
//! in which the page is made.
//!
//! Users share places fairly, and operators have some of their own: whatever users ask for, and
//! however long a store takes, operators see what goes on. What waits for a client, such as a file,
//! is opened outside of them.

use super::answers::{self, Cookie, Reply};
use super::form::{self, Form};
use super::pages::{self, For};
use super::sessions::{self, By, Session, Who};
use super::visit::{Visit, about};
use super::{Problem, Seat, Shared, below, html};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, Request, Response, StatusCode};
use leeward_auth::{Authority, Identity, Refusal};
use leeward_door::limits::TURN_SECS_MAX;
use leeward_door::listen::{Body, Client, RequestLabels};
use leeward_door::{FairPermit, Principal};
use leeward_env::{Ctx, Door, Wait};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Longest form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// How long a request waits for what it shares with others.
const PATIENCE: Duration = Duration::from_secs(TURN_SECS_MAX);
/// Fields of forms that are logged: none that is secret.
const LOGGED: [&str; 9] = ["path", "in", "what", "name", "user", "id", "host", "session", "number"];
/// By this header the script says that a page brings itself up to date.
const REFRESH: &str = "x-leeward-refresh";

/// A request, as far as it is known what it is and from whom.
pub struct Known {
    /// What is asked for.
    pub page: &'static pages::Route,
    /// What was sent.
    pub form: Form,
    /// Who is logged in.
    pub session: Option<(Session, Seat)>,
    /// Where the browser is.
    pub address: String,
    /// The cookie of a login at a provider.
    pub sign_on: String,
    is_encrypted: bool,
}

impl Known {
    fn uid(&self) -> u32 {
        uid_of(self.session.as_ref())
    }

    /// Notes what a form is to do, and about what.
    fn log(&self) {
        if !self.page.is_post {
            return;
        }
        let who = self.session.as_ref().map_or_else(
            || "somebody".to_owned(),
            |(session, _)| format!("{} (by {})", session.who, session.by),
        );
        let about: Vec<String> = LOGGED
            .iter()
            .filter(|name| !self.form.get(name).is_empty())
            .map(|name| format!(" {name}={:?}", self.form.get(name)))
            .collect();
        tracing::info!("console: {who} at {}: {}:{}", self.address, self.page.what, about.concat());
    }

    fn is_operator(&self) -> bool {
        matches!(self.session, Some((_, Seat::Operator)))
    }
}

impl Shared {
    pub(super) async fn answer(
        self: Arc<Shared>,
        request: Request<Body>,
        client: &Client,
        told: &mut RequestLabels,
    ) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        let path = below(request.uri().path()).unwrap_or_default().to_owned();
        let mut answer = match answers::asset(&path) {
            Some(answer) => answer,
            None => match self.clone().page(request, &path, client, told).await {
                Ok(answer) => answer,
                Err(problem) => self.problem(&problem, told),
            },
        };
        if is_head {
            *answer.body_mut() = answers::full("");
        }
        answer
    }

    async fn page(
        self: Arc<Shared>,
        request: Request<Body>,
        path: &str,
        client: &Client,
        told: &mut RequestLabels,
    ) -> Result<Response<Body>, Problem> {
        let known = self.known(request, path, client, told).await?;
        let ctx = Principal::new("", known.uid(), known.uid(), &[]).ctx(Door::Http);
        let turn = self.turns.take(&ctx).await.map_err(|_| Problem::busy())?;
        let place = self.place(&known).await?;
        let shared = self.clone();
        let made = spawn_blocking(move || {
            let _until_made = (place, turn);
            known.log();
            let reply = (known.page.make)(&Visit::new(&shared, &known));
            (known, reply)
        });
        let failed = |_| Problem::of(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made");
        let (known, reply) = made.await.map_err(failed)?;
        self.finish(&known, reply?, &ctx).await
    }

    /// A place in which the page is made.
    async fn place(&self, known: &Known) -> Result<FairPermit, Problem> {
        let places = if known.is_operator() { &self.of_operators } else { &self.of_users };
        places.take_within(known.uid(), 1, PATIENCE).await.ok_or_else(Problem::busy)
    }

    /// Finds out what is asked for, and by whom.
    async fn known(
        &self,
        request: Request<Body>,
        path: &str,
        client: &Client,
        told: &mut RequestLabels,
    ) -> Result<Known, Problem> {
        let (head, body) = request.into_parts();
        let is_post = head.method == Method::POST;
        if !is_post && ![Method::GET, Method::HEAD].contains(&head.method) {
            let why = "a page is read (GET) or sent a form (POST)";
            return Err(Problem::of(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        let none = || Problem::of(StatusCode::NOT_FOUND, format!("there is no page /console{path}"));
        let page = pages::find(path, is_post).ok_or_else(none)?;
        let is_encrypted = client.tls || self.parts.url.starts_with("https://");
        let session = match self.session(&head.headers, is_encrypted).await {
            // who is not let in any more may log in anew
            Err(_) if page.who == For::Everybody => None,
            session => session?,
        };
        told.user = session.as_ref().map(|(session, _)| session.who.to_string().into());
        if !page.is_for(session.as_ref().map(|(session, _)| &session.who)) {
            let there = head.uri.path_and_query().filter(|_| !is_post).map_or("/console", |at| at.as_str());
            return Err(match session {
                None => Problem::LogIn(there.into(), None),
                Some(_) => Problem::of(StatusCode::FORBIDDEN, "this page is for operators of the cell"),
            });
        }
        let form = match is_post {
            true => self.form(&head.headers, body, uid_of(session.as_ref())).await?,
            false => Form::parse(head.uri.query().unwrap_or_default().as_bytes()),
        };
        if let Some((session, _)) = session.as_ref().filter(|_| is_post && page.who != For::Everybody)
            && !sessions::is_same(form.get("token"), &session.token)
        {
            let why = "the form is of another session: go back, load the page again, and send it once more";
            return Err(Problem::of(StatusCode::FORBIDDEN, why));
        }
        let sign_on = cookie_of(&head.headers, answers::sign_on_cookie(is_encrypted)).unwrap_or_default();
        let (sign_on, address) = (sign_on.to_owned(), client.address.ip().to_string());
        Ok(Known { page, form, session, address, sign_on, is_encrypted })
    }

    /// Who is logged in, with the rights of now. `None`: nobody.
    async fn session(
        &self,
        headers: &HeaderMap,
        is_encrypted: bool,
    ) -> Result<Option<(Session, Seat)>, Problem> {
        let Some(secret) = cookie_of(headers, answers::session_cookie(is_encrypted)) else { return Ok(None) };
        let found = self.parts.sessions.find(secret, !headers.contains_key(REFRESH));
        let Some(session) = found else { return Ok(None) };
        let ended = |why: String| {
            self.parts.sessions.end(&session.who, session.number);
            Err(Problem::LogIn("/console".into(), Some(why)))
        };
        let host = match &session.by {
            By::Link(host) => host.clone(),
            By::Key(_) | By::Provider(..) => None,
        };
        if let Some(host) = host.as_ref().filter(|host| !self.parts.cell.lets_in(host)) {
            let why = "may not use all of the cell any more";
            return ended(format!("the machine {host}, where this session began, {why}"));
        }
        let Who::User(name) = session.who.clone() else { return Ok(Some((session, Seat::Operator))) };
        match self.identity(&name, &session.by).await {
            Ok(who) => {
                let user = Principal::of_user(&who.name, who.uid, who.gid(), who.other_gids());
                let ctx = Ctx { gids: user.groups, ..Ctx::user(who.uid, who.gid()) };
                Ok(Some((session, Seat::User { ctx, host })))
            }
            Err(refusal) if refusal.is_passing() => {
                Err(Problem::of(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()))
            }
            Err(refusal) => ended(refusal.to_string()),
        }
    }

    /// The user; one who logged in with a key only as long as there is that key. What has to wait
    /// does so on a thread that may.
    async fn identity(&self, name: &Arc<str>, by: &By) -> Result<Identity, Refusal> {
        let (name, by) = (name.clone(), by.clone());
        let ask = move |authority: &Authority, wait: Wait| match &by {
            By::Key(key) => authority.s3_key(key, wait).map(|(_, verdict)| verdict.who),
            By::Link(_) | By::Provider(..) => authority.user(&name, wait),
        };
        match ask(&self.parts.authority, Wait::Never) {
            Err(Refusal::WouldBlock) => {
                let authority = self.parts.authority.clone();
                let asked = spawn_blocking(move || ask(&authority, Wait::Allowed)).await;
                asked.map_err(|e| Refusal::Unavailable(e.to_string()))?
            }
            said => said,
        }
    }

    /// The fields of a form that was sent from a page of this server.
    async fn form(&self, headers: &HeaderMap, body: Body, uid: u32) -> Result<Form, Problem> {
        if !is_of_this_site(headers, &self.parts.url) {
            return Err(Problem::of(StatusCode::FORBIDDEN, "this form was sent by a page of another site"));
        }
        let too_large = || Problem::of(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large");
        let bytes = body.size_hint().exact().map_or(FORM_BYTES_MAX, |bytes| bytes as usize);
        if bytes > FORM_BYTES_MAX {
            return Err(too_large());
        }
        let room = self.parts.files.incoming().take_within(uid, bytes, PATIENCE).await;
        let _room = room.ok_or_else(Problem::busy)?;
        let mut body = Limited::new(body, FORM_BYTES_MAX);
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            all.extend_from_slice(&frame.map_err(|_| too_large())?.into_data().unwrap_or_default());
        }
        Ok(Form::parse(&all))
    }

    /// The answer. What waits for the client to take it counts as the user's memory.
    async fn finish(&self, known: &Known, reply: Reply, ctx: &Ctx) -> Result<Response<Body>, Problem> {
        Ok(match reply {
            Reply::Page(page) => {
                let session = known.session.as_ref().map(|(session, _)| session);
                let told = session.zip(known.form.number("told"));
                let told = told.and_then(|(of, told)| self.parts.sessions.told(of.number, told));
                let html = html::whole(&self.parts.name, session, told.as_ref(), &page);
                let html = self.parts.files.counted(ctx, html.into_bytes()).await;
                answers::page(StatusCode::OK, html.map_err(|_| Problem::busy())?)
            }
            Reply::See(there) => answers::see(&there, &[], known.is_encrypted),
            Reply::Cookies(there, cookies) => answers::see(&there, &cookies, known.is_encrypted),
            Reply::File(path) => self.file(known, &path).await?,
            Reply::Text(kind, name, text) => {
                let text = self.parts.files.counted(ctx, text.into_bytes()).await;
                answers::text(kind, &name, text.map_err(|_| Problem::busy())?)
            }
        })
    }

    async fn file(&self, known: &Known, path: &[u8]) -> Result<Response<Body>, Problem> {
        let tree = Visit::new(self, known).tree()?;
        let file = tree.open(&pages::door_path(path)?, &[]).await.map_err(|e| about(path, &e))?;
        Ok(answers::file(file, path.rsplit(|b| *b == b'/').next().unwrap_or_default()))
    }

    fn problem(&self, problem: &Problem, told: &mut RequestLabels) -> Response<Body> {
        match problem {
            Problem::LogIn(next, why) => {
                let mut fields = vec![("next", next.as_str())];
                if let Some(why) = why {
                    told.error = Some(why.as_str().into());
                    fields.push(("why", why));
                }
                answers::see(&form::link("/login", &fields), &[] as &[Cookie], false)
            }
            Problem::Failed(status, why) => {
                told.error = Some(why.as_str().into());
                answers::page(*status, html::problem(&self.parts.name, *status, why))
            }
        }
    }
}

fn uid_of(session: Option<&(Session, Seat)>) -> u32 {
    match session {
        Some((_, Seat::User { ctx, .. })) => ctx.uid,
        Some((_, Seat::Operator)) => 0,
        None => Identity::nobody().uid,
    }
}

/// Whether a request comes from a page of this server, as far as browsers say. `url`: of the
/// server, where it is not known by its own address.
fn is_of_this_site(headers: &HeaderMap, url: &str) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(from) = headers.get("sec-fetch-site") {
        return from.as_bytes() == b"same-origin";
    }
    // browsers that do not say so say this
    let Some(origin) = text(header::ORIGIN) else { return false };
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    host.is_some() && (host == text(header::HOST) || origin == url.trim_end_matches('/'))
}

fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    form::cookie(all, name)
}
