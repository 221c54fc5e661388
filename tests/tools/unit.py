#!/usr/bin/env python3
"""Runs the test programs of the workspace, several at a time: much of their time they wait.

    unit.py MESSAGES LOGS

MESSAGES is what `cargo test --no-run --message-format=json` said: which programs there are. Each runs in the directory of its
package, as cargo does it. A program `all` is linked once from many files, and runs once for each, so that one file's tests have
a process of their own and a crash says whose it was. Doc tests have no programs: `cargo test --doc` is one more job. LOGS is a
directory for what they say.

When a program has ended, its name and its `test result` are printed; of one that failed all but the tests that passed. One that is
not done after UNIT_SECONDS_MAX (default 600) is ended with what it started, and has failed.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

AT_ONCE = int(os.environ.get("UNIT_AT_ONCE") or (os.cpu_count() or 1) + 1)
SECONDS_MAX = float(os.environ.get("UNIT_SECONDS_MAX") or 600)
LINES_MAX = 200  # of what a program said that failed
# They turn io_uring on for the whole machine and off again, and need it between: before all others, one at a time.
ALONE = ("fuse",)
# Made of many files with tests.
MANY = "all.rs"
# They take longest, and so begin first.
FIRST = ("remote", "lee", "model")
DOC_TESTS = ["cargo", "test", "--quiet", "--workspace", "--locked", "--doc", "--no-fail-fast"]


class Job:
    """A program with tests, in a process group of its own."""

    def __init__(self, name, command, directory=None):
        self.name, self.command, self.directory = name, command, directory
        self.package = directory.name if directory else ""

    def start(self, log):
        self.log, self.begun, self.late = log, time.monotonic(), False
        environment = os.environ | ({"CARGO_MANIFEST_DIR": str(self.directory)} if self.directory else {})
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                self.command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0
            )
        return self

    def is_over(self):
        if self.process.poll() is None and time.monotonic() > self.begun + SECONDS_MAX:
            self.late = True
            self.end()
        return self.process.poll() is not None

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def report(self):
        """Prints how it went; whether it went well."""
        status, lines = self.process.returncode, self.log.read_text(errors="replace").splitlines()
        results = [line for line in lines if line.startswith("test result: ")]
        print(f"     Running {self.name} ({time.monotonic() - self.begun:.1f} s)")
        if status != 0 or not results:
            said = [line for line in lines if line and not line.endswith("... ok") and line not in results]
            print("".join(f"     | {line}\n" for line in said[-LINES_MAX:]), end="")
        for line in results:
            if not line.startswith("test result: ok. 0 passed; 0 failed; 0 ignored"):
                print(line)
        if self.late:
            print(f"FAIL unit {self.name}: not done after {SECONDS_MAX:.0f} s")
        elif not results or (status != 0 and not any(line.startswith("test result: FAILED") for line in results)):
            print(f"FAIL unit {self.name}: ended by itself, with status {status}")
        return status == 0 and bool(results)


def programs(messages):
    """The programs that cargo would run, in its order."""
    found = []
    for line in Path(messages).read_text().splitlines():
        told = json.loads(line)
        if told["reason"] == "compiler-artifact" and told["profile"]["test"] and told["executable"]:
            directory, source = Path(told["manifest_path"]).parent, Path(os.path.relpath(told["target"]["src_path"]))
            found += files(source, told["executable"], directory) if source.name == MANY else [Job(str(source), [told["executable"]], directory)]
    return found


def files(source, program, directory):
    """A job for each file that this program was made of."""
    listed = subprocess.run([program, "--list", "--format", "terse"], cwd=directory, check=True, capture_output=True, text=True).stdout
    tests = {}
    for name in re.findall(r"^(.+): test$", listed, re.MULTILINE):
        tests.setdefault(name.split("::")[0], []).append(name)
    return [Job(str(source.with_name(f"{file}.rs")), [program, "--exact", *names], directory) for file, names in tests.items()]


def run(jobs, at_once, logs):
    """Runs them all; how many failed."""
    waiting, running, failed = list(jobs), [], 0
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running.append(job.start(logs / job.name.replace("/", ".")))
            for job in [job for job in running if job.is_over()]:
                running.remove(job)
                failed += not job.report()
            sys.stdout.flush()
            time.sleep(0.02)
    finally:
        for job in running:
            job.end()
    return failed


def main(messages, logs):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = programs(messages)
    if not found:
        sys.exit("no test programs")
    logs = Path(logs)
    logs.mkdir()
    alone = [job for job in found if job.package in ALONE]
    first = sorted((job for job in found if job.package in FIRST), key=lambda job: FIRST.index(job.package))
    others = [job for job in found if job not in alone and job not in first]
    failed = run(alone, 1, logs) + run(first + [Job("doc tests", DOC_TESTS)] + others, AT_ONCE, logs)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
