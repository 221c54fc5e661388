//! The owners of S3 keys: the cell's records, and the user database behind them.

use leeward_auth::{Authority, Refusal, Verdict};
use leeward_door::Principal;
use leeward_door::listen::Certificate;
use leeward_env::Wait;
use leeward_s3::{Found, Keys, NotFound};
use std::sync::Arc;

/// The S3 keys of a cell.
pub struct CellKeys(Arc<Authority>);

impl CellKeys {
    /// The keys that this authority knows.
    pub fn new(authority: &Arc<Authority>) -> CellKeys {
        CellKeys(authority.clone())
    }
}

impl CellKeys {
    /// Asks at once; if the user database has to be asked, again on a thread that may wait for it.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&Authority, Wait) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, NotFound> {
        let found = match ask(&self.0, Wait::Never) {
            Err(Refusal::WouldBlock) => {
                let authority = self.0.clone();
                let asked = tokio::task::spawn_blocking(move || ask(&authority, Wait::Allowed)).await;
                asked.map_err(|e| NotFound::Later(e.to_string()))?
            }
            found => found,
        };
        found.map_err(|why| match why {
            Refusal::NoSuchKey => NotFound::Unknown,
            Refusal::WouldBlock | Refusal::Unavailable(_) => NotFound::Later(why.to_string()),
            why => NotFound::Refused(why.to_string()),
        })
    }
}

#[async_trait::async_trait]
impl Keys for CellKeys {
    async fn find(&self, access_key_id: &str) -> Result<Found, NotFound> {
        let id = access_key_id.to_owned();
        let (secret, verdict) = self.ask(move |authority, wait| authority.s3_key(&id, wait)).await?;
        Ok(Found { secret: secret.reveal().into(), who: who(&verdict) })
    }

    async fn certified(&self, certificate: &Certificate) -> Result<Principal, NotFound> {
        let certificate = certificate.clone();
        let names = move |authority: &Authority, wait| {
            authority.certificate(&certificate.names().collect::<Vec<_>>(), certificate.until_secs, wait)
        };
        Ok(who(&self.ask(names).await?))
    }
}

fn who(verdict: &Verdict) -> Principal {
    let who = &verdict.who;
    Principal::of_user(&who.name, who.uid, who.gid(), who.other_gids())
}
