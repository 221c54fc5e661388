//! What a verified credential says.

use crate::path::CellPath;
use crate::refusal::Refusal;
use crate::rights::{Activity, Grants};
use leeward_env::Nanos;
use std::fmt;
use std::sync::Arc;

/// The user as whom a request acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name, for logs and `lee top`.
    pub name: Arc<str>,
    /// User id; never 0: nobody acts as root through a door.
    pub uid: u32,
    /// Group ids, the primary one first, the others sorted; never empty.
    pub gids: Arc<[u32]>,
}

impl Identity {
    /// A client without a credential, where a volume lets such in: 65534, in no other group.
    pub fn nobody() -> Identity {
        Identity { name: "nobody".into(), uid: 65534, gids: Arc::new([65534]) }
    }

    /// The primary group.
    pub fn gid(&self) -> u32 {
        self.gids.first().copied().unwrap_or(self.uid)
    }

    /// The other groups.
    pub fn other_gids(&self) -> &[u32] {
        self.gids.get(1..).unwrap_or_default()
    }
}

/// The credential that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// No credential.
    Nothing,
    /// An S3 key: its access key id.
    Key(Arc<str>),
    /// A certificate that the client's connection has shown: its subject.
    Certificate(Arc<str>),
    /// A macaroon of the cell: its unique number.
    Macaroon(Arc<str>),
    /// A token of the WLCG profile.
    Wlcg {
        /// Issuer of the token.
        issuer: Arc<str>,
        /// Subject of the token.
        subject: Arc<str>,
        /// Unique id of the token (`jti`).
        id: Arc<str>,
    },
}

impl fmt::Display for Via {
    /// For the access log: names of credentials, no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Via::Nothing => write!(f, "anonymous"),
            Via::Key(id) => write!(f, "key:{id}"),
            Via::Certificate(subject) => write!(f, "certificate:{subject}"),
            Via::Macaroon(id) => write!(f, "macaroon:{id}"),
            Via::Wlcg { issuer, subject, id } => write!(f, "wlcg:{issuer}#{subject}#{id}"),
        }
    }
}

/// What a credential says: who, what, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The user.
    pub who: Identity,
    /// The limits of the credential.
    pub grants: Grants,
    /// End of validity, seconds since 1970; `None`: valid until it is revoked.
    pub until_secs: Option<i64>,
    /// The credential.
    pub via: Via,
}

impl Verdict {
    /// The verdict on a client without a credential.
    pub fn anonymous() -> Verdict {
        Verdict { who: Identity::nobody(), grants: Grants::All, until_secs: None, via: Via::Nothing }
    }

    /// Whether the credential covers this. The user must be allowed to do it, too.
    pub fn allows(&self, activity: Activity, at: &CellPath) -> bool {
        self.grants.allow(activity, at)
    }

    /// As [`Verdict::allows`].
    ///
    /// # Errors
    /// [`Refusal::OutOfScope`].
    pub fn check(&self, activity: Activity, at: &CellPath) -> Result<(), Refusal> {
        if self.allows(activity, at) {
            return Ok(());
        }
        Err(Refusal::OutOfScope(format!("{activity:?} of {at}")))
    }

    /// Whether it is still valid at this time of the wall clock: for long operations.
    pub fn is_good_at(&self, wall: Nanos) -> bool {
        self.until_secs.is_none_or(|until| ((wall / 1_000_000_000) as i64) < until)
    }
}
