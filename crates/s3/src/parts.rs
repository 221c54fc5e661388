//! Uploads in parts: each part is a durable file without a name; they become the object by sharing their data.
//!
//! What uploads there are is known in memory only (`uploads`): when the process ends they are gone, with their parts, and clients begin again
//! (`NoSuchUpload`). Nothing of them is ever seen in the mount, and nothing is left to clean up.

use crate::call::{Call, Shared};
use crate::conditions::Conditions;
use crate::copy::sums_still;
use crate::error::{self, not_implemented};
use crate::list::timestamp;
use crate::meta::kept;
use crate::names::path_of;
use crate::objects::{Incoming, private};
use crate::sums::{self, Claims, checksums, with_sums};
use crate::uploads::{Piece, Uploading, Uploads};
use leeward_door::Path;
use leeward_door::notes::{Sums, etag_of};
use leeward_env::hex;
use leeward_volume::op::Over;
use parking_lot::Mutex;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, ChecksumAlgorithm, ChecksumType,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part as DtoPart, Range,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::ops::Bound;

/// Number of the last part that an upload can have.
const PART_NUMBER_MAX: i32 = 10_000;
/// Smallest part, but for the last one: what S3 says.
const PART_BYTES_MIN: u64 = 5 << 20;

fn check_number(number: i32) -> S3Result<()> {
    if (1..=PART_NUMBER_MAX).contains(&number) {
        return Ok(());
    }
    Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "Parts have numbers from 1 to 10000."))
}

