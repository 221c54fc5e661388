//! Third-party copies. A client tells this server to fetch a file from another server (pull), or to
//! send one there (push). The client gets progress reports until the copy is done (performance
//! markers).
//!
//! The answer begins at once; its last line has the result. When the client goes away the transfer
//! ends, and nothing is left of it here. Credentials for the other server are in the request and in
//! nothing else: not kept, not logged.

mod body;
pub mod plan;
pub mod reach;
pub mod remote;
pub mod transfers;
mod verify;

pub(crate) use plan::{NoPlan, Plan};

use crate::body::{Answer, BoxError, empty, headers, stream as stream_body};
use crate::error::{HttpError, Result};
use crate::head::digest;
use crate::marker;
use crate::ops::copy;
use crate::ops::put::Writing;
use crate::request::{Request, Resource};
use crate::sums::{Algorithm, Running, value};
use body::{Outgoing, Sent};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use leeward_auth::Activity;
use leeward_door::limits::{SLOW_BYTES_PER_SEC, STALL_SECS_MAX};
use leeward_door::{FairPermit, File, notes};
use leeward_env::{Env, Nanos, hex};
use parking_lot::Mutex;
use plan::Direction;
use remote::{Failed, IDLE, Remote, shown};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use transfers::Transfers;
use verify::Verifier;

/// Time between two progress reports.
const MARKER_EVERY: Duration = Duration::from_secs(5);
/// When a client that was refused because of other users may come again, seconds.
const COME_AGAIN: &str = "15";

/// Progress of a transfer. Cheap to clone.
#[derive(Clone, Default)]
struct Progress {
    sent: Sent,
    peer: Arc<Mutex<Option<SocketAddr>>>,
}

impl Progress {
    fn marker(&self, env: &Env) -> Bytes {
        marker::marker(env.wall() / 1_000_000_000, self.sent.bytes(), *self.peer.lock()).into()
    }
}

/// The transfer to make; everything is checked that can be checked before.
enum Job {
    Pull(Box<Writing>),
    Push(Box<(Resource, File)>),
}

impl Transfers {
    /// Begins a transfer.
    ///
    /// # Errors
    /// It is not allowed, or there are too many (429).
    pub(crate) async fn begin(&self, request: &Request, plan: Plan) -> Result<Answer> {
        let errand = match plan.direction {
            Direction::Pull => Job::Pull(Box::new(copy::target(request).await?.begin(None).await?)),
            Direction::Push => {
                let place = request.place(Activity::Read)?;
                let file = place.tree.open(&place.path, &[notes::SUMS]).await.map_err(|e| place.error(&e))?;
                Job::Push(Box::new((place, file)))
            }
        };
        let slot = self.slots.try_take(request.verdict.who.uid, 1).ok_or_else(|| {
            let why = "as many transfers as this server makes for you at a time are on their way";
            HttpError::new(StatusCode::TOO_MANY_REQUESTS, why).header(header::RETRY_AFTER, COME_AGAIN)
        })?;
        let transfer = Transfer {
            env: request.dav.env.clone(),
            remote: self.remote.clone(),
            plan,
            progress: Progress::default(),
        };
        let mut answer = empty(StatusCode::CREATED);
        *answer.body_mut() = transfer.start(errand, slot);
        Ok(headers(
            answer,
            [(header::CONTENT_TYPE, marker::CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")],
        ))
    }
}

/// A running transfer.
struct Transfer {
    env: Env,
    remote: Remote,
    plan: Plan,
    progress: Progress,
}

/// Checks the speed of another server, while this one waits for it.
#[derive(Default)]
struct SpeedCheck {
    waited: Nanos,
}

impl SpeedCheck {
    /// Counts a wait of `waited`, after `bytes` in all. Returns whether that is slower than any
    /// client may be.
    fn is_slow(&mut self, waited: Nanos, bytes: u64) -> bool {
        self.waited += waited;
        let secs = self.waited / 1_000_000_000;
        secs > STALL_SECS_MAX && bytes / secs < SLOW_BYTES_PER_SEC
    }
}

/// Ends a task when the answer that it works for is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Transfer {
    /// The answer's body: markers, then the result.
    fn start(self, errand: Job, slot: FairPermit) -> crate::body::Body {
        let (tell, told) = mpsc::channel::<Bytes>(4);
        let task = tokio::spawn(async move {
            let _slot = slot;
            let (env, progress) = (self.env.clone(), self.progress.clone());
            let mut work = std::pin::pin!(self.run(errand));
            let ended = loop {
                tokio::select! {
                    ended = &mut work => break ended,
                    () = tokio::time::sleep(MARKER_EVERY) => {
                        // a client that is slow to read misses some
                        let _ = tell.try_send(progress.marker(&env));
                    }
                }
            };
            let last = match ended {
                Ok(()) => marker::SUCCESS.to_string(),
                Err(Failed(why)) => marker::failure(&why),
            };
            let _ = tell.send(progress.marker(&env)).await;
            let _ = tell.send(last.into()).await;
        });
        let leash = AbortOnDrop(task.abort_handle());
        let lines = stream::unfold((told, leash), |(mut told, leash)| async move {
            told.recv().await.map(|line| (Ok::<_, BoxError>(line), (told, leash)))
        });
        stream_body(lines)
    }

    async fn run(&self, errand: Job) -> std::result::Result<(), Failed> {
        match errand {
            Job::Pull(writing) => self.pull(*writing).await,
            Job::Push(what) => {
                let (place, file) = *what;
                self.push(&place, file).await
            }
        }
    }

    fn verifier(&self) -> Verifier<'_> {
        Verifier { remote: &self.remote, plan: &self.plan }
    }

