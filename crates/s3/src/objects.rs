//! Reads and writes objects.

use crate::call::{Call, Posted, Shared};
use crate::conditions::Conditions;
use crate::error::{self, not_implemented};
use crate::forms;
use crate::list::timestamp;
use crate::meta::{Kept, NOTED, Noted, TAGS, kept};
use crate::names::{only_version, path_of};
use crate::service::checked_tags;
use crate::sums::{self, Claims, Hasher, checksums, with_sums};
use bytes::BytesMut;
use futures_util::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::{CONTENT_RANGE, HeaderValue};
use leeward_door::listen::{BodyError, Turn};
use leeward_door::notes::{HEADERS, SUMS, Sums, etag_of};
use leeward_door::{Digest, File, Finish, Path, Tree, Upload, limits};
use leeward_fs::{Attr, Kind, NodeId, Precondition, Time};
use s3s::dto::{
    Checksum, ChecksumMode, ETag, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ObjectAttributes, ObjectCannedACL, PostObjectInput, PostObjectOutput, PutObjectInput, PutObjectOutput,
    Range, StorageClass, StreamingBlob,
};
use s3s::stream::ByteStream;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders};

/// Digits of an MD5 in an ETag: ETags of files written through the mount have another form.
const MD5_DIGITS: usize = 32;

/// Attributes of an object that clients can ask for.
const ATTRIBUTES: [&str; 5] = [
    ObjectAttributes::ETAG,
    ObjectAttributes::CHECKSUM,
    ObjectAttributes::OBJECT_PARTS,
    ObjectAttributes::STORAGE_CLASS,
    ObjectAttributes::OBJECT_SIZE,
];

/// The object under a key.
pub(crate) struct Object {
    pub(crate) attr: Attr,
    pub(crate) noted: Noted,
    pub(crate) etag: ETag,
}

impl Object {
    fn of(attr: Attr, xattrs: &[Option<Vec<u8>>]) -> Object {
        let noted = Noted::of(xattrs, &attr);
        let etag = ETag::Strong(etag_of(&noted.sums, &attr));
        Object { attr, noted, etag }
    }

    /// Length of its content: a directory has none.
    pub(crate) fn size(&self) -> u64 {
        if self.attr.kind == Kind::Dir { 0 } else { self.attr.size }
    }

    fn content_type(&self) -> Option<String> {
        let usual =
            if self.attr.kind == Kind::Dir { "application/x-directory" } else { "binary/octet-stream" };
        Some(self.noted.header("content-type").unwrap_or_else(|| usual.to_owned()))
    }

    /// Its checksums, where the client asks for them and gets the whole object.
    fn checksum(&self, mode: Option<&ChecksumMode>, whole: bool) -> Checksum {
        match mode.is_some_and(|m| m.as_str() == ChecksumMode::ENABLED) && whole {
            true => sums::checksum_of(&self.noted.sums),
            false => Checksum::default(),
        }
    }
}

/// The range of an object that a client wants.
fn part_of(range: Option<&Range>, size: u64) -> S3Result<(std::ops::Range<u64>, Option<String>)> {
    let Some(range) = range else { return Ok((0..size, None)) };
    let part = range.check(size).map_err(|_| {
        let e = S3Error::with_message(S3ErrorCode::InvalidRange, format!("The object has {size} bytes."));
        match HeaderValue::from_str(&format!("bytes */{size}")) {
            Ok(value) => error::with_header(e, CONTENT_RANGE, value),
            Err(_) => e,
        }
    })?;
    let told = format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1));
    Ok((part, Some(told)))
}

/// The common part of reading and looking: checks the request's conditions, finds the range, and
/// describes the object.
macro_rules! described {
    ($output:ident, $object:expr, $input:expr) => {{
        let (object, input) = (&$object, &$input);
        let conditions = Conditions::of(
            &input.if_match,
            &input.if_none_match,
            &input.if_modified_since,
            &input.if_unmodified_since,
        );
        conditions.check(&object.etag, &object.attr, true)?;
        check_part_number(input.part_number)?;
        let (part, content_range) = part_of(input.range.as_ref(), object.size())?;
        let checksum = object.checksum(input.checksum_mode.as_ref(), content_range.is_none());
        let header = |own: &Option<String>, name: &str| own.clone().or_else(|| object.noted.header(name));
        let output = $output {
            accept_ranges: Some("bytes".into()),
            content_length: Some((part.end - part.start) as i64),
            content_range,
            content_type: input.response_content_type.clone().or_else(|| object.content_type()),
            content_encoding: header(&input.response_content_encoding, "content-encoding"),
            content_language: header(&input.response_content_language, "content-language"),
            content_disposition: header(&input.response_content_disposition, "content-disposition"),
            cache_control: header(&input.response_cache_control, "cache-control"),
            expires: input.response_expires.clone().or_else(|| object.noted.expires()),
            e_tag: Some(object.etag.clone()),
            last_modified: Some(timestamp(object.attr.mtime)),
            metadata: object.noted.metadata(),
            checksum_type: checksum.checksum_type.clone(),
            ..$output::default()
        };
        (with_sums!($output, checksum, output), part)
    }};
}

