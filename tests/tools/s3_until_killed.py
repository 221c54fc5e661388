"""Puts objects until the server is gone and notes what was acknowledged; with --after looks whether all of it is there, and nothing else."""

import itertools
import os
import sys
import threading

import boto3
import botocore

SIZES = [0, 100, 70_000, 400_000]


def body(n):
    return bytes([n % 251 + 1]) * SIZES[n % len(SIZES)]


def client():
    return boto3.client("s3", config=botocore.config.Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=20))


def until_killed(notes, threads, send):
    """Threads that `send(client, number)` numbers of their own and note the line that it returns, until the server is gone."""
    lock = threading.Lock()

    def work(thread):
        s3 = client()
        try:
            for number in itertools.count(thread, threads):
                line = send(s3, number)
                with lock, open(notes, "a") as f:
                    f.write(f"{line}\n")
        except Exception:
            pass

    all = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    [t.start() for t in all]
    [t.join() for t in all]


def write(bucket, notes):
    def put(s3, number):
        name = f"{number % 4}/{number}"
        # botocore takes a connection that is closed without an answer for a success, where the body is empty: it has no ETag
        s3.put_object(Bucket=bucket, Key=f"kill/{name}", Body=body(number))["ETag"]
        return name

    until_killed(notes, 4, put)


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


if __name__ == "__main__":
    if sys.argv[1] == "--after":
        check(*sys.argv[2:])
    else:
        write(*sys.argv[1:])
