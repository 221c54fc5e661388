//! The supported operations of S3, and those on buckets and tags. All others are answered
//! `NotImplemented`.

use crate::buckets::PublicPolicy;
use crate::call::{Call, Shared};
use crate::cors;
use crate::error::{self, not_implemented};
use crate::list::timestamp;
use crate::meta::{NOTED, Noted, TAGS};
use crate::names::{only_version, pairs, path_of, unescaped};
use crate::objects::private;
use futures_util::{FutureExt, StreamExt, stream};
use leeward_door::listen::Turn;
use leeward_env::Door;
use leeward_fs::{Attr, Time};
use s3s::dto::*;
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use serde_json::{Value, json};
use std::sync::Arc;

/// Most tags of an object, and their bytes: as S3.
const TAGS_MAX: usize = 10;
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;

/// Most buckets in one answer, and how many are looked up at a time.
const BUCKETS_PAGE: i32 = 10_000;
const BUCKETS_AT_ONCE: usize = 16;

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Shared {
    async fn get_object(&self, req: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(req).await
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(req).await
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        self.put(req).await
    }

    async fn post_object(&self, req: S3Request<PostObjectInput>) -> Answer<PostObjectOutput> {
        self.post(req).await
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        self.copy(req).await
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        self.delete(req).await
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        self.delete_many(req).await
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        self.list_v1(req).await
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        self.list_v2(req).await
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.create_upload(req).await
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        Shared::upload_part(self, req).await
    }

    async fn upload_part_copy(&self, req: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        Shared::upload_part_copy(self, req).await
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        self.complete_upload(req).await
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        self.abort_upload(req).await
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        Shared::list_parts(self, req).await
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        self.list_uploads(req).await
    }

    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let who = self.who(&req).await?;
        let _turn = self.0.turns.take(&who.ctx(Door::S3)).await.map_err(error::busy)?;
        let input = req.input;
        let limit = input.max_buckets.unwrap_or(BUCKETS_PAGE).clamp(1, BUCKETS_PAGE) as usize;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.unwrap_or_default();
        let wanted = move |b: &Arc<crate::Bucket>| b.name.starts_with(&prefix) && *b.name > *after;
        let looks = self.0.buckets.all().into_iter().filter(wanted).map(|bucket| {
            let tree = self.0.files.tree(&who, Door::S3, &bucket.path);
            let uid = who.uid;
            // those that the user owns
            async move {
                    tree.access(&Call::root(), 0).await.is_ok_and(|root| root.uid == uid).then_some(bucket)
                }
                .boxed()
        });
        let found = stream::iter(looks).buffered(BUCKETS_AT_ONCE).filter_map(std::future::ready);
        let mut found: Vec<_> = found.take(limit + 1).collect().await;
        let is_truncated = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| is_truncated);
        let continuation_token = last.map(|bucket| bucket.name.to_string());
        let buckets = found.iter().map(|bucket| Bucket {
            name: Some(bucket.name.to_string()),
            creation_date: Some(timestamp(Time { secs: bucket.created_secs, nanos: 0 })),
            ..Bucket::default()
        });
        let name = who.name.to_string();
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            owner: Some(Owner { id: Some(name.clone()), display_name: Some(name) }),
            continuation_token,
            prefix: input.prefix,
        }))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.enter(&req, &req.input.bucket).await?;
        let bucket_region = Some(self.0.region.clone());
        Ok(S3Response::new(HeadBucketOutput { bucket_region, ..HeadBucketOutput::default() }))
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.enter(&req, &req.input.bucket).await?;
        let usual = self.0.region == "us-east-1";
        let location_constraint = (!usual).then(|| BucketLocationConstraint::from(self.0.region.clone()));
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }

    async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.enter(&req, &req.input.bucket).await?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let who = self.who(&req).await?;
        private(req.input.acl.as_ref().map(BucketCannedACL::as_str))?;
        let name = req.input.bucket;
        self.0.buckets.create(&who, &name).await.map_err(error::of_bucket)?;
        Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) }))
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        let _turn = self.turn(&call).await?;
        match call.tree.access(&Call::root(), 1).await {
            Ok(root) if root.size > 0 => {
                return Err(S3Error::with_message(
                    S3ErrorCode::BucketNotEmpty,
                    "There are files in the bucket's directory.",
                ));
            }
            // the directory was removed by this request, or by another one
            Ok(_) | Err(leeward_fs::Error::NotFound) => {}
            Err(e) => return Err(error::of_root(e)),
        }
        self.0.buckets.remove(&call.who, &call.bucket.name).await.map_err(error::of_bucket)?;
        Ok(S3Response::with_status(DeleteBucketOutput {}, hyper::StatusCode::NO_CONTENT))
    }

    async fn get_bucket_policy(&self, req: S3Request<GetBucketPolicyInput>) -> Answer<GetBucketPolicyOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        if !call.bucket.public {
            return Err(S3Error::with_message(S3ErrorCode::NoSuchBucketPolicy, "The bucket has no policy."));
        }
        let policy = Some(policy_of(&call.bucket.name).to_string());
        Ok(S3Response::new(GetBucketPolicyOutput { policy }))
    }

    async fn put_bucket_policy(&self, req: S3Request<PutBucketPolicyInput>) -> Answer<PutBucketPolicyOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        let policy = parse_policy(&req.input.policy, &call.bucket.name)?;
        self.0.buckets.set_public(&call.who, &call.bucket.name, policy).await.map_err(error::of_bucket)?;
        Ok(S3Response::with_status(PutBucketPolicyOutput {}, hyper::StatusCode::NO_CONTENT))
    }

    async fn delete_bucket_policy(
        &self,
        req: S3Request<DeleteBucketPolicyInput>,
    ) -> Answer<DeleteBucketPolicyOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        let set = self.0.buckets.set_public(&call.who, &call.bucket.name, PublicPolicy::None).await;
        set.map_err(error::of_bucket)?;
        Ok(S3Response::with_status(DeleteBucketPolicyOutput {}, hyper::StatusCode::NO_CONTENT))
    }

    async fn get_bucket_cors(&self, req: S3Request<GetBucketCorsInput>) -> Answer<GetBucketCorsOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        let rules = cors::from_text(&call.bucket.cors);
        if rules.is_empty() {
            let none = "The bucket has no rules for browsers.";
            return Err(S3Error::with_message(S3ErrorCode::NoSuchCORSConfiguration, none));
        }
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules) }))
    }

    async fn put_bucket_cors(&self, req: S3Request<PutBucketCorsInput>) -> Answer<PutBucketCorsOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        let text = cors::to_text(&req.input.cors_configuration).ok_or_else(|| {
            S3Error::with_message(S3ErrorCode::InvalidRequest, "At most 100 rules, of 64 KiB in all.")
        })?;
        self.0.buckets.set_cors(&call.who, &call.bucket.name, &text).await.map_err(error::of_bucket)?;
        Ok(S3Response::new(PutBucketCorsOutput {}))
    }

    async fn delete_bucket_cors(
        &self,
        req: S3Request<DeleteBucketCorsInput>,
    ) -> Answer<DeleteBucketCorsOutput> {
        let (call, _turn) = self.enter(&req, &req.input.bucket).await?;
        self.0.buckets.set_cors(&call.who, &call.bucket.name, "").await.map_err(error::of_bucket)?;
        Ok(S3Response::with_status(DeleteBucketCorsOutput {}, hyper::StatusCode::NO_CONTENT))
    }

    async fn get_object_tagging(
        &self,
        req: S3Request<GetObjectTaggingInput>,
    ) -> Answer<GetObjectTaggingOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        only_version(req.input.version_id.as_deref())?;
        let _turn = self.turn(&call).await?;
        let found = call.tree.stat(&path_of(&req.input.key)?, NOTED).await.map_err(error::of)?;
        let noted = Noted::of(&found.xattrs, &found.attr);
        Ok(S3Response::new(GetObjectTaggingOutput {
            tag_set: tags_of(&noted.tags),
            ..GetObjectTaggingOutput::default()
        }))
    }

    async fn put_object_tagging(
        &self,
        req: S3Request<PutObjectTaggingInput>,
    ) -> Answer<PutObjectTaggingOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        only_version(req.input.version_id.as_deref())?;
        let _turn = self.turn(&call).await?;
        let tags = Some(text_of(&req.input.tagging.tag_set)?.into_bytes());
        let path = path_of(&req.input.key)?;
        call.tree.set_xattrs(&path, vec![(TAGS.to_vec(), tags)]).await.map_err(error::of)?;
        Ok(S3Response::new(PutObjectTaggingOutput::default()))
    }

    async fn delete_object_tagging(
        &self,
        req: S3Request<DeleteObjectTaggingInput>,
    ) -> Answer<DeleteObjectTaggingOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        only_version(req.input.version_id.as_deref())?;
        let _turn = self.turn(&call).await?;
        let path = path_of(&req.input.key)?;
        call.tree.set_xattrs(&path, vec![(TAGS.to_vec(), None)]).await.map_err(error::of)?;
        Ok(S3Response::with_status(DeleteObjectTaggingOutput::default(), hyper::StatusCode::NO_CONTENT))
    }

    async fn get_bucket_acl(&self, req: S3Request<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
        let (call, root, _turn) = self.look_into(&req, &req.input.bucket).await?;
        let (owner, grants) = grants(&call, &root);
        Ok(S3Response::new(GetBucketAclOutput { owner: Some(owner), grants: Some(grants) }))
    }

    async fn get_object_acl(&self, req: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        only_version(req.input.version_id.as_deref())?;
        let _turn = self.turn(&call).await?;
        let found = call.tree.stat(&path_of(&req.input.key)?, &[]).await.map_err(error::of)?;
        let (owner, grants) = grants(&call, &found.attr);
        let output =
            GetObjectAclOutput { owner: Some(owner), grants: Some(grants), ..GetObjectAclOutput::default() };
        Ok(S3Response::new(output))
    }

    async fn put_bucket_acl(&self, req: S3Request<PutBucketAclInput>) -> Answer<PutBucketAclOutput> {
        let (call, root, _turn) = self.look_into(&req, &req.input.bucket).await?;
        stays_private(&call, &root, req.input.acl.as_ref().map(BucketCannedACL::as_str))?;
        Ok(S3Response::new(PutBucketAclOutput {}))
    }

    async fn put_object_acl(&self, req: S3Request<PutObjectAclInput>) -> Answer<PutObjectAclOutput> {
        let call = self.call(&req, &req.input.bucket).await?;
        let object = self.find(&call, &req.input.key, req.input.version_id.as_deref()).await?;
        stays_private(&call, &object.attr, req.input.acl.as_ref().map(ObjectCannedACL::as_str))?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }

    async fn get_object_attributes(
        &self,
        req: S3Request<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        self.attributes(req).await
    }
}

