//! A site that answers only while its process knows who may use it: at a gateway, while the server
//! of the cell answers. Requests wait for that, but not for ever.

use super::{Answer, Body, Client, RequestLabels, Site};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use leeward_env::Door;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a request that waits looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const RETRY_AFTER_SECS: &str = "5";

/// Whether requests can be answered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// Not now, but perhaps soon.
    NotNow,
    /// Not before somebody does something about it.
    Closed,
}

/// Knows whether requests can be answered now.
pub trait Guard: Send + Sync + 'static {
    /// Whether they can. Called for each request, and often for those that wait.
    fn readiness(&self) -> Readiness;
}

/// See the module's head.
pub struct Guarded {
    site: Arc<dyn Site>,
    guard: Arc<dyn Guard>,
    /// How long a request waits.
    patience: Duration,
}

impl Guarded {
    /// A site before which `guard` lets requests wait for at most `patience`.
    pub fn new(site: Arc<dyn Site>, guard: Arc<dyn Guard>, patience: Duration) -> Guarded {
        Guarded { site, guard, patience }
    }

    async fn is_ready(&self) -> bool {
        let until = Instant::now() + self.patience;
        loop {
            match self.guard.readiness() {
                Readiness::Ready => return true,
                Readiness::NotNow if Instant::now() < until => tokio::time::sleep(LOOK_AGAIN).await,
                Readiness::NotNow | Readiness::Closed => return false,
            }
        }
    }
}

impl Site for Guarded {
    fn door(&self) -> Door {
        self.site.door()
    }

    fn answer(self: Arc<Self>, request: Request<Body>, client: Client) -> Answer {
        Box::pin(async move {
            match self.is_ready().await {
                true => self.site.clone().answer(request, client).await,
                false => unavailable(self.door()),
            }
        })
    }
}

fn unavailable(door: Door) -> Response<Body> {
    let why = "The server of the cell does not answer this gateway. Try again.";
    let (kind, text) = match door {
        Door::S3 => (
            "application/xml",
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>ServiceUnavailable</Code><Message>{why}</Message></Error>"
            ),
        ),
        _ => ("text/plain", format!("{why}\n")),
    };
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS));
    let error = Some("ServiceUnavailable".into());
    response.extensions_mut().insert(RequestLabels { error, ..RequestLabels::default() });
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Site200;

    impl Site for Site200 {
        fn door(&self) -> Door {
            Door::S3
        }

        fn answer(self: Arc<Self>, _: Request<Body>, _: Client) -> Answer {
            Box::pin(async { Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync()) })
        }
    }

    /// Says `NotNow` so often, then what comes after.
    struct After(AtomicUsize, Readiness);

    impl Guard for After {
        fn readiness(&self) -> Readiness {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if left.is_ok() { Readiness::NotNow } else { self.1 }
        }
    }

    async fn status(times: usize, then: Readiness, patience: Duration) -> StatusCode {
        let guard = Arc::new(After(AtomicUsize::new(times), then));
        let site = Arc::new(Guarded::new(Arc::new(Site200), guard, patience));
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let client = Client { address: ([127, 0, 0, 1], 1).into(), tls: false, certificate: None };
        site.answer(Request::new(body), client).await.status()
    }

    #[tokio::test]
    async fn requests_wait_for_a_while_and_are_then_told_to_come_back() {
        let long = Duration::from_secs(60);
        assert_eq!(status(0, Readiness::Ready, Duration::ZERO).await, StatusCode::OK);
        assert_eq!(status(2, Readiness::Ready, long).await, StatusCode::OK);
        assert_eq!(status(2, Readiness::Closed, long).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            status(usize::MAX, Readiness::Ready, Duration::from_millis(120)).await,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
