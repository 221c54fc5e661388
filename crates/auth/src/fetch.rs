//! Fetches issuers' keys. A trait, so that tests and simulations can provide them.

use leeward_bucket::runtime;
use std::time::Duration;

/// Gets small documents of issuers.
pub trait Fetch: Send + Sync + 'static {
    /// The body that this URL answers with. May wait; must end after a bounded time, with a bounded
    /// size.
    ///
    /// # Errors
    /// Why there is none.
    fn get(&self, url: &str) -> Result<Vec<u8>, String>;

    /// The body that this URL answers a form with, as [`Fetch::get`]. `authorization`: the value of
    /// that header.
    ///
    /// # Errors
    /// Why there is none.
    fn post(&self, url: &str, form: &str, authorization: Option<&str>) -> Result<Vec<u8>, String>;
}

/// Longest document.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Longest time for one document.
const WAIT: Duration = Duration::from_secs(10);

/// Fetches by HTTP, with the CA certificates of this machine. No redirects: an issuer says itself
/// where its keys are. The threads of the client are started with the first request. A connection
/// is not kept, as keys are fetched every few hours.
#[derive(Default)]
pub struct HttpFetch(());

impl HttpFetch {
    /// A client without threads yet.
    pub fn new() -> HttpFetch {
        HttpFetch(())
    }

    fn client() -> Result<reqwest::Client, String> {
        reqwest::Client::builder()
            .timeout(WAIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("leeward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| e.to_string())
    }

    async fn body(request: reqwest::RequestBuilder) -> Result<Vec<u8>, String> {
        let failed = |e: reqwest::Error| e.without_url().to_string();
        let mut answer = request.send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(format!("answers {}", answer.status()));
        }
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > BODY_BYTES_MAX {
                return Err(format!("answers more than {BODY_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

impl Fetch for HttpFetch {
    fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        // the runtime first: it says which cryptography there is
        let asked = runtime().wait(async { HttpFetch::body(HttpFetch::client()?.get(url)).await });
        asked.map_err(|why| format!("{url}: {why}"))
    }

    fn post(&self, url: &str, form: &str, authorization: Option<&str>) -> Result<Vec<u8>, String> {
        let asked = runtime().wait(async {
            let request = HttpFetch::client()?.post(url).header("accept", "application/json");
            let request =
                request.header("content-type", "application/x-www-form-urlencoded").body(form.to_owned());
            HttpFetch::body(authorization.iter().fold(request, |r, value| r.header("authorization", *value)))
                .await
        });
        asked.map_err(|why| format!("{url}: {why}"))
    }
}
