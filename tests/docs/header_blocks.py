#!/usr/bin/env python3
"""Writes a source with the C++ blocks of the public headers (indented or fenced code in `///` comments), each in a function.

    header_blocks.py OUTPUT.cpp

What is left out in a block (`...`) is left out here, too. header_blocks.txt says what blocks take for granted, and which are not
compiled.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from docs_site.headers import public_headers

TABLE = ROOT / "tests/docs/header_blocks.txt"
LEFT_OUT = [
    (r"^ *\.\.\. *(//.*)?$", ""),                # a line
    (r" = \.\.\.;", ";"),                        # a value
    (r"for \(\.\.\.\)", "for (;;)"),             # a loop
    (r"\) \.\.\.(?= *(//.*)?$)", ") {}"),        # the body of a loop
    (r"\{ \.\.\.;? ", "{ "),                     # statements
    (r", \.\.\.", ""),                           # members of a list
]


def blocks(text):
    """Yields (line, code) for the blocks of a header."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fenced = re.match(r" */// ```(?!\w)", lines[at]) or re.match(r" */// ```cpp", lines[at])
        indented = re.match(r" *///     +\S", lines[at]) and at > 0 and re.match(r" *///$", lines[at - 1])
        if not fenced and not indented:
            at += 1
            continue
        begin = at + 1 if fenced else at
        end = begin
        while end < len(lines) and (not re.match(r" */// ```", lines[end]) if fenced else re.match(r" *///(     .*)?$", lines[end])):
            end += 1
        code = [re.sub(r"^ */// ?", "", line) for line in lines[begin:end]]
        while code and not code[-1].strip():
            code.pop()
        yield begin + 1, "\n".join(code)
        at = end + 1


def rows():
    """Returns the rows of the table: (path, number of the block) to its parts."""
    found = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            place, *parts = line.split(" | ")
            path, _, number = place.partition(" ")
            found[path, int(number or 1)] = parts
    return found


def function(name, path, line, code, given):
    for pattern, text in LEFT_OUT:
        code = re.sub(pattern, text, code, flags=re.M)
    marked = f'#line {line} "{ROOT / path}"\n{code}\n'
    if "int main() {" in code:
        return f'namespace {name} {{\n{given}\n{marked.replace("int main() {", "[[maybe_unused]] int program() {")}}}\n\n'
    base = "TrainerBlock" if "in a Trainer" in given else "HeaderBlock"
    given = given.replace("in a Trainer", "")
    return f"struct {name} : {base} {{\nint only() {{\n{given}\n{marked}return 0;\n}}\n}};\n\n"


def main():
    table = rows()
    out = ['#include "tests/docs/header_prelude.h"\n\nnamespace lockstep::tests {\n']
    compiled = left = 0
    for path in public_headers(ROOT):
        for number, (line, code) in enumerate(blocks((ROOT / path).read_text()), 1):
            parts = table.pop((path, number), [])
            if parts and parts[0].startswith(("no code", "not compiled: ")):
                left += parts[0].startswith("not compiled: ")
                continue
            given = "".join(part.removeprefix("given: ") for part in parts)
            name = "Header_" + re.sub(r"\W", "_", path.removeprefix("lockstep/").removesuffix(".h")) + f"_{number}"
            out.append(function(name, path, line, code, given))
            compiled += 1
    if table:
        sys.exit(f"{TABLE.relative_to(ROOT)}: there is no such block: {sorted(table)}")
    out.append("}  // namespace lockstep::tests\n")
    text = "\n".join(out)
    output = pathlib.Path(sys.argv[1])
    if not output.exists() or output.read_text() != text:  # else it would be compiled again
        output.write_text(text)
    print(f"{compiled} C++ blocks of public headers are compiled, {left} are not")


if __name__ == "__main__":
    main()