impl Shared {
    pub(crate) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let path = path_of(&input.key)?;
        only_version(input.version_id.as_deref())?;
        let turn = self.turn(&call).await?;
        let (object, file) = open(&call.tree, &path).await?;
        drop(turn);
        let (mut output, part) = described!(GetObjectOutput, object, input);
        output.tag_count = object.noted.tag_count();
        output.body = Some(body_of(file, part).await?);
        Ok(S3Response::new(output))
    }

    pub(crate) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let object = self.find(&call, &input.key, input.version_id.as_deref()).await?;
        Ok(S3Response::new(described!(HeadObjectOutput, object, input).0))
    }

    /// Looks up the object of a key, when it is the user's turn.
    pub(crate) async fn find(&self, call: &Call, key: &str, version: Option<&str>) -> S3Result<Object> {
        let path = path_of(key)?;
        only_version(version)?;
        let _turn = self.turn(call).await?;
        look(&call.tree, &path).await
    }

    /// Attributes of an object, as XML: the number of its parts, not where they begin.
    pub(crate) async fn attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let object = self.find(&call, &input.key, input.version_id.as_deref()).await?;
        // botocore names them in one header, other clients in several
        let names = input.object_attributes.iter().flat_map(|names| names.as_str().split(','));
        let names: Vec<&str> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.is_empty() || names.iter().any(|name| !ATTRIBUTES.contains(name)) {
            let why = "x-amz-object-attributes names some of ETag, Checksum, ObjectParts, StorageClass and ObjectSize.";
            return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, why));
        }
        let wanted = |name: &str| names.contains(&name);
        let checksum = sums::checksum_of(&object.noted.sums);
        let has_sum = checksum.checksum_type.is_some();
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: (has_sum && wanted(ObjectAttributes::CHECKSUM)).then_some(checksum),
            object_parts: parts_of(&object.etag).filter(|_| wanted(ObjectAttributes::OBJECT_PARTS)),
            object_size: wanted(ObjectAttributes::OBJECT_SIZE).then_some(object.size() as i64),
            storage_class: wanted(ObjectAttributes::STORAGE_CLASS)
                .then(|| StorageClass::from_static(StorageClass::STANDARD)),
            last_modified: Some(timestamp(object.attr.mtime)),
            e_tag: Some(object.etag).filter(|_| wanted(ObjectAttributes::ETAG)),
            ..GetObjectAttributesOutput::default()
        }))
    }

    pub(crate) async fn put(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let trailers = request.trailing_headers.clone();
        let posted = request.extensions.get::<Posted>().cloned();
        let mut input = request.input;
        let path = path_of(&input.key)?;
        private(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
        input.content_encoding = input.content_encoding.as_deref().and_then(without_chunks);
        input.tagging = checked_tags(input.tagging.take())?;
        let kept = kept!(input).checked()?;
        let given = checksums!(input);
        let claims = Claims::of(
            input.content_md5.take(),
            &given,
            input.checksum_algorithm.as_ref(),
            &request.headers,
        )?;
        let incoming = Incoming::of(input.body.take(), input.content_length, claims, trailers)?;
        let turn = self.turn(&call).await?;
        let over =
            self.over(&call.tree, &path, input.if_match.as_ref(), input.if_none_match.as_ref()).await?;
        drop(turn);
        if path.wants_dir() {
            return self.put_directory(&call, &path, incoming, (kept, input.tagging), over).await;
        }
        let (upload, sums, _turn) = self.receive(&call, &path, incoming).await?;
        let attr = self.place(upload, sums.clone(), (kept, input.tagging.as_deref()), (over, None)).await?;
        let e_tag = Some(ETag::Strong(etag_of(&sums, &attr)));
        if let Some(posted) = posted {
            *posted.lock() = Some(input.key);
        }
        let output =
            PutObjectOutput { e_tag, checksum_type: sums::type_of(&sums), ..PutObjectOutput::default() };
        Ok(S3Response::new(with_sums!(PutObjectOutput, sums::checksum_of(&sums), output)))
    }

    /// An object from a form: its fields count as headers do.
    pub(crate) async fn post(
        &self,
        request: S3Request<PostObjectInput>,
    ) -> S3Result<S3Response<PostObjectOutput>> {
        let form = &request.input;
        forms::check(form)?;
        let owner = form.expected_bucket_owner.clone();
        self.expect_owner(&request, &request.input.bucket, owner.as_deref()).await?;
        let put = request.map_input(|form| PutObjectInput {
            acl: form.acl,
            body: form.body,
            bucket: form.bucket,
            cache_control: form.cache_control,
            checksum_algorithm: form.checksum_algorithm,
            checksum_crc32: form.checksum_crc32,
            checksum_crc32c: form.checksum_crc32c,
            checksum_crc64nvme: form.checksum_crc64nvme,
            checksum_sha1: form.checksum_sha1,
            checksum_sha256: form.checksum_sha256,
            content_disposition: form.content_disposition,
            content_encoding: form.content_encoding,
            content_language: form.content_language,
            content_length: form.content_length,
            content_md5: form.content_md5,
            content_type: form.content_type,
            expires: form.expires,
            if_match: form.if_match,
            if_none_match: form.if_none_match,
            key: form.key,
            metadata: form.metadata,
            tagging: form.tagging,
            ..PutObjectInput::default()
        });
        let put = self.put(put).await?;
        Ok(put.map_output(|put| PostObjectOutput { e_tag: put.e_tag, ..PostObjectOutput::default() }))
    }

    /// `PUT` of a key that ends in `/` makes a directory, which keeps headers and tags as an object
    /// does.
    async fn put_directory(
        &self,
        call: &Call,
        path: &Path,
        incoming: Incoming,
        (kept, tags): (Kept, Option<String>),
        over: Precondition,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let mut body = incoming.body;
        while let Some(piece) = body.next().await {
            if !piece.map_err(broken)?.is_empty() {
                return Err(S3Error::with_message(
                    S3ErrorCode::InvalidRequest,
                    "A key that ends in a slash is a directory, which has no content.",
                ));
            }
        }
        let claims = &incoming.claims;
        Hasher::new(claims.algorithm).finish(claims, incoming.trailers.as_ref())?;
        let _turn = self.turn(call).await?;
        let attr = self.make_directory(call, path, (kept, tags), over).await?;
        let e_tag = Some(ETag::Strong(etag_of(&Sums::default(), &attr)));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    /// A directory with these headers and tags, new or existing.
    pub(crate) async fn make_directory(
        &self,
        call: &Call,
        path: &Path,
        (kept, tags): (Kept, Option<String>),
        over: Precondition,
    ) -> S3Result<Attr> {
        let there = match look(&call.tree, path).await {
            Err(e) if *e.code() == S3ErrorCode::NoSuchKey => None,
            there => Some(there?),
        };
        if there.is_some() && matches!(over, Precondition::Nothing) {
            return Err(error::of(leeward_fs::Error::Exists));
        }
        let attr = call.tree.make_dir(path, true).await.map_err(error::of)?;
        let headers = kept.attribute()?.map(|(_, value)| value);
        let tags = tags.filter(|tags| !tags.is_empty()).map(String::into_bytes);
        let had = there.is_some_and(|there| !there.noted.headers.is_empty() || !there.noted.tags.is_empty());
        if had || headers.is_some() || tags.is_some() {
            let values = vec![(HEADERS.to_vec(), headers), (TAGS.to_vec(), tags)];
            call.tree.set_xattrs(path, values).await.map_err(error::of)?;
        }
        Ok(attr)
    }

    /// Receives content into a file without a name, and checks what the client claims about it.
    /// Returns it with the turn in which it gets its name.
    pub(crate) async fn receive(
        &self,
        call: &Call,
        path: &Path,
        incoming: Incoming,
    ) -> S3Result<(Upload, Sums, Turn)> {
        let Incoming { mut body, bytes, claims, trailers, before } = incoming;
        let hasher = || Hasher::new(claims.algorithm);
        let create = async || call.tree.create(path, Some(bytes + before)).await.map_err(error::of);
        let mut upload = None;
        let mut small = BytesMut::new();
        let mut received = 0u64;
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(broken)?;
            received += piece.len() as u64;
            if received > bytes {
                break;
            }
            if upload.is_none() && small.len() + piece.len() <= limits::WRITE_BYTES_TIGHT {
                small.extend_from_slice(&piece);
                continue;
            }
            if upload.is_none() {
                // waits for its turn, and gives it back at once: a client that sends slowly must
                // not hold up others
                drop(self.turn(call).await?);
                let begun = upload.insert(create().await?.with_digest(hasher()));
                begun.write(small.split().freeze()).await.map_err(error::of)?;
            }
            if let Some(upload) = &mut upload {
                upload.write(piece).await.map_err(error::of)?;
            }
        }
        if bytes != received {
            return Err(S3Error::new(S3ErrorCode::IncompleteBody));
        }
        let Some(upload) = upload else {
            let mut hasher = hasher();
            hasher.add(&small);
            let sums = hasher.finish(&claims, trailers.as_ref())?;
            let turn = self.turn(call).await?;
            let mut upload = create().await?;
            upload.write(small.freeze()).await.map_err(error::of)?;
            return Ok((upload, sums, turn));
        };
        let (hasher, upload) = upload.digested().await.map_err(error::of)?;
        let sums = hasher.finish(&claims, trailers.as_ref())?;
        Ok((upload, sums, self.turn(call).await?))
    }

    /// Gives content its key. `completes`: the upload in parts that ends with it, and the result to
    /// keep for a while.
    pub(crate) async fn place(
        &self,
        upload: Upload,
        sums: Sums,
        (kept, tags): (Kept, Option<&str>),
        (over, completes): (Precondition, Option<(NodeId, Vec<u8>)>),
    ) -> S3Result<Attr> {
        let modified = self.now();
        let mut xattrs = vec![(SUMS.to_vec(), sums.to_attribute(upload.size(), modified))];
        xattrs.extend(kept.attribute()?);
        if let Some(tags) = tags.filter(|tags| !tags.is_empty()) {
            xattrs.push((TAGS.to_vec(), tags.as_bytes().to_vec()));
        }
        let finish = Finish { over, xattrs, modified: Some(modified), parents: true, completes };
        upload.finish(finish).await.map_err(error::of)
    }

    /// The current time, in the form of files.
    pub(crate) fn now(&self) -> Time {
        let wall = self.wall();
        Time { secs: (wall / 1_000_000_000) as i64, nanos: (wall % 1_000_000_000) as u32 }
    }
}

