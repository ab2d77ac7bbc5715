"""Python's safetensors and torch read what lockstep writes, and lockstep reads what they write.

    python3 -m venv pytorch && pytorch/bin/pip install torch numpy safetensors
    pytorch/bin/python tests/interop/pytorch_reads.py build/release/bin/lockstep
"""

import json
import os
import subprocess
import sys
import tempfile

import safetensors
import safetensors.torch
import torch


def lockstep(command, *arguments, status=0):
    done = subprocess.run([command, "checkpoint", *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != status:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(what, condition):
    print(("ok      " if condition else "FAILED  ") + what)
    return condition


def example_tensors():
    torch.manual_seed(0)
    tensors = {
        "weight": torch.randn(300, 1000),
        "bias": torch.randn(7).to(torch.bfloat16),
        "half": torch.randn(3, 1).to(torch.float16),
        "double": torch.randn(2, dtype=torch.float64),
        "long": torch.tensor([-(2**63), 2**63 - 1]),
        "flags": torch.tensor([True, False, True]),
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "ünïcode": torch.tensor([1], dtype=torch.uint8),
    }
    return tensors


def same(first, second):
    return first.keys() == second.keys() and all(
        first[k].dtype == second[k].dtype and first[k].shape == second[k].shape and torch.equal(first[k], second[k])
        for k in first
    )


def they_write(command, folder):
    tensors = example_tensors()
    safetensors.torch.save_file(tensors, folder + "/theirs.safetensors", metadata={"format": "pt", "note": "x"})
    torch.save(tensors, folder + "/theirs.pt")
    shown = lockstep(command, "inspect", "--json", folder + "/theirs.safetensors")[0]["tensors"]
    yield check("lockstep lists safetensors of Python", shown.keys() == tensors.keys())
    lockstep(command, "diff", "--json", folder + "/theirs.safetensors", folder + "/theirs.pt")
    yield check("lockstep reads safetensors and torch.save of Python alike", True)
    changed = dict(tensors, weight=tensors["weight"].clone())
    changed["weight"][5, 7] += 0.5
    torch.save(changed, folder + "/changed.pt")
    found = lockstep(command, "diff", "--json", folder + "/theirs.pt", folder + "/changed.pt", status=1)
    yield check("lockstep finds the element that differs", len(found) == 1 and abs(found[0]["largest"] - 0.5) < 1e-6)


def we_write(command, folder):
    tensors = example_tensors()
    torch.save(tensors, folder + "/input.pt")
    made = lockstep(command, "convert", "--json", "--step", "3", folder + "/input.pt", folder + "/made")[0]["to"]
    parts = {}
    for name in sorted(os.listdir(made)):
        if name.endswith(".safetensors"):
            parts.update(safetensors.torch.load_file(os.path.join(made, name)))
    yield check("Python's safetensors opens the parts of a checkpoint", same(parts, tensors))
    lockstep(command, "convert", "--json", made, folder + "/ours.safetensors")
    yield check("Python's safetensors opens our file", same(safetensors.torch.load_file(folder + "/ours.safetensors"), tensors))
    with safetensors.safe_open(folder + "/ours.safetensors", framework="pt") as opened:
        yield check("the file has the step", opened.metadata()["lockstep.step"] == "3")
        yield check("rows of a tensor can be read alone", torch.equal(opened.get_slice("weight")[7:9], tensors["weight"][7:9]))


def optimizers(command, folder):
    model = torch.nn.Linear(4, 3)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
        adam.step()
    torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "epoch": 3}, folder + "/training.pt")
    shown = lockstep(command, "inspect", "--json", folder + "/training.pt")[0]
    yield check("lockstep reads a training of Python", shown["values"]["epoch"] == 3)
    yield check("with the optimizer's state", shown["tensors"]["adam.state.0.exp_avg"]["shape"] == [3, 4])


def main():
    command = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        results = [r for part in (they_write, we_write, optimizers) for r in part(command, folder)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
