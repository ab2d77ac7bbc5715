#!/usr/bin/env python3
"""Checks every header in lockstep/: it has #pragma once, a CMakeLists.txt lists it, and it compiles alone.

Without precompiled headers, which would hide a missing include. A header that was fine is not compiled again until it, or
a header of ours that it includes, changes (stamps in the build folder).
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"(lockstep/[^"]+)"', re.MULTILINE)


def pragma_problems(headers):
    return [f"{h}:1: #pragma once is missing" for h in headers if "#pragma once" not in (ROOT / h).read_text()]


def listing_problems(headers):
    """Finds headers that no CMakeLists.txt of their folder, or of one above it, lists."""
    problems = []
    for header in headers:
        path = pathlib.Path(header)
        listed = False
        for folder in path.parents:
            lists = ROOT / folder / "CMakeLists.txt"
            if folder != pathlib.Path(".") and lists.exists():
                listed = listed or path.relative_to(folder).as_posix() in lists.read_text().split("#")[0].split() \
                    or re.search(rf"(?m)^\s*{re.escape(path.relative_to(folder).as_posix())}\)?\s*$", lists.read_text())
        if not listed:
            problems.append(f"{header}:1: no CMakeLists.txt lists it; a public header belongs to FILE_SET HEADERS")
    return problems


def compiler_command(build, folder="lockstep"):
    """Takes the flags of a source in the folder, without its precompiled header, output and optimisation.

    Those of the library where the folder has none: an engine's sources may be left out, or know its vendor's headers.
    """
    entries = json.loads((build / "compile_commands.json").read_text())
    found = [shlex.split(entry["command"]) for entry in entries if entry["file"].startswith(str(ROOT / folder))]
    if found:
        # In an engine's folder the one with the most folders to look into is the engine's, the others are the library's.
        words = found[0] if folder == "lockstep" else max(found, key=lambda w: sum(x in ("-I", "-isystem") for x in w))
        command, skip = [], False
        for word in words[: words.index("-o")]:
            if skip or word in ("-include", "-MT", "-MF"):
                skip = not skip
            elif not re.match(r"-O\d|-g\d?$|-MD$|-Winvalid-pch|-fpch-preprocess", word):
                command.append(word)
        return command
    if folder != "lockstep":
        return compiler_command(build)
    raise SystemExit(f"[check_headers] the build must be configured: build={build}; run `cmake --preset release`")


def digest(header, command):
    """Hashes the header and all of our headers that it reaches, with the command."""
    seen, todo = set(), [header]
    state = hashlib.sha256(" ".join(command).encode())
    while todo:
        path = todo.pop()
        if path in seen or not (ROOT / path).exists():
            continue
        seen.add(path)
        text = (ROOT / path).read_text()
        todo += INCLUDE.findall(text)
    for path in sorted(seen):
        state.update((ROOT / path).read_bytes())
    return state.hexdigest()


def compile_alone(header, command, stamps):
    stamp = stamps / header.replace("/", "_")
    wanted = digest(header, command)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    # Included twice, so that a missing guard shows; by a file, so that #pragma once is not in the main file.
    source = f'#include "{header}"\n#include "{header}"\n'
    result = subprocess.run(command + ["-fsyntax-only", "-x", "c++", "-"], input=source, cwd=ROOT, text=True,
                            capture_output=True)
    if result.returncode == 0:
        stamp.write_text(wanted)
        return None
    return f"{header}:1: does not compile alone\n{result.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="a configured build folder")
    build = ROOT / parser.parse_args().build
    headers = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "lockstep").rglob("*.h"))
    problems = pragma_problems(headers) + listing_problems(headers)

    stamps = build / "headers_checked"
    stamps.mkdir(parents=True, exist_ok=True)
    engines = {folder: compiler_command(build, folder) for folder in {str(pathlib.Path(h).parent) for h in headers}
               if folder.startswith("lockstep/comm/backends/")}
    command = compiler_command(build)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems += filter(None, pool.map(
            lambda h: compile_alone(h, engines.get(str(pathlib.Path(h).parent), command), stamps), headers))
    print("\n".join(problems) + ("\n" if problems else "") + f"headers: {len(headers)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