/// Incoming content.
pub(crate) struct Incoming {
    body: StreamingBlob,
    /// Length of the content, bytes.
    pub(crate) bytes: u64,
    claims: Claims,
    trailers: Option<TrailingHeaders>,
    /// Bytes of earlier parts for which there must also be room.
    pub(crate) before: u64,
}

impl Incoming {
    /// The incoming content of a request.
    ///
    /// # Errors
    /// `MissingContentLength`: then it is not known whether there is room for it, and where it
    /// ends.
    pub(crate) fn of(
        body: Option<StreamingBlob>,
        bytes: Option<i64>,
        claims: Claims,
        trailers: Option<TrailingHeaders>,
    ) -> S3Result<Incoming> {
        let body = body.unwrap_or_else(|| StreamingBlob::from(Body::empty()));
        let left = || body.remaining_length().exact().map(|n| n as u64);
        let bytes = bytes.and_then(|n| u64::try_from(n).ok()).or_else(left);
        let bytes = bytes.ok_or_else(|| S3Error::new(S3ErrorCode::MissingContentLength))?;
        Ok(Incoming { body, bytes, claims, trailers, before: 0 })
    }
}

/// Opens the file of a key; no file for a directory.
pub(crate) async fn open(tree: &Tree, path: &Path) -> S3Result<(Object, Option<File>)> {
    if path.wants_dir() {
        return Ok((look(tree, path).await?, None));
    }
    let file = tree.open(path, NOTED).await.map_err(|e| match e {
        // the directory is another key, with a slash
        leeward_fs::Error::IsDir | leeward_fs::Error::NotDir => error::of(leeward_fs::Error::NotFound),
        e => error::of(e),
    })?;
    Ok((Object::of(file.attr, &file.xattrs), Some(file)))
}

