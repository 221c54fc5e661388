#!/usr/bin/env python3
"""A strict little S3 server in memory, to test what asks such servers: every signature and every digest is checked.

    s3_server.py PORT_FILE [--tls CERT KEY] [--connections-max N] [--names FILE]

Writes its port to PORT_FILE; ends with SIGTERM, and then writes the names of all objects to the file of --names. More connections than
the maximum are answered 503. Access key `test`, secret `secret`, region us-east-1, one bucket `bucket`.
"""

import argparse
import hashlib
import hmac
import re
import signal
import ssl
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KEY, SECRET, REGION, BUCKET = "test", "secret", "us-east-1", "bucket"
OBJECTS, LOCK = {}, threading.Lock()
OPEN = set()


def signature(handler, scope, signed):
    path, _, query = handler.path.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    quote = lambda text, safe="": urllib.parse.quote(text, safe=safe)
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)
    headers = "".join(f"{name}:{handler.headers[name].strip()}\n" for name in signed.split(";"))
    canonical = "\n".join([handler.command, quote(urllib.parse.unquote(path), "/"), query, headers, signed, handler.headers["x-amz-content-sha256"]])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", handler.headers["x-amz-date"], scope, digest])
    return hmac.new(key, text.encode(), "sha256").hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version, most = "HTTP/1.1", 1 << 30
    disable_nagle_algorithm, wbufsize = True, 1 << 16

    def setup(self):
        super().setup()
        with LOCK:
            OPEN.add(self)

    def finish(self):
        with LOCK:
            OPEN.discard(self)
        super().finish()

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.say(status, f"<Error><Code>{code}</Code></Error>".encode() if self.command != "HEAD" else b"")

    def why_refused(self, body):
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\S+), SignedHeaders=(\S+), Signature=(\w+)", self.headers.get("Authorization", ""))
        if not found or found[1] != KEY or found[2].split("/")[1:] != [REGION, "s3", "aws4_request"]:
            return "InvalidAccessKeyId"
        if "host" not in found[3].split(";") or signature(self, found[2], found[3]) != found[4]:
            return "SignatureDoesNotMatch"
        said = self.headers["x-amz-content-sha256"]
        return None if said in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()) else "XAmzContentSHA256Mismatch"

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        why = self.why_refused(body)
        if why:
            return self.error(403, why)
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return self.error(404, "NoSuchBucket")
        if len(OPEN) > Handler.most and self.command in ("PUT", "GET") and key:
            return self.error(503, "SlowDown")
        if not key:
            return self.list(dict(urllib.parse.parse_qsl(query)))
        with LOCK:
            if self.command == "PUT":
                OBJECTS[key] = body
            elif self.command == "DELETE":
                OBJECTS.pop(key, None)
            held = OBJECTS.get(key)
        if self.command in ("PUT", "DELETE"):
            return self.say(200 if self.command == "PUT" else 204)
        if held is None:
            return self.error(404, "NoSuchKey")
        return self.say(200, b"", len(held)) if self.command == "HEAD" else self.say(200, held)

    def list(self, asked):
        with LOCK:
            names = sorted(n for n in OBJECTS if n.startswith(asked.get("prefix", "")) and n > asked.get("start-after", ""))
        names = names[: int(asked.get("max-keys", 1000))]
        entries = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names)
        self.say(200, f"<?xml version='1.0'?><ListBucketResult>{entries}</ListBucketResult>\n".encode())

    do_GET = do_PUT = do_HEAD = do_DELETE = serve


class Server(ThreadingHTTPServer):
    request_queue_size, daemon_threads = 4096, True

    def handle_error(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file", type=Path)
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--connections-max", type=int, default=1 << 30)
    parser.add_argument("--names", type=Path)
    opts = parser.parse_args()
    Handler.most = opts.connections_max
    server = Server(("127.0.0.1", 0), Handler)
    if opts.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*opts.tls)
        # handshakes belong to the threads of the connections, not to the one that accepts
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    opts.port_file.write_text(str(server.server_port))
    try:
        server.serve_forever()
    finally:
        if opts.names:
            opts.names.write_text("".join(f"{name}\n" for name in OBJECTS))


main()
