//! Bodies of answers.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
pub use leeward_door::listen::{Body, BodyError as BoxError};

/// An answer.
pub type Answer = Response<Body>;

/// A body whose content is in memory.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body whose content is still to come.
pub fn stream<E: Into<BoxError>>(chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static) -> Body {
    StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data).map_err(Into::into))).boxed_unsync()
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Answer {
    with(status, Bytes::new())
}

/// An answer with this body.
pub fn with(status: StatusCode, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(full(bytes));
    *answer.status_mut() = status;
    answer
}

/// Adds headers; text that is no valid value of a header is left out.
pub fn headers<'h>(mut answer: Answer, list: impl IntoIterator<Item = (HeaderName, &'h str)>) -> Answer {
    for (name, value) in list {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// XML with this status.
pub fn xml(status: StatusCode, text: String) -> Answer {
    headers(with(status, text), [(header::CONTENT_TYPE, crate::xml::answer::CONTENT_TYPE)])
}
