#!/usr/bin/env python3
"""Runs the commands of a file of examples/expected and compares what they print.

    check_output.py EXPECTED.txt BIN        runs its commands, with the programs in the folder BIN for build/release/bin
    check_output.py --command EXPECTED.txt BIN   prints its only command
    check_output.py --output EXPECTED.txt FILE   compares what its only command has printed to FILE
    check_output.py --readme README.md EXPECTED.txt...     each file is a code block of README.md
    check_output.py --self-test

A file has commands, each behind "$ " and followed by what it prints on standard output:

    # numbers to 0.1            how far decimal numbers may be from the expected ones: 0.1 of their value, or of 0.001
    # lines in any order        for workers that print at once; with a line "..." there may be others
    # skip: TEXT                the test is skipped where a command prints TEXT
    $ build/release/bin/several_workers
    worker 0 of 1 has read 10000 of 10000 rows
    loss 0.012, <1.3> s         decimal numbers to the tolerance, integers exactly; in < > any number
    it writes <a text>          in < > any text
    ...                         any lines; what follows the last one is the end
    (exit status 137)           where it is not 0

Other lines that begin with # are comments. Spaces between words may differ in number. Commands run in one empty folder.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

SKIPPED = 77
TIMEOUT_SECONDS = 300
SMALLEST = 1e-3
NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
TOKEN = re.compile(rf"<[^<>]*>|{NUMBER}")


class Expected:
    def __init__(self, text):
        self.tolerance = 0.0
        self.any_order = False
        self.skip = []
        self.commands = []  # (command, lines, status)
        for line in text.splitlines():
            if match := re.match(r"# numbers to ([-+.e\d]*\d)", line):
                self.tolerance = float(match.group(1))
            elif line.startswith("# lines in any order"):
                self.any_order = True
            elif line.startswith("# skip: "):
                self.skip.append(line[len("# skip: "):])
            elif line.startswith("#"):
                continue
            elif line.startswith("$ "):
                self.commands.append([line[2:], [], 0])
            elif match := re.match(r"\(exit status (\d+)\)$", line):
                self.commands[-1][2] = int(match.group(1))
            else:
                self.commands[-1][1].append(line)


def pattern_of(line):
    """Returns a regular expression for a line, and the values of its decimal numbers, which are its groups."""
    line = " ".join(line.split())
    pattern, numbers, end = "", [], 0
    for token in TOKEN.finditer(line):
        pattern += re.escape(line[end:token.start()])
        text, end = token.group(), token.end()
        if text.startswith("<"):
            pattern += NUMBER if re.fullmatch(NUMBER, text[1:-1]) else ".*"
        elif re.search(r"[.e]", text):
            pattern += f"({NUMBER})"
            numbers.append(float(text))
        else:
            pattern += re.escape(text)
    return re.compile(pattern + re.escape(line[end:])), numbers


def fits(expected, line, tolerance):
    pattern, numbers = pattern_of(expected)
    match = pattern.fullmatch(" ".join(line.split()))
    return bool(match) and all(abs(float(text) - number) <= tolerance * max(abs(number), SMALLEST)
                               for text, number in zip(match.groups(), numbers))


def first_difference(expected, lines, tolerance, any_order=False):
    """Returns a text that names the first line that does not fit, or nothing."""
    if any_order:
        left = list(lines)
        for wanted in (line for line in expected if line != "..."):
            found = next((line for line in left if fits(wanted, line, tolerance)), None)
            if found is None:
                return f"expected `{wanted}` in any line"
            left.remove(found)
        return f"did not expect `{left[0]}`" if left and "..." not in expected else None
    at = 0
    segments = [[]]
    for wanted in expected:
        if wanted == "...":
            segments.append([])
        else:
            segments[-1].append(wanted)
    for number, segment in enumerate(segments):
        if number == 0:
            places = [0]
        elif number + 1 == len(segments):  # what follows the last "..." is the end
            places = [len(lines) - len(segment)]
        else:
            places = range(at, len(lines) - len(segment) + 1)
        problem = f"expected `{segment[0]}` after line {at}" if segment else None
        for place in places:
            problem = difference_at(segment, lines, place, tolerance) if place >= at else problem
            if problem is None:
                at = place + len(segment)
                break
        if problem:
            return problem
    return None if at == len(lines) else f"line {at + 1}: did not expect `{lines[at]}`"


def difference_at(segment, lines, place, tolerance):
    """Returns a text that names the first line of a segment that is not at this place of the output, or nothing."""
    for number, wanted in enumerate(segment, place):
        if number >= len(lines):
            return f"expected `{wanted}` after line {number}"
        if not fits(wanted, lines[number], tolerance):
            return f"line {number + 1}: expected `{wanted}`, got `{lines[number]}`"
    return None


def run(command, folder):
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        errors += f"\nit did not end within {TIMEOUT_SECONDS} s"
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return output, errors, status


def check(file, programs):
    expected = Expected(file.read_text())
    with tempfile.TemporaryDirectory(prefix="lockstep_example_") as folder:
        for command, lines, wanted_status in expected.commands:
            output, errors, status = run(command.replace("build/release/bin/", f"{programs}/"), folder)
            for reason in expected.skip:
                if reason in output or reason in errors:
                    print(reason)
                    return SKIPPED
            problem = first_difference(lines, output.splitlines(), expected.tolerance, expected.any_order)
            if status != wanted_status:
                problem = f"expected the exit status {wanted_status}, got {status}"
            if problem:
                print(f"{file.name}: $ {command}\n{problem}\n---- its output\n{output}---- its errors\n{errors}")
                return 1
            print(f"$ {command}\n{output}", end="")
    return 0


def check_printed(file, printed):
    """Compares what the only command of a file has printed."""
    expected = Expected(file.read_text())
    problem = first_difference(expected.commands[0][1], printed.read_text().splitlines(), expected.tolerance, expected.any_order)
    if problem:
        print(f"{file.name}: {problem}\n---- its output\n{printed.read_text()}")
    return 1 if problem else 0


def check_readme(readme, files):
    """Each file, without its comments and marks, is a code block of the README."""
    text = readme.read_text()
    wrong = 0
    for file in files:
        shown = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        block = "```\n" + re.sub(r"<([^<>]*)>", r"\1", "\n".join(shown)) + "\n```\n"
        if block not in text:
            print(f"{readme.name} does not show {file.name}:\n{block}")
            wrong = 1
    return wrong


def self_test():
    cases = [
        (True, "loss 0.50, 3 rows", "loss  0.52, 3 rows"),
        (False, "loss 0.50, 3 rows", "loss 0.60, 3 rows"),
        (False, "loss 0.50, 3 rows", "loss 0.50, 4 rows"),
        (False, "loss 0.50", "loss nan"),
        (False, "loss 0.50", "the loss 0.50"),
        (True, "loss -2e-05", "loss 3e-06"),
        (True, "in <1.5> s: <text>", "in 20.25 s: any text"),
        (False, "in <1.5> s", "in no s"),
    ]
    for good, expected, line in cases:
        assert fits(expected, line, 0.1) == good, (expected, line)
    sequences = [
        (True, ["a", "b"], ["a", "b"], False),
        (False, ["a", "b"], ["b", "a"], False),
        (True, ["a", "b"], ["b", "a"], True),
        (False, ["a", "a"], ["b", "a"], True),
        (False, ["a"], ["a", "a"], True),
        (True, ["a", "..."], ["b", "a"], True),
        (False, ["a", "c", "..."], ["b", "a"], True),
        (False, ["a"], ["a", "b"], False),
        (False, ["a", "b"], ["a"], False),
        (True, ["a", "..."], ["a", "b"], False),
        (True, ["...", "b"], ["a", "c", "b"], False),
        (False, ["...", "d"], ["a", "c", "b"], False),
        (True, ["a", "...", "b"], ["a", "b", "c", "b"], False),
        (True, ["a", "...", "c", "...", "b"], ["a", "b", "c", "b"], False),
        (False, ["a", "...", "d", "...", "b"], ["a", "b", "c", "b"], False),
        (False, ["a", "...", "b", "c"], ["a", "b"], False),
    ]
    for good, expected, lines, any_order in sequences:
        assert (first_difference(expected, lines, 0.1, any_order) is None) == good, (expected, lines)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "expected.txt"
        for status, text in [(0, "$ echo a\na\n"), (1, "$ echo a\nb\n"), (1, "$ echo a; exit 3\na\n"),
                             (0, "$ echo a; exit 3\na\n(exit status 3)\n"), (SKIPPED, "# skip: no a\n$ echo no a\nb\n")]:
            file.write_text(text)
            assert check(file, folder) == status, text
    return 0


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 2 and arguments[0] == "--readme":
        return check_readme(pathlib.Path(arguments[1]), [pathlib.Path(file) for file in arguments[2:]])
    if len(arguments) == 3 and arguments[0] == "--command":
        (command, _, _), = Expected(pathlib.Path(arguments[1]).read_text()).commands
        print(command.replace("build/release/bin/", os.path.abspath(arguments[2]) + "/"))
        return 0
    if len(arguments) == 3 and arguments[0] == "--output":
        return check_printed(pathlib.Path(arguments[1]), pathlib.Path(arguments[2]))
    if len(arguments) != 2:
        print(__doc__)
        return 2
    return check(pathlib.Path(arguments[0]), os.path.abspath(arguments[1]))


if __name__ == "__main__":
    sys.exit(main())
