"""Puts objects until the server is gone and notes what was acknowledged; with --check looks whether all of it is there, and nothing else."""

import os
import sys
import threading

import boto3
import botocore

SIZES = [0, 100, 70_000, 400_000]


def body(n):
    return bytes([n % 251 + 1]) * SIZES[n % len(SIZES)]


def client():
    return boto3.client("s3", config=botocore.config.Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=10))


def write(bucket, notes):
    lock = threading.Lock()

    def work(thread):
        s3, n = client(), 0
        try:
            while True:
                number = thread + 4 * n
                # botocore takes a connection that is closed without an answer for a success, where the body is empty: it has no ETag
                s3.put_object(Bucket=bucket, Key=f"kill/{thread}/{number}", Body=body(number))["ETag"]
                with lock, open(notes, "a") as f:
                    f.write(f"{thread}/{number}\n")
                n += 1
        except Exception:
            pass

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def check(bucket, notes, directory):
    with open(notes) as f:
        acknowledged = f.read().split()
    assert len(acknowledged) > 20, acknowledged
    for name in acknowledged:
        with open(os.path.join(directory, "kill", name), "rb") as f:
            assert f.read() == body(int(name.split("/")[1])), f"{name} is not what was acknowledged"
    there = [os.path.join(d, f) for d, _, files in os.walk(os.path.join(directory, "kill")) for f in files]
    for path in there:
        with open(path, "rb") as f:
            assert f.read() == body(int(os.path.basename(path))), f"{path} is neither whole nor absent"
    assert len(there) <= len(acknowledged) + 4, "more than was under way"
    print(f"NOTE {len(acknowledged)} acknowledged, {len(there)} there")


if sys.argv[1] == "--check":
    check(*sys.argv[2:])
else:
    write(*sys.argv[1:])
