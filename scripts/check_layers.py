#!/usr/bin/env python3
"""Checks that every include in lockstep/ points down the layers. Prints file:line for each that does not."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A folder may include itself and folders of a lower level; folders of one level are siblings and never meet.
LEVELS = {
    "base": 0,
    "device": 1,
    "comm": 2,
    "data": 2,
    "value": 2,
    "xla": 2,
    "cluster": 2,
    "strategy": 3,
    "train": 4,
}
# Headers directly in lockstep/ that every folder may include; lockstep.h, the umbrella, is for users only.
FOR_ALL = {"api.h", "version.h"}
# Folders whose members never include each other: a backend knows comm/ and its vendor only.
KEPT_APART = ("lockstep/comm/backends/",)

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]((?:lockstep|tests|tools|bench|examples)/[^">]+)[">]')


def member(path):
    """Returns the part of `path` after a folder whose members are kept apart, or None."""
    for folder in KEPT_APART:
        if path.startswith(folder):
            return path[len(folder):].split("/")[0].split(".")[0]
    return None


def problem(path, included):
    """Returns why the file at `path` must not include `included`, or None."""
    if not included.startswith("lockstep/"):
        return "the library never includes what is built on it"
    source, target = path.split("/")[1:], included.split("/")[1:]
    if len(source) == 1:
        return None
    if len(target) == 1:
        return None if target[0] in FOR_ALL else "folders include single headers, not the umbrella"
    here, there = source[0], target[0]
    if there not in LEVELS:
        return f"the folder {there} has no level; add it to scripts/check_layers.py"
    if here != there and LEVELS[there] == LEVELS[here]:
        return f"{here} and {there} are siblings; join them one layer up"
    if LEVELS[there] > LEVELS[here]:
        return f"{here} is below {there}"
    if member(path) and member(included) and member(path) != member(included):
        return "backends never include each other"
    return None


def main():
    found = 0
    files = 0
    for file in sorted((ROOT / "lockstep").rglob("*")):
        if file.suffix not in (".h", ".cpp", ".cu"):
            continue
        files += 1
        path = file.relative_to(ROOT).as_posix()
        folder = path.split("/")[1]
        if path.count("/") > 1 and folder not in LEVELS:
            print(f"{path}:1: the folder {folder} has no level; add it to scripts/check_layers.py")
            found += 1
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            reason = match and problem(path, match.group(1))
            if reason:
                print(f"{path}:{number}: includes {match.group(1)}: {reason}")
                found += 1
    print(f"layers: {files} files, {found} wrong includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
