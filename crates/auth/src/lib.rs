//! Who asks at a door, which of the user's rights the credential carries, and until when.
//!
//! A door (S3, WebDAV) takes a credential from a request and asks an [`Authority`]. The answer is a
//! [`Verdict`], or a [`Refusal`] with its HTTP status. A verdict says as whom the request acts
//! ([`Identity`]: the same permission checks as in the mount follow from that) and what the
//! credential is limited to ([`Grants`]: activities on paths, component by component). Both must
//! allow a request: a credential never grants more than its user has.
//!
//! | credential | how | limited to |
//! |---|---|---|
//! | S3 key | [`Authority::s3_key`]: the door checks the signature with the secret | nothing |
//! | certificate of the client | [`Authority::certificate`]: the handshake has checked it | nothing |
//! | macaroon of the cell | [`Authority::bearer`] | its caveats |
//! | token of the WLCG profile | [`Authority::bearer`] | its scopes below the issuer's base paths |
//! | user name or key, and password | [`Authority::basic`]: a token or the key's secret as the password | as these |
//!
//! # For doors
//!
//! No call waits unless it is allowed to ([`Wait`](leeward_env::Wait)): a user database or an
//! issuer may have to be asked. With `Wait::Never` the answer is then [`Refusal::WouldBlock`]: ask
//! again on a thread that may wait.
//!
//! A path is judged as it is named. A door that follows a symbolic link must also ask about the
//! path where it arrives: a link below a path that a token covers may lead anywhere.
//!
//! What an operation needs, at which path ([`Activity`]):
//!
//! | operation | needs |
//! |---|---|
//! | HEAD, PROPFIND depth 0, access to attributes | `Stat` |
//! | GET of a file | `Read` |
//! | listing (PROPFIND depth 1, ListObjects) | `List` of the directory |
//! | PUT of a file that is not there, COPY to it | `Create` |
//! | PUT over a file, COPY over it, changing content | `Modify` |
//! | MKCOL, directories made on the way to a file | `MakeDir` of each |
//! | DELETE | `Delete` |
//! | MOVE | `Rename` of the source, and `Create` (or `Modify` over a file) of the destination; what was created may be renamed |
//! | PROPPATCH, tags, ACL, chmod | `UpdateMetadata` |
//!
//! Modules: `path`, `rights`, `verdict`, `refusal`: the answers · `authority`: the entry point ·
//! `macaroon`: the format · `token`: the cell's macaroons · `scope`, `wlcg`: tokens of the profile
//! · `jws`: signatures · `issuers`: their keys, cached · `fetch`: fetches them · `settings`: what a
//! site sets for them · `sign_on`: people who log in by OpenID Connect · `people`: users and their
//! groups · `times`: dates and spans in text.
//!
//! Invariants: no secret is in a `Debug` or `Display` of anything here; no time but
//! [`Env`](leeward_env::Env)'s counts; a part of a credential that is not understood makes it
//! refused.

// the library that instruments every program built by `tests/fuzz`
#[cfg(test)]
use bolero as _;

mod authority;
mod fetch;
mod issuers;
mod jws;
mod macaroon;
mod path;
mod people;
mod refusal;
mod rights;
mod scope;
mod settings;
mod sign_on;
mod times;
mod token;
mod verdict;
mod wlcg;

pub use authority::Authority;
pub use fetch::{Fetch, HttpFetch};
pub use macaroon::{Macaroon, Version};
pub use path::{BadPath, CellPath};
pub use people::UserDatabase;
pub use refusal::Refusal;
pub use rights::{Activity, Grants, Rights, Rule};
pub use scope::Scopes;
pub use settings::IssuerConfig;
pub use sign_on::{Gone, SignOn, SignOnConfig, SignedOn};
pub use token::{ACTIVITIES, MintError, Minted, Signer, TokenRequest, activities, bound_to_host};
pub use verdict::{Identity, Verdict, Via};

/// Longest bearer token, bytes.
pub const TOKEN_BYTES_MAX: usize = 8192;
