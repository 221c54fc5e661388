//! Forms: checks that the library does not make.
//!
//! The library drops a form's policy before an operation could look at it. But it refuses a form
//! with a field that the policy has no condition for, and one with a `bucket` that is not the one
//! in the URL. So this module adds that field to each form. A policy without a condition for its
//! bucket would be valid for all buckets of its signer, and is refused, as S3 does.

use crate::headers;
use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::CONTENT_TYPE;
use leeward_door::listen::Body;
use mime::Mime;
use s3s::S3Result;
use s3s::dto::PostObjectInput;
use std::task::Poll;

/// Adds a field that names the bucket, before all others. A form without a boundary in its type
/// stays as it is: then the library refuses it.
pub(crate) fn with_bucket(request: Request<Body>, bucket: &str) -> Request<Body> {
    // read as the library reads it
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()?.parse::<Mime>().ok());
    let Some(boundary) = kind.as_ref().and_then(|kind| kind.get_param(mime::BOUNDARY)) else {
        return request;
    };
    let field =
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"bucket\"\r\n\r\n{bucket}\r\n");
    request.map(|body| before(field.into(), body))
}

/// Puts these bytes before the body. An empty line before the body's first boundary, which is
/// allowed, is left out.
fn before(first: Bytes, body: Body) -> Body {
    let (mut first, mut empty_line) = (Some(first), &b"\r\n"[..]);
    let mut body = Box::pin(body);
    let frames = futures_util::stream::poll_fn(move |cx| {
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let frame = std::task::ready!(body.as_mut().poll_frame(cx));
        Poll::Ready(
            frame.map(|frame| frame.map(|frame| frame.map_data(|data| without(data, &mut empty_line)))),
        )
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The data without the rest of the line that is left out.
fn without(mut data: Bytes, line: &mut &[u8]) -> Bytes {
    while let (Some(next), [wanted, rest @ ..]) = (data.first(), *line) {
        if next != wanted {
            *line = &[];
            break;
        }
        *line = rest;
        data.advance(1);
    }
    data
}

/// Refuses a form whose fields ask for something unsupported, as for headers of requests.
///
/// # Errors
/// As [`headers::check`].
pub(crate) fn check(form: &PostObjectInput) -> S3Result<()> {
    let encryption = "x-amz-server-side-encryption";
    let asked = [
        (form.grant_full_control.is_some(), "x-amz-grant-full-control"),
        (form.grant_read.is_some(), "x-amz-grant-read"),
        (form.grant_read_acp.is_some(), "x-amz-grant-read-acp"),
        (form.grant_write_acp.is_some(), "x-amz-grant-write-acp"),
        (form.object_lock_legal_hold_status.is_some(), "x-amz-object-lock-legal-hold"),
        (form.object_lock_mode.is_some(), "x-amz-object-lock-mode"),
        (form.object_lock_retain_until_date.is_some(), "x-amz-object-lock-retain-until-date"),
        (form.bucket_key_enabled.is_some(), encryption),
        (form.server_side_encryption.is_some(), encryption),
        (form.sse_customer_algorithm.is_some(), encryption),
        (form.sse_customer_key.is_some(), encryption),
        (form.sse_customer_key_md5.is_some(), encryption),
        (form.ssekms_encryption_context.is_some(), encryption),
        (form.ssekms_key_id.is_some(), encryption),
        (form.website_redirect_location.is_some(), "x-amz-website-redirect-location"),
        (form.write_offset_bytes.is_some(), "x-amz-write-offset-bytes"),
    ];
    asked.iter().filter(|(asked, _)| *asked).try_for_each(|(_, name)| headers::check_one(name, ""))?;
    let class = form.storage_class.as_ref().map(|class| class.as_str());
    class.map_or(Ok(()), |class| headers::check_one("x-amz-storage-class", class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn the_bucket_is_the_first_field() {
        let whole = "--b\r\nContent-Disposition: form-data; name=\"bucket\"\r\n\r\npub\r\n--b\r\nrest";
        for body in ["--b\r\nrest", "\r\n--b\r\nrest"] {
            for cut in 0..3 {
                let pieces = [&body[..cut], &body[cut..]].map(|piece| Ok(Frame::data(Bytes::from(piece))));
                let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
                let form = Request::builder().header(CONTENT_TYPE, "multipart/form-data; boundary=b");
                let form = with_bucket(form.body(body).expect("a request"), "pub");
                let said = form.into_body().collect().await.expect("a body").to_bytes();
                assert_eq!(std::str::from_utf8(&said), Ok(whole));
            }
        }
        let other = Full::new(Bytes::from("x")).map_err(|e| match e {}).boxed_unsync();
        let said = with_bucket(Request::new(other), "pub").into_body().collect().await.expect("a body");
        assert_eq!(said.to_bytes(), "x", "no form");
    }
}
