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

    async fn body(url: &str) -> Result<Vec<u8>, String> {
        let failed = |e: reqwest::Error| e.without_url().to_string();
        let client = reqwest::Client::builder()
            .timeout(WAIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("leeward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(failed)?;
        let mut answer = client.get(url).send().await.map_err(failed)?;
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
        runtime().wait(HttpFetch::body(url)).map_err(|why| format!("{url}: {why}"))
    }
}
