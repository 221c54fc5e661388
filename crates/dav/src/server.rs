//! The door: finds out who sends a request, runs its method, and returns the answer.

use crate::body::{self, Answer, Body};
use crate::error::{HttpError, Result, too_busy};
use crate::locks::Locks;
use crate::ops::{copied_entries, copy, get, lock, propfind, proppatch, put, remove, staging};
use crate::path::DavPath;
use crate::request::Request;
use crate::shared::{METHODS, Settings, Shared};
use crate::third_party_copy::transfers::Transfers;
use crate::third_party_copy::{NoPlan, Plan};
use crate::xml::request::BODY_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use leeward_auth::{Authority, Grants, Refusal, Verdict, Via};
use leeward_door::limits::TURN_SECS_MAX;
use leeward_door::listen::{
    Answer as Answering, Busy, Certificate, Client, RequestLabels, Site, Turn, Turns,
};
use leeward_door::{FairPermit, FairSemaphore, Files, Path, Principal};
use leeward_env::{Door, Wait};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Longest request for a macaroon.
const MACAROON_BYTES_MAX: usize = 16 << 10;
/// Longest body of an MKCOL, which is ignored.
const MKCOL_BYTES_MAX: usize = 4096;
const MACAROON_REQUEST: &str = "application/macaroon-request";

/// Most requests that wait while an issuer's keys are fetched; other clients are told to come
/// again.
const FETCHING_MAX: usize = 256;
/// How often each of them checks whether the keys are there.
const FETCHING_TIMES: usize = 40;
/// Pause between the checks.
const FETCHING_PAUSE: Duration = Duration::from_millis(250);

/// Path of the report, for all clients with a credential.
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
        let moved = FairSemaphore::new(copied_entries::MOVED_BYTES_MAX);
        let notes = staging::notes_of(&settings.host);
        Dav(Arc::new(Shared {
            files,
            authority,
            env,
            locks,
            transfers,
            turns,
            moved,
            fetching,
            settings,
            notes,
        }))
    }
}

impl Dav {
    /// Begins to remove copies that a crash has left, which were to replace directories. To be
    /// called before the first request is answered, on the runtime that will answer.
    ///
    /// # Errors
    /// The list of such copies cannot be read.
    pub async fn sweep(&self) -> leeward_fs::Result<()> {
        staging::sweep(&self.0).await
    }
}

impl Site for Dav {
    fn door(&self) -> Door {
        Door::Http
    }

    fn answer(self: Arc<Self>, request: http::Request<Body>, client: Client) -> Answering {
        let shared = self.0.clone();
        Box::pin(async move {
            let mut told =
                RequestLabels { operation: operation(request.method()), ..RequestLabels::default() };
            let mut answer = match shared.handle(request, &client, &mut told).await {
                Ok(answer) => answer,
                Err(error) => {
                    told.error = Some(error.why.as_str().into());
                    error.answer().map(body::full)
                }
            };
            answer.extensions_mut().insert(told);
            answer
        })
    }
}

/// The method's name, if it is a known one.
fn operation(method: &Method) -> Option<&'static str> {
    METHODS.split(", ").find(|known| *known == method.as_str())
}

impl Shared {
    async fn handle(
        self: Arc<Shared>,
        request: http::Request<Body>,
        client: &Client,
        told: &mut RequestLabels,
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
        // before its turn: a client that sends slowly holds up nobody else
        let (content, body, _room) = self.read(&method, body, &verdict).await?;
        let turn = self.turn(&verdict).await?;
        if path.encoded() == REPORT && [Method::GET, Method::HEAD].contains(&method) {
            return self.report(&verdict).await;
        }
        let request = Request { dav: self, method, path, headers, host, verdict };
        if request.is_anonymous() {
            request.check_anonymous().await?;
        }
        let answered = dispatch(&request, (content, body), turn).await;
        answered.map_err(|error| match error.status {
            StatusCode::FORBIDDEN if request.is_anonymous() => error.with_challenge(),
            _ => error,
        })
    }

