"""What the peers' measurements share: the cases of `lockstep bench step`, the clock, and the lines that are printed."""

import json
import os
import statistics
import time

CASES = [(width, batch) for width in (512, 2048) for batch in (32, 256)]
MESSAGES = [4 << 10, 4 << 20, 64 << 20]


def median_seconds(work, repeats=15, warm_up=3):
    for _ in range(warm_up):
        work()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def use_one_core():
    """Call it before the system makes its threads."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def report_step(system, workers, width, batch, seconds):
    line = {"name": "step", "system": system, "workers": workers, "width": width, "batch": batch, "seconds": seconds}
    print(json.dumps(line), flush=True)


def report_all_reduce(system, workers, size, seconds):
    line = {"name": "all_reduce", "system": system, "workers": workers, "bytes": size, "seconds": seconds}
    print(json.dumps(line), flush=True)
