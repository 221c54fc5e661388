"""Sends parts of an upload until the server is gone and notes what was acknowledged; with --after goes on with it at the next server and completes
it, and with what became of it, looks in the mount whether all is as it was sent."""

import os
import sys

from s3_until_killed import client, until_killed

KEY = "killed/in/parts"
PART = 5 << 20


def body(number):
    return bytes([number % 251 + 1]) * (PART + number)


def write(bucket, notes):
    s3 = client()
    given_up = s3.create_multipart_upload(Bucket=bucket, Key="killed/given-up")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="killed/given-up", UploadId=given_up, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket=bucket, Key="killed/given-up", UploadId=given_up)
    upload = s3.create_multipart_upload(Bucket=bucket, Key=KEY, Metadata={"a": "b"}, ContentType="c/d")["UploadId"]
    with open(notes, "w") as f:
        f.write(f"{upload}\n")

    def send(s3, n):
        part = {"Bucket": bucket, "Key": KEY, "UploadId": upload, "PartNumber": n + 1}
        return f"{n + 1} {s3.upload_part(**part, Body=body(n + 1))['ETag']}"

    until_killed(notes, 3, send)


def finish(bucket, notes, directory):
    with open(notes) as f:
        upload, *lines = f.read().splitlines()
    acknowledged = {int(number): etag for number, etag in (line.split() for line in lines)}
    s3 = client()
    listed = s3.list_multipart_uploads(Bucket=bucket, Prefix="killed/")["Uploads"]
    assert [(u["Key"], u["UploadId"]) for u in listed] == [(KEY, upload)], listed
    pages = s3.get_paginator("list_parts").paginate(Bucket=bucket, Key=KEY, UploadId=upload)
    there = {p["PartNumber"]: p for page in pages for p in page["Parts"]}
    for number, etag in acknowledged.items():
        assert there[number]["ETag"] == etag, f"part {number} is not what was acknowledged"
    assert all(p["Size"] == PART + number for number, p in there.items()), "no part is cut off"
    assert len(there) <= len(acknowledged) + 3, "more than was under way"
    last = max(there) + 1
    end = s3.upload_part(Bucket=bucket, Key=KEY, UploadId=upload, PartNumber=last, Body=b"end")
    parts = [{"PartNumber": n, "ETag": p["ETag"]} for n, p in sorted(there.items())] + [{"PartNumber": last, "ETag": end["ETag"]}]
    done, again = (s3.complete_multipart_upload(Bucket=bucket, Key=KEY, UploadId=upload, MultipartUpload={"Parts": parts}) for _ in range(2))
    assert done["ETag"] == again["ETag"] == s3.head_object(Bucket=bucket, Key=KEY)["ETag"]
    head = s3.head_object(Bucket=bucket, Key=KEY)
    assert (head["Metadata"], head["ContentType"]) == ({"a": "b"}, "c/d"), head
    with open(os.path.join(directory, KEY), "rb") as f:
        for number in sorted(there):
            assert f.read(PART + number) == body(number), f"part {number} is not what was sent"
        assert f.read() == b"end"
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    print(f"NOTE {len(acknowledged)} parts acknowledged, {len(there)} there")


if sys.argv[1] == "--after":
    finish(*sys.argv[2:])
else:
    write(*sys.argv[1:])
