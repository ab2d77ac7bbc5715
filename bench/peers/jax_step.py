"""The MLP step of `lockstep bench xla` in JAX, on N host devices and as many cores: jax_step.py [N [BATCH...]].

A batch is that of all devices together.

Prints two ways of measuring: every step waited for, parameters copied; and ten steps before the last one is waited for,
parameters donated, which is what `lockstep bench xla` does.
"""

import os
import sys

DEVICES = int(sys.argv[1]) if len(sys.argv) > 1 else 1
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:DEVICES]))
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES} " + os.environ.get("XLA_FLAGS", "")

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mlp_times import median_seconds

WIDTH = 512
STEPS_AT_ONCE = 10


def loss_of(parameters, images, labels):
    for weight, bias in parameters[:-1]:
        images = jax.nn.relu(images @ weight + bias)
    weight, bias = parameters[-1]
    scores = jax.nn.log_softmax(images @ weight + bias)
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))


def step(parameters, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), loss


def seconds_of(batch, donate, steps):
    mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("replica",))
    everywhere, divided = NamedSharding(mesh, P()), NamedSharding(mesh, P("replica"))
    key = jax.random.key(0)
    sizes = ((784, WIDTH), (WIDTH, WIDTH), (WIDTH, 10))
    fresh = [(jax.random.normal(key, size) / size[0] ** 0.5, jnp.zeros(size[1])) for size in sizes]
    state = {"parameters": jax.device_put(fresh, everywhere)}
    images = jax.device_put(jax.random.normal(key, (batch, 784)), divided)
    labels = jax.device_put(jax.random.randint(key, (batch,), 0, 10), divided)
    compiled = jax.jit(step, donate_argnums=(0,) if donate else ())

    def work():
        for _ in range(steps):
            state["parameters"], loss = compiled(state["parameters"], images, labels)
        jax.block_until_ready((state["parameters"], loss))

    return median_seconds(work, repeats=max(15, 300 // steps)) / steps


for batch in [int(word) for word in sys.argv[2:]] or (32, 256):
    line = {
        "name": "xla",
        "system": "jax",
        "batch": batch,
        "replicas": DEVICES,
        "seconds_waiting": seconds_of(batch, donate=False, steps=1),
        "seconds_donated": seconds_of(batch, donate=True, steps=STEPS_AT_ONCE),
    }
    print(json.dumps(line), flush=True)
