//! Removes objects.

use crate::call::Shared;
use crate::conditions::{Conditions, look_and_over};
use crate::error;
use crate::names::{only_version, path_of};
use futures_util::{FutureExt, StreamExt};
use leeward_door::Tree;
use leeward_fs::{Error, Precondition};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, Error as DtoError, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

/// Most objects that one request removes.
const DELETE_MAX: usize = 1000;

/// Conditions for removing an object.
#[derive(Default)]
struct Only {
    matches: Option<ETagCondition>,
    modified: Option<Timestamp>,
    size: Option<i64>,
}

impl Only {
    /// Checks the conditions, and returns the one for the removal.
    async fn over(self, tree: &Tree, path: &leeward_door::Path) -> S3Result<Precondition> {
        let Only { matches, modified, size } = self;
        if matches.is_none() && modified.is_none() && size.is_none() {
            return Ok(Precondition::Any);
        }
        let (there, over) = look_and_over(tree, path).await?;
        let conditions = Conditions { matches, ..Conditions::default() };
        conditions.check(&there.etag, &there.attr, false)?;
        let seconds = crate::list::whole_seconds(there.attr.mtime);
        if modified.is_some_and(|at| at != seconds) || size.is_some_and(|size| size as u64 != there.size()) {
            return Err(error::of(Error::Changed));
        }
        Ok(over)
    }
}

impl Shared {
    pub(crate) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
        let input = request.input;
        let only = Only {
            matches: input.if_match,
            modified: input.if_match_last_modified_time,
            size: input.if_match_size,
        };
        let _turn = self.turn(&call).await?;
        remove(&call.tree, &input.key, input.version_id.as_deref(), only).await?;
        Ok(S3Response::with_status(DeleteObjectOutput::default(), hyper::StatusCode::NO_CONTENT))
    }

    pub(crate) async fn delete_many(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let call = self.call(&request, &request.input.bucket).await?;
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
                let only = Only {
                    matches: object.e_tag.map(ETagCondition::ETag),
                    modified: object.last_modified_time,
                    size: object.size,
                };
                let removed = remove(&tree, &object.key, object.version_id.as_deref(), only).await;
                (object.key, removed)
            };
            removal.boxed()
        });
        // one commit carries many removals
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

/// Removes the object of a key, if it exists.
async fn remove(tree: &Tree, key: &str, version: Option<&str>, only: Only) -> S3Result<()> {
    let path = path_of(key)?;
    only_version(version)?;
    let over = only.over(tree, &path).await?;
    let removed = match path.wants_dir() {
        true => tree.remove_dir(&path).await,
        false => tree.remove_if(&path, over, true).await,
    };
    match removed {
        // the prefix stays while there are keys below it; a key that leads nowhere counts as
        // removed
        Ok(()) | Err(Error::NotFound | Error::NotDir | Error::NotEmpty | Error::IsDir) => Ok(()),
        Err(e) => Err(error::of(e)),
    }
}
