#!/usr/bin/env python3
"""Rucio's own class for WebDAV against a door: upload, stat, list, rename, download, space, remove.

    rucio_webdav.py URL TOKEN      PYTHONPATH has rucio-clients; URL is a directory that is there
"""
import os
import sys
import tempfile
import urllib.parse

from rucio.common import exception
from rucio.rse.protocols.webdav import Default


def main(url, token):
    at = urllib.parse.urlparse(url)
    attributes = {
        "scheme": at.scheme,
        "hostname": at.hostname,
        "port": at.port,
        "prefix": at.path.rstrip("/") + "/",
        "impl": "rucio.rse.protocols.webdav.Default",
        "extended_attributes": None,
        "auth_token": token,
    }
    rse = {"rse": "TEST", "sign_url": None, "deterministic": True, "rse_type": "DISK", "protocols": [attributes]}
    door = Default(attributes, rse)
    door.auth_token = token
    door.connect({"cert": None})
    with tempfile.TemporaryDirectory() as scratch:
        data, back = os.path.join(scratch, "data"), os.path.join(scratch, "back")
        with open(data, "wb") as out:
            out.write(os.urandom(2_000_000))
        door.put(data, "rucio/a/b/file.upload")
        door.rename("rucio/a/b/file.upload", "rucio/c/d/file")
        whole = door.path2pfn("rucio/c/d/file")
        assert door.exists("rucio/c/d/file") and not door.exists("rucio/a/b/file.upload")
        assert door.stat(whole)["filesize"] == 2_000_000
        assert any(name.endswith("/rucio/c/d/file") for name in door.ls("rucio/c/d")), door.ls("rucio/c/d")
        door.get("rucio/c/d/file", back)
        assert open(data, "rb").read() == open(back, "rb").read()
        total, unused = door.get_space_usage()
        assert 2_000_000 <= total - int(unused) and int(unused) > 0, (total, unused)
        door.delete("rucio/c/d/file")
        assert not door.exists("rucio/c/d/file")
        try:
            door.delete("rucio/c/d/file")
            raise AssertionError("removed twice")
        except exception.SourceNotFound:
            pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
