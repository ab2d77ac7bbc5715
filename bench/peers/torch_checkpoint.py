#!/usr/bin/env python3
"""What `lockstep bench checkpoint` measures, with PyTorch: torch.save, and DCP's async_save and load.

    python3 bench/peers/torch_checkpoint.py [--folder DIR] [--width 2048] [--batch 64] [--steps 20] [--repeats 5]

One process with all cores trains the same MLP with Adam on the batches of both replicas. `torch.save` is called after the
step and is followed by fsync, as a checkpoint must be on the disk when it counts. `async_save` of DCP copies the state and
writes it on a thread; a second one waits for the first. Prints one JSON object for each, with lockstep's names.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

BUFFER = 4 << 20


class Training:
    def __init__(self, width, batch):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(784, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
            torch.nn.Linear(width, 10))
        self.adam = torch.optim.Adam(self.model.parameters(), 1e-4)
        self.images = torch.rand(batch, 784)
        self.labels = torch.randint(10, (batch,))

    def step(self):
        self.adam.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.adam.step()

    def state(self):
        return {"model": self.model.state_dict(), "adam": self.adam.state_dict()}


class TorchSave:
    system = "torch.save"

    def __init__(self, training, folder):
        self.training = training
        self.path = os.path.join(folder, "torch_save.pt")

    def save(self):
        with open(self.path + ".new", "wb") as file:
            torch.save(self.training.state(), file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.path + ".new", self.path)

    def wait(self):
        pass

    def restore(self):
        state = torch.load(self.path, weights_only=True)
        self.training.model.load_state_dict(state["model"])
        self.training.adam.load_state_dict(state["adam"])


class AsyncSave:
    system = "dcp.async_save"

    def __init__(self, training, folder):
        self.training = training
        self.path = os.path.join(folder, "dcp")
        self.number = 0
        self.running = None

    def save(self):
        self.wait()
        self.number += 1
        shutil.rmtree(f"{self.path}{self.number - 2}", ignore_errors=True)
        self.running = dcp.async_save(self.training.state(), checkpoint_id=f"{self.path}{self.number}")

    def wait(self):
        if self.running is not None:
            self.running.result()
        self.running = None

    def restore(self):
        state = self.training.state()
        dcp.load(state, checkpoint_id=f"{self.path}{self.number}")
        self.training.model.load_state_dict(state["model"])
        self.training.adam.load_state_dict(state["adam"])


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def files_of(folder):
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]


def forget(folder):
    """Takes all files out of the page cache."""
    for path in files_of(folder):
        file = os.open(path, os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def plain_write(path, data):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for begin in range(0, len(data), BUFFER):
        os.write(file, data[begin:begin + BUFFER])
    os.fsync(file)
    os.close(file)


def plain_read(path, data):
    with open(path, "rb", buffering=0) as file:
        for begin in range(0, len(data), BUFFER):
            file.readinto(data[begin:begin + BUFFER])


def stall(training, saver, steps, repeats):
    saves_in_a_row = 2
    plain, saving, calls = [], [], []

    def run():
        for _ in range(steps):
            training.step()

    def run_saving():
        calls.append(seconds_of(saver.save))
        run()

    for _ in range(repeats + 1):
        plain.append(sum(seconds_of(run) for _ in range(saves_in_a_row)) / saves_in_a_row / steps)
        saving.append(sum(seconds_of(run_saving) for _ in range(saves_in_a_row)) / saves_in_a_row / steps)
        saver.wait()
    return statistics.median(plain[1:]), statistics.median(saving[1:]), statistics.median(calls[saves_in_a_row:])


def files(saver, folder, repeats):
    saver.save()
    saver.wait()
    if isinstance(saver, TorchSave):
        size = os.path.getsize(saver.path)
    else:
        size = sum(os.path.getsize(path) for path in files_of(f"{saver.path}{saver.number}"))
    data = memoryview(bytearray(os.urandom(1 << 20) * (size // (1 << 20) + 1)))[:size]
    plain_path = os.path.join(folder, "plain")
    times = {"write": [], "plain_write": [], "restore": [], "plain_read": []}
    for _ in range(repeats):
        times["plain_write"].append(seconds_of(lambda: plain_write(plain_path, data)))
        times["write"].append(seconds_of(lambda: (saver.save(), saver.wait())))
        forget(folder)
        times["plain_read"].append(seconds_of(lambda: plain_read(plain_path, data)))
        times["restore"].append(seconds_of(saver.restore))
        os.remove(plain_path)
    return size, {name: statistics.median(samples) for name, samples in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=64, help="examples of all replicas")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(dir=arguments.folder)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        for kind in (TorchSave, AsyncSave):
            training = Training(arguments.width, arguments.batch)
            training.step()
            saver = kind(training, folder)
            plain, saving, call = stall(training, saver, arguments.steps, arguments.repeats)
            size, times = files(saver, folder, arguments.repeats)
            print(json.dumps({
                "name": "checkpoint", "system": kind.system, "width": arguments.width, "batch": arguments.batch,
                "optimizer": "adam", "steps": arguments.steps, "bytes": size, "seconds_step": plain,
                "seconds_step_saving": saving, "seconds_save_call": call, "stall_fraction": (saving - plain) / plain,
                "seconds_write": times["write"], "seconds_plain_write": times["plain_write"],
                "write_fraction": times["plain_write"] / times["write"], "seconds_restore": times["restore"],
                "seconds_plain_read": times["plain_read"], "restore_fraction": times["plain_read"] / times["restore"],
            }), flush=True)
    finally:
        torch.distributed.destroy_process_group()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
