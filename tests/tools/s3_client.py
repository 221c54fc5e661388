"""What boto3 does at the S3 door, and what the mount shows of it. Run by tests/suites/s3.sh; the environment has endpoint and keys."""

import base64
import hashlib
import io
import os
import sys
import urllib.error
import urllib.request

import boto3
import botocore
from boto3.s3.transfer import TransferConfig

MNT = sys.argv[1]
BUCKET = "pub"
s3 = boto3.client("s3", config=botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}))


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as e:
        got = e.response["Error"]["Code"]
        assert got in code.split("|"), f"{got} instead of {code}"
        return e.response
    raise AssertionError(f"not refused with {code}: {arguments}")


def content(path):
    with open(os.path.join(MNT, BUCKET, path), "rb") as f:
        return f.read()


def put(key, body=b"", **more):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def get(key, **more):
    return s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def keys(**more):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, **more)
    found, prefixes = [], []
    for page in pages:
        found += [o["Key"] for o in page.get("Contents", [])]
        prefixes += [p["Prefix"] for p in page.get("CommonPrefixes", [])]
    return found, prefixes


def objects():
    md5 = hashlib.md5(b"hello").hexdigest()
    assert put("o/hello", b"hello")["ETag"] == f'"{md5}"'
    assert content("o/hello") == b"hello" and get("o/hello") == b"hello"
    assert os.stat(f"{MNT}/{BUCKET}/o/hello").st_uid == 1234
    head = s3.head_object(Bucket=BUCKET, Key="o/hello")
    assert (head["ContentLength"], head["ETag"]) == (5, f'"{md5}"')
    assert get("o/hello", Range="bytes=1-3") == b"ell" and get("o/hello", Range="bytes=-2") == b"lo"
    refused("InvalidRange", s3.get_object, Bucket=BUCKET, Key="o/hello", Range="bytes=9-")
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="o/none")
    refused("404", s3.head_object, Bucket=BUCKET, Key="o/none")
    refused("NoSuchBucket", s3.get_object, Bucket="none", Key="x")
    # what the mount writes is there at once, with another ETag
    with open(f"{MNT}/{BUCKET}/o/hello", "wb") as f:
        f.write(b"changed")
    again = s3.get_object(Bucket=BUCKET, Key="o/hello")
    assert again["Body"].read() == b"changed" and again["ETag"] != f'"{md5}"'
    s3.delete_object(Bucket=BUCKET, Key="o/hello")
    s3.delete_object(Bucket=BUCKET, Key="o/hello")
    assert not os.path.exists(f"{MNT}/{BUCKET}/o"), "its directory went with it"


def conditions():
    first = put("c", b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", put, key="c", body=b"2", IfNoneMatch="*")
    refused("PreconditionFailed", put, key="c", body=b"2", IfMatch='"0123"')
    second = put("c", b"2", IfMatch=first)["ETag"]
    assert get("c", IfMatch=second) == b"2"
    refused("304", get, key="c", IfNoneMatch=second)
    refused("PreconditionFailed", get, key="c", IfMatch=first)


def metadata():
    put("m", b"x", ContentType="text/x", CacheControl="no-cache", Metadata={"Colour": "blue"}, Tagging="a=b&c=d")
    head = s3.head_object(Bucket=BUCKET, Key="m")
    assert (head["ContentType"], head["CacheControl"], head["Metadata"]) == ("text/x", "no-cache", {"colour": "blue"})
    assert b"content-type: text/x" in os.getxattr(f"{MNT}/{BUCKET}/m", "user.leeward.headers")
    tags = s3.get_object_tagging(Bucket=BUCKET, Key="m")["TagSet"]
    assert tags == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}], tags
    s3.put_object_tagging(Bucket=BUCKET, Key="m", Tagging={"TagSet": [{"Key": "ü", "Value": "=&"}]})
    assert s3.get_object_tagging(Bucket=BUCKET, Key="m")["TagSet"] == [{"Key": "ü", "Value": "=&"}]
    s3.copy_object(Bucket=BUCKET, Key="m2", CopySource={"Bucket": BUCKET, "Key": "m"})
    assert s3.head_object(Bucket=BUCKET, Key="m2")["ContentType"] == "text/x"
    s3.copy_object(Bucket=BUCKET, Key="m", CopySource={"Bucket": BUCKET, "Key": "m"}, MetadataDirective="REPLACE", ContentType="a/b")
    assert s3.head_object(Bucket=BUCKET, Key="m")["ContentType"] == "a/b"
    refused("InvalidRequest", s3.copy_object, Bucket=BUCKET, Key="m", CopySource={"Bucket": BUCKET, "Key": "m"})


