#!/usr/bin/env python3
"""Two workers on this machine: lockstep beside TensorFlow and PyTorch, one after the other, in one table.

    bench/peers/compare_workers.py --install     makes virtual environments for the peers first, with pip
    bench/peers/compare_workers.py               measures what is there and says what is missing

Needs Python's standard library only; the peers run in their own environments, below build/peers.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "build" / "peers"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
MESSAGES = [4 << 10, 4 << 20, 64 << 20]

TORCH = "torch==2.8.0"
# On Arm this version computes on CPUs only, and needs nothing of what it lists for GPUs.
TORCH_ON_ARM = ["numpy", "sympy", "networkx", "jinja2", "fsspec", "filelock", "typing_extensions"]

PEERS = {"tensorflow": "tf_multiworker.py", "torch": "ddp_step.py"}


def python_of(package):
    return ENVIRONMENTS / package / "bin" / "python"


def install(package):
    venv.create(ENVIRONMENTS / package, with_pip=True)
    pip = [str(python_of(package)), "-m", "pip", "install", "--quiet"]
    if package == "tensorflow":
        subprocess.run([*pip, "tensorflow==2.21.0"], check=True)
    elif platform.machine() == "aarch64":
        subprocess.run([*pip, "--no-deps", TORCH], check=True)
        subprocess.run([*pip, *TORCH_ON_ARM], check=True)
    else:
        subprocess.run([*pip, TORCH, "numpy"], check=True)


def lines_of(command, environment=None):
    """Runs it and returns the JSON objects that it prints; what else it prints is left out."""
    done = subprocess.run(
        [str(word) for word in command], env=dict(os.environ, **(environment or {})), stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        print(f"{command[0]}: exit status {done.returncode}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def lockstep_results(command):
    """The steps on one and on two workers, and the all-reduces, as the peers print them."""
    system = "lockstep"
    results = []
    for line in lines_of([command, "bench", "step", "--workers", 2, "--json"]):
        case = {"name": "step", "system": system, "width": line["width"], "batch": line["batch"]}
        results.append({**case, "workers": 1, "seconds": line["seconds_1"]})
        results.append({**case, "workers": 2, "seconds": line["seconds_n"]})
    sizes = [word for size in MESSAGES for word in ("--bytes", size)]
    for line in lines_of([command, "bench", "all_reduce", "--workers", 2, *sizes, "--json"]):
        case = {"name": "all_reduce", "workers": 2, "bytes": line["bytes"]}
        results.append({**case, "system": system, "seconds": line["own_us"] / 1e6})
        for engine, name in (("gloo", "Gloo alone"), ("mpi", "Open MPI alone")):
            if line[engine + "_us"] is not None:
                results.append({**case, "system": name, "seconds": line[engine + "_us"] / 1e6})
    return results


def step_cell(results, system, width, batch):
    seconds = {
        line["workers"]: line["seconds"]
        for line in results
        if line["name"] == "step" and (line["system"], line["width"], line["batch"]) == (system, width, batch)
    }
    if set(seconds) != {1, 2}:
        return ""
    return f"{seconds[1] * 1e3:.3g} → {seconds[2] * 1e3:.3g} ({seconds[1] / seconds[2]:.2f})"


def all_reduce_cell(results, system, size):
    for line in results:
        if line["name"] == "all_reduce" and (line["system"], line["bytes"]) == (system, size):
            return f"{line['seconds'] * 1e6:.4g}"
    return ""


def print_table(results):
    cases = [(width, batch) for width in (512, 2048) for batch in (32, 256)]
    heads = ["system"]
    heads += [f"{width} / {batch}, ms (efficiency)" for width, batch in cases]
    heads += [f"all-reduce {size >> 10} KiB, µs" for size in MESSAGES]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for system in dict.fromkeys(line["system"] for line in results):
        row = [system]
        row += [step_cell(results, system, width, batch) for width, batch in cases]
        row += [all_reduce_cell(results, system, size) for size in MESSAGES]
        print("| " + " | ".join(row) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the peers' environments that are missing")
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"), help="the command to measure")
    options = parser.parse_args()
    results = []
    if Path(options.lockstep).exists():
        results += lockstep_results(options.lockstep)
    else:
        print(f"lockstep is missing: {options.lockstep}; run make build", file=sys.stderr)
    for package, script in PEERS.items():
        if not python_of(package).exists() and options.install:
            install(package)
        if not python_of(package).exists():
            print(f"{package} is missing: {python_of(package)}; run with --install", file=sys.stderr)
            continue
        results += lines_of([python_of(package), HERE / script], ONE_THREAD)
    print_table(results)


if __name__ == "__main__":
    main()
