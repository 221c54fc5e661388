//! Uploads in parts: each part is a durable file without a name; the object is made from them by
//! sharing their data.
//!
//! Uploads and their parts are records of the cell: after an answer they are there for the process
//! that opens the cell next. The mount never shows them.

use crate::call::{Call, Shared};
use crate::conditions::Conditions;
use crate::copy::sums_still;
use crate::error::{self, not_implemented};
use crate::list::timestamp;
use crate::meta::kept;
use crate::names::path_of;
use crate::objects::{Incoming, private, without_chunks};
use crate::service::checked_tags;
use crate::sums::{self, Claims, checksums, with_sums};
use crate::uploads::{Begun, Piece, Uploading, etag_of_part, full_key, id_of, of_upload};
use leeward_door::Upload;
use leeward_door::notes::{Sums, etag_of};
use leeward_env::hex;
use leeward_fs::{Error, NodeId};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, ChecksumAlgorithm, ChecksumType,
    CommonPrefix, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag, EncodingType, Initiator,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload,
    ObjectCannedACL, Owner, Part as DtoPart, Range, StorageClass, UploadPartCopyInput, UploadPartCopyOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

/// Number of the last part that an upload can have.
const PART_NUMBER_MAX: i32 = 10_000;
/// Smallest part, except for the last one: as S3.
const PART_BYTES_MIN: u64 = 5 << 20;

fn check_number(number: i32) -> S3Result<u32> {
    if (1..=PART_NUMBER_MAX).contains(&number) {
        return Ok(number as u32);
    }
    Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "Parts have numbers from 1 to 10000."))
}

/// A page of a bucket's open uploads.
struct UploadPage {
    uploads: Vec<Uploading>,
    prefixes: Vec<String>,
    /// The key and upload after which the next page begins, if there is one.
    next: Option<(String, Option<String>)>,
}

impl Shared {
    pub(crate) async fn create_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let mut input = request.input;
        let path = path_of(&input.key)?;
        private(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
        if path.wants_dir() {
            return Err(not_implemented("Directories in parts"));
        }
        let algorithm = input.checksum_algorithm.as_ref().map(|a| sums::known(a.as_str())).transpose()?;
        let whole = input.checksum_type.as_ref().map(|t| t.as_str() == ChecksumType::FULL_OBJECT);
        if whole == Some(true) && algorithm.is_some_and(|name| name.starts_with("sha")) {
            let why =
                "An SHA of the whole cannot be had from those of parts: ask for COMPOSITE, or for a CRC.";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        // the default of S3 where the client does not say
        let composite = !whole.unwrap_or(algorithm == Some("crc64nvme"));
        input.content_encoding = input.content_encoding.as_deref().and_then(without_chunks);
        let kept = kept!(input).checked()?;
        kept.attribute()?;
        let begun = Begun::new(kept, checked_tags(input.tagging.take())?, algorithm, composite);
        let key = full_key(&call.bucket.name, &input.key);
        let _turn = self.turn(&call).await?;
        // a client that may not write there gets the error now
        let upload = call.tree.begin_upload(&path, key, begun.to_note()?).await.map_err(error::of)?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id_of(upload)),
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
        let mut input = request.input;
        let number = check_number(input.part_number)?;
        let (uploading, begun) = self.0.uploads.get(&call, &input.key, &input.upload_id).await?;
        let path = path_of(&input.key)?;
        let given = checksums!(input);
        let md5 = input.content_md5.take();
        let claims = Claims::of(md5, &given, input.checksum_algorithm.as_ref(), &request.headers)?;
        let claims = begun.hashed_by(claims);
        let mut incoming = Incoming::of(input.body.take(), input.content_length, claims, trailers)?;
        let coming = self.0.uploads.expect(&call, &uploading, number, incoming.bytes).await?;
        incoming.before = coming.before;
        let (upload, sums, _turn) = self.receive(&call, &path, incoming).await?;
        keep(upload, uploading.id, number, &sums).await?;
        let e_tag = Some(ETag::Strong(etag_of_part(&sums)));
        let output = UploadPartOutput { e_tag, ..UploadPartOutput::default() };
        Ok(S3Response::new(with_sums!(UploadPartOutput, sums::checksum_of(&sums), output)))
    }

