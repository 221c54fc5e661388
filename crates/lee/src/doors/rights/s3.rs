//! Requests at the S3 door.

use super::{Got, LETTERS, PLACE, Rig, Rigs, Sent, TARGETS, Target, ask, dir_of, heads, row, sent};
use crate::rights_document;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::StatusCode;
use leeward_env::Ctx;
use leeward_fs::{Fs, Op, Precondition};
use leeward_volume::admin::{BucketCreate, BucketSet, NewKey};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use ring::hmac;
use std::collections::BTreeSet;

const HEADS: [&str; 4] = ["without a key", "stranger", "member of the group", "owner"];
const OWNER: usize = 3;

const TAGGING: &str = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
const DELETE: &str = "<Delete><Object><Key>file</Key></Object></Delete>";

/// Uploads in parts that the owner has begun, one in each bucket, and the tag of its part.
struct Upload {
    id: String,
    part: String,
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once(end)).unwrap_or_else(|| panic!("no {begin} in {text}")).0
}

/// Sends it as the owner of the key.
fn send(rig: &Rig, key: Option<&NewKey>, sent: Sent) -> Got {
    let length = sent.body.len().to_string();
    let sent = sent.header("content-length", length);
    let Some(key) = key else { return rig.send(&rig.s3, sent.header("host", "localhost")) };
    let credential = AwsCredential {
        key_id: key.key.access_key_id.clone(),
        secret_key: key.secret_access_key.clone(),
        token: None,
    };
    let mut signed = hyper::Request::new(HttpRequestBody::from(sent.body.clone()));
    *signed.method_mut() = sent.method.parse().expect("a method");
    *signed.uri_mut() = format!("http://localhost{}", sent.at).parse().expect("a URI");
    for (name, value) in &sent.headers {
        let name: hyper::header::HeaderName = name.parse().expect("a name");
        signed.headers_mut().insert(name, value.parse().expect("text"));
    }
    AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut signed, None).expect("signed");
    let text = |value: &hyper::header::HeaderValue| value.to_str().expect("text").to_owned();
    let headers = signed.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
    let signed = Sent { headers: headers.collect(), ..sent };
    rig.send(&rig.s3, signed.header("host", "localhost"))
}

/// A form of the owner of the key, who signs its policy.
fn form(bucket: &str, key: Option<&NewKey>) -> Sent {
    let mut fields = vec![("key", "new".to_string())];
    if let Some(key) = key {
        let conditions = serde_json::json!([{ "key": "new" }, { "bucket": bucket }]);
        let policy = serde_json::json!({ "expiration": "2099-01-01T00:00:00Z", "conditions": conditions });
        let policy = BASE64.encode(policy.to_string());
        let secret = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.secret_access_key.as_bytes());
        let signature = BASE64.encode(hmac::sign(&secret, policy.as_bytes()));
        fields.push(("AWSAccessKeyId", key.key.access_key_id.clone()));
        fields.extend([("policy", policy), ("signature", signature)]);
    }
    fields.push(("file\"; filename=\"f", "content".into()));
    let part = |(name, value): &(&str, String)| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body: String = fields.iter().map(part).collect();
    sent("POST", format!("/{bucket}"))
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body + "--b--\r\n")
}

/// Buckets with rules for browsers, where anybody may read with a policy, and an upload in each.
fn furnish(rig: &Rig) -> Vec<Upload> {
    let owner = rig.key(OWNER);
    let must = |sent: Sent| {
        let what = format!("{} {}", sent.method, sent.at);
        let got = send(rig, owner, sent);
        assert!(got.status.is_success(), "{what}: {}", got.text);
        got
    };
    let furnish = |Target { name, public, .. }: &Target| {
        let path = format!("{PLACE}/{name}");
        // each volume is a bucket
        match public {
            true => ask(&rig.cell, BucketSet { name: (*name).into(), public: Some(true), cors: None }),
            false => ask(&rig.cell, BucketCreate { name: (*name).into(), path, public: false }),
        };
        must(sent("PUT", format!("/{name}?cors")).body(CORS));
        let begun = must(sent("POST", format!("/{name}/parts?uploads")));
        let id = between(&begun.text, "<UploadId>", "<").to_owned();
        let part = must(sent("PUT", format!("/{name}/parts?partNumber=1&uploadId={id}")).body("part"));
        Upload { id, part: part.headers["etag"].to_str().expect("text").into() }
    };
    TARGETS.iter().map(furnish).collect()
}

