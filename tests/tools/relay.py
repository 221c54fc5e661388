#!/usr/bin/env python3
"""Hands on TCP connections, for tests: a network that can be cut by killing this.

    relay.py PORT TARGET-PORT      both on 127.0.0.1; until it is killed
"""

import socket
import sys
import threading


def hand_on(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def main():
    port, target = (int(word) for word in sys.argv[1:])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", target), 5)
            server.settimeout(None)
        except OSError:
            client.close()
            continue
        for pair in ((client, server), (server, client)):
            threading.Thread(target=hand_on, args=pair, daemon=True).start()


if __name__ == "__main__":
    main()