impl Shared {
    pub(crate) async fn create_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let mut input = request.input;
        let path = path_of(&input.key)?;
        private(input.acl.as_ref())?;
        if path.wants_dir() {
            return Err(not_implemented("Directories in parts"));
        }
        let algorithm = input.checksum_algorithm.as_ref().and_then(|a| sums::name_of(a.as_str()));
        let whole = input.checksum_type.as_ref().map(|t| t.as_str() == ChecksumType::FULL_OBJECT);
        // what S3 takes where the client does not say
        let composite = !whole.unwrap_or(algorithm == Some("crc64nvme"));
        let kept = kept!(input);
        kept.attribute()?;
        let _turn = self.turn(&call).await?;
        // whoever may not write there hears it now
        drop(call.tree.create(&path, None).await.map_err(error::of)?);
        let begun = self.now();
        Uploads::tend(&self.0);
        let uploading = self.0.uploads.begin(|id| Uploading {
            id,
            bucket: call.bucket.name.clone(),
            key: input.key.clone(),
            uid: call.who.uid,
            kept,
            tags: input.tagging.take(),
            begun,
            algorithm,
            composite,
            state: Mutex::default(),
        })?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(uploading.id.clone()),
            checksum_algorithm: algorithm.map(sums::algorithm_of),
            checksum_type: algorithm.map(|_| checksum_type(composite)),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    pub(crate) async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let trailers = request.trailing_headers.clone();
        let announced = request.headers.get("x-amz-trailer").and_then(|t| t.to_str().ok()).map(str::to_owned);
        let mut input = request.input;
        check_number(input.part_number)?;
        let uploading = self.0.uploads.get(&call, &input.key, &input.upload_id)?;
        let path = path_of(&input.key)?;
        let given = checksums!(input);
        let md5 = input.content_md5.take();
        let claims = Claims::of(md5, &given, input.checksum_algorithm.as_ref(), announced.as_deref())?;
        let claims = uploading.hashed_by(claims);
        let mut incoming = Incoming::of(input.body.take(), input.content_length, claims, trailers)?;
        let coming = self.0.uploads.expect(&uploading, input.part_number, incoming.bytes);
        incoming.before = coming.before;
        let (upload, sums, _turn) = self.receive(&call, &path, incoming).await?;
        let part = upload.into_part().await.map_err(error::of)?;
        let piece = Piece { part, sums, at: self.now() };
        let output =
            UploadPartOutput { e_tag: Some(ETag::Strong(piece.etag())), ..UploadPartOutput::default() };
        let checksum = sums::checksum_of(&piece.sums);
        self.0.uploads.keep(&uploading, input.part_number, piece)?;
        Ok(S3Response::new(with_sums!(UploadPartOutput, checksum, output)))
    }

    pub(crate) async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        check_number(input.part_number)?;
        let uploading = self.0.uploads.get(&call, &input.key, &input.upload_id)?;
        let (tree, from) = self.source(&call, &input.copy_source)?;
        let _turn = self.turn(&call).await?;
        let file = tree.open(&from, crate::meta::NOTED).await.map_err(error::of)?;
        let noted = crate::meta::Noted::of(&file.xattrs, &file.attr);
        let etag = ETag::Strong(etag_of(&noted.sums, &file.attr));
        let conditions = Conditions::of(
            &input.copy_source_if_match,
            &input.copy_source_if_none_match,
            &input.copy_source_if_modified_since,
            &input.copy_source_if_unmodified_since,
        );
        conditions.check(&etag, &file.attr, false)?;
        let range = match &input.copy_source_range {
            None => 0..file.attr.size,
            Some(text) => {
                let wrong = || {
                    S3Error::with_message(
                        S3ErrorCode::InvalidArgument,
                        "The range of the source cannot be had.",
                    )
                };
                Range::parse(text).map_err(|_| wrong())?.check(file.attr.size).map_err(|_| wrong())?
            }
        };
        let path = path_of(&input.key)?;
        let whole = range == (0..file.attr.size);
        let bytes = range.end - range.start;
        let coming = self.0.uploads.expect(&uploading, input.part_number, bytes);
        let wanted = Some(bytes + coming.before);
        let mut upload = call.tree.create(&path, wanted).await.map_err(error::of)?;
        upload.copy(&file, range).await.map_err(error::of)?;
        let part = upload.into_part().await.map_err(error::of)?;
        // content that was not seen has no sums, but for a whole file's
        let kept = sums_still(&tree, &from, (&file.attr, noted.sums), &conditions).await?;
        let sums = if whole { kept } else { Sums::default() };
        let piece = Piece { part, sums, at: self.now() };
        let copied = CopyPartResult {
            e_tag: Some(ETag::Strong(piece.etag())),
            last_modified: Some(timestamp(piece.at)),
            ..CopyPartResult::default()
        };
        self.0.uploads.keep(&uploading, input.part_number, piece)?;
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(copied),
            ..UploadPartCopyOutput::default()
        }))
    }

    pub(crate) async fn complete_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let mut input = request.input;
        let path = path_of(&input.key)?;
        let uploading = self.0.uploads.get(&call, &input.key, &input.upload_id)?;
        let wanted = input.multipart_upload.take().and_then(|m| m.parts).unwrap_or_default();
        let pieces = chosen(&uploading, &wanted)?;
        let bytes: u64 = pieces.iter().map(|p| p.part.size()).sum();
        if input.mpu_object_size.is_some_and(|size| size as u64 != bytes) {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "The parts have not so many bytes in all.",
            ));
        }
        let sums = sums_of(&uploading, &pieces);
        check_claims(&checksums!(input), &sums)?;
        let _turn = self.turn(&call).await?;
        let over =
            self.over(&call.tree, &path, input.if_match.as_ref(), input.if_none_match.as_ref()).await?;
        let attr = self.assemble(&call, &path, &uploading, (&pieces, bytes, &sums, over)).await?;
        drop(self.0.uploads.end(&uploading.id));
        let output = CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, crate::names::encoded(&input.key))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag_of(&sums, &attr))),
            checksum_type: sums::type_of(&sums),
            ..CompleteMultipartUploadOutput::default()
        };
        let checksum = sums::checksum_of(&sums);
        Ok(S3Response::new(with_sums!(CompleteMultipartUploadOutput, checksum, output)))
    }

    async fn assemble(
        &self,
        call: &Call,
        path: &Path,
        uploading: &Uploading,
        (pieces, bytes, sums, over): (&[Piece], u64, &Sums, Over),
    ) -> S3Result<leeward_volume::op::Attr> {
        let mut upload = call.tree.create(path, Some(bytes)).await.map_err(error::of)?;
        for piece in pieces {
            upload.copy(piece.part.file(), 0..piece.part.size()).await.map_err(error::of)?;
        }
        let headers = uploading.kept.clone();
        self.place(upload, sums.clone(), (headers, uploading.tags.as_deref()), over).await
    }

    pub(crate) async fn abort_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let uploading = self.0.uploads.get(&call, &request.input.key, &request.input.upload_id)?;
        drop(self.0.uploads.end(&uploading.id));
        Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), hyper::StatusCode::NO_CONTENT))
    }

    pub(crate) async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let uploading = self.0.uploads.get(&call, &input.key, &input.upload_id)?;
        let _turn = self.turn(&call).await?;
        let limit = input.max_parts.unwrap_or(1000).clamp(0, 1000) as usize;
        let after = input.part_number_marker.unwrap_or(0);
        let state = uploading.state.lock();
        let mut parts: Vec<DtoPart> = state
            .parts
            .range((Bound::Excluded(after), Bound::Unbounded))
            .take(limit + 1)
            .map(|(number, piece)| dto_part(*number, piece))
            .collect();
        let is_truncated = parts.len() > limit;
        parts.truncate(limit);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(limit as i32),
            part_number_marker: input.part_number_marker,
            next_part_number_marker: parts.last().and_then(|p| p.part_number),
            is_truncated: Some(is_truncated),
            checksum_algorithm: uploading.algorithm.map(sums::algorithm_of),
            parts: Some(parts),
            ..ListPartsOutput::default()
        }))
    }

    pub(crate) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let _turn = self.turn(&call).await?;
        let limit = input.max_uploads.unwrap_or(1000).clamp(0, 1000) as usize;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = (input.key_marker.clone().unwrap_or_default(), input.upload_id_marker.clone());
        let is_later = |u: &Uploading| match &after.1 {
            Some(id) => (&u.key, &u.id) > (&after.0, id),
            None => u.key > after.0,
        };
        let mut uploads = self.0.uploads.of_bucket(&call);
        uploads.retain(|u| u.key.starts_with(&prefix) && is_later(u));
        let is_truncated = uploads.len() > limit;
        uploads.truncate(limit);
        let last = uploads.last().filter(|_| is_truncated);
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: input.prefix,
            max_uploads: Some(limit as i32),
            is_truncated: Some(is_truncated),
            next_key_marker: last.map(|u| u.key.clone()),
            next_upload_id_marker: last.map(|u| u.id.clone()),
            uploads: Some(uploads.iter().map(|u| dto_upload(u)).collect()),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn dto_upload(uploading: &Uploading) -> MultipartUpload {
    MultipartUpload {
        key: Some(uploading.key.clone()),
        upload_id: Some(uploading.id.clone()),
        initiated: Some(timestamp(uploading.begun)),
        checksum_algorithm: uploading
            .algorithm
            .map(|name: &str| -> ChecksumAlgorithm { sums::algorithm_of(name) }),
        ..MultipartUpload::default()
    }
}

