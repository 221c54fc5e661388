"""Requests to the S3 door that no client library makes: signed by hand, and then not as they should be. Run by tests/suites/s3.sh; the environment
has endpoint and keys."""

import base64
import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

import boto3
import botocore
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

MNT = sys.argv[1]
BUCKET = "pub"
URL = f"{os.environ['AWS_ENDPOINT_URL']}/{BUCKET}"
ID, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
s3 = boto3.client("s3", config=botocore.config.Config(signature_version="s3v4", retries={"max_attempts": 0}))


def raw(method, url, headers=None, body=None):
    """Status, headers and text of the answer."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "text/plain"} | (headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read().decode()


def ask(method, key, headers=None, body=b"", trailer=False, url=URL):
    """The same of a request signed as it should be, all of its headers."""
    request = AWSRequest(method, f"{url}/{key}", data=body, headers={"Content-Type": "text/plain"} | (headers or {}))
    if trailer:
        request.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
    S3SigV4Auth(boto3.Session().get_credentials(), "s3", "us-east-1").add_auth(request)
    return raw(method, request.url, dict(request.headers.items()), body)


def put(key, body, **more):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def content(key):
    with open(f"{MNT}/{BUCKET}/{key}", "rb") as f:
        return f.read()


def old_url(method, key, seconds, query=""):
    """A URL as the older signature has it."""
    end = int(time.time()) + seconds
    text = f"{method}\n\ntext/plain\n{end}\n/{BUCKET}/{key}"
    signature = base64.b64encode(hmac.new(SECRET.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return f"{URL}/{key}?AWSAccessKeyId={ID}&Expires={end}&Signature={urllib.parse.quote(signature, safe='')}{query}"


def urls():
    put("raw/secret", b"secret")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "raw/given"}, ExpiresIn=60)
    status, _, text = raw("PUT", url, {"x-amz-copy-source": f"/{BUCKET}/raw/secret"})
    assert status == 403 and "x-amz-copy-source" in text, text
    assert raw("PUT", url, {"x-amz-storage-class": "STANDARD"}, b"x")[0] == 403
    assert not os.path.exists(f"{MNT}/{BUCKET}/raw/given")
    assert raw("PUT", url, body=b"given")[0] == 200 and content("raw/given") == b"given"
    long = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "raw/given"}, ExpiresIn=604801)
    status, _, text = raw("GET", long)
    assert status == 400 and "AuthorizationQueryParametersError" in text, text


def old_signatures():
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"GET\n\ntext/plain\n{date}\n/{BUCKET}/raw/given"
    signature = base64.b64encode(hmac.new(SECRET.encode(), text.encode(), hashlib.sha1).digest()).decode()
    status, _, text = raw("GET", f"{URL}/raw/given", {"Date": date, "Authorization": f"AWS {ID}:{signature}"})
    assert status == 400 and "version 4" in text, "it could be replayed for ever"
    assert raw("GET", old_url("GET", "raw/given", 60))[2] == "given"
    assert raw("GET", old_url("GET", "raw/given", 700000))[0] == 400
    status, _, text = raw("PUT", old_url("PUT", "raw/given", 60, "&tagging&tagging"), body=b"<Tagging><TagSet/></Tagging>")
    assert status == 400 and "version 4" in text, text


def form(signed_at, end, conditions_more=({"bucket": BUCKET},), more=(), start=""):
    """The answer to a form that was signed at some time, and is good until another."""
    day, at = signed_at.strftime("%Y%m%d"), signed_at.strftime("%Y%m%dT%H%M%SZ")
    fields = {
        "key": "raw/form",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{ID}/{day}/us-east-1/s3/aws4_request",
        "x-amz-date": at,
    }
    fields |= dict(more)
    conditions = [{name: value} for name, value in fields.items()] + list(conditions_more)
    policy = {"expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": conditions}
    fields["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
    key = f"AWS4{SECRET}".encode()
    for step in [day, "us-east-1", "s3", "aws4_request", fields["policy"]]:
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    fields["x-amz-signature"] = key.hex()
    part = '--b\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    text = start + "".join(part.format(name, "", value) for name, value in fields.items())
    text += part.format("file", '; filename="f"', at) + "--b--\r\n"
    return raw("POST", URL, {"Content-Type": "multipart/form-data; boundary=b"}, text.encode())


def forms():
    now, hour = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(hours=1)
    status, headers, text = form(now - hour, now + hour)
    assert status in (200, 204) and content("raw/form").startswith(b"20"), text
    assert headers["Location"] == f"{URL}/raw/form", headers
    assert form(now - hour, now + hour, start="\r\n")[0] in (200, 204), "an empty line before the first boundary"
    assert form(now - 2 * hour, now - hour)[0] == 403
    before = content("raw/form")
    for bucket in [(), ({"bucket": "other"},), (["starts-with", "$bucket", "other"],)]:
        status, _, text = form(now, now + hour, bucket)
        assert status == 403 and "AccessDenied" in text, (bucket, text)
    for name, value in [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-grant-read", "id=1"), ("x-amz-storage-class", "GLACIER")]:
        status, _, text = form(now, now + hour, more={name: value})
        assert status in (400, 501), (name, status, text)
    assert form(now, now + hour, more={"x-amz-meta-a": "1" * 2100})[0] == 400
    assert content("raw/form") == before, "what was refused was written"
    both = form(now, now + hour, more={"bucket": BUCKET})
    assert both[0] in (200, 204), both
    assert form(now, now + hour, more={"bucket": "other"})[0] == 403
    # a request of another kind does not become older by calling itself a form
    status, _, text = ask("POST", "raw/given?uploads", {"Content-Type": "multipart/form-dataa"})
    assert status == 400, text


def chunked(key, body, checksum, chunk=1 << 30, said=None):
    text, at = b"", 0
    while at < len(body):
        piece = body[at : at + chunk]
        text += b"%x\r\n" % len(piece) + piece + b"\r\n"
        at += chunk
    text += b"0\r\n" + (b"x-amz-checksum-crc32:" + checksum + b"\r\n" if checksum else b"") + b"\r\n"
    headers = {"Content-Encoding": "aws-chunked", "X-Amz-Trailer": "x-amz-checksum-crc32", "X-Amz-Decoded-Content-Length": str(len(body) if said is None else said)}
    return ask("PUT", key, headers, text, trailer=True)


def chunks():
    body = os.urandom(20 << 20)
    crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big"))
    for size in [1 << 30, 100_000]:
        status, _, text = chunked("raw/chunks", body, crc, size)
        assert status == 200 and content("raw/chunks") == body, text
    put("raw/chunks", b"before")
    some = body[:100_000]
    crc = base64.b64encode(zlib.crc32(some).to_bytes(4, "big"))
    for said in [1000, len(some) - 1, len(some) + 1]:
        status, _, text = chunked("raw/chunks", some, crc, said=said)
        assert status == 400 and "IncompleteBody" in text, text
    url = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "raw/chunks"}, ExpiresIn=60)
    status, _, text = raw("PUT", url, body=iter([b"how", b"long?"]))
    assert status == 411 and "MissingContentLength" in text, text
    status, _, text = chunked("raw/chunks", b"hello", b"")
    assert status == 400 and "MalformedTrailerError" in text, text
    assert chunked("raw/chunks", b"hello", b"AAAAAA==")[0] == 400
    assert content("raw/chunks") == b"before"
    two = {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-sha1": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="}
    assert "InvalidRequest" in ask("PUT", "raw/chunks", two, b"x")[2]
    request = AWSRequest("PUT", f"{URL}/raw/chunks", data=b"one", headers={"Content-Type": "text/plain"})
    S3SigV4Auth(boto3.Session().get_credentials(), "s3", "us-east-1").add_auth(request)
    assert "XAmzContentSHA256Mismatch" in raw("PUT", request.url, dict(request.headers.items()), b"two")[2]


def conditions():
    first = put("raw/cond", b"1")["ETag"]
    put("raw/cond", b"22")
    status, headers, _ = ask("GET", "raw/cond", {"Range": "bytes=9-"})
    assert status == 416 and headers["Content-Range"] == "bytes */2", headers
    now = s3.head_object(Bucket=BUCKET, Key="raw/cond")["ETag"]
    status, headers, _ = ask("GET", "raw/cond", {"If-None-Match": now})
    assert status == 304 and headers["ETag"] == now, headers
    copy = {"x-amz-copy-source": f"/{BUCKET}/raw/given"}
    assert ask("PUT", "raw/cond", copy | {"If-None-Match": "*"})[0] == 412
    assert ask("PUT", "raw/cond", copy | {"If-Match": first})[0] == 412
    assert ask("PUT", "raw/cond", copy | {"x-amz-server-side-encryption": "AES256"})[0] == 501
    assert ask("POST", "raw/cond?uploads", {"x-amz-server-side-encryption": "AES256"})[0] == 501
    assert content("raw/cond") == b"22"
    assert ask("PUT", "raw/cond", copy | {"If-Match": now})[0] == 200 and content("raw/cond") == b"given"
    # nothing is removed but what was meant
    assert ask("DELETE", "raw/cond", {"If-Match": first})[0] == 412
    some = {"Objects": [{"Key": "raw/cond", "ETag": first}, {"Key": "raw/secret", "VersionId": "v1"}]}
    errors = s3.delete_objects(Bucket=BUCKET, Delete=some)["Errors"]
    assert [e["Code"] for e in errors] == ["PreconditionFailed", "NoSuchVersion"], errors
    for method in ["GET", "HEAD", "DELETE"]:
        assert ask(method, "raw/cond?versionId=v1")[0] == 404, method
    assert ask("GET", "raw/cond?versionId=null")[2] == "given"
    etag = s3.head_object(Bucket=BUCKET, Key="raw/cond")["ETag"]
    assert ask("DELETE", "raw/cond", {"If-Match": etag})[0] == 204
    assert not os.path.exists(f"{MNT}/{BUCKET}/raw/cond")


def directories():
    kept = {"Metadata": {"mtime": "1"}, "ContentType": "a/b", "Tagging": "x=y"}
    put("raw/dir/", b"", **kept)
    head = s3.head_object(Bucket=BUCKET, Key="raw/dir/")
    assert (head["Metadata"], head["ContentType"]) == ({"mtime": "1"}, "a/b"), head
    assert s3.get_object_tagging(Bucket=BUCKET, Key="raw/dir/")["TagSet"] == [{"Key": "x", "Value": "y"}]
    for there in ["raw/dir/", "raw/other/"]:
        crc = base64.b64encode(zlib.crc32(b"content").to_bytes(4, "big"))
        assert chunked(there, b"content", crc)[0] == 400, "content is not thrown away"
    assert not os.path.exists(f"{MNT}/{BUCKET}/raw/other")
    assert ask("PUT", "raw/dir/", {"If-None-Match": "*"})[0] == 412
    put("raw/dir/", b"")
    assert s3.head_object(Bucket=BUCKET, Key="raw/dir/")["Metadata"] == {}, "it was replaced"


def keys():
    long = "raw/" + "/".join(["n" * 200] * 6)
    os.makedirs(f"{MNT}/{BUCKET}/{long}")
    with open(f"{MNT}/{BUCKET}/{long}/f", "w") as f:
        f.write("x")
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="raw/n")["KeyCount"] == 0, "what cannot be asked for is not listed"
    assert "KeyTooLongError" in ask("GET", long)[2]
    deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": f"{long}/f"}]})
    assert deleted["Errors"][0]["Code"] == "KeyTooLongError", deleted
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="raw/parts")["UploadId"]
    assert ask("GET", f"raw/parts?part-number-marker=2147483647&uploadId={upload}")[0] == 200
    s3.abort_multipart_upload(Bucket=BUCKET, Key="raw/parts", UploadId=upload)
    pages = s3.list_buckets(MaxBuckets=1, Prefix=BUCKET)
    assert [b["Name"] for b in pages["Buckets"]] == [BUCKET] and "ContinuationToken" not in pages, pages
    assert s3.list_buckets(Prefix="none").get("Buckets", []) == []


def with_date():
    """A request whose time is in `Date`, as HTTP has it and as signatures have it."""
    now = datetime.datetime.now(datetime.timezone.utc)
    day, at = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    host, empty = urllib.parse.urlsplit(URL).netloc, hashlib.sha256(b"").hexdigest()
    for date in [now.strftime("%a, %d %b %Y %H:%M:%S GMT"), at]:
        names = "date;host;x-amz-content-sha256"
        text = f"GET\n/{BUCKET}/raw/given\n\ndate:{date}\nhost:{host}\nx-amz-content-sha256:{empty}\n\n{names}\n{empty}"
        scope = f"{day}/us-east-1/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(text.encode()).hexdigest()}"
        key = f"AWS4{SECRET}".encode()
        for step in [*scope.split("/"), to_sign]:
            key = hmac.new(key, step.encode(), hashlib.sha256).digest()
        signed = f"AWS4-HMAC-SHA256 Credential={ID}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        status, _, text = raw("GET", f"{URL}/raw/given", {"Date": date, "x-amz-content-sha256": empty, "Authorization": signed})
        assert (status, text) == (200, "given"), (date, text)


def what_is_not_done():
    """A request that asks for what is not done here is refused, not done without it."""
    lock = {"x-amz-object-lock-mode": "GOVERNANCE", "x-amz-object-lock-retain-until-date": "2099-01-01T00:00:00Z"}
    for more in [lock, {"x-amz-object-lock-legal-hold": "ON"}, {"x-amz-grant-read": 'id="1"'}, {"x-amz-grant-full-control": 'id="1"'}]:
        for method, key in [("PUT", "raw/locked"), ("POST", "raw/locked?uploads")]:
            status, _, text = ask(method, key, more)
            assert status in (400, 501), (more, method, text)
        assert ask("PUT", "raw/locked", more | {"x-amz-copy-source": f"/{BUCKET}/raw/given"})[0] in (400, 501), more
    assert not os.path.exists(f"{MNT}/{BUCKET}/raw/locked")
    for owner, status in [("ann", 200), ("1234", 200), ("bob", 403), ("123456789012", 403)]:
        assert ask("GET", "raw/given", {"x-amz-expected-bucket-owner": owner})[0] == status, owner
        source = {"x-amz-copy-source": f"/{BUCKET}/raw/given", "x-amz-source-expected-bucket-owner": owner}
        assert ask("PUT", "raw/owned", source)[0] == status, owner
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="raw/parts")["UploadId"]
    for part, status in [("bytes=0-4", 200), ("bytes=0-5", 416), ("bytes=9-10", 416), ("bytes=2-", 400), ("lines=0-1", 400)]:
        more = {"x-amz-copy-source": f"/{BUCKET}/raw/given", "x-amz-copy-source-range": part}
        got, _, text = ask("PUT", f"raw/parts?partNumber=1&uploadId={upload}", more)
        assert got == status, (part, got, text)
    s3.abort_multipart_upload(Bucket=BUCKET, Key="raw/parts", UploadId=upload)
    for md5, code in [("nonsense", "InvalidDigest"), ("AAAA", "InvalidDigest"), (base64.b64encode(bytes(16)).decode(), "BadDigest")]:
        assert code in ask("PUT", "raw/owned", {"Content-MD5": md5}, b"x")[2], md5
    tags = lambda n: "&".join(f"k{i}=v" for i in range(n))
    assert ask("PUT", "raw/tags", {"x-amz-tagging": tags(10)}, b"x")[0] == 200
    status, _, text = ask("PUT", "raw/tags", {"x-amz-tagging": tags(11)}, b"x")
    assert status == 400, text
    assert ask("PUT", "raw/tags", {"x-amz-meta-a": "1" * 2000}, b"x")[0] == 200
    status, _, text = ask("PUT", "raw/tags", {"x-amz-meta-a": "1" * 2049}, b"x")
    assert status == 400 and "MetadataTooLarge" in text, text
    # most of it is refused unread
    try:
        s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k" * 1000}] * 20_000})
        raise AssertionError("20 MB of XML were taken")
    except botocore.exceptions.ClientError as e:
        assert e.response["ResponseMetadata"]["HTTPStatusCode"] == 400, e


def answers():
    """What each answer has."""
    for key, status in [("raw/given", 200), ("raw/none", 404)]:
        got, headers, text = ask("GET", key)
        assert got == status and headers["x-amz-request-id"] and headers["X-Content-Type-Options"] == "nosniff", headers.items()
        assert status == 200 or f"<RequestId>{headers['x-amz-request-id']}</RequestId>" in text, text
    for part in ["lines=0-1", "bytes=0-1,3-4", "bytes=4-2", "bytes"]:
        status, _, text = ask("GET", "raw/given", {"Range": part})
        assert (status, text) == (200, "given"), part
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "raw/given", "ResponseContentType": "text/html"})
    status, headers, _ = raw("GET", url)
    assert status == 200 and headers["Content-Type"] == "text/html", headers.items()
    put("raw/coded", b"x", ContentEncoding="gzip, br")
    assert ask("GET", "raw/coded")[1]["Content-Encoding"] == "gzip, br"
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="raw/gi", Delimiter="")
    assert [found["Key"] for found in listed["Contents"]] == ["raw/given"], listed
    uploads = sorted((key, s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]) for key in ["raw/u1", "raw/u1", "raw/u2"])
    seen, marker = [], {}
    while True:
        page = s3.list_multipart_uploads(Bucket=BUCKET, Prefix="raw/u", MaxUploads=1, **marker)
        for found in page["Uploads"]:
            assert found["Owner"]["ID"] and found["Initiator"]["ID"], found
            seen.append((found["Key"], found["UploadId"]))
        if not page["IsTruncated"]:
            break
        marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
    assert sorted(seen) == uploads, (seen, uploads)
    for key, upload in uploads:
        s3.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload)


def buckets():
    """A bucket is its maker's alone, and is listed to nobody else, until he says otherwise."""
    with open(sys.argv[2]) as f:
        key = json.load(f)
    bob = boto3.client("s3", aws_access_key_id=key["access_key_id"], aws_secret_access_key=key["secret_access_key"])

    def refused(call, *args, **more):
        try:
            return call(*args, **more) and None
        except botocore.exceptions.ClientError as e:
            return e.response["ResponseMetadata"]["HTTPStatusCode"]

    s3.create_bucket(Bucket="mine")
    s3.put_object(Bucket="mine", Key="a", Body=b"a")
    names = lambda client: [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    assert names(s3) == ["mine", BUCKET] and names(bob) == [], (names(s3), names(bob))
    url = URL.replace(BUCKET, "mine")
    for call in [bob.get_object, bob.head_object, bob.delete_object]:
        assert refused(call, Bucket="mine", Key="a") == 403, call
    assert refused(bob.list_objects_v2, Bucket="mine") == 403 and refused(bob.put_object, Bucket="mine", Key="b", Body=b"") == 403
    assert raw("GET", f"{url}/a")[0] == 403
    anybody = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::mine", "arn:aws:s3:::mine/*"]}
    s3.put_bucket_policy(Bucket="mine", Policy=json.dumps({"Version": "2012-10-17", "Statement": [anybody]}))
    assert raw("GET", f"{url}/a")[2] == "a" and bob.get_object(Bucket="mine", Key="a")["Body"].read() == b"a"
    status, _, text = raw("GET", f"{url}/a?response-content-type=text/html")
    assert status == 400 and "InvalidRequest" in text, "anybody could make a page of it"
    s3.delete_bucket_policy(Bucket="mine")
    assert raw("GET", f"{url}/a")[0] == 403 and refused(bob.get_object, Bucket="mine", Key="a") == 403
    s3.delete_object(Bucket="mine", Key="a")
    s3.delete_bucket(Bucket="mine")


for case in [urls, old_signatures, forms, chunks, conditions, directories, keys, with_date, what_is_not_done, answers, buckets]:
    print(case.__name__, flush=True)
    case()
