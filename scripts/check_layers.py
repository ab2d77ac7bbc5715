#!/usr/bin/env python3
"""Checks the includes in lockstep/: each points down the layers, and no units include each other in a circle.

A unit is a header and the source of the same name. Prints file:line for each wrong include, and each circle.
"""

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
    "state": 2,
    "xla": 2,
    "cluster": 2,
    "strategy": 3,
    "nn": 4,
    "train": 5,
}
# Headers directly in lockstep/ that every folder may include; lockstep.h, the umbrella, is for users only.
FOR_ALL = {"api.h", "version.h"}
# Folders whose members never include each other: an engine knows comm/ and its vendor only.
KEPT_APART = ("lockstep/comm/engines/",)

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]((?:lockstep|tests|tools|bench|examples)/[^">]+)[">]')


def member(path):
    """Returns the part of `path` after a folder whose members are kept apart, or None."""
    for folder in KEPT_APART:
        if path.startswith(folder):
            return path[len(folder):].split("/")[0].split(".")[0]
    return None


def unit_of(path):
    return path.rsplit(".", 1)[0]


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
        return "engines never include each other"
    return None


def circles(units):
    """Returns the groups of units that reach each other: the strongly connected components of more than one unit."""
    order, low, stack, found = {}, {}, [], []

    def visit(unit):
        order[unit] = low[unit] = len(order)
        stack.append(unit)
        for other in sorted(units.get(unit, ())):
            if other not in order:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], order[other])
        if low[unit] == order[unit]:
            group = stack[stack.index(unit):]
            del stack[stack.index(unit):]
            if len(group) > 1:
                found.append(sorted(group))

    for unit in sorted(units):
        if unit not in order:
            visit(unit)
    return found


def main():
    found = 0
    files = 0
    units = {}
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
            if match:
                units.setdefault(unit_of(path), set()).add(unit_of(match.group(1)))
            reason = match and problem(path, match.group(1))
            if reason:
                print(f"{path}:{number}: includes {match.group(1)}: {reason}")
                found += 1
    tied = circles({unit: others - {unit} for unit, others in units.items()})
    for group in tied:
        print(f"{group[0]}: {len(group)} units include each other: {' '.join(group)}")
    print(f"layers: {files} files, {found} wrong includes, {len(tied)} circles of units")
    return 1 if found or tied else 0


if __name__ == "__main__":
    sys.exit(main())
