#!/usr/bin/env python3
"""Checks the tables of tests/peers: each row has a test that exists, or a reason.

With TABLE=FILE, for example pytorch=.../distributed_test.py, FILE is the source of the peer's tests: each of them is in the
table.
"""

import argparse
import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/peers"


def own_tests():
    """Returns the names of all tests, as Suite.Name."""
    found = set()
    for file in (ROOT / "tests").rglob("*.cpp"):
        for suite, name in re.findall(r"^TEST(?:_P|_F)?\(\s*(\w+),\s*(\w+)\)", file.read_text(), re.MULTILINE):
            found.add(f"{suite}.{name}")
    return found


def own_names(text):
    """Returns what is written in a text as a name of own tests."""
    return re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", text)


def rows(table):
    """Yields (line number, the peer's tests, what is said of them) of each row."""
    for number, line in enumerate(table.read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or set(line) <= set("|-") or "`" not in cells[0]:
            continue
        if len(cells) != 3:
            yield number, None, None
            continue
        yield number, re.findall(r"`([^`]+)`", cells[0]), cells[2]


def check_table(table, tests):
    """Returns what is wrong with a table, and the patterns of the peer's tests in it."""
    wrong = []
    patterns = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        for name in own_names(line):
            if name not in tests:
                wrong.append(f"{table.relative_to(ROOT)}:{number}: there is no test {name}")
    for number, names, said in rows(table):
        where = f"{table.relative_to(ROOT)}:{number}"
        if names is None:
            wrong.append(f"{where}: a row has three cells")
            continue
        wrong += [f"{where}: {name} is named twice" for name in names if name in patterns]
        patterns += names
        if not said.startswith("none: ") and not own_names(said):
            wrong.append(f"{where}: neither a test nor `none: ` and a reason")
    return wrong, patterns


def check_source(table, patterns, source):
    """Returns which of the peer's tests are not in the table, and which of the table the peer has not."""
    tests = re.findall(r"^ *def (test_\w+)", source.read_text(), re.MULTILINE)
    missing = [test for test in tests if not any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)]
    print(f"peers: {table.stem}: {len(tests)} tests, {len(missing)} of them not in the table")
    return [f"{table.relative_to(ROOT)}: {test} is not in the table" for test in missing] + [
        f"{table.relative_to(ROOT)}: the peer has no test {pattern}"
        for pattern in patterns
        if not fnmatch.filter(tests, pattern)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="TABLE=FILE", help="the peer's tests")
    sources = dict(source.split("=", 1) for source in parser.parse_args().sources)
    tests = own_tests()
    wrong = []
    count = 0
    for table in sorted(FOLDER.glob("*.md")):
        found, patterns = check_table(table, tests)
        wrong += found
        count += len(patterns)
        if table.stem in sources:
            wrong += check_source(table, patterns, pathlib.Path(sources.pop(table.stem)))
    wrong += [f"tests/peers has no table {name}.md" for name in sources]
    for line in wrong:
        print(f"peers: {line}")
    print(f"peers: {count} entries, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