/// The object of a key.
pub(crate) async fn look(tree: &Tree, path: &Path) -> S3Result<Object> {
    let missing = || error::of(leeward_fs::Error::NotFound);
    let found = tree.stat(path, NOTED).await.map_err(|e| match e {
        leeward_fs::Error::NotDir => missing(),
        e => error::of(e),
    })?;
    match found.attr.kind {
        Kind::File if !path.wants_dir() => {}
        Kind::Dir if path.wants_dir() => {}
        _ => return Err(missing()),
    }
    Ok(Object::of(found.attr, &found.xattrs))
}

async fn body_of(file: Option<File>, part: std::ops::Range<u64>) -> S3Result<StreamingBlob> {
    let Some(file) = file.filter(|_| part.start < part.end) else {
        return Ok(StreamingBlob::from(Body::empty()));
    };
    if part.end - part.start <= limits::READ_WHOLE_BYTES {
        let bytes = file.read_at(part.start, part.end - part.start).await.map_err(error::of)?;
        if bytes.len() as u64 == part.end - part.start {
            return Ok(StreamingBlob::from(Body::from(bytes)));
        }
    }
    let frames = file.begin(part).await.map_err(error::of)?.map(|piece| piece.map(Frame::data));
    Ok(StreamingBlob::from(Body::http_body_unsync(StreamBody::new(frames))))
}