def checksums():
    for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]:
        try:
            said = put("sum", b"data" * 1000, ChecksumAlgorithm=algorithm)
        except botocore.exceptions.MissingDependencyException:
            continue
        head = s3.head_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == said[f"Checksum{algorithm}"], algorithm
    refused("BadDigest", put, key="sum", body=b"x", ChecksumSHA256="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    refused("BadDigest|InvalidDigest", put, key="sum", body=b"x", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
    assert get("sum") == b"data" * 1000, "what was refused is not there"


def multipart():
    data = os.urandom(18 << 20)
    with open("/tmp/s3-multipart", "wb") as f:
        f.write(data)
    config = TransferConfig(multipart_threshold=6 << 20, multipart_chunksize=6 << 20)
    s3.upload_file("/tmp/s3-multipart", BUCKET, "big", Config=config, ExtraArgs={"ContentType": "x/y"})
    os.remove("/tmp/s3-multipart")
    assert get("big") == data and content("big") == data
    head = s3.head_object(Bucket=BUCKET, Key="big")
    assert head["ETag"].endswith('-3"') and head["ContentType"] == "x/y", head
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    one = {"Bucket": BUCKET, "Key": "parts", "UploadId": upload}
    part = s3.upload_part(PartNumber=1, Body=b"x", **one)
    s3.upload_part(PartNumber=2, Body=b"y", **one)
    copied = s3.upload_part_copy(PartNumber=3, CopySource={"Bucket": BUCKET, "Key": "big"}, CopySourceRange="bytes=0-9", **one)
    assert [p["PartNumber"] for p in s3.list_parts(**one)["Parts"]] == [1, 2, 3]
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == ["parts"]
    assert not os.path.exists(f"{MNT}/{BUCKET}/parts")
    etags = [(1, part["ETag"]), (3, copied["CopyPartResult"]["ETag"])]
    complete = {"Parts": [{"PartNumber": n, "ETag": e} for n, e in etags]}
    refused("EntityTooSmall", s3.complete_multipart_upload, MultipartUpload=complete, **one)
    last = {"Parts": complete["Parts"][1:]}
    refused("InvalidPart", s3.complete_multipart_upload, MultipartUpload={"Parts": [{"PartNumber": 9, "ETag": "x"}]}, **one)
    s3.complete_multipart_upload(MultipartUpload=last, **one)
    assert content("parts") == data[:10]
    refused("NoSuchUpload", s3.list_parts, **one)
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "big"})
    assert content("copy") == data
    described = s3.get_object_attributes(Bucket=BUCKET, Key="big", ObjectAttributes=["ETag", "ObjectParts", "ObjectSize", "Checksum"])
    assert (described["ObjectSize"], described["ObjectParts"]["TotalPartsCount"]) == (len(data), 3), described
    assert described["ETag"].strip('"') == head["ETag"].strip('"') and "StorageClass" not in described, described


def composite():
    """A checksum of checksums may be claimed without the number of parts, as minio-go does."""
    one = {"Bucket": BUCKET, "Key": "composite"}
    for told in ["", "-1"]:
        upload = s3.create_multipart_upload(ChecksumAlgorithm="SHA256", **one)["UploadId"]
        part = s3.upload_part(PartNumber=1, Body=b"x", UploadId=upload, ChecksumAlgorithm="SHA256", **one)
        digest = base64.b64encode(hashlib.sha256(base64.b64decode(part["ChecksumSHA256"])).digest()).decode()
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]}]}
        complete = lambda claim: s3.complete_multipart_upload(MultipartUpload=parts, UploadId=upload, ChecksumSHA256=claim, **one)
        refused("BadDigest", complete, claim=part["ChecksumSHA256"] + told)
        assert complete(digest + told)["ChecksumSHA256"] == digest + "-1"


def private():
    """ACLs that say what is so are taken."""
    put("acl", b"x", ACL="private")
    s3.put_object_acl(Bucket=BUCKET, Key="acl", ACL="private")
    s3.put_bucket_acl(Bucket=BUCKET, ACL="private")
    refused("NotImplemented", s3.put_object_acl, Bucket=BUCKET, Key="acl", ACL="public-read")
    refused("NotImplemented", s3.put_bucket_acl, Bucket=BUCKET, ACL="public-read")
    refused("NoSuchKey", s3.put_object_acl, Bucket=BUCKET, Key="acl-none", ACL="private")


