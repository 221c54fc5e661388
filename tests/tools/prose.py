"""Prose of docs and of comments is at most 100 characters wide.

    prose.py --check [ROOT]     fails where a paragraph is wider, and says where
    prose.py --wrap [ROOT]      wraps those paragraphs anew, and leaves all others as they are

Tables, code, headings and words that are longer than a line stay as they are; so does docs/METRICS.md, which a test writes.
"""

import re
import sys
import textwrap
from pathlib import Path

WIDTH = 100
LEFT_OUT = {"docs/METRICS.md"}
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
# what would begin an item, a heading, a table or a quotation if it began a line
MARK = re.compile(r"([-*+]|\d+[.)]|#{1,6}|>|\|)(\s|$)")
KEPT = "\0"


def wrapped(words, first, rest, width):
    """The lines of a paragraph; spaces in `code` stay together where that fits."""
    text = re.sub(r"`[^`]+`", lambda m: m[0].replace(" ", KEPT) if len(m[0]) < width // 2 else m[0], words)
    while True:
        lines = textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
        bad = next((line for line in lines[1:] if MARK.match(line.strip())), None)
        if bad is None:
            return [line.replace(KEPT, " ") for line in lines]
        word = bad.split()[0]
        text = text.replace(f" {word} ", f"{KEPT}{word} ", 1)


def paragraphs(lines):
    """Where paragraphs begin and end, and with what their first and other lines begin."""
    at, in_fence, item = 0, False, None
    while at < len(lines):
        line = lines[at]
        bare = line.strip()
        if bare.startswith("```"):
            in_fence = not in_fence
        indent = len(line) - len(line.lstrip())
        if in_fence or bare.startswith("```") or not bare or re.match(r"#|\||<|>", bare):
            if bare and indent == 0 and not in_fence:
                item = None  # a table or a heading ends a list
            at += 1
            continue
        found = ITEM.match(line)
        if found:
            item = len(found[0])
        elif at > 0 and not lines[at - 1].strip():
            if indent == 0:
                item = None
            elif indent >= (item or 0) + 4:
                at += 1  # code
                continue
        elif at > 0 and indent >= 4 and item is None:
            at += 1  # code goes on
            continue
        end = at + 1
        while end < len(lines):
            after = lines[end].strip()
            if not after or ITEM.match(lines[end]) or re.match(r"#|\||<|>|```", after):
                break
            end += 1
        first = found[0] if found else line[:indent]
        yield at, end, first, " " * len(first)
        at = end


def anew(lines, width, wrap):
    """The lines with wide paragraphs wrapped, and the numbers of wide ones."""
    out, wide, done = [], [], 0
    for begin, end, first, rest in list(paragraphs(lines)):
        part = lines[begin:end]
        words = " ".join([part[0][len(first):].strip(), *(line.strip() for line in part[1:])])
        is_wide = any(len(line) > width and len(line.split()) > 1 for line in part)
        if not is_wide or any(line.endswith("  ") for line in part):
            continue
        now = wrapped(words, first, rest, width)
        if now == part:
            continue
        wide.append(begin)
        if wrap:
            out += lines[done:begin] + now
            done = end
    return out + lines[done:], wide


def of_markdown(lines, wrap):
    return anew(lines, WIDTH, wrap)


def of_rust(lines, wrap):
    """The same of comments that have lines of their own."""
    out, wide, at = [], [], 0
    while at < len(lines):
        found = re.match(r"(\s*)(//[/!]?)(?=\s|$)", lines[at])
        if not found:
            out.append(lines[at])
            at += 1
            continue
        mark, end = found[0], at
        while end < len(lines) and re.match(re.escape(mark) + r"(?=\s|$)", lines[end]):
            end += 1
        text = [line[len(mark):][1:] if line[len(mark):].startswith(" ") else line[len(mark):] for line in lines[at:end]]
        now, numbers = anew(text, WIDTH - len(mark) - 1, wrap)
        wide += [at + number for number in numbers]
        out += [f"{mark} {line}".rstrip() for line in now] if numbers and wrap else lines[at:end]
        at = end
    return out, wide


def main(*arguments):
    wrap = "--wrap" in arguments
    root = Path(([a for a in arguments if not a.startswith("--")] or [Path(__file__).resolve().parents[2]])[0])
    files = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "bench").glob("*.md")]
    files = [(path, of_markdown) for path in files if str(path.relative_to(root)) not in LEFT_OUT]
    files += [(path, of_rust) for path in (root / "crates").rglob("*.rs")]
    count = 0
    for path, of in sorted(files):
        text = path.read_text()
        lines, wide = of(text.split("\n"), wrap)
        count += len(wide)
        if wrap and wide:
            path.write_text("\n".join(lines))
        elif wide:
            print("".join(f"{path.relative_to(root)}:{number + 1}: wider than {WIDTH} characters\n" for number in wide), end="")
    print(f"{count} paragraphs " + ("wrapped" if wrap else f"are wider than {WIDTH} characters"))
    return 0 if wrap or count == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
