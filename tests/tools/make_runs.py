#!/usr/bin/env python3
"""Writes folders of runs as callbacks::run_folder writes them, with made-up numbers: make_runs.py FOLDER.

The folders are the cases that a report has to show: `plain`, `four` (two workers, one slow), `running`, `nan`, `one_epoch`,
`no_steps`, `damaged`, `long` (100,000 intervals), `many` (64 replicas), `names` (text that would break a page), `short` (a run of
half a second), `narrow` (values that hardly differ), `resumed` (three days later), and in `hundred/` a hundred runs.
"""

import json
import math
import pathlib
import random
import sys

BEGIN = 1_795_000_000.0
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'{{data}}"


def finite(value):
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def identity(name, workers=1, replicas=1, **changes):
    result = {
        "format": 1, "name": name, "created": "2026-11-18T10:13:20Z", "ended": "2026-11-18T10:15:20Z", "state": "finished",
        "reason": "", "command": ["./train", "--model", "mlp", "--epochs", "10"], "working_directory": "/home/ada/digits",
        "host": "alpha", "user": "ada", "pid": 4242, "lockstep": "0.1.0", "libtorch": "2.11.0", "compiler": "GCC 12.2.0",
        "git": {"commit": "22342d2aa01", "branch": "main", "dirty": False}, "seed": 7,
        "environment": {"OMP_NUM_THREADS": "2", "LOCKSTEP_ENGINE": "shm"},
        "strategy": {"name": "MirroredStrategy" if workers == 1 else "MultiWorkerMirroredStrategy", "workers": workers,
                     "replicas": replicas, "devices": [f"CPU:{index}" for index in range(replicas // workers)]},
        "configuration": {"model": "mlp", "batch": 256, "optimizer": {"name": "adam", "lr": 0.001}}, "parameters": 101770,
        "resumed_from_step": None,
    }
    result.update(changes)
    return result


def phases(random_, slow, step_seconds, steps):
    own = step_seconds * random_.uniform(0.97, 1.03) * (1.3 if slow else 1.0)
    waiting = max(0.0, step_seconds * 1.3 - own) if not slow else 0.02 * own
    times = {"input": 0.08 * own, "forward": 0.27 * own, "backward": 0.5 * own, "communication": 0.12 * own,
             "waiting": waiting * 0.8, "update": 0.1 * own, "checkpoint": 0.0, "compile": 0.0}
    return {name: seconds * steps for name, seconds in times.items()}


def write_run(folder, epochs=10, intervals_per_epoch=12, workers=1, replicas=1, rate=1.0, slow=None, steps_file=True,
              nan_from=None, seed=1, **changes):
    """Writes one run; `slow`: a replica; `nan_from`: the interval whose loss, and every later one, is NaN."""
    random_ = random.Random(seed)
    folder.mkdir(parents=True)
    metrics, steps = [], []
    step, time, interval = 0, BEGIN, 0
    for epoch in range(epochs):
        begin = time
        for _ in range(intervals_per_epoch):
            count = 40
            seconds = count * 0.026 * random_.uniform(0.95, 1.06) * (1.3 if slow is not None else 1.0)
            step, time, interval = step + count, time + seconds, interval + 1
            loss = 2.2 * math.exp(-rate * step / 1800) + 0.08 + random_.gauss(0, 0.04 * math.exp(-step / 4000))
            if nan_from is not None and interval >= nan_from:
                loss = math.nan
            each = replicas // workers
            steps.append({
                "step": step, "epoch": epoch, "time": round(time, 3), "seconds": round(seconds, 4), "steps": count,
                "examples": count * 256, "loss": finite(loss), "lr": 0.001 * 0.5 * (1 + math.cos(math.pi * epoch / epochs)),
                "workers": [{"worker": worker, "host": "alpha" if worker == 0 else f"node{worker}", "replicas": [
                    {"replica": worker * each + local, "device": f"CPU:{local}",
                     **phases(random_, worker * each + local == slow, 0.022, count),
                     "memory": 310e6 + 2e5 * interval + 1e6 * worker} for local in range(each)]} for worker in range(workers)],
            })
        loss = 2.2 * math.exp(-rate * step / 1800) + 0.08
        accuracy = 1 - 0.9 * math.exp(-rate * step / 1500)
        if nan_from is not None and interval >= nan_from:
            loss = math.nan
        metrics.append({"epoch": epoch, "step": step, "time": round(time, 3), "seconds": round(time - begin, 4),
                        "examples": 40 * intervals_per_epoch * 256, "loss": finite(loss), "accuracy": accuracy,
                        "val_loss": finite(loss * 1.08 + 0.02), "val_accuracy": accuracy - 0.012})
        time += 0.8
    (folder / "run.json").write_text(json.dumps(identity(folder.name, workers, replicas, **changes)))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if steps_file:
        (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))


def write_collectives(folder, ranks, waiting=()):
    lines = [{"lockstep_dump": 1, "worker": 0, "num_workers": 1, "replicas_per_worker": ranks, "host": "alpha", "pid": 4242,
              "time": "2026-11-18T10:15:20Z", "reason": "the run has ended"}]
    for rank in range(ranks):
        for sequence in range(100, 140):
            start = sequence * 26_000_000 + rank * 150_000
            waits = sequence == 139 and rank in waiting
            lines.append({"group": "replicas", "rank": rank, "sequence": sequence, "call": "all_reduce(SUM, float32[784, 128])",
                          "site": "train.cpp:57", "tensors": 1, "bytes": 401408, "start_ns": start,
                          "end_ns": 0 if waits else start + 900_000, "state": "arrived" if waits else "done"})
    (folder / "collectives.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_long(folder, intervals=100_000):
    """One replica, no epoch that ended; one loss is far above the others, one is infinite."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(identity("long", state="running", ended=None)))
    with (folder / "steps.jsonl").open("w") as file:
        for index in range(intervals):
            loss = 77.0 if index == 41_234 else math.inf if index == 70_001 else 1 + 3 * math.exp(-index / 9000) + index % 7 * 0.01
            line = {"step": index + 1, "epoch": 0, "time": BEGIN + index, "seconds": 1.0, "steps": 1, "examples": 64,
                    "loss": finite(loss), "lr": 0.1}
            file.write(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("")


def edit(file, change):
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(change(index, line)) + "\n" for index, line in enumerate(lines)))


def memory_of_workers(index, line):
    """As on CPUs: the memory of the process, and none of replicas."""
    for worker in line["workers"]:
        worker["memory"] = max(replica["memory"] for replica in worker["replicas"])
        for replica in worker["replicas"]:
            replica["memory"] = None
    return line


def write_short(folder):
    """171 steps in half a second: an interval of the first step, and one of all others."""
    write_run(folder, epochs=3, intervals_per_epoch=1, seed=10)
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()][:2]
    for line, changes in zip(steps, ({"step": 1, "epoch": 0, "time": BEGIN + 0.1, "seconds": 0.1, "steps": 1, "loss": 2.3},
                                     {"step": 171, "epoch": 2, "time": BEGIN + 0.5, "seconds": 0.4, "steps": 170, "loss": 0.15})):
        line.update(changes)
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    edit(folder / "metrics.jsonl", lambda index, line: {**line, "step": 57 * (index + 1), "time": BEGIN + 0.17 * (index + 1), "seconds": 0.16})


def write_resumed(folder):
    """Goes on three days later; validation every second epoch; a tenth of the time is for checkpoints."""
    days = 3 * 86400
    attempts = [{"from_step": 0, "started": "2026-11-18T10:13:20Z", "ended": "2026-11-18T10:14:00Z", "state": "preempted", "reason": "",
                 "host": "alpha", "pid": 4242, "command": ["./train"], "git": {"commit": "22342d2aa01", "branch": "main", "dirty": False}},
                {"from_step": 1440, "started": "2026-11-21T10:14:00Z", "ended": "2026-11-21T10:15:00Z", "state": "finished", "reason": "",
                 "host": "beta", "pid": 17, "command": ["./train", "--resume"], "git": None, "libtorch": "2.12.0"}]
    write_run(folder, epochs=6, seed=13, attempts=attempts, resumed_from_step=1440)

    def later(line):
        return {**line, "time": line["time"] + (days if line["epoch"] >= 3 else 0)}

    def with_checkpoints(index, line):
        for worker in line["workers"]:
            for replica in worker["replicas"]:
                replica["checkpoint"] = 0.1 * line["seconds"]
        return later(line)

    edit(folder / "steps.jsonl", with_checkpoints)
    edit(folder / "metrics.jsonl", lambda index, line: {key: value for key, value in later(line).items()
                                                        if index % 2 == 1 or not key.startswith("val_")} if index != 5 else
         {key: value for key, value in later(line).items() if not key.startswith("val_")})


def write_narrow(folder):
    write_run(folder, epochs=4, replicas=2, seed=11)
    edit(folder / "steps.jsonl", lambda index, line: {**line, "loss": 12345.001 + 0.002 * index / 48})
    edit(folder / "metrics.jsonl", lambda index, line: {**line, "loss": 12345.001 + index * 0.0005, "val_loss": 12345.0012,
                                                       "accuracy": 0.99991 + index * 1e-6, "val_accuracy": 0.99992})


def write_all(root):
    write_run(root / "plain", replicas=2)
    write_collectives(root / "plain", 2)
    write_run(root / "four", workers=2, replicas=4, rate=1.4, slow=3, seed=2,
              configuration={"model": "mlp", "batch": 512, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}})
    write_collectives(root / "four", 4, waiting=(0, 2))
    edit(root / "four" / "steps.jsonl", memory_of_workers)
    write_run(root / "running", epochs=3, rate=0.7, seed=3, state="running", ended=None)
    write_run(root / "nan", epochs=4, nan_from=30, seed=4, state="failed", reason="the loss is NaN", git=None)
    write_run(root / "one_epoch", epochs=1, intervals_per_epoch=1, seed=5)
    write_run(root / "no_steps", steps_file=False, seed=6)
    write_run(root / "damaged", epochs=3, seed=7)
    for name in ("metrics.jsonl", "steps.jsonl"):
        text = (root / "damaged" / name).read_text()
        lines = text.splitlines(keepends=True)
        lines.insert(1, "noise\n")
        lines.insert(2, "[1, 2]\n")
        lines.insert(3, json.dumps({"epoch": "x", "loss": None, "workers": 3}) + "\n")
        (root / "damaged" / name).write_bytes("".join(lines)[:-30].encode() + b"\xff\xfe")
    (root / "damaged" / "run.json").write_text('{"format": 1, "name"')
    write_long(root / "long")
    write_run(root / "many", epochs=2, workers=8, replicas=64, slow=37, seed=8)
    evil = root / "names"
    write_run(evil, epochs=2, seed=9)
    (evil / "run.json").write_text(json.dumps(identity(
        EVIL, command=["./train", EVIL], host=EVIL, configuration={EVIL: EVIL, "nested": [EVIL]}, environment={"OMP_X": EVIL})))
    lines = [json.loads(line) for line in (evil / "metrics.jsonl").read_text().splitlines()]
    (evil / "metrics.jsonl").write_text("".join(json.dumps({**line, EVIL: 1.5}) + "\n" for line in lines))
    write_short(root / "short")
    write_narrow(root / "narrow")
    write_resumed(root / "resumed")
    for number in range(100):
        write_run(root / "hundred" / f"digits-mlp-lr0.{number:03d}-batch256", intervals_per_epoch=6, rate=0.5 + number / 50,
                  seed=number + 100, configuration={"model": "mlp", "optimizer": {"name": "adam", "lr": number / 1000}})
    (root / "empty").mkdir()


if __name__ == "__main__":
    write_all(pathlib.Path(sys.argv[1]))
