#!/usr/bin/env python3
"""A provider of OpenID Connect, for tests: asks the browser who it is, and believes it.

    provider.py DIR PORT CLIENT-ID SECRET    until it is killed; the key is DIR/issuer.pem, made where it is missing

It gives a token only to who has the secret and the proof (PKCE) that belong to the code. A user `mallory` gets a token
that is for another service.
"""

import base64
import hashlib
import http.server
import json
import secrets
import sys
import time
import urllib.parse

from issuer import keys, mint

DIR, PORT, CLIENT, SECRET = sys.argv[1:]
URL = f"http://127.0.0.1:{PORT}/"
CODES = {}
PAGE = """<!DOCTYPE html><title>Example</title><form action="/chosen"><input type=hidden name=request value="{}">
<label>User <input name=user></label><button>Log in</button></form>"""


def field(text):
    return {name: values[0] for name, values in urllib.parse.parse_qs(text).items()}


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, kind, text, **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        path, _, query = self.path.partition("?")
        fields = field(query)
        if path == "/.well-known/openid-configuration":
            found = {"issuer": URL, "jwks_uri": URL + "jwk", "authorization_endpoint": URL + "authorize", "token_endpoint": URL + "token"}
            self.answer(200, "application/json", json.dumps(found))
        elif path == "/jwk":
            self.answer(200, "application/json", json.dumps(keys(DIR)))
        elif path == "/authorize":
            request = base64.urlsafe_b64encode(query.encode()).decode()
            good = fields["client_id"] == CLIENT and fields["response_type"] == "code" and "openid" in fields["scope"]
            self.answer(200 if good else 400, "text/html", PAGE.format(request))
        elif path == "/chosen":
            request = field(base64.urlsafe_b64decode(fields["request"]).decode())
            back = {"state": request["state"]}
            if fields.get("user"):
                back["code"] = secrets.token_urlsafe()
                CODES[back["code"]] = (request, fields["user"])
            else:
                back |= {"error": "access_denied", "error_description": "<script>no</script>"}
            self.answer(302, "text/plain", "", location=request["redirect_uri"] + "?" + urllib.parse.urlencode(back))
        else:
            self.answer(404, "text/plain", "")

    def do_POST(self):
        fields = field(self.rfile.read(int(self.headers["content-length"])).decode())
        request, user = CODES.pop(fields["code"], ({}, ""))
        proof = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        pair = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode().split(":", 1)
        good = [urllib.parse.unquote(part) for part in pair] == [CLIENT, SECRET] and proof == request.get("code_challenge")
        if self.path != "/token" or not good or fields["redirect_uri"] != request["redirect_uri"]:
            return self.answer(400, "application/json", json.dumps({"error": "invalid_grant"}))
        claims = {"iss": URL, "aud": "another" if user == "mallory" else CLIENT, "nonce": request["nonce"], "preferred_username": user, "iat": int(time.time())}
        self.answer(200, "application/json", json.dumps({"id_token": mint(DIR, PORT, claims).strip(), "token_type": "Bearer", "access_token": "x"}))

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Handler).serve_forever()