impl Shared {
    /// A request about a bucket itself, which its user may enter; with a turn of the user.
    pub(crate) async fn enter<T>(&self, req: &S3Request<T>, bucket: &str) -> S3Result<(Call, Turn)> {
        self.look_into(req, bucket).await.map(|(call, _, turn)| (call, turn))
    }

    /// The same with the attributes of the bucket's directory.
    async fn look_into<T>(&self, req: &S3Request<T>, bucket: &str) -> S3Result<(Call, Attr, Turn)> {
        let call = self.call(req, bucket).await?;
        let turn = self.turn(&call).await?;
        let root = call.tree.access(&Call::root(), 1).await.map_err(error::of_root)?;
        Ok((call, root, turn))
    }
}

/// What S3 calls `private`: further rights are in the modes and ACLs of the files, for which S3 has
/// no words. The owner has the name by which `x-amz-expected-bucket-owner` knows it.
fn grants(call: &Call, attr: &Attr) -> (Owner, Vec<Grant>) {
    let name = if attr.uid == call.who.uid { call.who.name.to_string() } else { attr.uid.to_string() };
    let owner = Owner { id: Some(name.clone()), display_name: Some(name.clone()) };
    let grantee = Grantee {
        id: Some(name.clone()),
        display_name: Some(name),
        email_address: None,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Some(Permission::from_static(Permission::FULL_CONTROL));
    (owner, vec![Grant { grantee: Some(grantee), permission }])
}

/// Accepts an ACL of the owner that describes the actual state: [`grants`].
fn stays_private(call: &Call, attr: &Attr, acl: Option<&str>) -> S3Result<()> {
    if attr.uid != call.who.uid {
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, "Only the owner may do this."));
    }
    if call.bucket.public {
        return Err(not_implemented("ACLs where anybody may read the bucket"));
    }
    private(Some(acl.unwrap_or("as a list of grants")))
}