    pub(crate) async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let number = check_number(input.part_number)?;
        let (uploading, _) = self.0.uploads.get(&call, &input.key, &input.upload_id).await?;
        let expected = input.expected_source_bucket_owner.as_deref();
        let (tree, from) = self.source(&call, &input.copy_source, expected).await?;
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
            Some(text) => range_of_source(text, file.attr.size)?,
        };
        let path = path_of(&input.key)?;
        let whole = range == (0..file.attr.size);
        let bytes = range.end - range.start;
        let coming = self.0.uploads.expect(&call, &uploading, number, bytes).await?;
        let wanted = Some(bytes + coming.before);
        let mut upload = call.tree.create(&path, wanted).await.map_err(error::of)?;
        upload.copy(&file, range).await.map_err(error::of)?;
        // content that did not pass through here has no sums, except a whole file's
        let kept = sums_still(&tree, &from, (&file.attr, noted.sums), &conditions).await?;
        let mut sums = if whole { kept } else { Sums::default() };
        if sums.get("md5").is_none() {
            sums.set("etag", &self.some_etag());
        }
        keep(upload, uploading.id, number, &sums).await?;
        let copied = CopyPartResult {
            e_tag: Some(ETag::Strong(etag_of_part(&sums))),
            last_modified: Some(timestamp(self.now())),
            ..CopyPartResult::default()
        };
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(copied),
            ..UploadPartCopyOutput::default()
        }))
    }

    /// An ETag for content that did not pass through here.
    fn some_etag(&self) -> String {
        let env = self.0.files.env();
        format!("{:016x}{:016x}", env.random(), env.random())
    }

    pub(crate) async fn complete_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let mut input = request.input;
        let uploading = self.0.uploads.find(&call, &input.key, &input.upload_id).await?;
        let sums = match self.completed(&call, &uploading).await? {
            Some(sums) => sums,
            None => {
                let made = self.complete(&call, &uploading, &mut input).await;
                match made {
                    Ok(sums) => sums,
                    Err(e) => self.overtaken(&call, &uploading, e).await?,
                }
            }
        };
        let output = CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, crate::names::encoded(&input.key))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: sums.get("etag").map(|etag| ETag::Strong(etag.to_owned())),
            checksum_type: sums::type_of(&sums),
            ..CompleteMultipartUploadOutput::default()
        };
        let checksum = sums::checksum_of(&sums);
        Ok(S3Response::new(with_sums!(CompleteMultipartUploadOutput, checksum, output)))
    }

    /// The result of a complete upload: a client that repeats the request had no answer. It is
    /// durable.
    async fn completed(&self, call: &Call, uploading: &Uploading) -> S3Result<Option<Sums>> {
        if !uploading.record.complete {
            return Ok(None);
        }
        let _turn = self.turn(call).await?;
        call.tree.settle_upload(uploading.id).await.map_err(error::of)?;
        Ok(Some(Sums::of_text(&String::from_utf8_lossy(&uploading.record.note))))
    }

    /// Why an upload was not completed, where the reason may be another request meanwhile.
    async fn overtaken(&self, call: &Call, uploading: &Uploading, e: S3Error) -> S3Result<Sums> {
        let now = self.0.uploads.now(call, uploading.id).await?;
        match self.completed(call, &now).await? {
            Some(sums) => Ok(sums),
            None => Err(e),
        }
    }

    /// Makes the object from the parts. Returns its sums.
    async fn complete(
        &self,
        call: &Call,
        uploading: &Uploading,
        input: &mut CompleteMultipartUploadInput,
    ) -> S3Result<Sums> {
        let path = path_of(&input.key)?;
        let begun = Begun::of(&uploading.record.note)?;
        let wanted = input.multipart_upload.take().and_then(|m| m.parts).unwrap_or_default();
        let pieces = self.chosen(call, uploading, &wanted).await?;
        let bytes: u64 = pieces.iter().map(Piece::size).sum();
        if input.mpu_object_size.is_some_and(|size| size as u64 != bytes) {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                "The parts have not so many bytes in all.",
            ));
        }
        let claimed = input.checksum_type.as_ref().filter(|_| begun.algorithm().is_some());
        if claimed.is_some_and(|claimed| *claimed != checksum_type(begun.composite)) {
            let why = "The checksum of the whole is of another type than was said at CreateMultipartUpload.";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        let mut sums = sums_of(&begun, &pieces);
        if sums.get("etag").is_none() {
            sums.set("etag", &format!("{}-{}", self.some_etag(), pieces.len()));
        }
        check_claims(&checksums!(input), &sums)?;
        let _turn = self.turn(call).await?;
        let over =
            self.over(&call.tree, &path, input.if_match.as_ref(), input.if_none_match.as_ref()).await?;
        let mut upload = call.tree.create(&path, Some(bytes)).await.map_err(error::of)?;
        for piece in &pieces {
            upload.copy_part(&piece.part).await.map_err(of_part)?;
        }
        let completes = Some((uploading.id, sums.to_text().into_bytes()));
        self.place(upload, sums.clone(), (begun.headers, Some(&begun.tags)), (over, completes)).await?;
        Ok(sums)
    }

    /// The parts that a client names, as they arrived.
    async fn chosen(
        &self,
        call: &Call,
        uploading: &Uploading,
        wanted: &[CompletedPart],
    ) -> S3Result<Vec<Piece>> {
        let wrong = |code: S3ErrorCode, why: &'static str| S3Error::with_message(code, why);
        if wanted.is_empty() {
            return Err(wrong(S3ErrorCode::MalformedXML, "Name at least one part."));
        }
        let mut pieces: Vec<Piece> = Vec::with_capacity(wanted.len());
        let mut before = 0;
        for (n, part) in wanted.iter().enumerate() {
            let number = part.part_number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            if number <= before {
                return Err(wrong(
                    S3ErrorCode::InvalidPartOrder,
                    "Name the parts in the order of their numbers.",
                ));
            }
            before = number;
            let piece = self.0.uploads.piece(call, uploading.id, number).await?;
            let same = |piece: &Piece| part.e_tag.as_ref().is_none_or(|e| e.value() == piece.etag());
            let piece = piece.filter(same).ok_or_else(missing_part)?;
            if n + 1 < wanted.len() && piece.size() < PART_BYTES_MIN {
                return Err(wrong(
                    S3ErrorCode::EntityTooSmall,
                    "Parts have at least 5 MiB, but for the last one.",
                ));
            }
            pieces.push(piece);
        }
        Ok(pieces)
    }

    pub(crate) async fn abort_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let (uploading, _) = self.0.uploads.get(&call, &request.input.key, &request.input.upload_id).await?;
        let _turn = self.turn(&call).await?;
        call.tree.end_upload(uploading.id).await.map_err(of_upload)?;
        Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), hyper::StatusCode::NO_CONTENT))
    }

    pub(crate) async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let (uploading, begun) = self.0.uploads.get(&call, &input.key, &input.upload_id).await?;
        let _turn = self.turn(&call).await?;
        let limit = input.max_parts.unwrap_or(1000).clamp(0, 1000) as usize;
        let after = input.part_number_marker.unwrap_or(0).max(0) as u32;
        let pieces = self.0.uploads.pieces(&call, uploading.id, after, limit + 1).await?;
        let mut parts: Vec<DtoPart> = pieces.iter().map(dto_part).collect();
        // listed parts are durable when this is answered: a client that resumes does not send them
        // again
        call.tree.settle_upload(uploading.id).await.map_err(error::of)?;
        let is_truncated = limit > 0 && parts.len() > limit;
        parts.truncate(limit);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(limit as i32),
            part_number_marker: Some(after as i32),
            next_part_number_marker: Some(parts.last().and_then(|p| p.part_number).unwrap_or(0)),
            owner: Some(owner_of(&call)),
            initiator: Some(initiator_of(&call)),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            is_truncated: Some(is_truncated),
            checksum_algorithm: begun.algorithm().map(sums::algorithm_of),
            parts: Some(parts),
            ..ListPartsOutput::default()
        }))
    }

    /// A page of open uploads; keys with the delimiter after the prefix are grouped by the part
    /// before it.
    async fn upload_page(
        &self,
        call: &Call,
        prefix: &str,
        delimiter: Option<&str>,
        mut after: (String, Option<String>),
        wanted: usize,
    ) -> S3Result<UploadPage> {
        let (mut uploads, mut prefixes): (Vec<Uploading>, Vec<String>) = Default::default();
        // where the next page begins, if there is one
        let mut next = None;
        'page: loop {
            let after_it = (&*after.0, after.1.as_deref());
            let found = self.0.uploads.of_bucket(call, prefix, after_it, wanted + 1).await?;
            if found.is_empty() || wanted == 0 {
                break;
            }
            for upload in found {
                let name = upload.record.name().to_owned();
                let grouped = delimiter.and_then(|delimiter| {
                    let at = name.get(prefix.len()..)?.find(delimiter)?;
                    Some(name[..prefix.len() + at + delimiter.len()].to_owned())
                });
                if uploads.len() + prefixes.len() == wanted {
                    next = Some(after);
                    break 'page;
                }
                match grouped {
                    Some(grouped) => {
                        // this stands for everything below it
                        after = (grouped.clone() + "\u{10ffff}", None);
                        prefixes.push(grouped);
                        continue 'page;
                    }
                    None => {
                        after = (name, Some(id_of(upload.id)));
                        uploads.push(upload);
                    }
                }
            }
        }
        Ok(UploadPage { uploads, prefixes, next })
    }

    pub(crate) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let (call, _turn) = self.enter(&request, &request.input.bucket).await?;
        let input = request.input;
        let wanted = input.max_uploads.unwrap_or(1000).clamp(0, 1000) as usize;
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
        let url = input.encoding_type.as_ref().is_some_and(|e| e.as_str() == EncodingType::URL);
        let text = |text: &str| if url { crate::names::encoded(text) } else { text.to_owned() };
        let after = (
            input.key_marker.clone().unwrap_or_default(),
            input.upload_id_marker.clone().filter(|id| !id.is_empty()),
        );
        let UploadPage { uploads, prefixes, next } =
            self.upload_page(&call, &prefix, delimiter.as_deref(), after, wanted).await?;
        let is_truncated = next.is_some();
        let (next_key, next_id) = next.unwrap_or_default();
        let dto = |upload: &Uploading| {
            let dto = dto_upload(upload, &call);
            MultipartUpload { key: dto.key.map(|key| text(&key)), ..dto }
        };
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: Some(text(&prefix)),
            delimiter: delimiter.as_deref().map(text),
            key_marker: Some(text(&input.key_marker.unwrap_or_default())),
            upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
            max_uploads: Some(wanted as i32),
            is_truncated: Some(is_truncated),
            next_key_marker: Some(text(&next_key)),
            next_upload_id_marker: Some(next_id.unwrap_or_default()),
            uploads: Some(uploads.iter().map(dto).collect()),
            common_prefixes: Some(prefixes.iter().map(|p| CommonPrefix { prefix: Some(text(p)) }).collect()),
            encoding_type: input.encoding_type,
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn owner_of(call: &Call) -> Owner {
    let name = Some(call.who.name.to_string());
    Owner { id: name.clone(), display_name: name }
}

