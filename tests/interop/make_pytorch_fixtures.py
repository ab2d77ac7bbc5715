"""Writes tests/fixtures/pytorch: files of torch.save and torch.jit.save, and expected.json with their values.

    python3 -m venv pytorch && pytorch/bin/pip install torch numpy
    pytorch/bin/python tests/interop/make_pytorch_fixtures.py tests/fixtures/pytorch
"""

import collections
import json
import pathlib
import sys

import torch

FOLDER = pathlib.Path(sys.argv[1])
EXPECTED = {}


def described(value, name=""):
    """Yields names and JSON of all values, as lockstep names them."""
    if value is None:
        return
    if isinstance(value, dict):
        for key, child in value.items():
            yield from described(child, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for i, child in enumerate(value):
            yield from described(child, f"{name}.{i}" if name else str(i))
    elif isinstance(value, torch.Tensor):
        data = value.detach().to(torch.float64 if value.is_floating_point() else value.dtype)
        yield name, {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "data": data.flatten().tolist(),
        }
    elif isinstance(value, torch.dtype):
        yield name, str(value)
    else:
        yield name, value


def save(name, value, **options):
    torch.save(value, FOLDER / name, **options)
    EXPECTED[name] = dict(described(value))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2)])
        self.scale = 2.0

    def forward(self, x):
        for layer in self.layers:
            x = layer(self.norm(self.first(x))) * self.scale
        return x


class WithState(torch.nn.Module):
    """Loading it would execute __setstate__."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.weight

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]


def weights():
    torch.manual_seed(1)
    net = Net()
    save("state_dict.pt", net.state_dict())
    save("protocol4.pt", net.state_dict(), pickle_protocol=4)
    save("parameters.pt", dict(net.named_parameters()))
    base = torch.arange(12.0)
    save(
        "views.pt",
        {
            "all": base,
            "part": base[3:7],
            "transposed": base.view(3, 4).t(),
            "strided": base[1::3],
            "expanded": torch.tensor([5.0]).expand(2, 3),
            "same": base,
            "empty": torch.empty(0, 3),
            "scalar": torch.tensor(1.5),
        },
    )
    save(
        "dtypes.pt",
        {
            "float64": torch.tensor([1.1, -0.0], dtype=torch.float64),
            "float16": torch.tensor([0.5, 65504.0], dtype=torch.float16),
            "bfloat16": torch.tensor([1.5, 3e38], dtype=torch.bfloat16),
            "int64": torch.tensor([-(2**63), 2**63 - 1]),
            "int32": torch.tensor([-(2**31)], dtype=torch.int32),
            "int16": torch.tensor([-(2**15)], dtype=torch.int16),
            "int8": torch.tensor([-128], dtype=torch.int8),
            "uint8": torch.tensor([255], dtype=torch.uint8),
            "bool": torch.tensor([True, False]),
        },
    )
    save(
        "nested.pt",
        {
            "model": collections.OrderedDict(net.state_dict()),
            "epoch": 3,
            "large": 2**62,
            "negative": -5,
            "loss": 0.25,
            "name": "ünïcode",
            "done": True,
            "nothing": None,
            "list": [1, 2.5, "x", torch.ones(2)],
            "size": torch.Size([2, 3]),
            "dtype": torch.float32,
        },
    )
    torch.jit.save(torch.jit.script(net.eval()), FOLDER / "module.pt")
    EXPECTED["module.pt"] = dict(described(net.state_dict()))
    torch.jit.save(torch.jit.script(WithState()), FOLDER / "setstate.pt")
    torch.save(net.state_dict(), FOLDER / "old_format.pt", _use_new_zipfile_serialization=False)
    torch.save(net, FOLDER / "whole_module.pt")
    torch.save({"x": torch.ones(2).to_sparse()}, FOLDER / "sparse.pt")
    torch.save([1, 2], FOLDER / "list.pt")


def optimizers():
    kinds = {
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
        "adamw": lambda p: torch.optim.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.1}]),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
        "maximize": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
        "adamax": torch.optim.Adamax,
    }
    for name, make in kinds.items():
        torch.manual_seed(2)
        parameters = [torch.nn.Parameter(torch.randn(2, 3)), torch.nn.Parameter(torch.randn(3))]
        optimizer = make(parameters)
        for _ in range(3):
            optimizer.zero_grad()
            sum(p.square().sum() for p in parameters).backward()
            optimizer.step()
        save(f"optimizer_{name}.pt", optimizer.state_dict())


FOLDER.mkdir(parents=True, exist_ok=True)
weights()
optimizers()
EXPECTED["torch"] = torch.__version__
(FOLDER / "expected.json").write_text(
    "{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in EXPECTED.items()) + "\n}\n"
)
