"""tf.data on the files of `lockstep bench input --folder DIR`, one JSON object a line with the same names.

    python3 -m venv tf && tf/bin/pip install tensorflow
    lockstep bench input --folder DIR --json && taskset -c 0 tf/bin/python bench/peers/tfdata_input.py DIR
"""

import json
import os
import statistics
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

SPEC = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def decode(serialized, size):
    parsed = tf.io.parse_example(serialized, SPEC)
    return tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, size]), parsed["label"]


def report(name, dataset, records, size):
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in dataset:
            pass
        seconds.append(time.perf_counter() - begin)
    rate = records / statistics.median(seconds[1:])
    line = {"name": "input/" + name, "system": "tf.data", "records_per_second": rate, "bytes_per_second": rate * size}
    print(json.dumps(line), flush=True)


def main(folder):
    small, large = folder + "/small.tfrecord", folder + "/large.tfrecord"
    count = sum(1 for _ in tf.data.TFRecordDataset(small))
    large_count = sum(1 for _ in tf.data.TFRecordDataset(large))
    records = tf.data.TFRecordDataset
    report("records_small", records(small).batch(256), count, 784)
    report("records_small_parsed", records(small).batch(256).map(lambda s: decode(s, 784)), count, 784)
    shuffled = records(small).shuffle(10000).batch(256).map(lambda s: decode(s, 784))
    report("records_small_shuffled_parsed", shuffled, count, 784)
    report("records_large", records(large).batch(32), large_count, 110000)
    report("records_large_parsed", records(large).batch(32).map(lambda s: decode(s, 110000)), large_count, 110000)
    images = np.random.randint(0, 255, (count, 784), np.uint8)
    rows = tf.data.Dataset.from_tensor_slices((images, np.arange(count) % 10))
    report("slices", rows.batch(256), count, 784)
    report("slices_shuffled", rows.shuffle(10000).batch(256), count, 784)
    report("map", tf.data.Dataset.range(1000000).map(lambda v: v + 1).batch(256), 1000000, 8)


if __name__ == "__main__":
    main(sys.argv[1])
