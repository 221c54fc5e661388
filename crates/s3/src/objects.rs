//! Objects: reading, writing, copying, removing.

use crate::call::{Call, Shared, Wants};
use crate::error;
use crate::list::timestamp;
use crate::meta::{Kept, NOTED, Noted, TAGS};
use crate::names::path_of;
use crate::sums::{self, Claims, Hasher, checksums};
use bytes::BytesMut;
use futures_util::{FutureExt, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use leeward_door::notes::{SUMS, Sums, etag_of};
use leeward_door::{File, Finish, Path, Tree, Upload, limits};
use leeward_volume::op::{Attr, Kind, Over, Time};
use s3s::dto::{
    Checksum, ChecksumMode, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag,
    ETagCondition, Error as DtoError, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    MetadataDirective, ObjectCannedACL, PutObjectInput, PutObjectOutput, Range, StreamingBlob,
    TaggingDirective, Timestamp,
};
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders};

/// Objects that one request removes.
const DELETE_MAX: usize = 1000;

/// What a request asks of the object that is there.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) matches: Option<ETagCondition>,
    pub(crate) none_match: Option<ETagCondition>,
    pub(crate) modified_since: Option<Timestamp>,
    pub(crate) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Checks what is there. `read`: a condition that says that the client has it already is answered `304`.
    pub(crate) fn check(&self, etag: &ETag, attr: &Attr, read: bool) -> S3Result<()> {
        let failed = || {
            S3Error::with_message(S3ErrorCode::PreconditionFailed, "The object is not as the condition says.")
        };
        let modified = timestamp(Time { secs: attr.mtime.secs, nanos: 0 });
        match (&self.matches, &self.unmodified_since) {
            (Some(ETagCondition::ETag(wanted)), _) if !etag.strong_cmp(wanted) => return Err(failed()),
            (None, Some(since)) if modified > *since => return Err(failed()),
            _ => {}
        }
        let has_it = match (&self.none_match, &self.modified_since) {
            (Some(ETagCondition::Any), _) => true,
            (Some(ETagCondition::ETag(known)), _) => etag.weak_cmp(known),
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        match (has_it, read) {
            (true, true) => Err(S3Error::new(S3ErrorCode::NotModified)),
            (true, false) => Err(failed()),
            _ => Ok(()),
        }
    }
}

/// What is there under a key.
struct Object {
    attr: Attr,
    noted: Noted,
    etag: ETag,
}

impl Object {
    fn of(attr: Attr, xattrs: &[Option<Vec<u8>>]) -> Object {
        let noted = Noted::of(xattrs, &attr);
        let etag = ETag::Strong(etag_of(&noted.sums, &attr));
        Object { attr, noted, etag }
    }

    /// Bytes of its content: a directory has none.
    fn size(&self) -> u64 {
        if self.attr.kind == Kind::Dir { 0 } else { self.attr.size }
    }

    fn content_type(&self) -> Option<String> {
        let usual =
            if self.attr.kind == Kind::Dir { "application/x-directory" } else { "binary/octet-stream" };
        Some(self.noted.header("content-type").unwrap_or_else(|| usual.to_owned()))
    }

    /// Its checksums, where the client asks for them and gets all of it.
    fn checksum(&self, mode: Option<&ChecksumMode>, whole: bool) -> Checksum {
        match mode.is_some_and(|m| m.as_str() == ChecksumMode::ENABLED) && whole {
            true => sums::checksum_of(&self.noted.sums),
            false => Checksum::default(),
        }
    }
}

/// The part of an object that a client wants.
fn part_of(range: Option<&Range>, size: u64) -> S3Result<(std::ops::Range<u64>, Option<String>)> {
    let Some(range) = range else { return Ok((0..size, None)) };
    let part = range.check(size).map_err(|_| {
        S3Error::with_message(S3ErrorCode::InvalidRange, format!("The object has {size} bytes."))
    })?;
    let told = format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1));
    Ok((part, Some(told)))
}