    /// The headers for the other server.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.plan.headers.clone();
        self.verifier().ask_for(&mut headers);
        headers
    }

    async fn pull(&self, mut writing: Writing) -> std::result::Result<(), Failed> {
        let peer = |at| *self.progress.peer.lock() = Some(at);
        let there = &self.plan.there;
        let answer =
            self.remote.send(Method::GET, there, &self.headers(), |_| Outgoing::empty(), peer).await?;
        if answer.response.status() != StatusCode::OK {
            return Err(remote::refusal("the source", &answer));
        }
        let remote::Answer { response, connection: _connection, .. } = answer;
        let claims = digest::claims(response.headers());
        let is_chunked = is_chunked(response.headers());
        let mut body = response.into_body();
        let size = http_body::Body::size_hint(&body).exact();
        // else its end is that of the connection, which anything may end
        let has_end = size.is_some() || is_chunked;
        let mut pace = SpeedCheck::default();
        loop {
            let request = self.env.now();
            let frame = tokio::time::timeout(IDLE, body.frame()).await;
            let frame = frame.map_err(|_| Failed(format!("{} sends nothing more", shown(there))))?;
            let Some(frame) = frame else { break };
            if pace.is_slow(self.env.now().saturating_sub(request), self.progress.sent.bytes()) {
                return Err(Failed(format!("{} sends too slowly", shown(there))));
            }
            let frame = frame.map_err(|_| Failed(format!("{} ended early", shown(there))))?;
            if let Ok(bytes) = frame.into_data() {
                self.progress.sent.add(bytes.len() as u64);
                writing.write(bytes).await.map_err(ours)?;
            }
        }
        self.end_pull(writing, (size, has_end), claims).await
    }

    async fn end_pull(
        &self,
        writing: Writing,
        (size, has_end): (Option<u64>, bool),
        claims: Vec<digest::Claim>,
    ) -> std::result::Result<(), Failed> {
        if size.is_some_and(|size| size != writing.size()) {
            return Err(Failed(format!("{} ended early", shown(&self.plan.there))));
        }
        let claims = self.verifier().claims(claims, "the source").await?;
        if !has_end && claims.is_empty() {
            let there = shown(&self.plan.there);
            return Err(Failed(format!(
                "{there} says neither a length nor a checksum: it may have ended early"
            )));
        }
        writing.finish(&claims, None).await.map(drop).map_err(ours)
    }

    async fn push(&self, place: &Resource, file: File) -> std::result::Result<(), Failed> {
        let kept = notes::Sums::of(file.xattrs[0].as_deref(), &file.attr);
        let size = file.attr.size;
        let running = Arc::new(Mutex::new(Running::default()));
        let sent = self.progress.sent.clone();
        let body = |headers: &mut HeaderMap| {
            *running.lock() = Running::default();
            sent.reset();
            headers.insert(header::CONTENT_LENGTH, size.into());
            if let Some((name, text)) = digest::Wanted::Digest(vec![Algorithm::Adler32]).answer(&kept)
                && let Ok(text) = HeaderValue::from_str(&text)
            {
                headers.insert(name, text);
            }
            let running = running.clone();
            let chunks = file.clone().stream(0..size).map(move |chunk| {
                let chunk = chunk.map_err(|e| std::io::Error::other(e.to_string()))?;
                running.lock().add(&chunk);
                Ok(chunk)
            });
            Outgoing::new(chunks, size, sent.clone())
        };
        let peer = |at| *self.progress.peer.lock() = Some(at);
        let answer = self.remote.send(Method::PUT, &self.plan.there, &self.headers(), body, peer).await?;
        if !answer.response.status().is_success() {
            return Err(remote::refusal("the destination", &answer));
        }
        let claims = digest::claims(answer.response.headers());
        drop(answer);
        let claims = self.verifier().claims(claims, "the destination").await?;
        let sums = std::mem::take(&mut *running.lock()).end();
        if value(&kept, Algorithm::Adler32).is_some_and(|is| Some(is) != value(&sums, Algorithm::Adler32)) {
            return Err(Failed(format!("{} was changed while it was sent", place.dav.shown())));
        }
        match claims.iter().find(|claim| !claim.holds(&sums)) {
            None => Ok(()),
            Some(claim) => {
                let name = claim.algorithm.key();
                let (is, says) = (sums.get(name).unwrap_or_default(), hex::encode(&claim.value));
                Err(Failed(format!("the destination says {name} {says} of what has {is}")))
            }
        }
    }
}

/// Whether a body marks its own end.
fn is_chunked(headers: &HeaderMap) -> bool {
    let last =
        headers.get_all(header::TRANSFER_ENCODING).iter().next_back().and_then(|value| value.to_str().ok());
    last.and_then(|text| text.rsplit(',').next())
        .is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
}

fn ours(error: HttpError) -> Failed {
    Failed(error.why)
}