/// The policy of a bucket that anybody may read.
fn policy_of(bucket: &str) -> Value {
    json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")],
        }],
    })
}

/// Reads a policy, as far as it can be expressed here: that anybody may read.
fn parse_policy(text: &str, bucket: &str) -> S3Result<PublicPolicy> {
    let malformed =
        || S3Error::with_message(S3ErrorCode::MalformedPolicy, "The policy is no JSON with a Statement.");
    let policy: Value = serde_json::from_str(text).map_err(|_| malformed())?;
    let statements = match &policy["Statement"] {
        Value::Array(statements) => statements.clone(),
        one @ Value::Object(_) => vec![one.clone()],
        _ => return Err(malformed()),
    };
    if statements.is_empty() {
        return Ok(PublicPolicy::None);
    }
    let whole = [format!("arn:aws:s3:::{bucket}"), format!("arn:aws:s3:::{bucket}/*")];
    let reads = ["s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation"];
    let all = |value: &Value, of: &dyn Fn(&str) -> bool| match value {
        Value::String(one) => of(one),
        Value::Array(many) => !many.is_empty() && many.iter().all(|v| v.as_str().is_some_and(of)),
        _ => false,
    };
    let is_public_read = |s: &Value| {
        let anybody = s["Principal"] == "*" || all(&s["Principal"]["AWS"], &|p| p == "*");
        s["Effect"] == "Allow"
            && anybody
            && s.get("Condition").is_none()
            && all(&s["Action"], &|a| reads.contains(&a))
            && all(&s["Resource"], &|r| whole.iter().any(|w| w == r))
    };
    if statements.iter().all(is_public_read) {
        return Ok(PublicPolicy::Read);
    }
    Err(not_implemented(
        "Policies other than that anybody may read (s3:GetObject, s3:ListBucket): modes, ACLs and volumes say who may what; others",
    ))
}