/// A response's fields that both reading and looking have.
macro_rules! described {
    ($output:ident, $object:expr, $checksum:expr, $range:expr, $part:expr, $input:expr) => {{
        let (object, checksum) = (&$object, $checksum);
        $output {
            accept_ranges: Some("bytes".into()),
            content_length: Some(($part.end - $part.start) as i64),
            content_range: $range,
            content_type: $input.response_content_type.clone().or_else(|| object.content_type()),
            content_encoding: $input
                .response_content_encoding
                .clone()
                .or_else(|| object.noted.header("content-encoding")),
            content_language: $input
                .response_content_language
                .clone()
                .or_else(|| object.noted.header("content-language")),
            content_disposition: $input
                .response_content_disposition
                .clone()
                .or_else(|| object.noted.header("content-disposition")),
            cache_control: $input
                .response_cache_control
                .clone()
                .or_else(|| object.noted.header("cache-control")),
            expires: $input.response_expires.clone().or_else(|| object.noted.expires()),
            e_tag: Some(object.etag.clone()),
            last_modified: Some(timestamp(object.attr.mtime)),
            metadata: object.noted.metadata(),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            checksum_type: checksum.checksum_type,
            ..$output::default()
        }
    }};
}

impl Shared {
    pub(crate) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let call = self.call(&request, ("GetObject", &request.input.bucket, Wants::Read)).await?;
        let input = request.input;
        let path = path_of(&input.key)?;
        let turn = self.turn(&call).await?;
        let (object, file) = open(&call.tree, &path).await?;
        drop(turn);
        let conditions = Conditions {
            matches: input.if_match.clone(),
            none_match: input.if_none_match.clone(),
            modified_since: input.if_modified_since.clone(),
            unmodified_since: input.if_unmodified_since.clone(),
        };
        conditions.check(&object.etag, &object.attr, true)?;
        check_part_number(input.part_number)?;
        let (part, range) = part_of(input.range.as_ref(), object.size())?;
        let checksum = object.checksum(input.checksum_mode.as_ref(), range.is_none());
        let mut output = described!(GetObjectOutput, object, checksum, range, part, input);
        output.tag_count = object.noted.tag_count();
        output.body = Some(body_of(file, part).await?);
        Ok(S3Response::new(output))
    }

    pub(crate) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let call = self.call(&request, ("HeadObject", &request.input.bucket, Wants::Read)).await?;
        let input = request.input;
        let path = path_of(&input.key)?;
        let _turn = self.turn(&call).await?;
        let object = look(&call.tree, &path).await?;
        let conditions = Conditions {
            matches: input.if_match.clone(),
            none_match: input.if_none_match.clone(),
            modified_since: input.if_modified_since.clone(),
            unmodified_since: input.if_unmodified_since.clone(),
        };
        conditions.check(&object.etag, &object.attr, true)?;
        check_part_number(input.part_number)?;
        let (part, range) = part_of(input.range.as_ref(), object.size())?;
        let checksum = object.checksum(input.checksum_mode.as_ref(), range.is_none());
        Ok(S3Response::new(described!(HeadObjectOutput, object, checksum, range, part, input)))
    }

    pub(crate) async fn put(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let call = self.call(&request, ("PutObject", &request.input.bucket, Wants::More)).await?;
        let trailers = request.trailing_headers.clone();
        let announced = request.headers.get("x-amz-trailer").and_then(|t| t.to_str().ok()).map(str::to_owned);
        let mut input = request.input;
        let path = path_of(&input.key)?;
        private(input.acl.as_ref())?;
        if input.write_offset_bytes.is_some()
            || input.server_side_encryption.is_some()
            || input.sse_customer_key.is_some()
        {
            return Err(not_implemented("Appending, and encryption with keys of clients"));
        }
        if path.wants_dir() {
            return self.put_directory(&call, &path, &input).await;
        }
        let kept = Kept::default()
            .header("content-type", input.content_type.as_deref())
            .header("content-encoding", input.content_encoding.as_deref().and_then(without_chunks).as_deref())
            .header("content-language", input.content_language.as_deref())
            .header("content-disposition", input.content_disposition.as_deref())
            .header("cache-control", input.cache_control.as_deref())
            .expires(input.expires.as_ref())
            .metadata(input.metadata.take());
        let given = checksums!(input);
        let claims = Claims::of(
            input.content_md5.take(),
            &given,
            input.checksum_algorithm.as_ref(),
            announced.as_deref(),
        );
        let over =
            self.over(&call.tree, &path, input.if_match.as_ref(), input.if_none_match.as_ref()).await?;
        let incoming = Incoming { body: input.body.take(), bytes: input.content_length, claims, trailers };
        let (upload, sums) = self.receive(&call, &path, incoming).await?;
        let attr = self.place(upload, sums.clone(), (kept, input.tagging.as_deref()), over).await?;
        let checksum = sums::checksum_of(&sums);
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag_of(&sums, &attr))),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            checksum_type: checksum.checksum_type,
            ..PutObjectOutput::default()
        }))
    }

    /// `PUT` of a key that ends in `/` makes a directory.
    async fn put_directory(
        &self,
        call: &Call,
        path: &Path,
        input: &PutObjectInput,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        if input.content_length.is_some_and(|bytes| bytes > 0) {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "A key that ends in a slash is a directory, which has no content.",
            ));
        }
        let _turn = self.turn(call).await?;
        let attr = call.tree.make_dir(path, true).await.map_err(error::of)?;
        let e_tag = Some(ETag::Strong(etag_of(&Sums::default(), &attr)));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    /// What a new object may replace, by the conditions of its request.
    pub(crate) async fn over(
        &self,
        tree: &Tree,
        path: &Path,
        matches: Option<&ETagCondition>,
        none_match: Option<&ETagCondition>,
    ) -> S3Result<Over> {
        match (matches, none_match) {
            (None, None) => Ok(Over::Any),
            (None, Some(ETagCondition::Any)) => Ok(Over::Nothing),
            (matches, none_match) => {
                let there = match look(tree, path).await {
                    Err(e) if *e.code() == S3ErrorCode::NoSuchKey && matches.is_none() => {
                        return Ok(Over::Nothing);
                    }
                    other => other?,
                };
                let conditions = Conditions {
                    matches: matches.cloned(),
                    none_match: none_match.cloned(),
                    ..Conditions::default()
                };
                conditions.check(&there.etag, &there.attr, false)?;
                Ok(Over::This(there.attr.node, there.attr.ctime))
            }
        }
    }

    /// Takes content in, into a file without a name, and checks what the client says of it.
    pub(crate) async fn receive(
        &self,
        call: &Call,
        path: &Path,
        incoming: Incoming,
    ) -> S3Result<(Upload, Sums)> {
        let Incoming { body, bytes, claims, trailers } = incoming;
        let bytes = bytes.and_then(|n| u64::try_from(n).ok());
        let mut hasher = Hasher::new(claims.algorithm);
        let mut body = body.unwrap_or_else(|| StreamingBlob::from(Body::empty()));
        let mut upload = None;
        let mut small = BytesMut::new();
        let mut received = 0u64;
        while let Some(piece) = body.next().await {
            let piece =
                piece.map_err(|e| S3Error::with_source(S3ErrorCode::IncompleteBody, e)).map_err(signature)?;
            received += piece.len() as u64;
            hasher.update(&piece);
            if upload.is_none() && small.len() + piece.len() <= limits::WRITE_BYTES_TIGHT {
                small.extend_from_slice(&piece);
                continue;
            }
            if upload.is_none() {
                // waits for its turn, which it gives back at once: a client that sends slowly must not keep others from theirs
                drop(self.turn(call).await?);
                let mut begun = call.tree.create(path, bytes).await.map_err(error::of)?;
                begun.write(small.split().freeze()).await.map_err(error::of)?;
                upload = Some(begun);
            }
            if let Some(upload) = &mut upload {
                upload.write(piece).await.map_err(error::of)?;
            }
        }
        if bytes.is_some_and(|bytes| bytes != received) {
            return Err(S3Error::new(S3ErrorCode::IncompleteBody));
        }
        let sums = hasher.finish(&claims, trailers.as_ref())?;
        let turn = self.turn(call).await?;
        let mut upload = match upload {
            Some(upload) => upload,
            None => call.tree.create(path, Some(received)).await.map_err(error::of)?,
        };
        upload.write(small.freeze()).await.map_err(error::of)?;
        drop(turn);
        Ok((upload, sums))
    }

    /// Gives content its key.
    pub(crate) async fn place(
        &self,
        upload: Upload,
        sums: Sums,
        (kept, tags): (Kept, Option<&str>),
        over: Over,
    ) -> S3Result<Attr> {
        let modified = self.now();
        let mut xattrs = vec![(SUMS.to_vec(), sums.to_attribute(upload.size(), modified))];
        xattrs.extend(kept.attribute()?);
        if let Some(tags) = tags.filter(|tags| !tags.is_empty()) {
            xattrs.push((TAGS.to_vec(), tags.as_bytes().to_vec()));
        }
        let finish = Finish { over, xattrs, modified: Some(modified), parents: true };
        upload.finish(finish).await.map_err(error::of)
    }

    /// Now, as files have it.
    pub(crate) fn now(&self) -> Time {
        let wall = self.wall();
        Time { secs: (wall / 1_000_000_000) as i64, nanos: (wall % 1_000_000_000) as u32 }
    }

    pub(crate) async fn copy(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let call = self.call(&request, ("CopyObject", &request.input.bucket, Wants::More)).await?;
        let mut input = request.input;
        private(input.acl.as_ref())?;
        let to = path_of(&input.key)?;
        let (from_tree, from) = self.source(&call, &input.copy_source)?;
        let _turn = self.turn(&call).await?;
        let (object, file) = open(&from_tree, &from).await?;
        let conditions = Conditions {
            matches: input.copy_source_if_match.clone(),
            none_match: input.copy_source_if_none_match.clone(),
            modified_since: input.copy_source_if_modified_since.clone(),
            unmodified_since: input.copy_source_if_unmodified_since.clone(),
        };
        conditions.check(&object.etag, &object.attr, false)?;
        let replaces =
            |d: Option<&str>| d.is_some_and(|d| d.eq_ignore_ascii_case(MetadataDirective::REPLACE));
        let new_headers = replaces(input.metadata_directive.as_ref().map(MetadataDirective::as_str));
        let new_tags = replaces(input.tagging_directive.as_ref().map(TaggingDirective::as_str));
        if !new_headers && from_tree.base() == call.tree.base() && from == to {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "An object can be copied to itself only with other metadata.",
            ));
        }
        let kept = match new_headers {
            false => {
                object.noted.headers.iter().fold(Kept::default(), |kept, (n, v)| kept.header(n, Some(v)))
            }
            true => Kept::default()
                .header("content-type", input.content_type.as_deref())
                .header("content-encoding", input.content_encoding.as_deref())
                .header("content-language", input.content_language.as_deref())
                .header("content-disposition", input.content_disposition.as_deref())
                .header("cache-control", input.cache_control.as_deref())
                .expires(input.expires.as_ref())
                .metadata(input.metadata.take()),
        };
        let tags = if new_tags { input.tagging.take() } else { Some(object.noted.tags.clone()) };
        let Some(file) = file else { return Err(error::of(leeward_volume::Error::IsDir)) };
        let mut upload = call.tree.create(&to, Some(object.attr.size)).await.map_err(error::of)?;
        upload.copy(&file, 0..object.attr.size).await.map_err(error::of)?;
        let attr = self.place(upload, object.noted.sums.clone(), (kept, tags.as_deref()), Over::Any).await?;
        let copied = CopyObjectResult {
            e_tag: Some(ETag::Strong(etag_of(&object.noted.sums, &attr))),
            last_modified: Some(timestamp(attr.mtime)),
            ..CopyObjectResult::default()
        };
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(copied),
            ..CopyObjectOutput::default()
        }))
    }

    /// The tree and the path that a copy is made from.
    pub(crate) fn source(&self, call: &Call, source: &CopySource) -> S3Result<(Tree, Path)> {
        let CopySource::Bucket { bucket, key, version_id: None } = source else {
            return Err(not_implemented("Access points and versions"));
        };
        let bucket = self.bucket(bucket)?;
        Ok((call.tree_of(self, &bucket), path_of(key)?))
    }

    pub(crate) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let call = self.call(&request, ("DeleteObject", &request.input.bucket, Wants::More)).await?;
        let input = request.input;
        let path = path_of(&input.key)?;
        let _turn = self.turn(&call).await?;
        if let Some(matches) = &input.if_match {
            let there = look(&call.tree, &path).await?;
            Conditions { matches: Some(matches.clone()), ..Conditions::default() }.check(
                &there.etag,
                &there.attr,
                false,
            )?;
        }
        remove(&call.tree, &path).await?;
        Ok(S3Response::with_status(DeleteObjectOutput::default(), hyper::StatusCode::NO_CONTENT))
    }

    pub(crate) async fn delete_many(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let call = self.call(&request, ("DeleteObjects", &request.input.bucket, Wants::More)).await?;
        let delete = request.input.delete;
        if delete.objects.len() > DELETE_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::MalformedXML,
                "At most 1000 keys in one request.",
            ));
        }
        let _turn = self.turn(&call).await?;
        let quiet = delete.quiet.unwrap_or(false);
        let removals = delete.objects.into_iter().map(|object| {
            let tree = call.tree.clone();
            let removal = async move {
                let removed = match path_of(&object.key) {
                    Ok(path) => remove(&tree, &path).await,
                    Err(e) => Err(e),
                };
                (object.key, removed)
            };
            removal.boxed()
        });
        // one commit carries many of them
        let results: Vec<_> = futures_util::stream::iter(removals).buffered(64).collect().await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (key, result) in results {
            match result {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
                Err(e) => errors.push(DtoError {
                    key: Some(key),
                    code: Some(e.code().as_str().to_owned()),
                    message: e.message().map(str::to_owned),
                    ..DtoError::default()
                }),
            }
        }
        let output = DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        };
        Ok(S3Response::new(output))
    }
}