fn initiator_of(call: &Call) -> Initiator {
    let name = Some(call.who.name.to_string());
    Initiator { id: name.clone(), display_name: name }
}

/// The part of a source that is copied: it must exist as a whole, or nothing is copied.
///
/// # Errors
/// `InvalidArgument`, `InvalidRange`.
fn range_of_source(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    match Range::parse(text) {
        Ok(Range::Int { first, last: Some(last) }) if last < size => Ok(first..last + 1),
        Ok(Range::Int { last: Some(_), .. }) => Err(S3Error::with_message(
            S3ErrorCode::InvalidRange,
            format!("The range is not in the source, which has {size} bytes."),
        )),
        _ => Err(S3Error::with_message(
            S3ErrorCode::InvalidArgument,
            "x-amz-copy-source-range is bytes=FIRST-LAST.",
        )),
    }
}

/// Makes a file without a name a part of an upload.
async fn keep(upload: Upload, of: NodeId, number: u32, sums: &Sums) -> S3Result<()> {
    upload.keep_as_part(of, number, sums.to_text().into_bytes()).await.map_err(of_upload)
}

/// An error of an operation on a part.
fn of_part(e: Error) -> S3Error {
    if e == Error::Stale { missing_part() } else { error::of(e) }
}

fn missing_part() -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidPart, "A part is missing, or another one by now.")
}