/// Refuses an ACL that modes and ACLs of files cannot express.
pub(crate) fn private(acl: Option<&str>) -> S3Result<()> {
    match acl {
        None | Some(ObjectCannedACL::PRIVATE | ObjectCannedACL::BUCKET_OWNER_FULL_CONTROL) => Ok(()),
        Some(_) => Err(not_implemented(
            "ACLs of objects other than private: the modes and ACLs of the files say who may read; those",
        )),
    }
}

/// Number of parts that an object was made from: its ETag has it.
fn parts_of(etag: &ETag) -> Option<GetObjectAttributesParts> {
    let (md5, count) = etag.value().split_once('-')?;
    let total_parts_count = Some(count.parse().ok().filter(|_| md5.len() == MD5_DIGITS)?);
    Some(GetObjectAttributesParts { total_parts_count, ..GetObjectAttributesParts::default() })
}

/// Removes `aws-chunked`, which describes the request, not the content. The rest is kept as it
/// came.
pub(crate) fn without_chunks(encoding: &str) -> Option<String> {
    let is_chunks = |e: &str| e.trim().eq_ignore_ascii_case("aws-chunked");
    if !encoding.split(',').any(is_chunks) {
        return Some(encoding.to_owned()).filter(|encoding| !encoding.is_empty());
    }
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|e| !e.is_empty() && !is_chunks(e)).collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

fn check_part_number(part: Option<i32>) -> S3Result<()> {
    match part {
        None | Some(1) => Ok(()),
        Some(_) => Err(S3Error::with_message(S3ErrorCode::InvalidRange, "Objects are kept in one part.")),
    }
}

/// The error for incoming content that ended early: wrong content is no broken connection.
fn broken(e: BodyError) -> S3Error {
    let text = e.to_string();
    if text.contains("Sha256Mismatch") {
        return error::own(
            "XAmzContentSHA256Mismatch",
            400,
            "The content that arrived is not what x-amz-content-sha256 says.",
        );
    }
    if text.contains("SignatureMismatch") {
        return S3Error::with_message(
            S3ErrorCode::SignatureDoesNotMatch,
            "A chunk's signature is not right.",
        );
    }
    let why = format!("The content ended early, or is not in the chunks that it is said to be in: {text}");
    S3Error::with_message(S3ErrorCode::IncompleteBody, why)
}

#[cfg(test)]
mod tests {
    use super::without_chunks;

    #[test]
    fn encodings_are_kept_as_they_are_said() {
        for (said, kept) in [
            ("gzip", Some("gzip")),
            ("gzip, br", Some("gzip, br")),
            ("gzip,br", Some("gzip,br")),
            ("aws-chunked", None),
            ("AWS-chunked,gzip", Some("gzip")),
            ("gzip, aws-chunked, br", Some("gzip, br")),
            ("", None),
        ] {
            assert_eq!(without_chunks(said).as_deref(), kept, "{said}");
        }
    }
}