fn dto_part(number: i32, piece: &Piece) -> DtoPart {
    let part = DtoPart {
        part_number: Some(number),
        e_tag: Some(ETag::Strong(piece.etag())),
        size: Some(piece.part.size() as i64),
        last_modified: Some(timestamp(piece.at)),
        ..DtoPart::default()
    };
    with_sums!(DtoPart, sums::checksum_of(&piece.sums), part)
}

fn checksum_type(composite: bool) -> ChecksumType {
    ChecksumType::from_static(if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT })
}

/// The parts that a client names, as they arrived.
fn chosen(uploading: &Uploading, wanted: &[CompletedPart]) -> S3Result<Vec<Piece>> {
    let wrong = |code: S3ErrorCode, why: &'static str| S3Error::with_message(code, why);
    if wanted.is_empty() {
        return Err(wrong(S3ErrorCode::MalformedXML, "Name at least one part."));
    }
    let state = uploading.state.lock();
    let mut pieces: Vec<Piece> = Vec::with_capacity(wanted.len());
    let mut before = 0;
    for (n, part) in wanted.iter().enumerate() {
        let number = part.part_number.unwrap_or(0);
        if number <= before {
            return Err(wrong(
                S3ErrorCode::InvalidPartOrder,
                "Name the parts in the order of their numbers.",
            ));
        }
        before = number;
        let piece = state.parts.get(&number);
        let same = |piece: &&Piece| part.e_tag.as_ref().is_none_or(|e| e.value() == piece.etag());
        let piece = piece.filter(same);
        let piece = piece
            .ok_or_else(|| wrong(S3ErrorCode::InvalidPart, "A part is missing, or another one by now."))?;
        if n + 1 < wanted.len() && piece.part.size() < PART_BYTES_MIN {
            return Err(wrong(
                S3ErrorCode::EntityTooSmall,
                "Parts have at least 5 MiB, but for the last one.",
            ));
        }
        pieces.push(piece.clone());
    }
    Ok(pieces)
}

/// The ETag and the checksum of an object that was made of parts.
fn sums_of(uploading: &Uploading, pieces: &[Piece]) -> Sums {
    let mut sums = Sums::default();
    let md5s: Option<Vec<Vec<u8>>> = pieces.iter().map(|p| hex::decode(p.sums.get("md5")?)).collect();
    if let Some(md5s) = md5s {
        let md5 = sums::md5_of(&md5s.concat());
        sums.set("etag", &format!("{}-{}", hex::encode(&md5), pieces.len()));
    }
    let Some(name) = uploading.algorithm else { return sums };
    let all: Option<Vec<Vec<u8>>> = pieces.iter().map(|p| hex::decode(p.sums.get(name)?)).collect();
    let Some(all) = all else { return sums };
    if uploading.composite {
        if let Some(sum) = sums::sum_of(name, &all.concat()) {
            sums.set(&format!("{name}-of-parts"), &format!("{}-{}", sums::encode(&sum), pieces.len()));
        }
        return sums;
    }
    let mut lengths = pieces.iter().map(|p| p.part.size());
    lengths.next();
    let mut rest = all.iter().skip(1).zip(lengths);
    let whole = all.first().and_then(|first| {
        rest.try_fold(first.clone(), |sum, (next, bytes)| sums::combine(name, &sum, next, bytes))
    });
    if let Some(whole) = whole {
        sums.set(name, &hex::encode(&whole));
    }
    sums
}

/// What the client says of the whole must be so.
fn check_claims(claimed: &Checksum, sums: &Sums) -> S3Result<()> {
    let is = sums::checksum_of(sums);
    for ((name, claimed), (_, is)) in sums::fields(claimed).into_iter().zip(sums::fields(&is)) {
        if let (Some(claimed), Some(is)) = (claimed, is)
            && claimed != is
        {
            let message = format!("The {name} of the parts together is another.");
            return Err(S3Error::with_message(S3ErrorCode::BadDigest, message));
        }
    }
    Ok(())
}
