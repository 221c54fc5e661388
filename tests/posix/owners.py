"""Times, modes, owners and groups."""

import errno
import os
import stat
import struct
import subprocess
import tempfile
import time

from harness import OTHER, USER, case, child, fails, fallocate, read, same, write


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


GROUP = 7007
CAPABILITY = "security.capability"
# as setcap writes it: version 2, effective, one permitted
NET_ADMIN = struct.pack("<5I", 0x02000001, 1 << 12, 0, 0, 0)
SPECIAL = (0, 0o2000, 0o4000, 0o6000)
BITS = (0o777, 0o776, 0o767, 0o766, 0o666, 0o665, 0o677)


def _acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


def _set_acl(path, *more):
    entries = [(0x01, 7, 2**32 - 1), (0x04, 7, 2**32 - 1), (0x20, 6, 2**32 - 1), *more]
    os.setxattr(path, "system.posix_acl_access", _acl(*sorted(entries)))


def _opened(flags, change):
    def operation(path):
        fd = os.open(path, flags)
        try:
            change(fd)
        finally:
            os.close(fd)

    return operation


def _copied(path):
    with open(path + ".from", "rb") as source, open(path, "r+b") as target:
        os.copy_file_range(source.fileno(), target.fileno(), 8)


SET_ID_OPERATIONS = {
    "nothing": lambda path: None,
    "write": _opened(os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "write nothing": _opened(os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "append": _opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "truncate": lambda path: os.truncate(path, 2),
    "extend": lambda path: os.truncate(path, 2000),
    "same size": lambda path: os.truncate(path, 8),
    "open to truncate": _opened(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "allocate": _opened(os.O_WRONLY, lambda fd: fallocate(fd, 0, 0, 100_000)),
    "punch": _opened(os.O_WRONLY, lambda fd: fallocate(fd, 3, 0, 4)),
    "copy": _copied,
    "times": lambda path: os.utime(path),
    "attribute": lambda path: os.setxattr(path, "user.x", b"y"),
    "same mode": lambda path: os.chmod(path, stat.S_IMODE(os.stat(path).st_mode)),
    "other mode": lambda path: os.chmod(path, 0o6771),
    "same owner": lambda path: os.chown(path, os.stat(path).st_uid, -1),
    "same group": lambda path: os.chown(path, -1, os.stat(path).st_gid),
    "own group": lambda path: os.chown(path, -1, os.getgid()),
    "plain acl": _set_acl,
    "acl": lambda path: _set_acl(path, (0x02, 7, 4711), (0x10, 7, 2**32 - 1)),
    "no acl": lambda path: os.removexattr(path, "system.posix_acl_access"),
    "rename": lambda path: os.rename(path, path),
    "link": lambda path: os.link(path, path + ".link"),
}
WHO = {
    "root": dict(uid=0, gid=0),
    "owner in the group": dict(uid=USER, gid=USER, groups=(GROUP,)),
    "owner with the group": dict(uid=USER, gid=GROUP),
    "owner not in the group": dict(uid=USER, gid=USER),
    "another in the group": dict(uid=OTHER, gid=OTHER, groups=(GROUP,)),
    "another": dict(uid=OTHER, gid=OTHER),
}


def _set_ids_after(top):
    """What becomes of the bits and of capabilities below a directory, by who, mode and operation."""
    made = {}
    os.chmod(top, 0o777)
    for number, who in enumerate(WHO):
        for name, operation in SET_ID_OPERATIONS.items():
            for mode in (special | bits for special in SPECIAL for bits in BITS):
                path = f"{top}/{number}.{name}.{mode:o}"
                for made_path in (path, path + ".from"):
                    write(made_path, b"12345678")
                    os.chown(made_path, USER, GROUP)
                os.chmod(path + ".from", 0o644)
                os.chmod(path, mode)
                os.setxattr(path, CAPABILITY, NET_ADMIN)
                made[who, name, oct(mode)] = path
        directory = f"{top}/{number}"
        os.mkdir(directory)
        os.chown(directory, USER, GROUP)
        os.chmod(directory, 0o2777)

    def operate(who, directory):
        os.umask(0)
        errors = {}
        for (whose, name, mode), path in made.items():
            if whose == who:
                try:
                    SET_ID_OPERATIONS[name](path)
                except OSError as e:
                    errors[whose, name, mode] = e.errno
        # in a directory that hands its group down
        for special in SPECIAL:
            for bits in (0o775, 0o664):
                path = f"{directory}/{special | bits:o}"
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, special | bits))
                with open(path, "ab") as file:
                    errors[who, "made", path.rsplit("/", 1)[1]] = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                    file.write(b"x")
                errors[who, "made and written", path.rsplit("/", 1)[1]] = stat.S_IMODE(os.stat(path).st_mode)
                os.mkdir(path + ".dir", special | bits)
                os.chmod(path + ".dir", special | bits)
                errors[who, "dir", path.rsplit("/", 1)[1]] = stat.S_IMODE(os.stat(path + ".dir").st_mode)
                _set_acl(path + ".dir")
                errors[who, "dir with acl", path.rsplit("/", 1)[1]] = stat.S_IMODE(os.stat(path + ".dir").st_mode)
        return errors

    after = {}
    for number, (who, ids) in enumerate(WHO.items()):
        after.update(child(operate, who, f"{top}/{number}", **ids))
    # who asks for the mode alone gets what the kernel has
    alone = subprocess.check_output(["stat", "-c", "%a", *made.values()], text=True).split()
    for (key, path), mode in zip(made.items(), alone):
        kept = CAPABILITY in os.listxattr(path)
        after[key] = (after.get(key), mode, oct(stat.S_IMODE(os.stat(path).st_mode)), kept)
    return after


@case
def set_ids_fall_as_on_the_local_disk():
    os.mkdir("here")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as local:
        # the process's own directory is not the way to it for others
        os.chmod(local, 0o755)
        wanted = _set_ids_after(local)
    found = _set_ids_after(os.path.abspath("here"))
    wrong = {key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]}
    same(len(found), len(wanted))
    shown = [f"{' / '.join(key)}: {is_now}, on the local disk {was}" for key, (is_now, was) in wrong.items()]
    assert not wrong, f"{len(wrong)} of {len(wanted)} differ: " + "; ".join(shown[:12])
