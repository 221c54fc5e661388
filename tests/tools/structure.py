"""Figures of the structure of crates/*/src, from the text of the sources: how long functions and files are, which modules import
each other in a circle, how much is public; whether ARCHITECTURE.md is still a tour; and whether a file with tests is in no
program, so that they never run. A smoke alarm, not a goal.

    structure.py [ROOT]            prints the figures of each crate
    structure.py --check [ROOT]    fails where a figure is above its bound, and says what is to blame

Tests are left out: `#[cfg(test)]` modules and files named tests.rs. An import is a path that begins with crate::, self:: or
super::, in a `use` or elsewhere; it leads to the deepest module that the path names.
"""

import os
import re
import statistics
import sys
from pathlib import Path

FUNCTION_LINES_MAX = 70
# what is allowed of each: lower them when the code gets better
BOUNDS = {"longest cycle": 4, "functions over 70 lines": 4, "lines of the tour": 250, "wide lines of the tour": 0, "tests in no program": 0}
TOUR, TOUR_WIDTH = "ARCHITECTURE.md", 100


def without_text(source):
    """The source with comments, strings and characters blanked, line by line as it was."""
    token = re.compile(
        r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\\n])'""", re.S
    )
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)


def block_end(source, at):
    """Where the block ends that opens at the first brace from here."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(source, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(source)


def without_tests(source):
    while found := re.search(r"#\[cfg\((?:test|all\(test[^)]*\))\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{", source):
        end = block_end(source, found.end() - 1)
        source = source[: found.start()] + re.sub(r"[^\n]", " ", source[found.start() : end]) + source[end:]
    return source


class Module:
    def __init__(self, crate, names, path):
        self.crate, self.names, self.path = crate, names, path
        self.text = without_tests(without_text(path.read_text()))
        self.lines = sum(1 for line in self.text.splitlines() if line.strip())

    def functions(self):
        """Names and lengths, in lines."""
        for found in re.finditer(r"^[ \t]*(?:pub(?:\([^)]*\))? +)?(?:default +)?(?:const +)?(?:async +)?(?:unsafe +)?(?:extern +)?fn +(\w+)", self.text, re.M):
            body = re.compile(r"[{;]").search(self.text, self.end_of_head(found.end()))
            if body and body[0] == "{":
                yield found[1], self.text.count("\n", found.start(), block_end(self.text, body.start())) + 1

    def end_of_head(self, at):
        """Behind the parameters, in which there may be semicolons."""
        depth = 0
        for found in re.compile(r"[()]").finditer(self.text, at):
            depth += 1 if found[0] == "(" else -1
            if depth == 0:
                return found.end()
        return at

    def imports(self):
        """Paths of names from the crate's root."""
        for use in re.finditer(r"\buse\s+((?:crate|self|super)\b[^;]*);", self.text):
            yield from (self.absolute(path) for path in flat(use[1]))
        for path in re.finditer(r"\b((?:crate|self|super)(?:::\w+)+)", self.text):
            yield self.absolute(path[1].split("::"))

    def absolute(self, path):
        here = list(self.names)
        for n, word in enumerate(path):
            if word == "crate":
                here = []
            elif word == "super":
                here = here[:-1]
            elif word != "self":
                return here + path[n:]
        return here


