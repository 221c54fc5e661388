"""Writers by S3 and by the mount, readers by both: nobody ever sees a mixture. Arguments: the bucket's directory in the mount, its name."""

import os
import sys
import threading
import time

import boto3
import botocore

directory, bucket = sys.argv[1:]
SIZE, SECONDS, FILES = 300_000, 5, 4
s3 = boto3.client("s3")
end = time.monotonic() + SECONDS
wrong, counts = [], {}


def body(n):
    return bytes([n % 251 + 1]) * SIZE


def check(how, data):
    if data and (len(data) != SIZE or data.count(data[0]) != SIZE):
        wrong.append(f"{how}: {len(data)} bytes, {len(set(data))} different")


def by_s3_write(n, path):
    s3.put_object(Bucket=bucket, Key=path, Body=body(n))
    # acknowledged: seen by the mount, unless somebody has written since
    with open(os.path.join(directory, path), "rb") as f:
        check("mount after put", f.read())


def by_mount_write(n, path):
    name = os.path.join(directory, f".new-{threading.get_ident()}")
    with open(name, "wb") as f:
        f.write(body(n))
    os.rename(name, os.path.join(directory, path))


def by_s3_read(_, path):
    try:
        check("S3", s3.get_object(Bucket=bucket, Key=path)["Body"].read())
    except botocore.exceptions.ClientError as e:
        if e.response["Error"]["Code"] != "NoSuchKey":
            raise


def by_mount_read(_, path):
    try:
        with open(os.path.join(directory, path), "rb") as f:
            check("mount", f.read())
    except FileNotFoundError:
        pass


def work(f):
    n = 0
    while time.monotonic() < end and not wrong:
        try:
            f(n, f"both-{n % FILES}")
        except Exception as e:
            wrong.append(f"{f.__name__}: {e!r}")
        n += 1
    counts[f.__name__] = n


threads = [threading.Thread(target=work, args=(f,)) for f in [by_s3_write, by_mount_write, by_s3_read, by_mount_read] for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
print("NOTE", counts)
sys.exit("\n".join(wrong[:5]) if wrong else 0)
