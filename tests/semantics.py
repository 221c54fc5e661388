#!/usr/bin/env python3
"""Runs the examples of docs/SEMANTICS.md: every ```sh block is a promise that must hold on a mounted cell.

    MNT=/srv/cell/mnt CELL=/srv/cell LEE=target/debug/lee tests/semantics.py [NAME...]

Each block runs in an empty directory of its own below $MNT, with `set -eu` put before it; it holds when it exits 0.
Its name is the heading it stands under and its number there; with NAMEs only the blocks whose name contains one of
them run. Prints a PASS or FAIL line each, the output of those that failed, and last "N passed, M failed".
Needs python3 and the programs that the examples use (util-linux, acl, attr); some steps of them only root can do.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "SEMANTICS.md"
BLOCK_SECONDS_MAX = 120


def blocks(text):
    """The examples as (name, script), in order."""
    name, count, script = "start", 0, None
    for line in text.splitlines():
        if script is not None:
            if line.rstrip() == "```":
                count += 1
                yield f"{name}-{count}", "\n".join(script) + "\n"
                script = None
            else:
                script.append(line)
        elif line.rstrip() == "```sh":
            script = []
        elif line.startswith("#"):
            name, count = re.sub(r"[^a-z0-9]+", "-", line.lower()).strip("-"), 0
    if script is not None:
        raise SystemExit(f"{DOCUMENT}: the block under {name} has no end")


def run(script, mnt, env):
    """Whether the example holds, and what it printed."""
    directory = tempfile.mkdtemp(prefix="semantics.", dir=mnt)
    try:
        os.chmod(directory, 0o755)
        done = subprocess.run(
            ["sh", "-c", "set -eu\n" + script],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BLOCK_SECONDS_MAX,
        )
        said = done.stdout.decode(errors="replace")
        return done.returncode == 0, f"{said}exit status {done.returncode}\n"
    except subprocess.TimeoutExpired as late:
        return False, (late.stdout or b"").decode(errors="replace") + f"not done after {BLOCK_SECONDS_MAX} s\n"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def environment():
    missing = [name for name in ("MNT", "CELL", "LEE") if not os.environ.get(name)]
    if missing:
        raise SystemExit(f"semantics: set {', '.join(missing)}: where the cell is mounted, its directory, the program")
    env = dict(os.environ, LC_ALL="C", TZ="UTC")
    for name in ("MNT", "CELL", "LEE"):
        env[name] = os.path.abspath(env[name])
    return env


def main():
    env = environment()
    wanted = sys.argv[1:]
    passed = failed = 0
    for name, script in blocks(DOCUMENT.read_text(encoding="utf-8")):
        if wanted and not any(part in name for part in wanted):
            continue
        start = time.monotonic()
        holds, said = run(script, env["MNT"], env)
        took = time.monotonic() - start
        print(f"{'PASS' if holds else 'FAIL'} {name} ({took:.1f} s)", flush=True)
        if holds:
            passed += 1
        else:
            failed += 1
            print("".join(f"     {line}\n" for line in said.splitlines()), end="", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
