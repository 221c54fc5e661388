"""As many connections to a door with TLS as it takes, and one more, which is told so. Run by tests/suites/s3.sh."""

import socket
import ssl
import sys
import time

PORT, MOST = int(sys.argv[1]), int(sys.argv[2])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE


def connect():
    return context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), timeout=60))


def status(client):
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = b""
    while piece := client.recv(4096):
        answer += piece
    return answer.split(b"\r\n")[0]


held = [connect() for _ in range(MOST)]
for _ in range(3):
    with connect() as one_more:
        assert status(one_more) == b"HTTP/1.1 503 Service Unavailable"
assert status(held.pop()) == b"HTTP/1.1 403 Forbidden", "who is in is served"
for _ in range(100):
    with connect() as next_one:
        answer = status(next_one)
    if answer == b"HTTP/1.1 403 Forbidden":
        break
    time.sleep(0.1)
else:
    sys.exit(f"there is a place, and the door says {answer}")
