#!/usr/bin/env python3
"""Checks that files of lockstep/ compile alone, which a unity build does not show.

Every header has #pragma once and is listed in a CMakeLists.txt. Public headers compile without the precompiled header,
private ones with it: it hides missing includes of LibTorch and the standard library, not of ours, and takes a third of the
time. Of the sources a sample is compiled, another one for every commit. What was fine is not compiled again until it, or a
header of ours that it includes, changes (stamps in the build folder).
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
ENGINES = "lockstep/comm/engines/"


def listed_files():
    """Returns the files that CMakeLists.txt of lockstep/ list, with whether each is a public header."""
    files = {}
    for lists in (ROOT / "lockstep").rglob("CMakeLists.txt"):
        folder = lists.parent.relative_to(ROOT).as_posix()
        public = False
        for line in lists.read_text().splitlines():
            if re.match(r"\s*[a-z_]+\(", line):
                public = "FILE_SET HEADERS" in line
            for name in re.findall(r"[\w./-]+\.(?:h|cpp)\b", line.split("#")[0]):
                files[f"{folder}/{name}"] = public
    return files


def library_command(build):
    """Returns the compiler's words for a source of the library: its flags and its precompiled header."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if "CMakeFiles/lockstep.dir/" in entry["command"] and ("-include" in words or "Unity" in entry["file"]):
            return words[: words.index("-o")]
    raise SystemExit(f"[check_alone] the build must be configured: build={build}; run `cmake --preset release`")


def engine_command(build, folder, fallback):
    """Returns the words for the sources of an engine, which know its vendor's headers."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if entry["file"].startswith(str(ROOT / folder)) and "CMakeFiles/lockstep.dir/" not in entry["command"]:
            return words[: words.index("-o")]
    return fallback


def without_precompiled(words):
    command, skip = [], False
    for word in words:
        if skip or word in ("-include", "-MT", "-MF"):
            skip = not skip
        elif not re.match(r"-O\d|-g\d?$|-MD$|-Winvalid-pch|-fpch-preprocess", word):
            command.append(word)
    return command


def without_dependencies(words):
    command, skip = [], False
    for word in words:
        if skip or word in ("-MT", "-MF"):
            skip = not skip
        elif word != "-MD":
            command.append(word)
    return command


def digest(file, command):
    """Hashes the file and all of our headers that it reaches, with the command."""
    seen, todo = set(), [file]
    state = hashlib.sha256(" ".join(command).encode())
    while todo:
        path = todo.pop()
        if path in seen or not (ROOT / path).exists():
            continue
        seen.add(path)
        todo += INCLUDE.findall((ROOT / path).read_text())
    for path in sorted(seen):
        state.update((ROOT / path).read_bytes())
    return state.hexdigest()


def compile_alone(file, command, build, stamps):
    stamp = stamps / file.replace("/", "_")
    wanted = digest(file, command)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    # Included twice, so that a missing guard shows; by a file, so that #pragma once is not in the main file.
    source = f'#include "{file}"\n' * (2 if file.endswith(".h") else 1)
    # A source that another file includes looks like a header: see LockstepCompile.cmake.
    result = subprocess.run(command + ["-Wno-subobject-linkage", "-fsyntax-only", "-x", "c++", "-"], input=source,
                            cwd=build, text=True, capture_output=True)
    if result.returncode == 0:
        stamp.write_text(wanted)
        return None
    return f"{file}:1: does not compile alone\n{result.stderr}"


def built_sources(build):
    """Returns the sources that this configuration compiles: others are for another machine or another LibTorch."""
    built = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(entry["file"])
        names = [str(unit)]
        if "Unity" in unit.parts and unit.exists():
            names = re.findall(r'^#include "([^"]+)"', unit.read_text(), re.MULTILINE)
        built.update(os.path.relpath(name, ROOT) for name in names)
    return built


def sample_of(sources, size):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return sorted(sources, key=lambda source: hashlib.sha256((commit + source).encode()).digest())[:size]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release", help="a configured build folder")
    parser.add_argument("--sources", type=int, default=12, help="how many sources are compiled; 1000 for all")
    options = parser.parse_args()
    build = ROOT / options.build
    files = listed_files()
    headers = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "lockstep").rglob("*.h"))
    problems = [f"{h}:1: #pragma once is missing" for h in headers if "#pragma once" not in (ROOT / h).read_text()]
    problems += [f"{h}:1: no CMakeLists.txt lists it; a public header belongs to FILE_SET HEADERS"
                 for h in headers if h not in files]

    stamps = build / "compiled_alone"
    stamps.mkdir(parents=True, exist_ok=True)
    library = library_command(build)
    commands = {}
    for header in headers:
        folder = "/".join(header.split("/")[:4])
        if header.startswith(ENGINES):
            commands[header] = without_precompiled(engine_command(build, folder, library))
        else:
            commands[header] = without_precompiled(library) if files.get(header) else without_dependencies(library)
    # Engines, and kernels for one kind of processor, have flags of their own.
    optional = re.compile(r"/crc32c_(x86_64|arm64)|^lockstep/comm/engines/(gloo|mpi|nccl)/|_(x86_64|aarch64|arm64)\.cpp$")
    built = built_sources(build)
    sources = [f for f in files if f.endswith(".cpp") and f in built and not optional.search(f)]
    for source in sample_of(sources, options.sources):
        commands[source] = without_dependencies(library)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems += filter(None, pool.map(lambda f: compile_alone(f, commands[f], build, stamps), commands))
    public = sum(files.get(h, False) for h in headers)
    print("\n".join(problems) + ("\n" if problems else "") +
          f"alone: {len(headers)} headers ({public} public), {len(commands) - len(headers)} sources, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