def listings():
    names = ["l/a", "l/a-b", "l/a.txt", "l/a0", "l/b/c", "l/b/d", "l/b-/e", "l/b0", "l/ü /+%"]
    for name in names:
        put(name, b"x")
    found, prefixes = keys(Prefix="l/")
    assert found == sorted(names, key=str.encode) and prefixes == [], found
    assert keys(Prefix="l/", PaginationConfig={"PageSize": 2}) == (found, [])
    assert keys(Prefix="l/", Delimiter="/") == (["l/a", "l/a-b", "l/a.txt", "l/a0", "l/b0"], ["l/b-/", "l/b/", "l/ü /"])
    assert keys(Prefix="l/", Delimiter="/", PaginationConfig={"PageSize": 1}) == keys(Prefix="l/", Delimiter="/")
    assert keys(Prefix="l/a", Delimiter=".") == (["l/a", "l/a-b", "l/a0"], ["l/a."])
    assert keys(Prefix="l/", StartAfter="l/b/c")[0] == [n for n in found if n.encode() > b"l/b/c"]
    v1 = s3.list_objects(Bucket=BUCKET, Prefix="l/", MaxKeys=4)
    assert v1["IsTruncated"] and [o["Key"] for o in v1["Contents"]] == found[:4]
    assert v1["Contents"][0]["ETag"] == s3.head_object(Bucket=BUCKET, Key="l/a")["ETag"]
    for made in ["l/made", "l/made/empty"]:
        os.mkdir(f"{MNT}/{BUCKET}/{made}")
        os.chown(f"{MNT}/{BUCKET}/{made}", 1234, 1234)
    assert "l/made/empty/" in keys(Prefix="l/")[0]
    os.symlink("/etc/passwd", f"{MNT}/{BUCKET}/l/link")
    assert "l/link" not in keys(Prefix="l/")[0]
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="l/link")
    deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": n} for n in [*names, "l/none", "l/made/empty/"]]})
    assert len(deleted["Deleted"]) == len(names) + 2 and not deleted.get("Errors"), deleted
    assert keys(Prefix="l/") == (["l/made/"], [])


def names():
    put("n/file", b"x")
    for key in ["a//b", "/a", "n/../x", "./x", "n/" + "x" * 256]:
        refused("XMinioInvalidObjectName|InvalidURI|400", put, key=key, body=b"x")
    refused("KeyConflict", put, key="n/file/below", body=b"x")
    refused("KeyConflict", put, key="n", body=b"x")
    put("n/dir/")
    assert os.path.isdir(f"{MNT}/{BUCKET}/n/dir") and get("n/dir/") == b""


def rights():
    os.mkdir(f"{MNT}/{BUCKET}/roots", 0o700)
    with open(f"{MNT}/{BUCKET}/secret", "w") as f:
        f.write("x")
    os.chmod(f"{MNT}/{BUCKET}/secret", 0o600)
    refused("AccessDenied", s3.get_object, Bucket=BUCKET, Key="secret")
    refused("AccessDenied", put, key="roots/x", body=b"x")
    refused("AccessDenied", s3.list_objects_v2, Bucket=BUCKET, Prefix="roots/")
    refused("NotImplemented", put, key="x", body=b"x", ACL="public-read")
    os.rmdir(f"{MNT}/{BUCKET}/roots")
    os.remove(f"{MNT}/{BUCKET}/secret")
    wrong = boto3.client("s3", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="wrong")
    refused("SignatureDoesNotMatch", wrong.get_object, Bucket=BUCKET, Key="c")
    nobody = boto3.client("s3", aws_access_key_id="NOBODY", aws_secret_access_key="x")
    refused("InvalidAccessKeyId", nobody.get_object, Bucket=BUCKET, Key="c")