fn dto_upload(uploading: &Uploading, call: &Call) -> MultipartUpload {
    let algorithm = Begun::of(&uploading.record.note).ok().and_then(|begun| begun.algorithm());
    MultipartUpload {
        key: Some(uploading.record.name().to_owned()),
        upload_id: Some(id_of(uploading.id)),
        initiated: Some(timestamp(uploading.record.at)),
        checksum_algorithm: algorithm.map(|name: &str| -> ChecksumAlgorithm { sums::algorithm_of(name) }),
        owner: Some(owner_of(call)),
        initiator: Some(initiator_of(call)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..MultipartUpload::default()
    }
}

fn dto_part(piece: &Piece) -> DtoPart {
    let part = DtoPart {
        part_number: Some(piece.part.record.number as i32),
        e_tag: Some(ETag::Strong(piece.etag())),
        size: Some(piece.size() as i64),
        last_modified: Some(timestamp(piece.part.record.at)),
        ..DtoPart::default()
    };
    with_sums!(DtoPart, sums::checksum_of(&piece.sums), part)
}

fn checksum_type(composite: bool) -> ChecksumType {
    ChecksumType::from_static(if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT })
}

/// The ETag and the checksum of an object made from parts.
fn sums_of(begun: &Begun, pieces: &[Piece]) -> Sums {
    let mut sums = Sums::default();
    let md5s: Option<Vec<Vec<u8>>> = pieces.iter().map(|p| hex::decode(p.sums.get("md5")?)).collect();
    if let Some(md5s) = md5s {
        let md5 = sums::md5_of(&md5s.concat());
        sums.set("etag", &format!("{}-{}", hex::encode(&md5), pieces.len()));
    }
    let Some(name) = begun.algorithm() else { return sums };
    let all: Option<Vec<Vec<u8>>> = pieces.iter().map(|p| hex::decode(p.sums.get(name)?)).collect();
    let Some(all) = all else { return sums };
    if begun.composite {
        if let Some(sum) = sums::sum_of(name, &all.concat()) {
            sums.set(&format!("{name}-of-parts"), &format!("{}-{}", sums::encode(&sum), pieces.len()));
        }
        return sums;
    }
    let mut lengths = pieces.iter().map(Piece::size);
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

/// The client's claims about the whole must match, and must be known.
fn check_claims(claimed: &Checksum, sums: &Sums) -> S3Result<()> {
    let is = sums::checksum_of(sums);
    for ((name, claimed), (_, is)) in sums::fields(claimed).into_iter().zip(sums::fields(&is)) {
        let Some(claimed) = claimed else { continue };
        let (code, why) = match is {
            Some(is) if is == claimed || without_count(is) == Some(claimed.as_str()) => continue,
            Some(_) => (S3ErrorCode::BadDigest, "is another"),
            None => {
                (S3ErrorCode::InvalidRequest, "is not known: say at CreateMultipartUpload that parts have it")
            }
        };
        return Err(S3Error::with_message(code, format!("The {name} of the parts together {why}.")));
    }
    Ok(())
}

/// The checksum of parts' checksums without their number, as some clients send it.
fn without_count(sum: &str) -> Option<&str> {
    sum.split_once('-').map(|(sum, _)| sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_a_source_is_there_as_a_whole() {
        let range = |text: &str| range_of_source(text, 10).map_err(|e| e.code().as_str().to_owned());
        assert_eq!((range("bytes=0-9"), range("bytes=3-3")), (Ok(0..10), Ok(3..4)));
        for text in ["bytes=0-10", "bytes=10-11"] {
            assert_eq!(range(text), Err("InvalidRange".to_owned()), "{text}");
        }
        for text in ["0-2", "bytes=0", "bytes=-2", "bytes=1-", "bytes=0-2,3-5", "bytes=a-b", "bytes=5-2"] {
            assert_eq!(range(text), Err("InvalidArgument".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_claim_that_cannot_be_checked_is_refused() {
        let claim = |crc32: &str| Checksum { checksum_crc32: Some(crc32.into()), ..Checksum::default() };
        let mut sums = Sums::default();
        let refused = |claim: &Checksum, sums: &Sums| check_claims(claim, sums).map_err(|e| e.code().clone());
        assert_eq!(refused(&claim("AAAAAQ=="), &sums), Err(S3ErrorCode::InvalidRequest));
        assert_eq!(refused(&Checksum::default(), &sums), Ok(()));
        sums.set("crc32", "00000001");
        assert_eq!(refused(&claim("AAAAAQ=="), &sums), Ok(()));
        assert_eq!(refused(&claim("AAAAAA=="), &sums), Err(S3ErrorCode::BadDigest));
        let mut of_parts = Sums::default();
        of_parts.set("crc32-of-parts", "AAAAAQ==-3");
        for claimed in ["AAAAAQ==-3", "AAAAAQ=="] {
            assert_eq!(refused(&claim(claimed), &of_parts), Ok(()), "{claimed}");
        }
        for claimed in ["AAAAAQ==-2", "AAAAAA==", ""] {
            assert_eq!(refused(&claim(claimed), &of_parts), Err(S3ErrorCode::BadDigest), "{claimed}");
        }
    }
}
