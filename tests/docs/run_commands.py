#!/usr/bin/env python3
"""Runs the sh blocks of some pages, and parses the toml, json and yaml blocks of all.

    run_commands.py LOCKSTEP [PAGE...]      default: README.md, docs/command.md, docs/observing.md, docs/quick_start.md

A comment above each sh block of these pages says how:

    <!-- run: NAME -->               with `bash -e`, in a folder that the blocks of a page share, with examples/data
    <!-- run: NAME | given: COMMANDS | check: COMMANDS -->      commands before and behind the block
    <!-- not run: REASON -->

A toml, json or yaml block with `<!-- file: NAME -->` is put into that folder. yaml needs PyYAML; without it these blocks are
named and not parsed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["README.md", "docs/command.md", "docs/observing.md", "docs/quick_start.md"]
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # checkpoints wait for a disk
BLOCK = re.compile(r"(?:<!-- (?P<kind>run|not run|file): (?P<comment>(?:(?!-->).)*?) -->\n)?^```(?P<language>sh|toml|json|yaml)\n(?P<text>.*?)^```$",
                   re.M | re.S)


def blocks(page):
    text = (ROOT / page).read_text()
    for match in BLOCK.finditer(text):
        yield f"{page}:{text.count(chr(10), 0, match.start('language')) + 1}", match


def parsed(language, text):
    """Returns whether there is a parser; an exception says what is wrong with the text."""
    if language == "toml":
        tomllib.loads(text)
    elif language == "json":
        json.loads(text)
    else:
        try:
            import yaml
        except ImportError:
            return False
        assert all(isinstance(document, dict) for document in yaml.safe_load_all(text)), "a document is no mapping"
    return True


def parts_of(comment):
    name, *rest = comment.split(" | ")
    given = [part.removeprefix("given: ") for part in rest if part.startswith("given: ")]
    check = [part.removeprefix("check: ") for part in rest if part.startswith("check: ")]
    assert len(given) + len(check) == len(rest), f"`{comment}`: parts are `given: ` and `check: `"
    return name, given, check


def run(place, comment, text, folder, programs):
    name, given, check = parts_of(comment)
    script = "\n".join([*given, re.sub(r"^\$ ", "", text, flags=re.M), *check])
    # One thread: the data are small, and other tests run beside it.
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    begin = time.monotonic()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
    print(f"{place}: {name}: {'passed' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - begin:.1f} s")
    if done.returncode:
        print(f"---- the commands\n{script}\n---- their output, exit status {done.returncode}\n{done.stdout}")
    return done.returncode == 0


def main():
    lockstep = pathlib.Path(sys.argv[1]).resolve()
    pages = sys.argv[2:] or PAGES
    failed = ran = 0
    for page in sorted({*pages, *(str(file.relative_to(ROOT)) for file in (ROOT / "docs").glob("*.md"))}):
        with tempfile.TemporaryDirectory(prefix="lockstep_docs_", dir=MEMORY) as folder:
            data = pathlib.Path(folder) / "examples"
            data.mkdir()
            (data / "data").symlink_to(ROOT / "examples/data")
            programs = pathlib.Path(folder) / "build/release/bin"
            programs.mkdir(parents=True)
            (programs / "lockstep").symlink_to(lockstep)
            (programs / "xdg-open").write_text("#!/bin/sh\n")  # opens no window
            (programs / "xdg-open").chmod(0o755)
            for place, match in blocks(page):
                kind, comment, language, text = match.group("kind", "comment", "language", "text")
                if language != "sh":
                    try:
                        print(f"{place}: {language}: {'passed' if parsed(language, text) else 'not parsed, because PyYAML was not found'}")
                    except (AssertionError, ValueError) as error:
                        print(f"{place}: {language}: FAILED: {error}")
                        failed += 1
                    if kind == "file":
                        (pathlib.Path(folder) / comment).write_text(text)
                elif page in pages and kind == "run":
                    failed += not run(place, comment, text, folder, programs)
                    ran += 1
                elif page in pages and kind != "not run":
                    print(f"{place}: no comment `<!-- run: NAME -->` or `<!-- not run: REASON -->` above this block")
                    failed += 1
    print(f"commands of the documentation: {ran} blocks run, {failed} faults")
    return 1 if failed or ran < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