def flat(tree):
    """The paths of a use with braces."""
    tree = tree.strip()
    if not (found := re.match(r"([^{]*)\{(.*)\}\s*$", tree, re.S)):
        return [[word for word in re.sub(r"\s+as\s+\w+", "", tree).split("::") if word and word != "*"]]
    start = [word for word in found[1].strip().split("::") if word]
    parts, depth, last = [], 0, ""
    for c in found[2] + ",":
        depth += {"{": 1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(last)
            last = ""
        else:
            last += c
    return [start + path for part in parts if part.strip() for path in flat(part)]


def modules_of(src):
    for path in sorted(src.rglob("*.rs")):
        names = list(path.relative_to(src).with_suffix("").parts)
        if names[-1] in ("tests", "main") or "tests" in names or names[0] == "bin":
            continue
        if names[-1] in ("mod", "lib"):
            names.pop()
        yield Module(src.parent.name, tuple(names), path)


def cycles(modules):
    """Sets of modules that import each other in a circle, largest first (Tarjan)."""
    known = {module.names: module for module in modules}
    edges = {}
    for module in modules:
        targets = set()
        for path in module.imports():
            names = tuple(path)
            while names and names not in known:
                names = names[:-1]
            # what a module re-exports from those below it is no import of it
            if names and names != module.names and names[: len(module.names)] != module.names:
                targets.add(names)
        edges[module.names] = targets
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in edges[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for name in edges:
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def tests_in_no_program(crate):
    """Files and directories of its tests that cargo does not look for itself and that nothing names."""
    manifest = (crate / "Cargo.toml").read_text()
    if "autotests = false" not in manifest:
        return []
    programs = [crate / path for path in re.findall(r'^path = "(tests/[^"]+)"$', manifest, re.M)]
    named = set(programs)
    for program in programs:
        named |= {program.with_name(f"{module}.rs") for module in re.findall(r"^mod (\w+);$", program.read_text(), re.M)}
    there = [*(crate / "tests").glob("*.rs"), *(crate / "tests").glob("*/main.rs")]
    return [str(file) for file in sorted(there) if file not in named]


def main(*arguments):
    check = "--check" in arguments
    root = Path(([a for a in arguments if a != "--check"] or [Path(__file__).resolve().parents[2]])[0])
    all_functions, files, largest = [], [], (0, "", [])
    rows = []
    for src in sorted((root / "crates").glob("*/src")):
        modules = list(modules_of(src))
        functions = [(lines, f"{m.path.relative_to(root)} {name}") for m in modules for name, lines in m.functions()]
        circles = cycles(modules)
        circle = circles[0] if circles else []
        largest = max(largest, (len(circle), src.parent.name, circle))
        public = sum(len(re.findall(r"^\s*pub (?!\()", m.text, re.M)) for m in modules)
        rows.append((src.parent.name, len(modules), sum(m.lines for m in modules), len(functions), public, len(circle)))
        all_functions += functions
        files += [m.lines for m in modules]
    lengths = [lines for lines, _ in all_functions]
    long = sorted((f for f in all_functions if f[0] > FUNCTION_LINES_MAX), reverse=True)
    print(f"{'crate':10} {'modules':>8} {'lines':>8} {'functions':>10} {'public':>8} {'cycle':>6}")
    for row in rows:
        print("{:10} {:8} {:8} {:10} {:8} {:6}".format(*row))
    print(f"functions: {len(lengths)}, median {statistics.median(lengths):.0f} lines, p95 {percentile(lengths, 0.95)}")
    print(f"files: {len(files)}, median {statistics.median(files):.0f} lines, p95 {percentile(files, 0.95)}")
    tour = (root / TOUR).read_text().splitlines() if (root / TOUR).exists() else []
    wide = [f"{TOUR}:{number}" for number, line in enumerate(tour, 1) if len(line) > TOUR_WIDTH]
    lost = [file for crate in sorted((root / "crates").glob("*/")) for file in tests_in_no_program(crate)]
    figures = {
        "longest cycle": largest[0],
        "functions over 70 lines": len(long),
        "lines of the tour": len(tour),
        "wide lines of the tour": len(wide),
        "tests in no program": len(lost),
    }
    blame = {
        "longest cycle": [f"{largest[1]}: " + ", ".join("::".join(names) for names in largest[2])],
        "functions over 70 lines": [f"{lines} lines: {name}" for lines, name in long],
        "lines of the tour": [TOUR],
        "wide lines of the tour": wide,
        "tests in no program": lost,
    }
    failed = False
    for name, figure in figures.items():
        over = figure > BOUNDS[name]
        failed |= over
        print(f"{name}: {figure}, at most {BOUNDS[name]}" + (": TOO MUCH" if over else ""))
        if over or not check:
            print("".join(f"  {line}\n" for line in blame[name]), end="")
    return 1 if check and failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
