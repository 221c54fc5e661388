//! Who asks: keys and their secrets, for signatures.

use leeward_door::Who;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

/// A key that was found.
pub struct Found {
    /// What requests are signed with.
    pub secret: Box<str>,
    /// As whom they act.
    pub who: Who,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such key, or it was revoked.
    Unknown,
    /// Its user may not come in: why.
    Refused(String),
    /// Who knows users does not answer now.
    Later(String),
}

/// Who knows access keys.
#[async_trait::async_trait]
pub trait Keys: Send + Sync + 'static {
    /// The secret of an access key, and as whom requests act that are signed with it.
    async fn find(&self, access_key_id: &str) -> Result<Found, NotFound>;
}

/// The same for the library that checks signatures.
pub(crate) struct Secrets(pub(crate) Arc<dyn Keys>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(find(&*self.0, access_key).await?.secret))
    }
}

/// A key, or the answer to who uses it.
pub(crate) async fn find(keys: &dyn Keys, access_key: &str) -> S3Result<Found> {
    keys.find(access_key).await.map_err(|why| match why {
        NotFound::Unknown => S3Error::with_message(
            S3ErrorCode::InvalidAccessKeyId,
            "There is no such access key; lee key create USER makes one.",
        ),
        NotFound::Refused(why) => S3Error::with_message(S3ErrorCode::AccessDenied, why),
        NotFound::Later(why) => S3Error::with_message(S3ErrorCode::ServiceUnavailable, why),
    })
}

/// Lets everybody through: whether anonymous requests are answered is the bucket's business.
pub(crate) struct Anybody;

#[async_trait::async_trait]
impl S3Access for Anybody {
    async fn check(&self, _: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }
}
