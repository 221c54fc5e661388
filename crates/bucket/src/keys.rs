//! Keys from the environment or a profile, for code that signs requests without the client library.

use crate::location::{Profile, first_variable};
use crate::{Error, Result};

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
    /// Session token, if the key is temporary.
    pub token: Option<String>,
}

impl Keys {
    /// The keys of the profile that a URL names; else of the environment, else of its profile.
    ///
    /// # Errors
    /// Wrong, where there is none, or the profile is unusable.
    pub fn find(profile: Option<&str>) -> Result<Keys> {
        let variable = |name: &str| first_variable(&[name]);
        if profile.is_none()
            && let (Some(id), Some(secret)) =
                (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
        {
            return Ok(Keys { id, secret, token: variable("AWS_SESSION_TOKEN") });
        }
        let profile = Profile::load(profile)?;
        match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Ok(Keys { id, secret, token: profile.get("aws_session_token") }),
            _ => Err(Error::Wrong(
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                    .into(),
            )),
        }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.id)
    }
}
