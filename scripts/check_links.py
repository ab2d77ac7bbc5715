#!/usr/bin/env python3
"""Checks that every link and every path in the Markdown files leads to a file. Prints file:line for each that does not."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Text in backticks is a path of the repository if it begins with a folder of the repository or of lockstep/.
FOLDERS = {path.name for base in (ROOT, ROOT / "lockstep") for path in base.iterdir()
           if path.is_dir() and path.name not in (".git", "build")}
# Files that a build or a user makes, by their beginning.
MADE = ("build/",)

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w.\-/*{},]+$")


def is_path(text):
    """Returns whether text in backticks names a file or folder of the repository."""
    if not PATH.match(text) or text.startswith(MADE):
        return False
    if "/" in text:
        return text.split("/")[0] in FOLDERS
    return text.endswith(".md") or text == "CMakeLists.txt"


def exists(base, text):
    """Returns whether a path, with wildcards, {a,b} and NAME for any name, names something in the folder `base`."""
    text = text.split("NAME")[0]
    match = re.search(r"\{([^{}]*)\}", text)
    if match:
        return all(exists(base, text[:match.start()] + part + text[match.end():]) for part in match.group(1).split(","))
    return any(True for _ in base.glob(text.rstrip("/"))) if "*" in text else (base / text).exists()


def headings(file):
    """Returns the anchors that the headings of a Markdown file have."""
    lines = re.sub(r"```.*?```", "", file.read_text(), flags=re.S).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def broken_links(file, line):
    for target in LINK.findall(line):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (file.parent / path).resolve() if path else file
        if not there.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and there.suffix == ".md" and anchor not in headings(there):
            yield f"the link {target} leads to no heading"


def broken_paths(file, line):
    for text in CODE.findall(line):
        if is_path(text) and not exists(ROOT, text) and not exists(file.parent, text):
            yield f"the path {text} does not exist"


def main():
    found = 0
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    for name in sorted(listed):
        file = ROOT / name
        in_code = False
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                in_code = not in_code
            if in_code:
                continue
            for reason in [*broken_links(file, line), *broken_paths(file, line)]:
                print(f"{name}:{number}: {reason}")
                found += 1
    print(f"links: {len(listed)} files, {found} broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
