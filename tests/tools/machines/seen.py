"""What one machine has changed, the next operation on any other sees: content, names, modes, sizes, attributes."""

import os
import stat

from program import expect, note, read, write

ROUNDS = 8


class Machine:
    """A mount, with what a program there has open and has read, so that it has copies of all of it."""

    def __init__(self, top):
        self.dir = f"{top}/seen"
        self.held = os.open(f"{self.dir}/file", os.O_RDWR)
        self.list = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)

    def knows(self):
        read(f"{self.dir}/file")
        os.pread(self.held, 1 << 20, 0)
        for name in os.listdir(self.dir):
            os.lstat(f"{self.dir}/{name}")
        os.path.exists(f"{self.dir}/new")

    def content(self):
        return read(f"{self.dir}/file"), os.pread(self.held, 1 << 20, 0), os.fstat(self.held).st_size

    def names(self):
        listed, held = set(os.listdir(self.dir)), set(os.listdir(self.list))
        expect(listed == held, f"{self.dir}: {listed} by name and {held} by descriptor")
        for name in listed:
            os.lstat(f"{self.dir}/{name}")
        return listed


def seen(*tops):
    os.mkdir(f"{tops[0]}/seen")
    write(f"{tops[0]}/seen/file", b"first")
    machines = [Machine(top) for top in tops]
    checks = 0
    for number in range(ROUNDS):
        for writer in machines:
            others = [machine for machine in machines if machine is not writer]
            for change in CHANGES:
                for machine in machines:
                    machine.knows()
                change(number, writer, others)
                checks += len(others)
    note(f"{checks} looks at what another machine had just changed")


def everywhere(others, what, of, wanted):
    for other in others:
        found = of(other)
        expect(found == wanted, f"{what}: {other.dir} shows {str(found)[:200]} for {str(wanted)[:200]}")


def replaced(number, writer, others):
    data = f"{number} {writer.dir}\n".encode() * (1 + number * 700)
    write(f"{writer.dir}/file", data)
    everywhere(others, "content written anew", Machine.content, (data, data, len(data)))


def changed_in_place(number, writer, others):
    data = bytearray(read(f"{writer.dir}/file"))
    data[3:7] = b"%4d" % number  # the same size: nothing but the content says that it was changed
    expect(os.pwrite(writer.held, b"%4d" % number, 3) == 4, "a short write")
    everywhere(others, "content changed in place", Machine.content, (bytes(data), bytes(data), len(data)))


def cut_and_appended(number, writer, others):
    data = read(f"{writer.dir}/file")[: 5 + number]
    os.truncate(f"{writer.dir}/file", len(data))
    everywhere(others, "a file that was cut", Machine.content, (data, data, len(data)))
    data += b"appended"
    write(f"{writer.dir}/file", b"appended", os.O_APPEND)
    everywhere(others, "an appended file", Machine.content, (data, data, len(data)))


def times_set_back(number, writer, others):
    """Content that is changed without a trace in size and times."""
    path = f"{writer.dir}/file"
    before, data = os.stat(path), bytearray(read(path))
    data[0:1] = b"%d" % (number % 10)
    os.pwrite(writer.held, bytes(data[0:1]), 0)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    everywhere(others, "content with its times set back", Machine.content, (bytes(data), bytes(data), len(data)))
    everywhere(others, "times", lambda other: os.stat(f"{other.dir}/file").st_mtime_ns, before.st_mtime_ns)


def names_come_and_go(number, writer, others):
    names = writer.names()
    write(f"{writer.dir}/new", b"new")
    everywhere(others, "a new name", Machine.names, names | {"new"})
    everywhere(others, "content of a new file", lambda other: read(f"{other.dir}/new"), b"new")
    os.rename(f"{writer.dir}/new", f"{writer.dir}/renamed")
    everywhere(others, "a rename", Machine.names, names | {"renamed"})
    everywhere(others, "a name that is gone", lambda other: os.path.exists(f"{other.dir}/new"), False)
    os.link(f"{writer.dir}/renamed", f"{writer.dir}/new")
    everywhere(others, "links", lambda other: os.stat(f"{other.dir}/renamed").st_nlink, 2)
    os.unlink(f"{writer.dir}/new")
    everywhere(others, "an unlinked name", Machine.names, names | {"renamed"})
    everywhere(others, "links", lambda other: os.stat(f"{other.dir}/renamed").st_nlink, 1)
    os.unlink(f"{writer.dir}/renamed")
    everywhere(others, "an unlinked file", Machine.names, names)


def replaced_by_rename(number, writer, others):
    data = f"renamed {number} {writer.dir}".encode()
    write(f"{writer.dir}/beside", data)
    os.rename(f"{writer.dir}/beside", f"{writer.dir}/other")
    everywhere(others, "a file replaced by rename", lambda other: read(f"{other.dir}/other"), data)


def directories(number, writer, others):
    os.makedirs(f"{writer.dir}/new/below")
    everywhere(others, "a directory", lambda other: os.listdir(f"{other.dir}/new"), ["below"])
    os.symlink(f"to {number}", f"{writer.dir}/new/below/link")
    everywhere(others, "a symlink", lambda other: os.readlink(f"{other.dir}/new/below/link"), f"to {number}")
    os.rename(f"{writer.dir}/new/below", f"{writer.dir}/moved")
    everywhere(others, "a moved directory", lambda other: os.listdir(f"{other.dir}/moved"), ["link"])
    everywhere(others, "where it was", lambda other: os.listdir(f"{other.dir}/new"), [])
    os.unlink(f"{writer.dir}/moved/link")
    os.rmdir(f"{writer.dir}/moved")
    os.rmdir(f"{writer.dir}/new")
    everywhere(others, "removed directories", lambda other: os.path.lexists(f"{other.dir}/moved"), False)


def modes_and_owners(number, writer, others):
    path = f"{writer.dir}/file"
    os.chmod(path, 0o600 + number)
    everywhere(others, "a mode", lambda other: stat.S_IMODE(os.fstat(other.held).st_mode), 0o600 + number)
    os.chown(path, 1000 + number, 2000)
    everywhere(others, "an owner", lambda other: os.stat(f"{other.dir}/file").st_uid, 1000 + number)
    os.setxattr(path, "user.number", b"%d" % number)
    everywhere(others, "an attribute", lambda other: os.getxattr(other.held, "user.number"), b"%d" % number)


CHANGES = (
    replaced,
    changed_in_place,
    cut_and_appended,
    times_set_back,
    names_come_and_go,
    replaced_by_rename,
    directories,
    modes_and_owners,
)