    /// The storage resource report, for a client with a credential; restricted to what that covers.
    async fn report(&self, verdict: &Verdict) -> Result<Answer> {
        if verdict.via == Via::Nothing {
            return Err(HttpError::new(StatusCode::UNAUTHORIZED, "the report is for users").with_challenge());
        }
        let (report, paths) = (self.settings.report.clone(), self.paths_of(verdict).await);
        let made = tokio::task::spawn_blocking(move || report(paths)).await;
        let text = made.map_err(|e| e.to_string()).flatten();
        let text = text.map_err(|why| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
        Ok(body::headers(body::with(StatusCode::OK, text), [(header::CONTENT_TYPE, "application/json")]))
    }

    /// The paths that a credential covers and that its user can reach; `None`: it covers
    /// everything.
    async fn paths_of(&self, verdict: &Verdict) -> Option<Vec<String>> {
        let Grants::Rules(rules) = &verdict.grants else { return None };
        let who = &verdict.who;
        let user = Principal::of_user(&who.name, who.uid, who.gid(), who.other_gids());
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

    /// The content of a request whose body says what to do, in memory that users share; the body of
    /// any other request as it is.
    async fn read(
        &self,
        method: &Method,
        body: Body,
        verdict: &Verdict,
    ) -> Result<(Bytes, Body, Option<FairPermit>)> {
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

    /// Takes a turn; 503 if there is none in time.
    async fn turn(&self, verdict: &Verdict) -> Result<Turn> {
        let who = Principal::new(&verdict.who.name, verdict.who.uid, verdict.who.gid(), &[]);
        let turn = self.turns.take(&who.ctx(Door::Http)).await;
        turn.map_err(|Busy { retry_after_secs }| too_busy(retry_after_secs))
    }

    /// Who sends the request. A check that would have to wait is repeated on a thread that may.
    /// While another request's thread asks an issuer for its keys, this request tries again later,
    /// without a thread.
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
        judged.map_err(|_| {
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "the credential could not be judged")
        })
    }
}

/// The whole body of a request.
///
/// # Errors
/// 413, or it ended early.
async fn read_all(mut body: Body, bytes_max: usize) -> Result<Bytes> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::bad("the body ended early"))?;
        all.extend_from_slice(&frame.into_data().unwrap_or_default());
        if all.len() > bytes_max {
            let why = format!("the body has more than {bytes_max} bytes");
            return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
    }
    Ok(all.into())
}

/// The content of `Authorization`; where there is none, the connection's certificate.
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
        let unknown = || HttpError::from(Refusal::Malformed("Authorization is Basic or Bearer".into()));
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

/// A turn ends with the answer's head; that of an upload ends when its content begins to arrive,
/// which may take as long as the client likes.
fn dispatch<'a>(
    request: &'a Request,
    (content, body): (Bytes, Body),
    turn: Turn,
) -> BoxFuture<'a, Result<Answer>> {
    match request.method.as_str() {
        "PUT" => Box::pin(put::put(request, body, turn)),
        "GET" => in_turn(turn, get::get(request)),
        "HEAD" => in_turn(turn, get::head(request)),
        "DELETE" => in_turn(turn, remove::delete(request)),
        "MKCOL" => in_turn(turn, remove::mkcol(request, content)),
        "COPY" => in_turn(turn, copy_here_or_there(request)),
        "MOVE" => in_turn(turn, copy::rename(request)),
        "PROPFIND" => in_turn(turn, propfind::propfind(request, content)),
        "PROPPATCH" => in_turn(turn, proppatch::proppatch(request, content)),
        "LOCK" => in_turn(turn, lock::lock(request, content)),
        "UNLOCK" => in_turn(turn, lock::unlock(request)),
        "POST" => in_turn(turn, post(request, content)),
        other => {
            let why = format!("{other} is not spoken here");
            let error = HttpError::new(StatusCode::NOT_IMPLEMENTED, why).header(header::ALLOW, METHODS);
            in_turn(turn, std::future::ready(Err(error)))
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
async fn copy_here_or_there(request: &Request) -> Result<Answer> {
    match Plan::of(&request.headers, request.host.as_deref()) {
        Ok(plan) => request.dav.transfers.begin(request, plan).await,
        Err(NoPlan::Here) => copy::copy(request).await,
        Err(NoPlan::Bad(bad)) => Err(bad.into()),
        Err(NoPlan::Scheme(why)) => Err(HttpError::new(StatusCode::NOT_IMPLEMENTED, why)),
    }
}

/// Answers a request for a token that grants less than the one it comes with.
async fn post(request: &Request, content: Bytes) -> Result<Answer> {
    let kind = crate::head::once(&request.headers, "content-type")?.unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim() != MACAROON_REQUEST {
        let why = format!("POST takes a body of {MACAROON_REQUEST}; a file is put");
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let dav = &request.dav;
    let minted =
        dav.authority.macaroon(&request.verdict, &request.path.cell(), &content, &dav.settings.location)?;
    let text =
        serde_json::json!({ "macaroon": minted.macaroon, "expires_in": minted.expires_in }).to_string();
    let list = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    Ok(body::headers(body::with(StatusCode::OK, text), list))
}
