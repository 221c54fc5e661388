#!/usr/bin/env python3
"""Damage to every kind of file that a cell has, and what becomes of the cell.

    rot.py LEE WORK FROM..TO [TEMPLATE/KIND/DAMAGE]   one round for each seed, of this case or of all in turn
    rot.py LEE WORK list                              which kinds of files the templates have
    rot.py read DIR                                   (by itself) all that is in DIR, as JSON

Three templates are made once, on a small disk in memory: a cell that was ended in order, one that was killed, and one
whose metadata has gone to tables; and of each an older copy. A round copies a template, damages one file, then runs `lee fsck`, `lee up`, reads everything, and asks fsck again. Either
all is right (*unaffected*, or repaired from redundancy), or it is refused with a clear word: `lee up` ends and names the
file, or reads are EIO and fsck fails. Wrong or missing content without a word, a hang, or a panic fails the round. The
seed says which file, where in it, and how; the order of kinds and damages is fixed, so seeds below ROUNDS are all
different.
"""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys

from trial import Cell, Failed, expect, first_lines, unmount

READ_SECS_MAX = 60
DISK_MIB = 128  # so small that the journal is, too
BLOCK = 4096

# Kinds of files: name and what paths below the template are of it.
KINDS = {
    "cell": r"cell/cell",
    "settings": r"cell/leeward\.toml",
    "lock": r"cell/lock",
    "reserve": r"cell/meta/meta/reserve",
    "journal": r"cell/meta/meta/journal-\d+",
    "spare": r"cell/meta/meta/spare-\d+",
    "current": r"cell/meta/tables/current",
    "manifest": r"cell/meta/tables/v\d+",
    "table": r"cell/meta/tables/tables/\d+",
    "object": r"cell/data/../[0-9a-f]{16}\.\d+",
    "mirror-label": r"stores/mirror/\d/../0{16}\.4294967295",
    "mirror-piece": r"stores/mirror/\d/../[0-9a-f]{16}\.\d{1,9}",
    "coded-label": r"stores/coded/\d/../0{16}\.4294967295",
    "coded-piece": r"stores/coded/\d/../[0-9a-f]{16}\.\d{1,9}",
}
REDUNDANT = {"mirror-piece", "coded-piece"}
DAMAGES = ["bit", "block", "zeros", "empty", "half", "short", "gone", "swapped", "old"]
TEMPLATES = ["ended", "killed", "tables"]

# Findings that are not mended yet, by TEMPLATE/KIND/DAMAGE: what becomes of it, and it is not counted.
KNOWN = {
    r".*/journal/old": "an older copy of the newest journal file is what a power cut may leave (docs/SEMANTICS.md)",
}


def rounds():
    """All rounds, in an order that mixes them and never changes."""
    every = [(template, kind, damage) for template in TEMPLATES for kind in KINDS for damage in DAMAGES]
    random.Random(0).shuffle(every)
    return every


# Reading


def read_all(top):
    """Everything below `top`, snapshots included: what it is, and an error where it cannot be read."""
    found = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        name = os.path.relpath(path, top)
        try:
            found[name], below = read_one(path)
            waiting.extend(below)
        except OSError as e:
            found[name] = f"error {errno.errorcode[e.errno]}"
    return found


def read_one(path):
    s = os.lstat(path)
    about = [stat.filemode(s.st_mode), s.st_uid, s.st_size, s.st_nlink, s.st_mtime_ns]
    if stat.S_ISLNK(s.st_mode):
        return [*about, os.readlink(path)], []
    about.append({name: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path)) if name.startswith("user.")})
    if stat.S_ISDIR(s.st_mode):
        names = sorted(os.listdir(path))
        below = [f"{path}/{name}" for name in names]
        if "/.snap" not in path:
            below += [f"{path}/.snap/{name}" for name in sorted(os.listdir(f"{path}/.snap")) if not name.startswith("_")]
        return [*about, names], below
    with open(path, "rb", buffering=0) as file:
        return [*about, hashlib.file_digest(file, "sha256").hexdigest()], []


