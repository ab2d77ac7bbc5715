#!/usr/bin/env python3
"""Checks which tests the last `ctest --preset release` skipped: each needs a line in tests/allowed_skips.txt.

Reads what CTest and the test programs wrote: BUILD/tests.xml and BUILD/test_results/*.xml.
"""

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def allowed_reasons():
    lines = (ROOT / "tests/allowed_skips.txt").read_text().splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def skipped_tests(build):
    """Yields (name, reason) of every skipped test."""
    for test in xml.parse(build / "tests.xml").getroot().iter("testcase"):
        if test.get("status") != "run" and test.find("failure") is None:
            output = (test.findtext("system-out") or "").strip()
            yield test.get("name"), output.splitlines()[-1] if output else "no output"
    for file in sorted((build / "test_results").glob("*.xml")):
        for test in xml.parse(file).getroot().iter("testcase"):
            skip = test.find("skipped")
            if skip is not None:
                # The message is "file:line" and, on the next line, the reason.
                yield f"{test.get('classname')}.{test.get('name')}", skip.get("message", "").split("\n", 1)[-1].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="the build folder whose tests ran")
    build = ROOT / parser.parse_args().build
    if not (build / "tests.xml").exists():
        raise SystemExit(f"[check_skips] no test has run: build={build}; run `make test`")
    reasons = allowed_reasons()
    skips = list(skipped_tests(build))
    wrong = [(name, reason) for name, reason in skips if not any(r.search(reason) for r in reasons)]
    for name, reason in wrong:
        print(f"skips: {name}: {reason}")
    print(f"skips: {len(skips)} tests were skipped, {len(wrong)} of them without a line in tests/allowed_skips.txt")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
