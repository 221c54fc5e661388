//! Where issuers' keys come from. A trait, so that tests and simulations give them.

use leeward_bucket::runtime;
use std::time::Duration;

/// Gets small documents of issuers.
pub trait Fetch: Send + Sync + 'static {
    /// The body that this URL answers with. May wait; must end after a bounded time, with a bounded size.
    ///
    /// # Errors
    /// Why there is none.
    fn get(&self, url: &str) -> Result<Vec<u8>, String>;
}

/// Longest document.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Longest time for one.
const WAIT: Duration = Duration::from_secs(10);

/// By HTTP, with the certificates of this machine. No redirects: an issuer says itself where its keys are.
pub struct HttpFetch(reqwest::Client);

impl HttpFetch {
    /// A client; connects to nobody yet.
    ///
    /// # Errors
    /// When the library of TLS cannot be set up.
    pub fn new() -> Result<HttpFetch, String> {
        let client = runtime::runtime().enter(|| {
            reqwest::Client::builder()
                .timeout(WAIT)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("leeward/", env!("CARGO_PKG_VERSION")))
                .build()
        });
        client.map(HttpFetch).map_err(|e| format!("no HTTP client: {e}"))
    }

    async fn body(&self, url: &str) -> Result<Vec<u8>, String> {
        let failed = |e: reqwest::Error| e.without_url().to_string();
        let mut answer = self.0.get(url).send().await.map_err(failed)?;
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
        runtime::runtime().wait(self.body(url)).map_err(|why| format!("{url}: {why}"))
    }
}
