//! The door: from a request to who asks, to the method, to an answer.

use crate::asked::Asked;
use crate::body::{self, Answer, Body};
use crate::locks::Locks;
use crate::oops::{Oops, Result, too_busy};
use crate::ops::{aside, copy, get, lock, moved, propfind, proppatch, put, remove};
use crate::path::DavPath;
use crate::shared::{METHODS, Settings, Shared};
use crate::third::transfers::Transfers;
use crate::third::{NoPlan, Plan};
use crate::xml::request::BODY_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use leeward_auth::{Authority, Grants, Refusal, Verdict, Via};
use leeward_door::limits::TURN_SECS_MAX;
use leeward_door::listen::{Answer as Answering, Busy, Certificate, Client, Site, Told, Turn, Turns};
use leeward_door::{Files, Path, Share, Shares, Who};
use leeward_env::{Door, Wait};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Longest request for a macaroon.
const MACAROON_BYTES_MAX: usize = 16 << 10;
/// Longest body of an MKCOL, which means nothing.
const MKCOL_BYTES_MAX: usize = 4096;
const MACAROON_REQUEST: &str = "application/macaroon-request";

/// Most requests that wait while an issuer's keys are fetched; others are told to come again.
const FETCHING_MAX: usize = 256;
/// How often each of them looks whether the keys are there.
const FETCHING_TIMES: usize = 40;
/// How long it waits in between.
const FETCHING_PAUSE: Duration = Duration::from_millis(250);

/// Where the report is, for all who have a credential.
const REPORT: &str = "/.well-known/srr";

/// HTTP and WebDAV.
pub struct Dav(Arc<Shared>);

impl Dav {
    /// A door to these files.
    pub fn new(
        files: Files,
        authority: Arc<Authority>,
        transfers: Transfers,
        turns: Turns,
        settings: Settings,
    ) -> Dav {
        let env = files.env().clone();
        let locks = Locks::new(&env);
        let fetching = Semaphore::new(FETCHING_MAX);
        let moved = Shares::new(moved::MOVED_BYTES_MAX);
        Dav(Arc::new(Shared { files, authority, env, locks, transfers, turns, moved, fetching, settings }))
    }
}

impl Dav {
    /// Begins to remove what a crash has left of copies that were to replace directories. To be called before anybody is answered, on the
    /// runtime that will.
    ///
    /// # Errors
    /// Where such copies are cannot be read.
    pub async fn sweep(&self) -> leeward_fs::Result<()> {
        aside::sweep(&self.0).await
    }
}

impl Site for Dav {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answering {
        let shared = self.0.clone();
        Box::pin(async move {
            let mut told = Told { operation: operation(request.method()), ..Told::default() };
            let mut answer = match shared.handle(request, &client, &mut told).await {
                Ok(answer) => answer,
                Err(oops) => {
                    told.error = Some(oops.why.as_str().into());
                    oops.answer().map(body::full)
                }
            };
            answer.extensions_mut().insert(told);
            answer
        })
    }
}

/// The method's name, for those that there are.
fn operation(method: &Method) -> Option<&'static str> {
    METHODS.split(", ").find(|known| *known == method.as_str())
}

impl Shared {
    async fn handle(
        self: Arc<Shared>,
        request: Request<Body>,
        client: &Client,
        told: &mut Told,
    ) -> Result<Answer> {
        let (head, body) = request.into_parts();
        if head.method == Method::OPTIONS {
            return Ok(options());
        }
        let path = DavPath::parse(head.uri.path())?;
        let verdict = self.who(&head.headers, client).await?;
        told.user = Some(verdict.who.name.clone());
        let Parts { method, headers, uri, .. } = head;
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or(uri.authority().map(|authority| authority.as_str())).map(str::to_string);
        // before it has its turn: who sends slowly keeps nobody from his
        let (content, body, _room) = self.read(&method, body, &verdict).await?;
        let turn = self.turn(&verdict).await?;
        if path.encoded() == REPORT && [Method::GET, Method::HEAD].contains(&method) {
            return self.report(&verdict).await;
        }
        let asked = Asked { dav: self, method, path, headers, host, verdict };
        if asked.is_anonymous() {
            asked.check_anonymous().await?;
        }
        let answered = dispatch(&asked, (content, body), turn).await;
        answered.map_err(|oops| match oops.status {
            StatusCode::FORBIDDEN if asked.is_anonymous() => oops.ask_who(),
            _ => oops,
        })
    }

