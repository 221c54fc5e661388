"""Extended attributes, access control lists, and what statfs tells."""

import errno
import os
import random
import stat
import subprocess

from harness import ON_CELL, OTHER, USER, case, child, fails, read, same, write


@case
def xattrs():
    write("f", b"")
    for name in ("user.a", "trusted.b", "security.c"):
        os.setxattr("f", name, b"value \0 of any bytes")
        same(os.getxattr("f", name), b"value \0 of any bytes")
    same(sorted(os.listxattr("f")), ["security.c", "trusted.b", "user.a"])
    os.setxattr("f", "user.a", b"", os.XATTR_REPLACE)
    same(os.getxattr("f", "user.a"), b"")
    with fails(errno.EEXIST):
        os.setxattr("f", "user.a", b"x", os.XATTR_CREATE)
    with fails(errno.ENODATA):
        os.setxattr("f", "user.new", b"x", os.XATTR_REPLACE)
    with fails(errno.ENODATA):
        os.getxattr("f", "user.new")
    with fails(errno.ENODATA):
        os.removexattr("f", "user.new")
    for name in ("nonsense.x", "user", "user."):
        with fails(errno.EOPNOTSUPP, errno.EINVAL):
            os.setxattr("f", name, b"x")
        with fails(errno.EOPNOTSUPP, errno.EINVAL):
            os.getxattr("f", name)
    with fails(errno.ERANGE):
        os.setxattr("f", "user." + "n" * 251, b"x")
    os.removexattr("f", "user.a")
    same(sorted(os.listxattr("f")), ["security.c", "trusted.b"])
    os.chmod("f", 0o644)
    child(_xattr_rights, uid=USER)


def _xattr_rights():
    same(os.listxattr("f"), ["security.c"], "trusted attributes are for root")
    with fails(errno.EACCES, errno.EPERM):
        os.setxattr("f", "user.a", b"x")
    with fails(errno.EPERM, errno.ENODATA):
        os.getxattr("f", "trusted.b")


@case
def xattrs_many_and_large():
    os.mkdir("d")
    size = 60000 if ON_CELL else 3000
    os.setxattr("d", "user.large", b"v" * size)
    same(len(os.getxattr("d", "user.large")), size)
    with fails(errno.E2BIG, errno.ENOSPC):
        os.setxattr("d", "user.larger", b"v" * 65537)
    for i in range(500 if ON_CELL else 10):
        os.setxattr("d", f"user.n{i}", b"%d" % i)
    same(len(os.listxattr("d")), 501 if ON_CELL else 11)
    os.symlink("d", "s")
    with fails(errno.EPERM):
        os.setxattr("s", "user.a", b"x", follow_symlinks=False)
    with fails(errno.ENODATA):
        os.getxattr("s", "user.a", follow_symlinks=False)


def setfacl(*arguments):
    subprocess.run(["setfacl", *arguments], check=True)


def getfacl(path):
    output = subprocess.run(["getfacl", "-cnpE", path], check=True, capture_output=True, text=True).stdout
    return output.split()


@case
def acl_gives_and_takes_access():
    write("f", b"acl")
    os.chmod("f", 0o600)
    setfacl("-m", f"u:{USER}:r,g:{OTHER}:rw", "f")
    same(getfacl("f"), ["user::rw-", f"user:{USER}:r--", "group::---", f"group:{OTHER}:rw-", "mask::rw-", "other::---"])
    same(stat.S_IMODE(os.stat("f").st_mode), 0o660, "the group bits show the mask")
    same(child(read, "f", uid=USER), b"acl")

    def may_not_write():
        with fails(errno.EACCES):
            write("f", b"")

    child(may_not_write, uid=USER)
    child(lambda: write("f", b"acl", "r+b"), uid=OTHER)
    os.chmod("f", 0o640)  # now the mask is r--
    child(may_not_write, uid=OTHER)
    setfacl("-b", "f")
    same(getfacl("f"), ["user::rw-", "group::---", "other::---"])


@case
def default_acl_is_inherited():
    os.mkdir("d")
    setfacl("-d", "-m", f"u::rwx,g::rx,o::-,u:{USER}:rwx", "d")
    os.mkdir("d/sub", 0o777)
    write("d/f", b"")
    same(
        getfacl("d/sub"),
        ["user::rwx", f"user:{USER}:rwx", "group::r-x", "mask::rwx", "other::---",
         "default:user::rwx", f"default:user:{USER}:rwx", "default:group::r-x", "default:mask::rwx", "default:other::---"],
    )  # fmt: skip
    same(getfacl("d/f"), ["user::rw-", f"user:{USER}:rwx", "group::r-x", "mask::rw-", "other::---"])
    child(lambda: write("d/sub/theirs", b""), uid=USER)
    old = os.umask(0o077)
    try:
        write("d/g", b"")
    finally:
        os.umask(old)
    same(getfacl("d/g")[1], f"user:{USER}:rwx", "entry despite the umask")
    same(stat.S_IMODE(os.stat("d/g").st_mode), 0o660, "a default ACL takes the umask's place")


@case
def statfs_is_plausible():
    before = os.statvfs(".")
    same(before.f_namemax, 255)
    assert 0 < before.f_bavail <= before.f_bfree <= before.f_blocks
    assert before.f_files > 0 and before.f_ffree > 0
    assert any(space_falls(turn) for turn in range(5)), "32 MiB written, free space fell by less than half of it, five times"


def space_falls(turn):
    """Whether what is written is seen. Others may give space of the same disk back meanwhile."""
    before = os.statvfs(".")
    write(f"f{turn}", random.Random(turn).randbytes(32 << 20))
    os.sync()
    fell = (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize
    print(f"32 MiB written, free space fell by {fell} bytes")
    return fell >= 16 << 20
