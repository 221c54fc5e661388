//! The checksum of a file at the other server.

use super::plan::{Plan, Verify};
use super::remote::{Failed, Remote};
use crate::head::digest::{self, Claim};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Asks for the checksum where that is necessary.
pub(super) struct Verifier<'a> {
    pub(super) remote: &'a Remote,
    pub(super) plan: &'a Plan,
}

impl Verifier<'_> {
    /// Adds the headers that ask for the checksum to a request.
    pub(super) fn ask_for(&self, headers: &mut HeaderMap) {
        if self.plan.verify != Verify::Never {
            let wanted = HeaderValue::from_static("adler32");
            headers.insert(HeaderName::from_static("want-digest"), wanted);
        }
    }

    /// The checksums to compare with: those that came with the transfer, else those that the server
    /// gives when asked. None where nothing has to be verified, or nothing can be and need not.
    ///
    /// # Errors
    /// The server gives none, and one is required.
    pub(super) async fn claims(&self, came: Vec<Claim>, what: &str) -> Result<Vec<Claim>, Failed> {
        if self.plan.verify == Verify::Never || !came.is_empty() {
            return Ok(if self.plan.verify == Verify::Never { Vec::new() } else { came });
        }
        let mut headers = self.plan.headers.clone();
        self.ask_for(&mut headers);
        let claims = match self.remote.ask(Method::HEAD, &self.plan.there, &headers).await {
            Ok(answer) if answer.response.status().is_success() => digest::claims(answer.response.headers()),
            _ => Vec::new(),
        };
        if claims.is_empty() && self.plan.verify == Verify::Always {
            return Err(Failed(format!("{what} says no checksum, and RequireChecksumVerification is true")));
        }
        Ok(claims)
    }
}