    /// The storage resource report, for who has a credential; of what that is limited to.
    async fn report(&self, verdict: &Verdict) -> Result<Answer> {
        if verdict.via == Via::Nothing {
            return Err(Oops::new(StatusCode::UNAUTHORIZED, "the report is for users").ask_who());
        }
        let (report, paths) = (self.settings.report.clone(), self.paths_of(verdict).await);
        let made = tokio::task::spawn_blocking(move || report(paths)).await;
        let text = made.map_err(|e| e.to_string()).flatten();
        let text = text.map_err(|why| Oops::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
        Ok(body::headers(body::with(StatusCode::OK, text), [(header::CONTENT_TYPE, "application/json")]))
    }

    /// The paths that a credential is limited to, those that its user can reach; `None`: it is not limited.
    async fn paths_of(&self, verdict: &Verdict) -> Option<Vec<String>> {
        let Grants::Rules(rules) = &verdict.grants else { return None };
        let who = &verdict.who;
        let user = Who::new(&who.name, who.uid, who.gid(), who.other_gids());
        let tree = self.files.tree(&user, Door::Http, &Path::default());
        let mut paths = Vec::new();
        for rule in rules.iter().filter(|rule| !rule.rights.is_empty()) {
            let path = rule.path.clone().with_dir(false).to_string();
            let found = match Path::parse(path.trim_start_matches('/').as_bytes()) {
                Ok(at) => tree.stat(&at, &[]).await.is_ok(),
                Err(_) => false,
            };
            if found && !paths.contains(&path) {
                paths.push(path);
            }
        }
        Some(paths)
    }

    /// The content of a request that says there what is to be done, in memory that users share; the body of any other as it is.
    async fn read(
        &self,
        method: &Method,
        body: Body,
        verdict: &Verdict,
    ) -> Result<(Bytes, Body, Option<Share>)> {
        let bytes_max = match method.as_str() {
            "PROPFIND" | "PROPPATCH" | "LOCK" => BODY_BYTES_MAX,
            "POST" => MACAROON_BYTES_MAX,
            "MKCOL" => MKCOL_BYTES_MAX,
            _ => return Ok((Bytes::new(), body, None)),
        };
        if body.is_end_stream() {
            return Ok((Bytes::new(), body, None));
        }
        let bytes = body.size_hint().exact().map_or(bytes_max, |bytes| bytes_max.min(bytes as usize));
        let time = Duration::from_secs(TURN_SECS_MAX);
        let room = self.files.incoming().take_within(verdict.who.uid, bytes, time).await;
        let room = room.ok_or_else(|| too_busy(TURN_SECS_MAX))?;
        Ok((read_all(body, bytes_max).await?, body::full(Bytes::new()), Some(room)))
    }

    /// Its turn, or word that there is too much to do.
    async fn turn(&self, verdict: &Verdict) -> Result<Turn> {
        let who = Who::new(&verdict.who.name, verdict.who.uid, verdict.who.gid(), &[]);
        let turn = self.turns.take(&who.ctx(Door::Http)).await;
        turn.map_err(|Busy { retry_after_secs }| too_busy(retry_after_secs))
    }

    /// Whose request it is. What would have to wait is asked again on a thread that may; while another request's thread asks an issuer
    /// for its keys, this one comes again, without a thread.
    async fn who(self: &Arc<Shared>, headers: &HeaderMap, client: &Client) -> Result<Verdict> {
        let Some(credential) = Credential::of(headers, client)? else { return Ok(Verdict::anonymous()) };
        let credential = Arc::new(credential);
        let mut waits = None;
        for _ in 0..FETCHING_TIMES {
            match self.judge(&credential).await? {
                Err(Refusal::Fetching) => {}
                judged => return Ok(judged?),
            }
            if waits.is_none() {
                waits = Some(self.fetching.try_acquire().map_err(|_| Refusal::Fetching)?);
            }
            tokio::time::sleep(FETCHING_PAUSE).await;
        }
        Err(Refusal::Fetching.into())
    }

    async fn judge(&self, credential: &Arc<Credential>) -> Result<std::result::Result<Verdict, Refusal>> {
        match credential.judge(&self.authority, Wait::Never) {
            Err(Refusal::WouldBlock) => {}
            judged => return Ok(judged),
        }
        let (authority, credential) = (self.authority.clone(), credential.clone());
        let judged = tokio::task::spawn_blocking(move || credential.judge(&authority, Wait::Allowed)).await;
        judged.map_err(|_| Oops::new(StatusCode::INTERNAL_SERVER_ERROR, "the credential could not be judged"))
    }
}

/// The whole body of a request.
///
/// # Errors
/// 413, or it ended early.
async fn read_all(mut body: Body, bytes_max: usize) -> Result<Bytes> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Oops::bad("the body ended early"))?;
        all.extend_from_slice(&frame.into_data().unwrap_or_default());
        if all.len() > bytes_max {
            let why = format!("the body has more than {bytes_max} bytes");
            return Err(Oops::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
    }
    Ok(all.into())
}

