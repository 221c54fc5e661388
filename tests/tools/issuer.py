#!/usr/bin/env python3
"""An issuer of tokens of the WLCG profile, for tests: serves its keys on loopback and mints what it is told to.

    issuer.py serve DIR PORT            until it is killed; the key is DIR/issuer.pem, made where it is missing
    issuer.py mint DIR PORT CLAIMS      prints a token that is good for an hour; CLAIMS, JSON, are put over the usual ones
"""
import base64
import http.server
import json
import os
import subprocess
import sys
import time
import uuid


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*args, given=b""):
    return subprocess.run(["openssl", *args], input=given, stdout=subprocess.PIPE, check=True).stdout


def key(directory):
    path = os.path.join(directory, "issuer.pem")
    if not os.path.exists(path):
        openssl("genrsa", "-out", path, "2048")
    return path


def keys(directory):
    modulus = openssl("rsa", "-in", key(directory), "-noout", "-modulus").decode().strip().split("=")[1]
    return {"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": text(bytes.fromhex(modulus)), "e": "AQAB"}]}


def mint(directory, port, claims):
    now = int(time.time())
    usual = {
        "iss": f"http://127.0.0.1:{port}/",
        "sub": "robot",
        "aud": "https://wlcg.cern.ch/jwt/v1/any",
        "iat": now,
        "nbf": now,
        "exp": now + 3600,
        "jti": str(uuid.uuid4()),
        "wlcg.ver": "1.0",
        "scope": "storage.read:/ storage.modify:/",
    }
    head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
    signed = ".".join(text(json.dumps(part).encode()) for part in (head, {**usual, **claims}))
    return signed + "." + text(openssl("dgst", "-sha256", "-sign", key(directory), given=signed.encode()))


def serve(directory, port):
    pages = {
        "/.well-known/openid-configuration": {"issuer": f"http://127.0.0.1:{port}/", "jwks_uri": f"http://127.0.0.1:{port}/jwk"},
        "/jwk": keys(directory),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(pages[self.path]).encode() if self.path in pages else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        print(mint(sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
