"""Random changes by S3, by WebDAV and in the mount, each compared by another way with a model of what must be there.

    three_doors.py MOUNT-DIR BUCKET WEBDAV-URL SEED STEPS      keys are in the environment; WebDAV takes them as name and password
"""

import base64
import hashlib
import os
import random
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as xml

import boto3

mount, bucket, web, seed, steps = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
s3, rng, model = boto3.client("s3"), random.Random(seed), {}
password = base64.b64encode(f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()).decode()
DIRS = ["", "a/", "a/b/", "ü & x/"]
PATHS = [d + f for d in DIRS for f in ["f", "g h", "ö%41"]]


def at(path):
    return os.path.join(mount, path)


def ask(method, path, body=None, headers=()):
    url = web + urllib.parse.quote(path)
    request = urllib.request.Request(url, data=body, method=method, headers={"Authorization": f"Basic {password}", **dict(headers)})
    return urllib.request.urlopen(request)


class Mount:
    def put(self, path, body):
        if rng.random() < 0.5:
            with open(at(path), "wb") as f:
                f.write(body)
        else:
            with open(at(path) + ".new", "wb") as f:
                f.write(body)
            os.rename(at(path) + ".new", at(path))

    def get(self, path):
        with open(at(path), "rb") as f:
            return f.read()

    def remove(self, path):
        os.remove(at(path))

    def copy(self, source, path):
        shutil.copyfile(at(source), at(path))

    def move(self, source, path):
        os.rename(at(source), at(path))

    def list(self):
        below = [os.path.relpath(os.path.join(d, f), mount) for d, _, files in os.walk(mount) for f in files]
        return {path: os.stat(at(path)).st_size for path in below}


class S3:
    def put(self, path, body):
        tag = s3.put_object(Bucket=bucket, Key=path, Body=body)["ETag"]
        assert tag == f'"{hashlib.md5(body).hexdigest()}"', tag

    def get(self, path):
        found = s3.get_object(Bucket=bucket, Key=path)
        body = found["Body"].read()
        assert len(body) == found["ContentLength"]
        return body

    def remove(self, path):
        s3.delete_object(Bucket=bucket, Key=path)

    def copy(self, source, path):
        s3.copy_object(Bucket=bucket, Key=path, CopySource={"Bucket": bucket, "Key": source})

    def move(self, source, path):
        self.copy(source, path)
        self.remove(source)

    def list(self):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 5})
        found = [o for page in pages for o in page.get("Contents", ())]
        assert [o["Key"] for o in found] == sorted(o["Key"] for o in found), "not in order"
        return {o["Key"]: o["Size"] for o in found if not o["Key"].endswith("/")}


class Web:
    def put(self, path, body):
        ask("PUT", path, body, {"Content-Type": "application/octet-stream"})

    def get(self, path):
        adler = {"Want-Digest": "md5"}
        answer = ask("GET", path, headers=adler)
        body = answer.read()
        told = answer.headers["Digest"]
        assert told is None or told == "md5=" + base64.b64encode(hashlib.md5(body).digest()).decode(), told
        return body

    def remove(self, path):
        ask("DELETE", path)

    def copy(self, source, path):
        ask("COPY", source, headers={"Destination": web + urllib.parse.quote(path)})

    def move(self, source, path):
        ask("MOVE", source, headers={"Destination": web + urllib.parse.quote(path)})

    def list(self):
        found, base = {}, urllib.parse.urlsplit(web).path
        for d in DIRS:
            for entry in xml.parse(ask("PROPFIND", d, headers={"Depth": "1"})).iter("{DAV:}response"):
                path = urllib.parse.unquote(urllib.parse.urlsplit(entry.findtext("{DAV:}href")).path).removeprefix(base)
                if entry.find(".//{DAV:}collection") is None:
                    found[path] = int(entry.findtext(".//{DAV:}getcontentlength"))
        return found


DOORS = [Mount(), S3(), Web()]


def body():
    return rng.randbytes(rng.choice([0, 1, 100, 5_000, 70_000, 300_000]))


def step():
    door, path, other = rng.choice(DOORS), rng.choice(PATHS), rng.choice(PATHS)
    what = rng.choice(["put", "put", "remove", "copy", "move", "append"])
    if what == "put" or path not in model:
        model[path] = body()
        door.put(path, model[path])
        return f"put {path}", path, door
    if what == "append":
        with open(at(path), "ab") as f:
            f.write(b"more")
        model[path] += b"more"
        return f"append to {path}", path, DOORS[0]
    if what == "remove":
        door.remove(path)
        del model[path]
        return f"remove {path}", path, door
    if path == other:
        return "nothing", path, door
    getattr(door, what)(path, other)
    model[other] = model.pop(path) if what == "move" else model[path]
    return f"{what} {path} to {other}", other, door


def compare(said, path, door):
    reader = rng.choice(DOORS)
    how = f"step {number}, {said} by {type(door).__name__}, read by {type(reader).__name__}"
    try:
        got = reader.get(path)
    except (FileNotFoundError, urllib.error.HTTPError, s3.exceptions.NoSuchKey) as e:
        got = None
        assert path not in model, f"{how}: {e!r}"
    assert got == model.get(path), f"{how}: other content"
    sizes = {path: len(body) for path, body in model.items()}
    listed = rng.choice(DOORS)
    assert listed.list() == sizes, f"{how}: {type(listed).__name__} lists {listed.list()} instead of {sizes}"


for old in os.listdir(mount):
    (shutil.rmtree if os.path.isdir(at(old)) else os.remove)(at(old))
for d in DIRS:
    os.makedirs(at(d), exist_ok=True)
    shutil.copystat(mount, at(d))
    os.chown(at(d), os.stat(mount).st_uid, os.stat(mount).st_gid)
for number in range(steps):
    compare(*step())
for door in DOORS:
    assert {path: door.get(path) for path in door.list()} == model, type(door).__name__
print(f"NOTE seed {seed}: {steps} steps, {len(model)} files")