def all_of(cell):
    """Content of the mount, and what commands say of it."""
    try:
        done = subprocess.run([sys.executable, __file__, "read", cell.mnt], capture_output=True, text=True, timeout=READ_SECS_MAX)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"reading everything did not end within {READ_SECS_MAX} s") from e
    expect(done.returncode == 0, f"reading everything: {done.stderr}")
    found = json.loads(done.stdout)
    for words in (["quota", "list"], ["volume", "list"], ["snap", "list"]):
        status, said = cell.command(*words, "--json")
        found["$ " + " ".join(words)] = said if status == 0 else "error EIO"
    return found


# Templates


class Content:
    """Files whose bytes follow from a seed."""

    def __init__(self, top, seed):
        self.top, self.rng = top, random.Random(seed)

    def write(self, name, size):
        os.makedirs(os.path.dirname(f"{self.top}/{name}"), exist_ok=True)
        with open(f"{self.top}/{name}", "wb") as file:
            file.write(self.rng.randbytes(size) if self.rng.random() < 0.5 else (b"%d " % self.rng.getrandbits(30) * size)[:size])
        os.setxattr(f"{self.top}/{name}", "user.seed", b"%d" % self.rng.getrandbits(30))

    def some(self, directory, count):
        for number in range(count):
            self.write(f"{directory}/d{number % 4}/f{number}", self.rng.choice((0, 1, 3000, 4096, 60_000, 300_000)))


