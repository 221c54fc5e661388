"""Makes a tree with everything that a file system can have, for the tests of import and export: make_tree.py DIRECTORY
[LEVELS]: how deep it is. Needs root and extended attributes."""

import os
import random
import socket
import struct
import sys

NAMES = [
    b"plain", b"with blank", b"-dash", b"new\nline", b"back\\slash", b"return\r", b"quote'\"", "gr\u00fc\u00dfe \u4e16".encode(), b"\xff\xfe raw",
    b"n" * 255, b"\xc3\xa9" * 120, b"\xff" * 200, b"tab\t", b"*?[x]", b"%41=b", b" ",
]


def write(path, data, at=0):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    os.pwrite(fd, data, at)
    os.close(fd)


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def contents(noise):
    write("empty", b"")
    write("small", b"small\n")
    write("blocks", noise.randbytes(512 * 8))
    write("large", noise.randbytes(3_000_001))
    write("hole-first", b"end", at=1 << 20)
    write("hole-inside", noise.randbytes(65536))
    write("hole-inside", noise.randbytes(65536), at=1 << 22)
    write("hole-last", noise.randbytes(131072))
    os.truncate("hole-last", 10 << 20)
    write("all-hole", b"")
    os.truncate("all-hole", (5 << 20) + 7)
    write("many-holes", b"")
    for n in range(60):
        write("many-holes", noise.randbytes(65536), at=n << 18)


def names(noise, levels):
    os.mkdir("names")
    for name in NAMES:
        write(b"names/" + name, noise.randbytes(100))
        os.symlink(name, b"names/l" + name[:200])
    os.mkdir("deep")
    here = os.open(".", os.O_RDONLY)
    os.chdir("deep")
    for n in range(levels):
        os.mkdir("d%02d" % n + "x" * 100)
        os.chdir("d%02d" % n + "x" * 100)
        write("file", b"%d" % n)
    os.fchdir(here)
    os.close(here)


def links():
    os.mkdir("links")
    write("links/first", b"linked")
    os.link("links/first", "links/second")
    os.link("links/first", "a-third")
    os.symlink("../small", "links/symbolic")
    os.link("links/symbolic", "links/symbolic-too", follow_symlinks=False)
    os.symlink("x" * 3000, "links/long")
    os.symlink(b"\xff" * 150, b"links/raw")
    os.symlink("nowhere", "links/dangling")
    os.mkfifo("fifo", 0o640)
    os.link("fifo", "links/fifo")
    os.mknod("null", 0o666 | 0o020000, os.makedev(1, 3))
    os.mknod("block", 0o600 | 0o060000, os.makedev(259, 70000))
    socket.socket(socket.AF_UNIX).bind("socket")


def attributes():
    os.mkdir("attributes")
    os.chdir("attributes")
    write("user", b"x")
    os.setxattr("user", "user.text", b"text")
    os.setxattr("user", "user.binary", bytes(range(256)))
    os.setxattr("user", "user.empty", b"")
    os.setxattr("user", "user.a=b%c", b"=\n")
    os.setxattr("user", "trusted.t", b"root's")
    write("capable", b"x")
    os.setxattr("capable", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    none = 2**32 - 1
    access = acl((1, 6, none), (2, 4, 1000), (2, 7, 3000000), (4, 4, none), (8, 5, 77), (16, 7, none), (32, 0, none))
    write("acl", b"x")
    os.setxattr("acl", "system.posix_acl_access", access)
    os.mkdir("inherits")
    os.setxattr("inherits", "user.of-directory", b"d")
    write("inherits/before", b"made before the default ACL")
    os.setxattr("inherits", "system.posix_acl_default", access)
    write("inherits/after", b"made after the default ACL")
    for mode in (0o000, 0o4755, 0o2755, 0o1644, 0o444):
        write("mode%o" % mode, b"x")
        os.chmod("mode%o" % mode, mode)
    for mode in (0o1777, 0o2770, 0o000, 0o555):
        os.mkdir("dir%o" % mode)
        write("dir%o/in" % mode, b"x")
        os.chmod("dir%o" % mode, mode)
    for owner in ((1000, 2000), (3000000, 4000000), (65534, 2097151)):
        write("owner%d" % owner[0], b"x")
        os.chown("owner%d" % owner[0], *owner)
    os.symlink("x", "owned-link")
    os.lchown("owned-link", 1234, 5678)
    os.chdir("..")


def times():
    os.mkdir("times")
    for n, ns in enumerate([0, 1, 1_234_567_890_123_456_789, -1_500_000_000, -2_000_000_000, 2**33 * 10**9, 1_000_000_000_500_000_000]):
        write("times/t%d" % n, b"x")
        os.utime("times/t%d" % n, ns=(ns, ns))
    os.symlink("x", "times/link")
    os.utime("times/link", ns=(5, 1_000_000_000_000_000_007), follow_symlinks=False)
    os.mkdir("times/dir")
    write("times/dir/file", b"x")
    os.utime("times/dir", ns=(5, 1_100_000_000_000_000_009))


os.umask(0o022)
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
noise = random.Random(7)
contents(noise)
names(noise, int(sys.argv[2]))
links()
attributes()
times()
os.setxattr(".", "user.root", b"of the root")
os.chown(".", 10, 20)
os.utime(".", ns=(7, 1_200_000_000_000_000_011))
