"""PyTorch's DistributedDataParallel over Gloo on this machine: the step of `lockstep bench step` and an all-reduce, on
one process and on two of one thread each. One JSON object a line.

    python ddp_step.py
"""

import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mlp_times import CASES, MESSAGES, median_seconds, report_all_reduce, report_step, use_one_core
from torch import nn

SYSTEM = "PyTorch " + torch.__version__ + " DDP, Gloo"


def make_step(width, batch, workers):
    model = nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    if workers > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images, labels = torch.randn(batch, 784), torch.randint(10, (batch,))
    loss = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return step


def work(rank, workers, port):
    torch.set_num_threads(1)
    if workers == 1:
        use_one_core()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    for width, batch in CASES:
        seconds = median_seconds(make_step(width, batch, workers))
        if rank == 0:
            report_step(SYSTEM, workers, width, batch, seconds)
    for size in MESSAGES if workers > 1 else []:
        message = torch.zeros(size // 4)
        seconds = median_seconds(lambda tensor=message: dist.all_reduce(tensor), 9)
        if rank == 0:
            report_all_reduce(SYSTEM, workers, size, seconds)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    for num_workers in (1, 2):
        mp.spawn(work, (num_workers, free_port()), num_workers)