/// Tags of a header, in the stored form.
///
/// # Errors
/// `InvalidTag`.
pub(crate) fn checked_tags(text: Option<String>) -> S3Result<Option<String>> {
    text.filter(|text| !text.is_empty()).map(|text| text_of(&tags_of(&text))).transpose()
}

/// Tags in the stored form.
fn text_of(tags: &[Tag]) -> S3Result<String> {
    let wrong = |why: &'static str| S3Error::with_message(S3ErrorCode::InvalidTag, why);
    if tags.len() > TAGS_MAX {
        return Err(wrong("An object has at most 10 tags."));
    }
    let mut words: Vec<String> = Vec::new();
    for tag in tags {
        let (key, value) = (tag.key.as_deref().unwrap_or_default(), tag.value.as_deref().unwrap_or_default());
        if key.is_empty()
            || key.chars().count() > TAG_KEY_CHARS_MAX
            || value.chars().count() > TAG_VALUE_CHARS_MAX
        {
            return Err(wrong("A tag has a key of 1 to 128 characters and a value of up to 256."));
        }
        let key = escaped(key);
        if words.iter().any(|w| w.split_once('=').is_some_and(|(k, _)| k == key)) {
            return Err(wrong("A tag is there twice."));
        }
        words.push(format!("{key}={}", escaped(value)));
    }
    Ok(words.join("&"))
}

fn tags_of(text: &str) -> Vec<Tag> {
    pairs(text).map(|(key, value)| Tag { key: Some(unescaped(key)), value: Some(unescaped(value)) }).collect()
}

fn escaped(text: &str) -> String {
    crate::names::encoded(text).replace('/', "%2F").replace('*', "%2A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back() {
        let tag = |k: &str, v: &str| Tag { key: Some(k.into()), value: Some(v.into()) };
        let tags = [tag("a b", "x=y&z"), tag("ü", "")];
        let text = text_of(&tags).expect("fine");
        assert_eq!(text, "a%20b=x%3Dy%26z&%C3%BC=");
        assert_eq!(tags_of(&text), tags);
        assert_eq!(tags_of("a+b=c"), [tag("a b", "c")]);
        assert!(text_of(&[tag("a", "1"), tag("a", "2")]).is_err() && text_of(&[tag("", "1")]).is_err());
    }

    #[test]
    fn only_policies_that_can_be_kept_are_taken() {
        let own = policy_of("b").to_string();
        assert_eq!(parse_policy(&own, "b").expect("our own"), PublicPolicy::Read);
        for other in [
            own.replace("\"Allow\"", "\"Deny\""),
            own.replace("s3:GetObject", "s3:PutObject"),
            own.replace(":::b", ":::c"),
            own.replace("\"Principal\":\"*\"", "\"Principal\":{\"AWS\":\"arn:aws:iam::1:user/x\"}"),
        ] {
            assert_eq!(parse_policy(&other, "b").expect_err(&other).code(), &S3ErrorCode::NotImplemented);
        }
        assert_eq!(parse_policy("{", "b").expect_err("no JSON").code(), &S3ErrorCode::MalformedPolicy);
    }
}