/// Content on its way in.
pub(crate) struct Incoming {
    pub(crate) body: Option<StreamingBlob>,
    pub(crate) bytes: Option<i64>,
    pub(crate) claims: Claims,
    pub(crate) trailers: Option<TrailingHeaders>,
}

/// Opens the file that a key is; no file for a directory.
async fn open(tree: &Tree, path: &Path) -> S3Result<(Object, Option<File>)> {
    if path.wants_dir() {
        return Ok((look(tree, path).await?, None));
    }
    let file = tree.open(path, NOTED).await.map_err(|e| match e {
        // the directory is another key, with a slash
        leeward_volume::Error::IsDir | leeward_volume::Error::NotDir => {
            error::of(leeward_volume::Error::NotFound)
        }
        e => error::of(e),
    })?;
    Ok((Object::of(file.attr, &file.xattrs), Some(file)))
}

/// What is under a key.
async fn look(tree: &Tree, path: &Path) -> S3Result<Object> {
    let missing = || error::of(leeward_volume::Error::NotFound);
    let found = tree.stat(path, NOTED).await.map_err(|e| match e {
        leeward_volume::Error::NotDir => missing(),
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
    let frames = file.stream(part).map(|piece| piece.map(Frame::data));
    Ok(StreamingBlob::from(Body::http_body_unsync(StreamBody::new(frames))))
}

/// Removes what a key is, if it is there.
async fn remove(tree: &Tree, path: &Path) -> S3Result<()> {
    use leeward_volume::Error;
    let removed = match path.wants_dir() {
        true => tree.remove_dir(path).await,
        false => tree.remove(path, true).await,
    };
    match removed {
        // the prefix stays while there are keys below it; a key that leads nowhere is removed
        Ok(()) | Err(Error::NotFound | Error::NotDir | Error::NotEmpty | Error::IsDir) => Ok(()),
        Err(e) => Err(error::of(e)),
    }
}

/// Only what modes and ACLs of files can say.
pub(crate) fn private(acl: Option<&ObjectCannedACL>) -> S3Result<()> {
    match acl.map(ObjectCannedACL::as_str) {
        None | Some(ObjectCannedACL::PRIVATE | ObjectCannedACL::BUCKET_OWNER_FULL_CONTROL) => Ok(()),
        Some(_) => Err(not_implemented(
            "ACLs of objects other than private: the modes and ACLs of the files say who may read; those",
        )),
    }
}

pub(crate) fn not_implemented(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, format!("{what} are not supported."))
}

/// `aws-chunked` says how a request came, not what the content is.
fn without_chunks(encoding: &str) -> Option<String> {
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|e| !e.is_empty() && *e != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn check_part_number(part: Option<i32>) -> S3Result<()> {
    match part {
        None | Some(1) => Ok(()),
        Some(_) => Err(S3Error::with_message(S3ErrorCode::InvalidRange, "Objects are kept in one part.")),
    }
}

/// A chunk whose signature is wrong is no broken connection.
fn signature(e: S3Error) -> S3Error {
    let text = e.source().map(ToString::to_string).unwrap_or_default();
    if text.to_ascii_lowercase().contains("signature") {
        return S3Error::with_message(
            S3ErrorCode::SignatureDoesNotMatch,
            "A chunk's signature is not right.",
        );
    }
    e
}
