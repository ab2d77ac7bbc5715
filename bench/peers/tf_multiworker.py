"""TensorFlow's MultiWorkerMirroredStrategy (RING) on this machine: the step of `lockstep bench step` and an all-reduce, on
one process and on two of one thread each. One JSON object a line. Starts itself for each worker.

    python tf_multiworker.py
"""

import json
import os
import socket
import subprocess
import sys

from mlp_times import CASES, MESSAGES, median_seconds, report_all_reduce, report_step, use_one_core

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def make_model(tf, width):
    def layer(inputs, outputs):
        return tf.Variable(tf.random.normal([inputs, outputs]) / inputs**0.5), tf.Variable(tf.zeros([outputs]))

    layers = [layer(784, width), layer(width, width), layer(width, 10)]

    def forward(x):
        for number, (weights, bias) in enumerate(layers):
            x = tf.matmul(x, weights) + bias
            x = tf.nn.relu(x) if number < 2 else x
        return x

    return forward, [variable for pair in layers for variable in pair]


def make_step(tf, strategy, width, batch):
    with strategy.scope():
        forward, variables = make_model(tf, width)
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(variables)
    images = tf.random.normal([batch, 784])
    labels = tf.random.uniform([batch], maxval=10, dtype=tf.int32)
    global_batch = batch * strategy.num_replicas_in_sync

    def on_replica():
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=forward(images))
            loss = tf.reduce_sum(each) / global_batch
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def step():
        return strategy.reduce("SUM", strategy.run(on_replica), None)

    return lambda: step().numpy()


def make_all_reduce(tf, strategy, size):
    message = tf.zeros([size // 4])

    def on_replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", message)[0]

    @tf.function
    def all_reduce():
        return strategy.run(on_replica)

    return lambda: all_reduce().numpy()


def work(rank, workers):
    if workers == 1:
        use_one_core()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    system = "TensorFlow " + tf.__version__ + " MultiWorkerMirrored"
    if workers == 1:
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    else:
        experimental = tf.distribute.experimental
        ring = experimental.CommunicationOptions(implementation=experimental.CommunicationImplementation.RING)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    for width, batch in CASES:
        seconds = median_seconds(make_step(tf, strategy, width, batch))
        if rank == 0:
            report_step(system, workers, width, batch, seconds)
    for size in MESSAGES if workers > 1 else []:
        seconds = median_seconds(make_all_reduce(tf, strategy, size), 9)
        if rank == 0:
            report_all_reduce(system, workers, size, seconds)


def start(workers):
    listeners = [socket.socket() for _ in range(workers)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:" + str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    processes = []
    for rank in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        environment = dict(os.environ, TF_CONFIG=json.dumps(config))
        if workers == 1:
            environment.pop("TF_CONFIG")
        command = [sys.executable, __file__, str(rank), str(workers)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(int(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.exit(max(start(1), start(2)))
