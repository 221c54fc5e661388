//! Copies objects: within a volume by sharing their data.

use crate::call::{Call, Shared};
use crate::conditions::{self, Conditions};
use crate::error::{self, not_implemented};
use crate::list::timestamp;
use crate::meta::{Kept, kept};
use crate::names::{only_version, path_of};
use crate::objects::{open, private, without_chunks};
use crate::service::checked_tags;
use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use leeward_door::notes::{Sums, etag_of};
use leeward_door::{Path, Tree};
use leeward_fs::{Attr, Error};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETag, MetadataDirective,
    ObjectCannedACL, TaggingDirective,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

impl Shared {
    pub(crate) async fn copy(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let matches = conditions::in_header(&request.headers, IF_MATCH)?;
        let none_match = conditions::in_header(&request.headers, IF_NONE_MATCH)?;
        let mut input = request.input;
        private(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
        input.content_encoding = input.content_encoding.as_deref().and_then(without_chunks);
        let to = path_of(&input.key)?;
        let expected = input.expected_source_bucket_owner.as_deref();
        let (from_tree, from) = self.source(&call, &input.copy_source, expected).await?;
        let _turn = self.turn(&call).await?;
        let (object, file) = open(&from_tree, &from).await?;
        let conditions = Conditions::of(
            &input.copy_source_if_match,
            &input.copy_source_if_none_match,
            &input.copy_source_if_modified_since,
            &input.copy_source_if_unmodified_since,
        );
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
            true => kept!(input).checked()?,
        };
        let tags =
            if new_tags { checked_tags(input.tagging.take())? } else { Some(object.noted.tags.clone()) };
        let over = self.over(&call.tree, &to, matches.as_ref(), none_match.as_ref()).await?;
        let Some(file) = file else {
            // clients do this to change a directory's metadata, or to rename it key by key
            if !to.wants_dir() {
                return Err(error::of(Error::IsDir));
            }
            let attr = self.make_directory(&call, &to, (kept, tags), over).await?;
            return Ok(copied(&Sums::default(), &attr));
        };
        let mut upload = call.tree.create(&to, Some(object.attr.size)).await.map_err(error::of)?;
        upload.copy(&file, 0..object.attr.size).await.map_err(error::of)?;
        // no more open than its source
        upload.like(&file, false);
        let sums = sums_still(&from_tree, &from, (&object.attr, object.noted.sums), &conditions).await?;
        let attr = self.place(upload, sums.clone(), (kept, tags.as_deref()), (over, None)).await?;
        Ok(copied(&sums, &attr))
    }

    /// The tree and the path of a copy's source.
    pub(crate) async fn source(
        &self,
        call: &Call,
        source: &CopySource,
        owner: Option<&str>,
    ) -> S3Result<(Tree, Path)> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(not_implemented("Access points"));
        };
        only_version(version_id.as_deref())?;
        let bucket = self.bucket(bucket)?;
        let tree = call.tree_of(self, &bucket);
        call.expect_owner(&tree, owner).await?;
        Ok((tree, path_of(key)?))
    }
}

fn copied(sums: &Sums, attr: &Attr) -> S3Response<CopyObjectOutput> {
    let result = CopyObjectResult {
        e_tag: Some(ETag::Strong(etag_of(sums, attr))),
        last_modified: Some(timestamp(attr.mtime)),
        ..CopyObjectResult::default()
    };
    S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
}

/// The checksums of a copied source, if it is unchanged since they were read: another client may
/// have written to it meanwhile.
///
/// # Errors
/// `PreconditionFailed` where it has changed, and the copy has conditions.
pub(crate) async fn sums_still(
    tree: &Tree,
    path: &Path,
    (attr, sums): (&Attr, Sums),
    conditions: &Conditions,
) -> S3Result<Sums> {
    let what = |a: &Attr| (a.node, a.size, a.mtime, a.ctime);
    let now = tree.stat(path, &[]).await;
    match now.is_ok_and(|now| what(&now.attr) == what(attr)) {
        true => Ok(sums),
        false if conditions.is_empty() => Ok(Sums::default()),
        false => Err(error::of(Error::Changed)),
    }
}