class Trial:
    def __init__(self, lee, work):
        self.lee, self.work, self.disk, self.live = lee, work, f"{work}/disk", f"{work}/disk/live"
        os.makedirs(self.disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", self.disk], check=True)
        self.cell = Cell(lee, f"{self.live}/cell", f"{work}/mnt", f"{work}/lee.log")
        self.expected = {}

    def end(self):
        self.cell.end()
        unmount(self.disk)

    def make_templates(self):
        os.makedirs(self.live)
        self.first_moment()
        self.keep("before-ended")
        self.second_moment()
        self.keep("ended")
        self.third_moment()
        self.fourth_moment()

    def up(self):
        expect(self.cell.start(), f"lee up refused:\n{self.cell.said()}")

    def first_moment(self):
        cell, content = self.cell, Content(self.cell.mnt, 1)
        self.up()
        for pool, layout, count in (("mirror", "replica(2)", 2), ("coded", "erasure(2+1)", 3)):
            stores = [f"{self.live}/stores/{pool}/{n}" for n in range(count)]
            for store in stores:
                os.makedirs(store)
            cell.must("pool", "create", pool, "--layout", layout, "--force", *(w for s in stores for w in ("--store", s)))
            cell.must("volume", "create", pool, "--pool", pool)
        with open(f"{cell.at}/leeward.toml", "w") as file:
            file.write("# the operator's\ndirty-mib = 64\ncommit-interval-ms = 400\n")
        for directory in ("plain", "mirror", "coded"):
            content.some(directory, 12)
        os.symlink("plain/d0", f"{cell.mnt}/link")
        os.link(f"{cell.mnt}/plain/d0/f0", f"{cell.mnt}/plain/d1/other-name")
        os.mkdir(f"{cell.mnt}/plain/.snap/first")
        cell.must("quota", "set", f"{cell.mnt}/plain", "--bytes", "1G")
        expect(cell.stop() == 0, "lee down failed")

    def change(self, seed, rounds):
        content = Content(self.cell.mnt, seed)
        for number in range(rounds):
            for directory in ("plain", "mirror", "coded"):
                content.some(f"{directory}/more{seed}", 6)
                content.write(f"{directory}/d{number % 4}/f{number}", 50_000)
            os.unlink(f"{self.cell.mnt}/{directory}/more{seed}/d1/f1")
            self.cell.must("sync")
        self.cell.must("quota", "set", f"{self.cell.mnt}/plain", "--bytes", f"{seed}G")
        os.mkdir(f"{self.cell.mnt}/plain/.snap/s{seed}")
        self.cell.must("sync")

    def second_moment(self):
        self.up()
        self.change(2, 3)
        expect(self.cell.stop() == 0, "lee down failed")
        self.remember("ended")

    def third_moment(self):
        """The same, and then killed: what it has is in the journal."""
        self.keep("before-killed")
        self.up()
        self.change(3, 2)
        self.cell.kill()
        self.keep("killed")
        self.remember("killed")

    def fourth_moment(self):
        """More than the journal keeps: most records are in tables."""
        self.fill(4, 2)
        self.keep("before-tables")
        self.fill(5, 1)
        self.up()
        self.change(6, 2)
        expect(self.cell.stop() == 0, "lee down failed")
        self.keep("tables")
        self.remember("tables")

    def fill(self, seed, tables):
        """Small files with an fsync each, whose data goes through the journal, until there are so many tables more."""
        names = f"{self.cell.at}/meta/tables/tables"
        last = max([-1, *(int(name) for name in os.listdir(names))])
        self.up()
        content, number = Content(self.cell.mnt, seed), 0
        while max([-1, *(int(name) for name in os.listdir(names))]) < last + tables:
            name = f"fill{seed}/f{number % 200}"
            content.write(name, 100_000)
            with open(f"{self.cell.mnt}/{name}", "rb") as file:
                os.fsync(file.fileno())
            number += 1
            expect(number < 5000, "5000 files with an fsync each did not fill a table")
        expect(self.cell.stop() == 0, "lee down failed")

    def remember(self, template):
        self.up()
        self.expected[template] = all_of(self.cell)
        expect(self.cell.stop() == 0, "lee down failed")

    def keep(self, name):
        subprocess.run(["cp", "-a", self.live, f"{self.work}/{name}"], check=True)

    def restore(self, name):
        shutil.rmtree(self.live)
        subprocess.run(["cp", "-a", f"{self.work}/{name}", self.live], check=True)

    def files(self, template, kind):
        top = f"{self.work}/{template}"
        paths = [os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names]
        found = [path for path in paths if re.fullmatch(KINDS[kind], path) and os.path.isfile(f"{top}/{path}")]
        return sorted(found, key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)])

    # Rounds

    def round(self, seed, case):
        """What became of it, in a few words; `None` when the round does not apply."""
        every = rounds()
        template, kind, damage = case.split("/") if case else every[seed % len(every)]
        rng = random.Random(seed)
        what = f"{template}/{kind}/{damage}"
        known = [why for pattern, why in KNOWN.items() if re.fullmatch(pattern, what)]
        if known and not case:
            return what, f"known: {known[0]}"
        files = self.files(template, kind)
        if not files:
            return what, None
        self.restore(template)
        path = rng.choice(files)
        # two pieces of one object are more than it can lose
        others = [f for f in files if f != path and not (kind in REDUNDANT and os.path.basename(f) == os.path.basename(path))]
        if not self.hurt(template, path, others, damage, rng):
            return what, None
        what += f" ({path})"
        try:
            return what, self.judge(template, kind, [path] if damage != "swapped" else [path, self.other])
        except Failed as failed:
            raise Failed(f"seed {seed}: {what}: {failed}") from failed
        finally:
            self.cell.end()

    def hurt(self, template, path, others, damage, rng):
        """False: it cannot be done to this file, or changes nothing."""
        at = f"{self.live}/{path}"
        with open(at, "rb") as file:
            data = file.read()
        new = bytearray(data)
        if damage in ("bit", "block"):
            used = [n for n in range(0, len(data), BLOCK) if any(data[n : n + BLOCK])]
            if not used:
                return False
            block = rng.choice(used)
            end = min(block + BLOCK, len(data))
            if damage == "bit":
                new[rng.randrange(block, end)] ^= 1 << rng.randrange(8)
            else:
                new[block:end] = bytes(end - block)
        elif damage == "zeros":
            new = bytes(len(data))
        elif damage in ("empty", "half", "short"):
            new = data[: {"empty": 0, "half": len(data) // 2, "short": max(len(data) - 1, 0)}[damage]]
        elif damage == "gone":
            os.unlink(at)
            return True
        elif damage == "swapped":
            if not others:
                return False
            self.other = rng.choice(others)
            other = f"{self.live}/{self.other}"
            os.rename(at, f"{at}.tmp")
            os.rename(other, at)
            os.rename(f"{at}.tmp", other)
            return True
        elif damage == "old":
            old = f"{self.work}/before-{template}/{path}"
            if not os.path.isfile(old):
                return False
            with open(old, "rb") as file:
                new = file.read()
        if bytes(new) == data:
            return False
        with open(at, "wb") as file:
            file.write(new)
        return True

    def judge(self, template, kind, damaged):
        cell = self.cell
        down, said_down = cell.command("fsck")
        if not cell.start():
            names = "|".join(re.escape(re.search(r"(tables/(?=\d))?[^/]*$", path)[0]) for path in damaged)
            expect(re.search(rf"(?<![\w-])({names})(?![\w-])", cell.said()), f"lee up refused and does not name the file:\n{cell.said()}")
            expect(down != 0, "lee up refused, and fsck says that all is in order")
            expect("panicked" not in cell.said(), f"lee up panicked:\n{cell.said()}")
            return "refused"
        found = all_of(cell)
        served, said = cell.command("fsck")
        differs = self.differences(self.expected[template], found)
        outcome = "unaffected" if served == 0 and down == 0 else "unaffected, named by fsck"
        if differs:
            wrong = [line for line in differs if "error EIO" not in line]
            expect(not wrong, "wrong content:\n" + "\n".join(wrong[:6]) + f"\nfsck before: {down}: {first_lines(said_down)}\nfsck: {served}: {first_lines(said)}")
            expect(served != 0, f"reads fail and fsck is content: {differs[:5]}")
            outcome = "EIO, named by fsck"
        if kind in REDUNDANT:
            self.repair()
            expect(not self.differences(self.expected[template], all_of(cell)), "not all is right after a scrub")
            outcome = "repaired"
        cell.stop()
        expect("panicked" not in cell.said(), f"the server panicked:\n{cell.said()}")
        return outcome

    def repair(self):
        self.cell.must("scrub")
        status, said = self.cell.command("fsck")
        expect(status == 0, f"fsck after a scrub: {said}")

    @staticmethod
    def differences(wanted, found):
        """What is not as it should be, without what is below directories that cannot be read, and without what commands
        say of these."""
        unread = [name for name, what in found.items() if what == "error EIO"]
        lost = tuple("" if name == "." else f"{name}/" for name in unread) + (("$ ",) if unread else ())
        lines = []
        for name in sorted(set(wanted) | set(found)):
            if wanted.get(name) != found.get(name) and not (name.startswith(lost) and (name not in found or name[0] == "$")):
                lines.append(f"{name}: {found.get(name)} in place of {wanted.get(name)}")
        return lines


def main(lee, work, what, case=None):
    trial = Trial(lee, work)
    try:
        trial.make_templates()
        if what == "list":
            for template in TEMPLATES:
                for kind in KINDS:
                    print(template, kind, *trial.files(template, kind))
            print(len(rounds()), "rounds")
            return
        failures = run_rounds(trial, *(int(number) for number in what.split("..")), case)
    finally:
        trial.end()
    if failures:
        sys.exit(f"{len(failures)} rounds failed")


def run_rounds(trial, first, last, case):
    outcomes, failures = {}, []
    for seed in range(first, last):
        try:
            what, outcome = trial.round(seed, case)
        except Failed as failed:
            failures.append(str(failed))
            print(f"FAILED {first_lines(failed)}", flush=True)
            continue
        print(f"seed {seed}: {what}: {outcome or 'does not apply'}", flush=True)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items(), key=str) if outcome and "known" not in outcome)
    print(f"NOTE {told}")
    return failures


if __name__ == "__main__":
    if sys.argv[1] == "read":
        print(json.dumps(read_all(sys.argv[2])))
    else:
        try:
            main(*sys.argv[1:])
        except Failed as failed:
            sys.exit(str(failed))
