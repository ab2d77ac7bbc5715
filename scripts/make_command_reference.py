#!/usr/bin/env python3
"""Writes docs/command_reference.md, all subcommands and flags, from the manual page that the command prints.

    scripts/make_command_reference.py [LOCKSTEP] [--check]      default: build/release/bin/lockstep

With --check it writes nothing and fails where the file differs.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/command_reference.md"

HEAD = """# All commands and flags

Written by `scripts/make_command_reference.py` from the definitions that the command itself uses; `lockstep COMMAND --help`
prints the same. `-h`, `--help` is a flag of all commands. [The command](command.md) is the guide to trainings without a
program, [Observing](observing.md) to reports, runs, traces and `lockstep doctor`, and [Clusters](clusters.md) to
`lockstep run`.
"""


def plain(text):
    """Returns text of a manual page without its marks."""
    text = re.sub(r"\\f[BIR]", "", text)
    return re.sub(r"\\(.)", lambda match: "" if match.group(1) == "&" else match.group(1), text)


def cell(text):
    """Returns text as a cell of a table; what is in backticks stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if i % 2 else re.sub(r"([<*\[\]])", r"\\\1", part) for i, part in enumerate(parts)).replace("|", "\\|")


def markdown(manual):
    out = [HEAD]
    lines = manual[manual.index(".SH COMMANDS\n"):].splitlines()[1:]
    at, rows = 0, []

    def end_table():
        if rows:
            out.append("| | |\n|---|---|\n" + "\n".join(f"| `{name.replace('|', chr(92) + '|')}` | {cell(text)} |" for name, text in rows) + "\n")
        rows.clear()

    while at < len(lines):
        line = lines[at]
        if line.startswith(".SS "):
            end_table()
            name = plain(line[4:])
            out.append(f"{'##' if name.count(' ') == 1 else '###'} {name}\n\n{cell(plain(lines[at + 1]))}\n")
            at += 2
        elif line == ".TP":
            name, text = plain(lines[at + 1]), plain(lines[at + 2])
            if "--help" not in name.split(", "):
                rows.append((name, text))
            at += 3
        elif line.startswith(".SH "):
            end_table()
            out.append(f"## {line[4:].capitalize()}\n")
            at += 1
        else:
            out.append(cell(plain(line)) + "\n")
            at += 1
    end_table()
    return "\n".join(out)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("lockstep", nargs="?", default=str(ROOT / "build/release/bin/lockstep"))
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    text = markdown(subprocess.run([given.lockstep, "man"], check=True, capture_output=True, text=True).stdout)
    if not given.check:
        PAGE.write_text(text)
        return 0
    old = PAGE.read_text().splitlines() if PAGE.exists() else []
    new = text.splitlines()
    for line in [line for line in new if line not in old][:5]:
        print(f"docs/command_reference.md lacks: {line}")
    for line in [line for line in old if line not in new][:5]:
        print(f"docs/command_reference.md has: {line}")
    if old != new:
        print("run scripts/make_command_reference.py")
    return old != new


if __name__ == "__main__":
    sys.exit(main())
