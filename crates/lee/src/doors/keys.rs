//! Who has an S3 key: the cell's records, and the user database behind them.

use leeward_auth::{Authority, Refusal};
use leeward_door::Who;
use leeward_env::Wait;
use leeward_s3::{Found, Keys, NotFound};
use std::sync::Arc;

/// See the module's head.
pub struct CellKeys(Arc<Authority>);

impl CellKeys {
    /// Those that this authority knows.
    pub fn new(authority: &Arc<Authority>) -> CellKeys {
        CellKeys(authority.clone())
    }
}

#[async_trait::async_trait]
impl Keys for CellKeys {
    async fn find(&self, access_key_id: &str) -> Result<Found, NotFound> {
        let found = match self.0.s3_key(access_key_id, Wait::Never) {
            Err(Refusal::WouldBlock) => {
                // the user database is asked, on a thread that may wait for it
                let (authority, id) = (self.0.clone(), access_key_id.to_owned());
                let asked = tokio::task::spawn_blocking(move || authority.s3_key(&id, Wait::Allowed)).await;
                asked.map_err(|e| NotFound::Later(e.to_string()))?
            }
            found => found,
        };
        let (secret, verdict) = found.map_err(|why| match why {
            Refusal::NoSuchKey => NotFound::Unknown,
            Refusal::WouldBlock | Refusal::Unavailable(_) => NotFound::Later(why.to_string()),
            why => NotFound::Refused(why.to_string()),
        })?;
        let who = &verdict.who;
        Ok(Found {
            secret: secret.reveal().into(),
            who: Who::new(&who.name, who.uid, who.gid(), who.other_gids()),
        })
    }
}