def buckets():
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket=BUCKET)
    refused("BucketNotEmpty", s3.delete_bucket, Bucket=BUCKET)
    s3.create_bucket(Bucket="another")
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket="another")
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["another", BUCKET]
    first = s3.list_buckets(MaxBuckets=1)
    assert [b["Name"] for b in first["Buckets"]] == ["another"]
    rest = s3.list_buckets(MaxBuckets=1, ContinuationToken=first["ContinuationToken"])
    assert [b["Name"] for b in rest["Buckets"]] == [BUCKET] and "ContinuationToken" not in rest
    # its owner's alone, until he says that anybody may read
    mode = lambda: os.stat(f"{MNT}/new/another").st_mode & 0o777
    assert mode() == 0o700, oct(mode())
    s3.put_object(Bucket="another", Key="x", Body=b"x")
    url = f"{os.environ['AWS_ENDPOINT_URL']}/another/x"
    may_read = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::another/*"]}]}'
    s3.put_bucket_policy(Bucket="another", Policy=may_read)
    assert urllib.request.urlopen(url).read() == b"x" and mode() == 0o705, oct(mode())
    s3.delete_bucket_policy(Bucket="another")
    assert mode() == 0o700, oct(mode())
    s3.delete_object(Bucket="another", Key="x")
    os.chmod(f"{MNT}/new/another", 0o000)
    os.chown(f"{MNT}/new/another", 0, 0)
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == [BUCKET], "one's own are listed"
    for ask in [s3.get_bucket_cors, s3.get_bucket_policy, s3.get_bucket_location]:
        refused("AccessDenied", ask, Bucket="another")
    # its directory is gone, as when the door ends in a DeleteBucket
    os.rmdir(f"{MNT}/new/another")
    refused("404", s3.head_bucket, Bucket="another")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="another")
    # and only who may make it again has the name
    os.chmod(f"{MNT}/new", 0o755)
    refused("AccessDenied", s3.delete_bucket, Bucket="another")
    os.chmod(f"{MNT}/new", 0o1777)
    s3.delete_bucket(Bucket="another")
    s3.create_bucket(Bucket="another")
    s3.delete_bucket(Bucket="another")
    assert not os.path.exists(f"{MNT}/new/another")


def private_copies():
    put("private", b"mine")
    os.chmod(f"{MNT}/{BUCKET}/private", 0o600)
    put("private", b"still mine")
    s3.copy_object(Bucket=BUCKET, Key="private-copy", CopySource={"Bucket": BUCKET, "Key": "private"})
    for name in ["private", "private-copy"]:
        assert os.stat(f"{MNT}/{BUCKET}/{name}").st_mode & 0o777 == 0o600, name
    s3.copy_object(Bucket=BUCKET, Key="open-copy", CopySource={"Bucket": BUCKET, "Key": "c"})
    assert os.stat(f"{MNT}/{BUCKET}/open-copy").st_mode & 0o777 == 0o644


def signed():
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "c"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"2"
    kind = "text/plain"  # or urllib sends one of its own, which the older signature that boto3 takes here covers
    url = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "signed", "ContentType": kind}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT", headers={"Content-Type": kind}))
    assert content("signed") == b"by url"
    for wrong in [url.replace("signed?", "other?"), url.replace("X-Amz-Expires=60", "X-Amz-Expires=6000")]:
        try:
            urllib.request.urlopen(urllib.request.Request(wrong, data=b"x", method="PUT"))
            raise AssertionError("not refused")
        except urllib.error.HTTPError as e:
            assert e.code == 403, e.code
    post = s3.generate_presigned_post(BUCKET, "posted", ExpiresIn=60)
    boundary = "x" * 20
    fields = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in post["fields"].items())
    file = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nby form\r\n--{boundary}--\r\n'
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    urllib.request.urlopen(urllib.request.Request(post["url"], data=(fields + file).encode(), headers=kind))
    assert content("posted") == b"by form"


def empties():
    """botocore says Expect to an empty body, too, and mistakes an answer without "100 Continue" for that of the next request."""
    config = botocore.config.Config(max_pool_connections=1, retries={"max_attempts": 0}, read_timeout=10)
    one = boto3.client("s3", config=config)
    for n in range(4):
        for body in [b"", b"x"]:
            assert "ETag" in one.put_object(Bucket=BUCKET, Key="maybe-empty", Body=io.BytesIO(body)), n
            assert content("maybe-empty") == body


def browsers():
    rule = {"AllowedOrigins": ["https://a.org"], "AllowedMethods": ["GET"], "AllowedHeaders": ["*"]}
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=BUCKET)["CORSRules"][0]["AllowedMethods"] == ["GET"]
    ask = {"Origin": "https://a.org", "Access-Control-Request-Method": "GET"}
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{BUCKET}/c"
    answer = urllib.request.urlopen(urllib.request.Request(url, headers=ask, method="OPTIONS"))
    assert answer.headers["Access-Control-Allow-Origin"] == "https://a.org"
    s3.delete_bucket_cors(Bucket=BUCKET)
    refused("NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=BUCKET)


def anybody():
    policy = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::pub/*"]}]}'
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{BUCKET}/c"
    s3.put_bucket_policy(Bucket=BUCKET, Policy=policy)
    assert urllib.request.urlopen(url).read() == b"2"
    try:
        urllib.request.urlopen(urllib.request.Request(url, data=b"x", method="PUT"))
        raise AssertionError("anybody wrote")
    except urllib.error.HTTPError as e:
        assert e.code == 403, e.code
    refused("NotImplemented", s3.put_bucket_policy, Bucket=BUCKET, Policy=policy.replace("GetObject", "PutObject"))
    s3.delete_bucket_policy(Bucket=BUCKET)
    try:
        urllib.request.urlopen(url)
        raise AssertionError("anybody read")
    except urllib.error.HTTPError as e:
        assert e.code == 403, e.code


for case in [objects, conditions, metadata, checksums, multipart, composite, private, listings, names, rights, buckets, private_copies, signed, empties, browsers, anybody]:
    print(case.__name__, flush=True)
    case()
