"""TensorBoard's own readers read the event files that lockstep writes, and its HParams page lists the trainings.

    python3 -m venv boards && boards/bin/pip install tensorboard
    boards/bin/python tests/interop/tensorboard_reads.py build/release/bin/lockstep_train_test
"""

import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

from tensorboard.backend.event_processing import data_provider, event_accumulator, event_file_loader
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard import context
from tensorboard.util import tensor_util

EXPECTED = pathlib.Path(__file__).parent.parent / "fixtures" / "events" / "expected.json"


def check(what, condition):
    print(("ok      " if condition else "FAILED  ") + what)
    return condition


def png_rows(data):
    """The rows of an 8-bit PNG file without interlacing: enough for these images."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, body = 8, b""
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        if kind == b"IHDR":
            width, height, _, color = struct.unpack(">IIBB", data[place + 8:place + 18])
        if kind == b"IDAT":
            body += data[place + 8:place + 8 + length]
        place += 12 + length
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    raw, rows, last = io.BytesIO(zlib.decompress(body)), [], [0] * width * channels
    for _ in range(height):
        kind, line = raw.read(1)[0], list(raw.read(width * channels))
        for i in range(len(line)):
            left = line[i - channels] if i >= channels else 0
            corner = last[i - channels] if i >= channels else 0
            nearest = min((left, last[i], corner), key=lambda v: abs(left + last[i] - corner - v))
            line[i] = (line[i] + [0, left, last[i], (left + last[i]) // 2, nearest][kind]) % 256
        rows.append([line[i:i + channels] for i in range(0, len(line), channels)])
        last = line
    return rows


def only_file(folder):
    return next(str(path) for path in sorted(folder.iterdir()) if path.name.startswith("events.out.tfevents."))


def check_kinds(folder):
    """The values of the fixture, which TensorFlow wrote, by the loader of TensorBoard."""
    expected = json.loads(EXPECTED.read_text())["events.out.tfevents.fixture"]["events"]
    events = list(event_file_loader.EventFileLoader(only_file(folder)).Load())
    good = check("as many events as TensorFlow's file has", len(events) == len(expected))
    good &= check("the version of the file", events[0].file_version == expected[0]["file_version"])
    for event, wanted in zip(events[1:], expected[1:]):
        value = event.summary.value[0]
        array = tensor_util.make_ndarray(value.tensor)
        same = (value.tag == wanted["tag"] and event.step == wanted["step"] and
                value.metadata.plugin_data.plugin_name == wanted["plugin"] and
                value.metadata.summary_description == wanted.get("description", "") and
                list(array.shape) == wanted["shape"])
        if "decoded" in wanted:
            same &= [png_rows(bytes(file)) for file in array[2:]] == wanted["decoded"]
            same &= [bytes(number).hex() for number in array[:2]] == [part["hex"] for part in wanted["bytes"][:2]]
        elif "bytes" in wanted:
            same &= bytes(array.item()).hex() == wanted["bytes"][0]["hex"]
        else:
            same &= array.flatten().tolist() == wanted["data"]
        good &= check(f"{wanted['tag']}, step {wanted['step']}", same)
    return good


def accumulated(folder):
    """All values: a limit of 0 is none."""
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.TENSORS: 0})
    accumulator.Reload()
    return accumulator


def steps_of(accumulator, tag):
    return [event.step for event in accumulator.Tensors(tag)]


def check_training(folder):
    """A training that went on after one of three epochs: every step once."""
    accumulator = accumulated(folder)
    good = check("steps once, in order", steps_of(accumulator, "step/loss") == list(range(1, 13)))
    good &= check("epochs once", steps_of(accumulator, "epoch/loss") == [4, 8, 12])
    good &= check("learning rates", steps_of(accumulator, "step/learning_rate") == list(range(1, 13)))
    histograms = [tag for tag in accumulator.Tags()["tensors"] if tag.startswith("parameters/")]
    good &= check("histograms of all parameters", len(histograms) == 4)
    validation = accumulated(folder / "validation")
    good &= check("validation has the tags of the training", steps_of(validation, "epoch/loss") == [4, 8, 12])
    return good


def session_groups(folder, status, parameters, metric):
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    page = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    request = context.RequestContext()
    experiment = page.experiment_from_metadata(
        request, "", True, page.hparams_metadata(request, ""), [])
    wanted = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[status], include_metrics=True,
        col_params=[api_pb2.ColParams(hparam=name) for name in parameters])
    wanted.col_params.add(metric=metric)
    return experiment, list_session_groups.Handler(request, page, "", wanted).run().session_groups


def check_hyper_parameters(folder):
    loss = api_pb2.MetricName(group="validation", tag="epoch/loss")
    experiment, groups = session_groups(folder, api_pb2.STATUS_SUCCESS, ["rate", "optimizer", "shuffled"], loss)
    names = sorted(info.name for info in experiment.hparam_infos)
    good = check("names of hyper-parameters", names == ["optimizer", "rate", "shuffled"])
    rates = sorted(group.hparams["rate"].number_value for group in groups)
    good &= check("both trainings, which ended well, with their rates", rates == [0.01, 0.1])
    good &= check("texts and flags", all(
        group.hparams["optimizer"].string_value == "sgd" and not group.hparams["shuffled"].bool_value
        for group in groups))
    values = [value for group in groups for value in group.metric_values
              if value.name == loss]
    good &= check("the last loss of validation", [value.training_step for value in values] == [12, 12])
    return good


def check_named_metrics(folder):
    score = api_pb2.MetricName(tag="score")
    experiment, groups = session_groups(folder, api_pb2.STATUS_FAILURE, ["depth"], score)
    good = check("only the named metric", [info.name for info in experiment.metric_infos] == [score])
    good &= check("its name", experiment.metric_infos[0].display_name == "points")
    good &= check("the training that failed", [group.hparams["depth"].number_value for group in groups] == [3])
    return good


def main():
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.argv[1], "--gtest_filter=TensorBoardTest.ForReaders"], check=True,
                       env={**os.environ, "LOCKSTEP_TEST_EVENTS": name}, stdout=subprocess.DEVNULL)
        good &= check_kinds(folder / "kinds")
        for training in ("first", "second"):
            good &= check_training(folder / "trainings" / training)
        good &= check_hyper_parameters(folder / "trainings")
        good &= check_named_metrics(folder / "named")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
