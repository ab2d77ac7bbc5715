#!/usr/bin/env python3
"""Checks the code blocks of README.md, examples/README.md and docs/. Every C++ block is compiled: a comment `<!-- compiled...: -->`
stands above it, in a form of tests/docs/CMakeLists.txt. Lines of blocks with a language fit the column of a page. Prints
file:line for each fault."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

FORM = re.compile(r"<!-- compiled(| alone| tpu| program| tpu program| only| as): \S(?:(?!-->).)* -->\n\Z", re.S)
COLUMNS = 88
FENCE = re.compile(r"^ *```+ *([\w+]*)")
BLOCK = re.compile(r"^( *)```+ *(cpp|c\+\+|cc|cxx|C\+\+)\b.*$", re.M)


def faults(text):
    """Returns (line, reason) of the blocks that no test compiles."""
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match.group(0) != "```cpp":
            yield line, "a C++ block begins with ```cpp at the start of the line, and nothing else"
            continue
        before = text[:match.start()]
        comment = before[before.rfind("<!--"):] if "<!--" in before else ""
        if not FORM.match(comment):
            yield line, "no comment `<!-- compiled: NAME -->` above this block; tests/docs/CMakeLists.txt has the forms"


def long_lines(text):
    """Returns (line, reason) of the lines that are cut on a page. Blocks without a language show what programs print."""
    language = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := FENCE.match(line):
            language = match.group(1) if language is None else None
        elif language and len(line) > COLUMNS:
            yield number, f"{len(line)} columns, more than {COLUMNS}; put comments above the line"


def main():
    found = blocks = 0
    # The tests are made of docs/*.md; a folder below has no C++ blocks.
    for file in [ROOT / "README.md", ROOT / "examples/README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        text = file.read_text()
        blocks += len(BLOCK.findall(text))
        if file != ROOT / "README.md" and file.parent != ROOT / "docs" and BLOCK.search(text):
            print(f"{file.relative_to(ROOT)}: C++ blocks of this folder are not compiled; move the page to docs/")
            found += 1
        for line, reason in [*faults(text), *long_lines(text)]:
            print(f"{file.relative_to(ROOT)}:{line}: {reason}")
            found += 1
    print(f"code blocks: {blocks} C++ blocks, {found} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
