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


KEPT = ("OPTIONS", "ENVIRONMENT", "FILES", "EXAMPLES", "EXIT STATUS")


def sections(manual):
    """Returns the lines of each section of a manual page, by its title."""
    found, title = {}, None
    for line in manual.splitlines():
        if line.startswith(".SH "):
            title = line[4:]
            found[title] = []
        elif title:
            found[title].append(line)
    return found


def text_from(lines, at):
    """Returns the text that begins at a line, up to the next macro, and the line after it."""
    end = at
    while end < len(lines) and not lines[end].startswith("."):
        end += 1
    return plain(" ".join(lines[at:end])), end


class Table:
    """Rows of names and what they mean, written when something else follows."""

    def __init__(self, out):
        self.out, self.rows = out, []

    def add(self, name, text):
        name = "`" + name.replace("|", "\\|") + "`"
        if "--help" not in name:
            self.rows.append(f"| {name} | {cell(text)} |")

    def end(self):
        if self.rows:
            self.out.append("| | |\n|---|---|\n" + "\n".join(self.rows) + "\n")
        self.rows = []


def add_section(lines, out):
    table, at, group = Table(out), 0, ""
    while at < len(lines):
        line = lines[at]
        if line == ".TP":
            if group:
                out.append(group + "\n")
                group = ""
            text, end = text_from(lines, at + 2)
            table.add(plain(lines[at + 1]), text)
            at = end
            continue
        if line == ".EX":
            end = lines.index(".EE", at)
            out.append("```\n" + "\n".join(plain(each) for each in lines[at + 1:end]) + "\n```\n")
            at = end + 1
            continue
        table.end()
        if line.startswith(".SS "):
            name = plain(line[4:])
            out.append(f"{'##' if name.count(' ') == 1 else '###'} {name}\n")
        if line.startswith("."):
            at += 1
            continue
        text, at = text_from(lines, at)
        # Above the flags that belong together, unless only --help does.
        group = cell(text) if text.endswith(":") and at < len(lines) and lines[at] == ".TP" else ""
        if not group:
            out.append(cell(text) + "\n")
        elif text == "Options:":
            group = ""
    table.end()


def markdown(manual):
    found = sections(manual)
    out = [HEAD]
    for title in KEPT:
        if title != "OPTIONS":
            out.append(f"## {title.capitalize()}\n")
        add_section(found[title], out)
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
