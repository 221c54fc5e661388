#!/usr/bin/env python3
"""A bucket whose objects are locked for a day.

    locked_bucket.py make BUCKET           makes it
    locked_bucket.py vandalise BUCKET      overwrites every other object, deletes the rest, and adds one; and finds
                                           that no version can be removed

Endpoint and keys come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Needs boto3.
"""

import sys

import boto3
from botocore.exceptions import ClientError


def make(s3, bucket):
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=lock)


def vandalise(s3, bucket):
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
    versions = [version for page in pages for version in page["Versions"]]
    for number, version in enumerate(v for v in versions if v["IsLatest"]):
        if number % 2:
            s3.delete_object(Bucket=bucket, Key=version["Key"])
        else:
            s3.put_object(Bucket=bucket, Key=version["Key"], Body=b"pay")
    s3.put_object(Bucket=bucket, Key="home/snapshots/pay", Body=b"pay")
    for version in versions:
        try:
            s3.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
        except ClientError as e:
            assert e.response["Error"]["Code"] == "AccessDenied", e
        else:
            sys.exit(f"{version['Key']} was not locked")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", bucket]:
            make(boto3.client("s3"), bucket)
        case ["vandalise", bucket]:
            vandalise(boto3.client("s3"), bucket)
        case _:
            sys.exit(__doc__)
