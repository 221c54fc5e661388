"""Names, links, special files, renames, and files that lost their name while they are open."""

import errno
import os
import shutil
import socket
import stat
import time

from harness import (
    AT_FDCWD,
    AT_SYMLINK_FOLLOW,
    FORK,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    Skip,
    case,
    fails,
    libc,
    read,
    renameat2,
    same,
    write,
)


@case
def names_of_255_bytes():
    for name in (b"n" * 255, "ü".encode() * 127 + b"x", b"\xff\xfe not unicode \x01\n"):
        write(name, name)
        same(read(name), name)
        assert name in os.listdir(b".")
    for make in (lambda n: write(n, b""), os.mkdir, lambda n: os.symlink("t", n), os.mkfifo):
        with fails(errno.ENAMETOOLONG):
            make("n" * 256)
    with fails(errno.ENAMETOOLONG):
        os.stat("n" * 256)
    with fails(errno.ENAMETOOLONG):
        os.rename(b"n" * 255, b"m" * 256)


@case
def deep_tree():
    top, depth = os.getcwd(), 400
    for level in range(depth):
        os.mkdir("directory")
        os.chdir("directory")
    write("bottom", b"deep")
    same(len(os.getcwd()), len(top) + depth * 10)
    os.chdir(top)
    shutil.rmtree("directory")


@case
def hard_links():
    write("a", b"one")
    for i in range(100):
        os.link("a", f"link{i}")
    same(os.stat("a").st_nlink, 101)
    same(os.stat("link7").st_ino, os.stat("a").st_ino)
    write("link9", b" two", "ab")
    same(read("a"), b"one two")
    before = os.stat("a").st_ctime_ns
    time.sleep(0.02)
    os.unlink("link0")
    same(os.stat("a").st_nlink, 100)
    assert os.stat("a").st_ctime_ns > before, "unlink of a link changes ctime"
    os.mkdir("d")
    with fails(errno.EPERM):
        os.link("d", "e")
    os.rename("link1", "link2")  # two names of one inode: nothing happens, both stay
    assert os.path.exists("link1") and os.path.exists("link2")


@case
def link_of_symlink():
    os.symlink("nowhere", "s")
    os.link("s", "t", follow_symlinks=False)
    same(os.readlink("t"), "nowhere")
    same(os.lstat("s").st_nlink, 2)


@case
def symlinks():
    for target in ("x", "../" * 300, "y" * 4095):
        os.symlink(target, "s")
        same(os.readlink("s"), target)
        same(os.lstat("s").st_size, len(target))
        os.unlink("s")
    with fails(errno.ENOENT, errno.EINVAL):
        os.symlink("", "s")
    os.symlink("loop", "loop")
    with fails(errno.ELOOP):
        os.stat("loop")


@case
def special_files():
    os.mkfifo("fifo", 0o640)
    os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod("block", 0o600 | stat.S_IFBLK, os.makedev(259, 1048575))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    for name, test in (("fifo", stat.S_ISFIFO), ("null", stat.S_ISCHR), ("block", stat.S_ISBLK), ("socket", stat.S_ISSOCK)):
        assert test(os.stat(name).st_mode), name
    same(os.stat("null").st_rdev, os.makedev(1, 3))
    same(os.stat("block").st_rdev, os.makedev(259, 1048575))
    listener.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("socket")
    client.send(b"hello")
    same(listener.accept()[0].recv(9), b"hello")

    writer = FORK.Process(target=lambda: write("fifo", b"through the pipe"))
    writer.start()
    same(read("fifo"), b"through the pipe")
    writer.join()


@case
def rename_flags():
    write("a", b"a")
    write("b", b"b")
    with fails(errno.EEXIST):
        renameat2("a", "b", RENAME_NOREPLACE)
    renameat2("a", "c", RENAME_NOREPLACE)
    renameat2("b", "c", RENAME_EXCHANGE)
    same((read("b"), read("c")), (b"a", b"b"))
    os.makedirs("d/below")
    renameat2("d", "b", RENAME_EXCHANGE)
    same(read("d"), b"a")
    assert os.path.isdir("b/below")
    with fails(errno.ENOENT):
        renameat2("b", "missing", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2("b", "b/below", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2("b", "c", RENAME_EXCHANGE | RENAME_NOREPLACE)


@case
def rename_exchange_of_directories():
    os.makedirs("p/x/inside")
    os.makedirs("q")
    write("q/y", b"y")
    renameat2("p/x", "q/y", RENAME_EXCHANGE)
    same((os.stat("p").st_nlink, os.stat("q").st_nlink), (2, 3), "link counts after a directory moved")
    assert os.path.isdir("q/y/inside")
    same(os.stat("q/y/..").st_ino, os.stat("q").st_ino, "the parent of the moved directory")


@case
def rename_rules():
    os.makedirs("a/b/c")
    with fails(errno.EINVAL):
        os.rename("a", "a/b/c/d")
    os.makedirs("full/x")
    os.mkdir("empty")
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rename("a", "full")
    os.rename("a", "empty")
    assert os.path.isdir("empty/b/c")
    write("file", b"")
    with fails(errno.EISDIR):
        os.rename("file", "full")
    with fails(errno.ENOTDIR):
        os.rename("full", "file")


@case
def rename_over_open_file():
    write("old", b"old")
    fd = os.open("old", os.O_RDWR)
    write("new", b"new")
    os.rename("new", "old")
    same(os.read(fd, 9), b"old")
    same(os.fstat(fd).st_nlink, 0)
    os.pwrite(fd, b"still writable", 0)
    same(os.pread(fd, 99, 0), b"still writable")
    same(read("old"), b"new")
    os.close(fd)


@case
def unlinked_but_open():
    fd = os.open("gone", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 300000)
    os.unlink("gone")
    same(os.fstat(fd).st_nlink, 0)
    os.ftruncate(fd, 5)
    os.pwrite(fd, b"tail", 1 << 20)
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    same(os.pread(fd, 5, 0), b"xxxxx")
    same(os.pread(fd, 9, 1 << 20), b"tail")
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # opened anew, without a name
    os.close(fd)
    same(os.pread(again, 9, 1 << 20), b"tail")
    os.close(again)
    with fails(errno.ENOENT):
        os.stat("gone")


@case
def removed_working_directory():
    top = os.getcwd()
    os.mkdir("d")
    os.chdir("d")
    os.rmdir(f"{top}/d")
    same(os.listdir("."), [])
    with fails(errno.ENOENT):
        write("file", b"")
    os.chdir(top)


@case
def directory_link_counts():
    for i in range(20):
        os.mkdir(f"d{i}")
    same(os.stat(".").st_nlink, 22)
    for i in range(10):
        os.rmdir(f"d{i}")
    same(os.stat(".").st_nlink, 12)
    os.mkdir("other")
    os.rename("d11", "other/d11")
    same((os.stat(".").st_nlink, os.stat("other").st_nlink), (12, 3))


@case
def o_tmpfile():
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        raise Skip("no O_TMPFILE here (EOPNOTSUPP: programs fall back to a named file)") from error
    os.write(fd, b"unnamed")
    libc("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"named", AT_SYMLINK_FOLLOW)
    same(read("named"), b"unnamed")
    os.close(fd)
