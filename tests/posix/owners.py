"""Times, modes, owners and groups."""

import errno
import os
import stat
import time

from harness import OTHER, USER, case, child, fails, read, same, write


@case
def nanosecond_times():
    write("f", b"")
    for ns in (1234567890123456789, 1, 0, -5_000_000_001, 2**33 * 10**9 + 999_999_999):
        os.utime("f", ns=(ns, ns + 7))
        same((os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns), (ns, ns + 7))
    os.mkdir("d")
    os.utime("d", ns=(11, 22))
    write("d/x", b"")
    assert os.stat("d").st_mtime_ns > 22
    os.symlink("f", "s")
    os.utime("s", ns=(33, 44), follow_symlinks=False)
    same(os.lstat("s").st_mtime_ns, 44)
    write("g", b"x")
    assert abs(os.stat("g").st_mtime_ns - time.time_ns()) < 2 * 10**9, "a new file's time is now"


@case
def times_move_with_writes():
    write("f", b"x" * 10)
    before = os.stat("f")
    time.sleep(0.02)
    write("f", b"y", "ab")
    after = os.stat("f")
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    time.sleep(0.02)
    os.chmod("f", 0o600)
    same(os.stat("f").st_mtime_ns, after.st_mtime_ns)
    assert os.stat("f").st_ctime_ns > after.st_ctime_ns


@case
def setgid_directory():
    os.mkdir("d")
    os.chown("d", 0, OTHER)
    os.chmod("d", 0o2777)
    os.mkdir("d/sub")
    write("d/file", b"")
    same((os.stat("d/sub").st_gid, os.stat("d/file").st_gid), (OTHER, OTHER))
    assert os.stat("d/sub").st_mode & stat.S_ISGID, "a directory inherits setgid"
    child(lambda: write("d/theirs", b""), uid=USER)
    same((os.stat("d/theirs").st_uid, os.stat("d/theirs").st_gid), (USER, OTHER))


@case
def sticky_directory():
    os.mkdir("d")
    os.chmod("d", 0o1777)
    child(lambda: write("d/mine", b""), uid=USER)

    def remove():
        with fails(errno.EPERM, errno.EACCES):
            os.unlink("d/mine")
        with fails(errno.EPERM, errno.EACCES):
            os.rename("d/mine", "d/theirs")

    child(remove, uid=OTHER)
    child(lambda: os.unlink("d/mine"), uid=USER)


@case
def permissions_by_user_and_group():
    write("f", b"secret")
    os.chown("f", USER, 61003)
    os.chmod("f", 0o640)
    os.chmod(".", 0o755)

    def denied():
        with fails(errno.EACCES):
            open("f", "rb").close()
        with fails(errno.EACCES):
            write("new", b"")
        with fails(errno.EPERM):
            os.chmod("f", 0o666)
        with fails(errno.EPERM):
            os.chown("f", OTHER, OTHER)

    same(child(read, "f", uid=USER), b"secret")
    child(denied, uid=OTHER)
    same(child(read, "f", uid=OTHER, groups=[61003]), b"secret")
    os.chmod("f", 0o000)
    same(read("f"), b"secret")  # root


@case
def many_supplementary_groups():
    write("f", b"shared")
    os.chown("f", 0, 62039)
    os.chmod("f", 0o040)
    same(child(read, "f", uid=USER, groups=list(range(62000, 62040))), b"shared")


@case
def setuid_is_dropped_by_a_write():
    for how in ("write", "truncate"):
        write("f", b"x")
        os.chmod("f", 0o6777)
        child(lambda: write("f", b"y", "ab") if how == "write" else os.truncate("f", 0), uid=USER)
        same(stat.S_IMODE(os.stat("f").st_mode), 0o777, f"mode after a stranger's {how}")
    os.chmod("f", 0o6777)
    os.chown("f", OTHER, OTHER)
    same(stat.S_IMODE(os.stat("f").st_mode) & 0o6010 & ~0o2000, 0o010, "mode after chown")
