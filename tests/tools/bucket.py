#!/usr/bin/env python3
"""A bucket of an S3 server, by plain requests: no client library is needed.

    bucket.py make BUCKET              makes it; waits up to a minute for the server
    bucket.py list BUCKET PREFIX       prints the names below a prefix

Endpoint and keys come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

import datetime
import hashlib
import hmac
import http.client
import os
import re
import sys
import time
import urllib.parse

REGION = "us-east-1"


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def request(method, path, query=()):
    """One signed request (AWS signature, version 4); its status and body."""
    url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    quote = lambda text: urllib.parse.quote(text, safe="-_.~")
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in sorted(query))
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": url.netloc, "x-amz-content-sha256": empty, "x-amz-date": now}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join([method, path, query, lines, names, empty])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (now[:8], REGION, "s3", "aws4_request"):
        key = sign(key, part)
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope},"
        f"SignedHeaders={names},Signature={sign(key, text).hex()}"
    )
    connection = http.client.HTTPConnection(url.netloc, timeout=20)
    connection.request(method, path + ("?" + query if query else ""), headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def make(bucket):
    for _ in range(300):
        try:
            status, body = request("PUT", f"/{bucket}")
            if status in (200, 409):
                return
            last = f"{status} {body}"
        except OSError as e:
            last = e
        time.sleep(0.2)
    sys.exit(f"bucket {bucket} cannot be made: {last}")


def names(bucket, prefix):
    token = None
    while True:
        query = [("list-type", "2"), ("prefix", prefix)] + ([("continuation-token", token)] if token else [])
        status, body = request("GET", f"/{bucket}", query)
        if status != 200:
            sys.exit(f"{status} {body}")
        yield from re.findall("<Key>(.*?)</Key>", body)
        found = re.search("<NextContinuationToken>(.*?)</NextContinuationToken>", body)
        if not found:
            return
        token = found.group(1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", bucket]:
            make(bucket)
        case ["list", bucket, prefix]:
            for name in names(bucket, prefix):
                print(name)
        case _:
            sys.exit(__doc__)