/// A request for this operation on a bucket.
fn request(operation: &str, bucket: &str, upload: &Upload, key: Option<&NewKey>) -> Sent {
    let of = |method, query: &str| sent(method, format!("/{bucket}{query}"));
    let file = |method, query: &str| sent(method, format!("/{bucket}/file{query}"));
    let new = |query: &str| sent("PUT", format!("/{bucket}/new{query}"));
    let parts = |method, query: &str| sent(method, format!("/{bucket}/parts?{query}uploadId={}", upload.id));
    let source = format!("/{bucket}/file");
    match operation {
        "AbortMultipartUpload" => parts("DELETE", ""),
        "CompleteMultipartUpload" => parts("POST", "").body(format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
             </CompleteMultipartUpload>",
            upload.part
        )),
        "CopyObject" => new("").header("x-amz-copy-source", source),
        "CreateBucket" => sent("PUT", "/fresh".into()),
        "CreateMultipartUpload" => sent("POST", format!("/{bucket}/new?uploads")),
        "DeleteBucket" => of("DELETE", ""),
        "DeleteBucketCors" => of("DELETE", "?cors"),
        "DeleteBucketPolicy" => of("DELETE", "?policy"),
        "DeleteObject" => file("DELETE", ""),
        "DeleteObjectTagging" => file("DELETE", "?tagging"),
        "DeleteObjects" => of("POST", "?delete").body(DELETE),
        "GetBucketAcl" => of("GET", "?acl"),
        "GetBucketCors" => of("GET", "?cors"),
        "GetBucketLocation" => of("GET", "?location"),
        "GetBucketPolicy" => of("GET", "?policy"),
        "GetBucketVersioning" => of("GET", "?versioning"),
        "GetObject" => file("GET", ""),
        "GetObjectAcl" => file("GET", "?acl"),
        "GetObjectAttributes" => file("GET", "?attributes").header("x-amz-object-attributes", "ObjectSize"),
        "GetObjectTagging" => file("GET", "?tagging"),
        "HeadBucket" => of("HEAD", ""),
        "HeadObject" => file("HEAD", ""),
        "ListBuckets" => sent("GET", "/".into()),
        "ListMultipartUploads" => of("GET", "?uploads"),
        "ListObjects" => of("GET", ""),
        "ListObjectsV2" => of("GET", "?list-type=2"),
        "ListParts" => parts("GET", ""),
        "PostObject" => form(bucket, key),
        "PutBucketAcl" => of("PUT", "?acl").header("x-amz-acl", "private"),
        "PutBucketCors" => of("PUT", "?cors").body(CORS),
        "PutBucketPolicy" => of("PUT", "?policy").body(
            serde_json::json!({ "Statement": {
                "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                "Resource": format!("arn:aws:s3:::{bucket}/*"),
            }})
            .to_string(),
        ),
        "PutObject" => new("").body("content"),
        "PutObjectAcl" => file("PUT", "?acl").header("x-amz-acl", "private"),
        "PutObjectTagging" => file("PUT", "?tagging").body(TAGGING),
        "UploadPart" => parts("PUT", "partNumber=2&").body("part"),
        "UploadPartCopy" => parts("PUT", "partNumber=2&").header("x-amz-copy-source", source),
        other => panic!("a request for {other} is wanted"),
    }
}

/// What somebody is told who may not do something.
const REFUSALS: [&str; 3] = ["AccessDenied", "NoSuchUpload", "NotImplemented"];

/// Whether it was done, or what was asked for was told.
fn is_answered(got: &Got) -> bool {
    // a private bucket has no policy: who hears that, may ask
    let has_none = got.text.contains("<Code>NoSuchBucketPolicy</Code>");
    assert!(!got.status.is_server_error() || got.status == StatusCode::NOT_IMPLEMENTED, "{}", got.text);
    let is_done = has_none || got.status.is_success() && !got.text.contains("<Error>");
    let is_refused = REFUSALS.iter().any(|code| got.text.contains(&format!("<Code>{code}</Code>")));
    // HEAD tells no more than the status
    assert!(
        is_done || is_refused || got.text.is_empty(),
        "neither done nor refused: {} {}",
        got.status,
        got.text
    );
    is_done
}

/// Only an empty bucket is deleted.
fn empty(rig: &Rig, bucket: &str) {
    let dir = dir_of(&rig.cell, bucket);
    let op = Op::Unlink { dir, name: b"file", over: Precondition::Any };
    rig.cell.call(&Ctx::system(), op).expect("removed");
}

/// What somebody gets: letters of the buckets of which a request is answered.
fn of_buckets(rigs: &mut Rigs<Vec<Upload>>, operation: &str, asker: usize) -> String {
    let reads = ["Get", "Head", "List"].iter().any(|word| operation.starts_with(word));
    let mut letters = String::new();
    for (n, target) in TARGETS.iter().enumerate() {
        let deletes = operation == "DeleteBucket";
        let is_answered = rigs.send(furnish, reads && !deletes, |rig, uploads| {
            if deletes {
                empty(rig, target.name);
            }
            let key = rig.key(asker);
            let got = send(rig, key, request(operation, target.name, &uploads[n], key));
            assert!(asker == OWNER || !got.text.contains(&uploads[n].id), "{operation}: {}", got.text);
            is_answered(&got)
        });
        if is_answered {
            letters.push(target.letter);
        }
    }
    letters
}

/// What somebody gets of a request that is about no bucket.
fn of_none(rigs: &mut Rigs<Vec<Upload>>, operation: &str, asker: usize) -> String {
    let mut tells_of_bobs = false;
    let is_answered = rigs.send(furnish, false, |rig, uploads| {
        let key = rig.key(asker);
        let got = send(rig, key, request(operation, "", &uploads[0], key));
        tells_of_bobs = got.text.contains("<Name>own</Name>");
        is_answered(&got)
    });
    match (is_answered, operation) {
        (false, _) => String::new(),
        (true, "ListBuckets") if tells_of_bobs == (asker == OWNER) => "own".into(),
        (true, _) => "yes".into(),
    }
}

fn document() -> String {
    let mut out = format!(
        "## Requests at the S3 door\n\n\
{LETTERS}\n\
Users make buckets where `s3-new-buckets` is set; *own*: those whose directory is the asker's.\n\
An upload in parts is seen and gone on with by who began it, here the owner. Operators have no\n\
rights of their own.\n\n"
    );
    heads(&mut out, "operation", &HEADS);
    let mut rigs = Rigs::default();
    for operation in leeward_s3::operations().collect::<BTreeSet<_>>() {
        let is_about_none = ["CreateBucket", "ListBuckets"].contains(&operation);
        let got = [0, 1, 2, OWNER].map(|asker| match is_about_none {
            true => of_none(&mut rigs, operation, asker),
            false => of_buckets(&mut rigs, operation, asker),
        });
        assert!(!got[OWNER].is_empty(), "{operation}: its owner may do it");
        row(&mut out, operation, &got);
    }
    out
}

#[test]
fn requests_are_answered_to_whom_the_table_says() {
    rights_document::compare(&document());
}
