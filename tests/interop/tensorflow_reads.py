"""TensorFlow and NumPy read what lockstep writes, and lockstep reads what they write.

    python3 -m venv tf && tf/bin/pip install tensorflow
    tf/bin/python tests/interop/tensorflow_reads.py build/release/bin/lockstep
"""

import json
import os
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def lockstep(command, *arguments):
    done = subprocess.run([command, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(what, condition):
    print(("ok      " if condition else "FAILED  ") + what)
    return condition


def our_lines(command, folder):
    lines = ["", "one", "two, with a comma", "\u00fcmlaut", "x" * 70000]
    text = folder + "/lines.txt"
    with open(text, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    for name, compression in COMPRESSIONS.items():
        out = f"{folder}/lines.{name}.tfrecord"
        lockstep(command, "data", "write", out, "--from", text, "--compression", name, "--json")
        read = [r.numpy().decode("utf-8") for r in tf.data.TFRecordDataset(out, compression_type=compression)]
        yield check(f"TensorFlow reads our records, {name}", read == lines)


def our_examples(command, folder):
    arrays = {
        "image": np.random.default_rng(0).integers(0, 255, (7, 4, 3), np.uint8),
        "weights": np.random.default_rng(1).random((7, 5)).astype(np.float32),
        "label": np.arange(-3, 4),
    }
    np.savez(folder + "/arrays.npz", **arrays)
    out = folder + "/arrays.tfrecord"
    lockstep(command, "data", "write", out, "--from", folder + "/arrays.npz", "--json")
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "weights": tf.io.FixedLenFeature([5], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(out)]
    image = np.stack([tf.io.decode_raw(p["image"], tf.uint8).numpy().reshape(4, 3) for p in parsed])
    yield check("TensorFlow parses our examples: bytes", np.array_equal(image, arrays["image"]))
    weights = np.stack([p["weights"].numpy() for p in parsed])
    yield check("TensorFlow parses our examples: floats", np.array_equal(weights, arrays["weights"]))
    label = np.array([p["label"].numpy() for p in parsed])
    yield check("TensorFlow parses our examples: int64", np.array_equal(label, arrays["label"]))


def their_files(command, folder):
    for name, compression in COMPRESSIONS.items():
        path = f"{folder}/theirs.{name}.tfrecord"
        with tf.io.TFRecordWriter(path, compression) as writer:
            for i in range(100):
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[i] * (i % 3)))
                example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
                writer.write(example.SerializeToString())
        [found] = lockstep(command, "data", "inspect", path, "--json")
        sound = found["records"] == 100 and found["damage"] is None and found["compression"] == name
        yield check(f"we read TensorFlow's records, {name}", sound and found["format"] == "tfrecord of tf.Example")
    np.save(folder + "/theirs.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    [found] = lockstep(command, "data", "inspect", folder + "/theirs.npy", "--json")
    yield check("we read NumPy's array", found["records"] == 3 and found["keys"][0]["type"] == "float32 [3, 4]")


def main(command):
    with tempfile.TemporaryDirectory() as folder:
        results = [ok for part in (our_lines, our_examples, their_files) for ok in part(command, folder)]
    print(f"{sum(results)} of {len(results)} passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
