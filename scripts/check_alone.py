#!/usr/bin/env python3
"""Checks that files of lockstep/ compile alone, which a unity build does not show.

Every header has #pragma once, is listed in a CMakeLists.txt, and compiles alone. Of the sources a sample is compiled, another
one for every commit. What was fine is not compiled again until it, or a header of ours that it includes, changes (stamps in
the build folder).

Nearly all of the time is LibTorch's headers, so the most used ones are precompiled (BASES). A file is compiled with a base
only if it includes all that the base has, itself or through headers of ours: no missing include is hidden, of ours or of
others, in public headers or private ones. A base saves time when 4 files use it. instantiate_plugin.cpp makes using one
cheap; a compiler that cannot load it takes longer and finds the same.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
ENGINES = "lockstep/comm/engines/"
# Built where their vendor's library is there.
VENDORS = re.compile(r"lockstep/comm/engines/(gloo|mpi|nccl)/")
# Headers that are precompiled together, the most expensive first: a file is compiled with the first that it includes all of.
BASES = [
    ("torch/nn/module.h",),
    ("ATen/ops/scalar_tensor.h",),
    ("torch/optim/optimizer.h",),
    ("ATen/core/Tensor.h",),
    ("c10/core/ScalarType.h",),
    ("c10/util/intrusive_ptr.h",),
    ("chrono", "memory", "string", "vector"),
    ("functional", "string"),
    ("memory", "string", "vector"),
    ("string",),
]
USERS_OF_A_BASE = 4


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


def engine_command(build, folder):
    """Returns the words for the sources of an engine, which know its vendor's headers; None where it is not built."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if entry["file"].startswith(str(ROOT / folder)) and "CMakeFiles/lockstep.dir/" not in entry["command"]:
            return words[: words.index("-o")]
    return None


def plain(words):
    """Returns the words without what is for optimisation, dependencies and the precompiled header."""
    command, skip = [], False
    for word in words:
        if skip or word in ("-include", "-MT", "-MF", "-x"):
            skip = not skip
        elif not re.match(r"-O\d|-g\d?$|-MD$|-Winvalid-pch|-fpch-preprocess", word):
            command.append(word)
    # A source that another file includes looks like a header: see LockstepCompile.cmake.
    return command + ["-Wno-subobject-linkage", "-Wno-unknown-pragmas"]


@functools.cache
def text_of(path):
    """Returns the text of a file of ours; nothing for headers of others."""
    ours = path.startswith("lockstep/") and (ROOT / path).exists()
    return (ROOT / path).read_text() if ours else ""


def reached(file):
    """Returns all that the file includes, itself or through headers of ours, and the file."""
    seen, todo = set(), [file]
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += INCLUDE.findall(text_of(path))
    return seen


def digest(file, command):
    """Hashes the file and all of our headers that it reaches, with the command."""
    state = hashlib.sha256(" ".join(command).encode())
    for path in sorted(reached(file)):
        state.update(text_of(path).encode())
    return state.hexdigest()


def run(command, build, text=""):
    return subprocess.run(command, input=text, cwd=build, text=True, capture_output=True)


class Bases:
    """The precompiled headers of one run: in a folder that is removed after it, as they take 1 GB."""

    def __init__(self, command, build, folder):
        self.command, self.build, self.folder = command, build, pathlib.Path(folder)
        plugin = [command[0], "-shared", "-fPIC", str(ROOT / "scripts/instantiate_plugin.cpp"), "-o", f"{folder}/plugin.so"]
        if run(plugin, build).returncode == 0:
            loaded = command + [f"-fplugin={folder}/plugin.so"]
            if run(loaded + ["-fsyntax-only", "-x", "c++", "-"], build).returncode == 0:
                self.command = loaded

    def start(self, files, pool):
        """Chooses a base for each file, and starts to precompile those that are worth it."""
        self.base = {}
        for file in files:
            below = reached(file) - {file}
            self.base[file] = next((base for base in BASES if below.issuperset(base)), None)
        users = collections.Counter(self.base.values())
        self.ready = {base: pool.submit(self.precompile, base) for base in BASES if users[base] >= USERS_OF_A_BASE}

    def precompile(self, base):
        header = self.folder / f"base_{BASES.index(base)}.h"
        header.write_text("".join(f"#include <{name}>\n" for name in base) + "#pragma lockstep instantiate\n")
        # Where this fails, the files that use it include its text, and tell why.
        run(self.command + ["-x", "c++-header", str(header), "-o", f"{header}.gch"], self.build)
        return header

    def command_for(self, file):
        ready = self.ready.get(self.base.get(file))
        return self.command + ["-include", str(ready.result())] if ready else self.command


def compile_alone(file, command, build):
    # Included twice, so that a missing guard shows; by a file, so that #pragma once is not in the main file.
    source = f'#include "{file}"\n' * (2 if file.endswith(".h") else 1)
    result = run(command + ["-fsyntax-only", "-x", "c++", "-"], build, source)
    return f"{file}:1: does not compile alone\n{result.stderr}" if result.returncode else None


def compile_all(commands, library, build, stamps):
    """Compiles the files that have changed, each alone; returns the problems."""
    digests = {file: digest(file, command) for file, command in commands.items()}
    stamp = {file: stamps / file.replace("/", "_") for file in commands}
    changed = [f for f in commands if not stamp[f].exists() or stamp[f].read_text() != digests[f]]

    def check(file, bases):
        command = bases.command_for(file) if commands[file] == library else commands[file]
        problem = compile_alone(file, command, build)
        if not problem:
            stamp[file].write_text(digests[file])
        return problem

    with tempfile.TemporaryDirectory(dir=build) as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bases = Bases(library, build, folder)
        bases.start([f for f in changed if commands[f] == library], pool)
        # What needs no base is compiled while the last bases are being made.
        changed.sort(key=lambda file: bases.base.get(file) is not None)
        return [problem for problem in pool.map(lambda file: check(file, bases), changed) if problem]


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
    library = plain(library_command(build))
    commands = dict.fromkeys(headers, library)
    for header in headers:
        if header.startswith(ENGINES):
            command = engine_command(build, "/".join(header.split("/")[:4]))
            if command:
                commands[header] = plain(command)
            elif VENDORS.match(header):
                del commands[header]  # this build has not its vendor's headers
    # Engines, and kernels for one kind of processor, have flags of their own.
    optional = re.compile(r"/crc32c_(x86_64|arm64)|^" + VENDORS.pattern + r"|_(x86_64|aarch64|arm64)\.cpp$")
    built = built_sources(build)
    sources = [f for f in files if f.endswith(".cpp") and f in built and not optional.search(f)]
    sample = sample_of(sources, options.sources)
    num_headers = len(commands)
    commands.update(dict.fromkeys(sample, library))
    problems += compile_all(commands, library, build, stamps)
    public = sum(files.get(h, False) for h in headers)
    print("\n".join(problems) + ("\n" if problems else "") +
          f"alone: {num_headers} headers ({public} public), {len(sample)} sources, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