/// What is in `Authorization`; where there is none, what the connection has shown.
enum Credential {
    Basic(String, String),
    Bearer(String),
    Certificate(Arc<Certificate>),
}

impl Credential {
    fn of(headers: &HeaderMap, client: &Client) -> Result<Option<Credential>> {
        let Some(text) = crate::head::once(headers, "authorization")? else {
            return Ok(client.certificate_for(headers).cloned().map(Credential::Certificate));
        };
        let unknown = || Oops::from(Refusal::Malformed("Authorization is Basic or Bearer".into()));
        let (scheme, rest) = text.split_once(' ').ok_or_else(unknown)?;
        let rest = rest.trim();
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Ok(Some(Credential::Bearer(rest.into()))),
            "basic" => {
                let bytes = BASE64.decode(rest).map_err(|_| unknown())?;
                let text = String::from_utf8(bytes).map_err(|_| unknown())?;
                let (name, password) = text.split_once(':').ok_or_else(unknown)?;
                Ok(Some(Credential::Basic(name.into(), password.into())))
            }
            _ => Err(unknown()),
        }
    }

    fn judge(&self, authority: &Authority, wait: Wait) -> std::result::Result<Verdict, Refusal> {
        match self {
            Credential::Basic(name, password) => authority.basic(name, password, wait),
            Credential::Bearer(token) => authority.bearer(token, wait),
            Credential::Certificate(shown) => {
                authority.certificate(&shown.names().collect::<Vec<_>>(), shown.until_secs, wait)
            }
        }
    }
}

fn options() -> Answer {
    let list = [
        (header::ALLOW, METHODS),
        (HeaderName::from_static("dav"), "1, 2"),
        (HeaderName::from_static("ms-author-via"), "DAV"),
        (header::ACCEPT_RANGES, "bytes"),
    ];
    body::headers(body::empty(StatusCode::OK), list)
}

/// A turn ends with the answer's head; that of an upload when its content begins to come, which may take as long as the client likes.
fn dispatch<'a>(
    asked: &'a Asked,
    (content, body): (Bytes, Body),
    turn: Turn,
) -> BoxFuture<'a, Result<Answer>> {
    match asked.method.as_str() {
        "PUT" => Box::pin(put::put(asked, body, turn)),
        "GET" => in_turn(turn, get::get(asked)),
        "HEAD" => in_turn(turn, get::head(asked)),
        "DELETE" => in_turn(turn, remove::delete(asked)),
        "MKCOL" => in_turn(turn, remove::mkcol(asked, content)),
        "COPY" => in_turn(turn, copy_here_or_there(asked)),
        "MOVE" => in_turn(turn, copy::rename(asked)),
        "PROPFIND" => in_turn(turn, propfind::propfind(asked, content)),
        "PROPPATCH" => in_turn(turn, proppatch::proppatch(asked, content)),
        "LOCK" => in_turn(turn, lock::lock(asked, content)),
        "UNLOCK" => in_turn(turn, lock::unlock(asked)),
        "POST" => in_turn(turn, post(asked, content)),
        other => {
            let why = format!("{other} is not spoken here");
            let oops = Oops::new(StatusCode::NOT_IMPLEMENTED, why).header(header::ALLOW, METHODS);
            in_turn(turn, std::future::ready(Err(oops)))
        }
    }
}

fn in_turn<'a>(
    turn: Turn,
    work: impl Future<Output = Result<Answer>> + Send + 'a,
) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let _turn = turn;
        work.await
    })
}

/// COPY: between paths of this server, or with another one.
async fn copy_here_or_there(asked: &Asked) -> Result<Answer> {
    match Plan::of(&asked.headers, asked.host.as_deref()) {
        Ok(plan) => asked.dav.transfers.begin(asked, plan).await,
        Err(NoPlan::Here) => copy::copy(asked).await,
        Err(NoPlan::Bad(bad)) => Err(bad.into()),
        Err(NoPlan::Scheme(why)) => Err(Oops::new(StatusCode::NOT_IMPLEMENTED, why)),
    }
}

/// A request for a token that gives less than the one it comes with.
async fn post(asked: &Asked, content: Bytes) -> Result<Answer> {
    let kind = crate::head::once(&asked.headers, "content-type")?.unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim() != MACAROON_REQUEST {
        let why = format!("POST takes a body of {MACAROON_REQUEST}; a file is put");
        return Err(Oops::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let dav = &asked.dav;
    let minted =
        dav.authority.macaroon(&asked.verdict, &asked.path.cell(), &content, &dav.settings.location)?;
    let text =
        serde_json::json!({ "macaroon": minted.macaroon, "expires_in": minted.expires_in }).to_string();
    let list = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    Ok(body::headers(body::with(StatusCode::OK, text), list))
}
