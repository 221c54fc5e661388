#!/usr/bin/env python3
"""POSIX behaviour that programs depend on and that pjdfstest does not look at: data, locks, mmap, holes, directories
that change while they are read, several processes at once.

    python3 tests/posix DIR [CASE...]      run all cases, or those named, each in a directory of its own below DIR

Prints PASS, FAIL or SKIP and the name of each case; the exit status says whether one failed. Needs root: cases switch
users. LEE_CELL_TEST=1 switches on what holds for a cell of Leeward and not for every file system.
"""

import os
import shutil
import sys
import time
import traceback

# Each declares its cases, in this order.
import names  # noqa: F401, I001
import content  # noqa: F401
import maps  # noqa: F401
import locks  # noqa: F401
import directories  # noqa: F401
import owners  # noqa: F401
import xattrs  # noqa: F401
import flags  # noqa: F401
from harness import CASES, Skip


def main():
    top = os.path.abspath(sys.argv[1])
    wanted = sys.argv[2:]
    unknown = set(wanted) - {function.__name__ for function in CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    failed = 0
    for function in CASES:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        directory = os.path.join(top, name)
        os.mkdir(directory)
        os.chmod(directory, 0o777)
        os.chdir(directory)
        start = time.monotonic()
        try:
            function()
        except Skip as reason:
            print(f"SKIP {name}: {reason}")
        except BaseException as error:  # a case that dies is a case that fails
            failed += 1
            print(f"FAIL {name} ({time.monotonic() - start:.1f} s)")
            for line in traceback.format_exc().splitlines()[-12:]:
                print(f"     {line}")
            if isinstance(error, KeyboardInterrupt):
                break
        else:
            print(f"PASS {name} ({time.monotonic() - start:.1f} s)")
            sys.stdout.flush()
        os.chdir(top)
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
