#!/usr/bin/env python3
"""`lockstep report` as a user calls it: report_command_test.py LOCKSTEP.

The page is well-formed and loads nothing, its numbers are those of the folders, text of the folders stays text, damage is told.
"""

import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_runs  # noqa: E402

VOID = {"meta", "input", "br", "hr", "img", "link", "wbr"}
# Elements of SVG that are written without an end.
EMPTY = {"path", "circle"}
# Attributes that a browser would load something for, or run.
LOADING = {"src", "srcset", "action", "formaction", "data", "poster", "background", "xlink:href"}


def check(condition, message):
    if not condition:
        raise SystemExit("FAILED: " + message)


class Page(html.parser.HTMLParser):
    """Checks tags while it reads; keeps the text of elements that tests look at."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.elements, self.texts, self.links = [], set(), {}, {}, []
        self.feed(text)
        self.close()
        check(not self.open, f"elements are not closed: {self.open}")
        for link in self.links:
            check(link.startswith("#") and link[1:] in self.ids, f"a link must lead to a part of the page: {link}")

    def handle_starttag(self, tag, attributes):
        self.elements[tag] = self.elements.get(tag, 0) + 1
        for name, value in attributes:
            check(name not in LOADING and not name.startswith("on"), f"<{tag} {name}={value}>")
            check("url(" not in (value or ""), f"<{tag} {name}={value}>")
            if name == "id":
                check(value not in self.ids, f"two elements have the id {value}")
                self.ids.add(value)
            if name == "href":
                self.links.append(value)
        if tag not in VOID and tag not in EMPTY:
            self.open.append((tag, dict(attributes).get("id")))

    def handle_startendtag(self, tag, attributes):
        check(tag in EMPTY, f"<{tag}/> does not end")
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        check(self.open and self.open[-1][0] == tag, f"</{tag}> ends {self.open[-1:]}")
        self.open.pop()

    def handle_data(self, data):
        if self.open:
            tag, name = self.open[-1]
            self.texts[name or tag] = self.texts.get(name or tag, "") + data


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Reports:
    def __init__(self, lockstep, root):
        self.lockstep, self.root = lockstep, root

    def run(self, *words):
        return subprocess.run([self.lockstep, "report", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=self.root)

    def make(self, *runs):
        """Returns the result of --json, the page, and the data in it."""
        output = self.root / "report.html"
        done = self.run(*(self.root / "runs" / run for run in runs), "--json")
        check(done.returncode == 0, f"report of {runs}: {done.stderr}")
        text = output.read_text()
        check("http:" not in text and "https:" not in text, "the page must not name addresses")
        page = Page(text)
        result = json.loads(done.stdout)
        check(result["report"] == str(output.resolve()) and result["bytes"] == output.stat().st_size, f"--json: {done.stdout}")
        data = json.loads(page.texts["data"])
        check(data["runs"] == result["runs"], "the page and --json must have the same figures")
        check(page.elements["script"] == 2 and "img" not in page.elements, f"foreign elements: {page.elements}")
        return result, page, data, text


def series_of(data, title, role, run=0):
    chart = next(chart for chart in data["charts"] if chart["title"] == title)
    return next(series for series in chart["series"] if series["role"] == role and series["run"] == run)


def numbers_are_those_of_the_folder(reports):
    result, page, data, text = reports.make("plain", "four")
    for index, name in enumerate(("plain", "four")):
        metrics = lines_of(reports.root / "runs" / name / "metrics.jsonl")
        steps = lines_of(reports.root / "runs" / name / "steps.jsonl")
        for title, key in (("Loss", "loss"), ("Accuracy", "accuracy")):
            for role, prefix in (("train", ""), ("validation", "val_")):
                series = series_of(data, title, role, index)
                check(series["y"] == [line[prefix + key] for line in metrics], f"{name}: {role} {key}")
                check(series["step"] == [line["step"] for line in metrics], f"{name}: steps of {key}")
                check(series["epoch"] == [line["epoch"] + 1 for line in metrics], f"{name}: epochs of {key}")
        check(series_of(data, "Loss", "interval", index)["y"] == [line["loss"] for line in steps], f"{name}: loss of steps")
        check(series_of(data, "Learning rate", "interval", index)["y"] == [line["lr"] for line in steps], f"{name}: learning rate")
        check(series_of(data, "Throughput", "interval", index)["y"] == [line["examples"] / line["seconds"] for line in steps],
              f"{name}: throughput")
        memory = [max(worker.get("memory") or max(replica["memory"] for replica in worker["replicas"]) for worker in line["workers"])
                  for line in steps]
        check(series_of(data, "Memory of the process that uses most", "interval", index)["y"] == memory, f"{name}: memory")
        check(result["runs"][index]["process_memory"] == max(memory) and result["runs"][index]["peak_memory"] == 0, f"{name}: memory")
        run = result["runs"][index]
        check(run["last"] == {key: metrics[-1][key] for key in ("loss", "accuracy", "val_loss", "val_accuracy")}, f"{name}: {run['last']}")
        count = sum(line["steps"] for line in steps)
        check(abs(run["step_seconds"] - sum(line["seconds"] for line in steps) / count) < 1e-12, f"{name}: step_seconds")
        updates = [replica["update"] for line in steps for worker in line["workers"] for replica in worker["replicas"]]
        check(abs(run["parts"]["Update"] - sum(updates) / count / run["replicas"]) < 1e-12, f"{name}: parts {run['parts']}")
    slowest = result["runs"][1]["slowest"]
    check((slowest["worker"], slowest["replica"], slowest["is_straggler"]) == (1, 3, True), f"slowest: {slowest}")
    check(not result["runs"][0]["slowest"]["is_straggler"], "replicas that are equally fast")
    check("Slowest: worker 1, replica 3 (node1 CPU:1)." in text, "the slowest must be named in words")
    check(page.elements["figure"] == page.elements["figcaption"] == len(data["charts"]), "each chart must be drawn without a script")
    for setting in ("configuration.optimizer.name", "strategy.replicas"):
        check(f"<code>{setting}</code>" in text.split('id="differences"')[1], f"{setting} differs")
    check("configuration.model" not in text.split('id="differences"')[1].split("</section>")[0], "equal settings are no difference")
    check("all_reduce(SUM, float32[784, 128])" in text and "2 waiting" in text, "the last collectives")


def text_stays_text(reports):
    result, page, data, _ = reports.make("names")
    check(make_runs.EVIL in page.texts["h1"], f"the name must be shown: {page.texts['h1']}")
    check(result["runs"][0]["name"] == make_runs.EVIL, "the name in the data")
    check(any(make_runs.EVIL.lower() in chart["title"].lower() for chart in data["charts"]), "a metric of that name")


def odd_runs_are_shown(reports):
    result, _, data, text = reports.make("long")
    loss = series_of(data, "Loss", "interval")
    check(len(loss["y"]) < 1000 and len(text) < 300_000, f"{len(loss['y'])} points, {len(text)} bytes")
    check(77.0 in loss["y"] and "Infinity" in loss["y"] and loss["step"][-1] == 100_000, "extremes must be kept")
    check("not finite (NaN or infinite) at step 70002" in text and "has not ended" in text, "what is odd must be told")
    result, _, data, text = reports.make("nan")
    check(series_of(data, "Loss", "train")["y"][-1] == "NaN" and result["runs"][0]["last"]["loss"] == "NaN", "NaN is kept")
    check("The run was not finished: failed, the loss is NaN." in text, "the reason of the end")
    result, _, _, text = reports.make("damaged")
    check("run.json is damaged" in text and "metrics.jsonl: 4 of 6 lines cannot be used (line 2: it is cut" in text, "damage must be told")
    check(result["runs"][0]["epochs"] == 2 and result["runs"][0]["state"] == "unknown", f"what is whole is used: {result}")
    result, _, data, text = reports.make("no_steps")
    check("steps.jsonl is missing" in text and [chart["title"] for chart in data["charts"]] == ["Loss", "Accuracy"], "no steps.jsonl")
    check(result["runs"][0]["examples_per_second"] > 0, "the throughput of epochs")
    result, _, _, text = reports.make("one_epoch", "many")
    check(result["runs"][1]["replicas"] == 64 and result["runs"][1]["slowest"]["replica"] == 37, "64 replicas")
    check(text.count("<em>slowest</em>") == 1, "one replica is the slowest")


def many_runs_are_folded(reports):
    _, page, data, text = reports.make("hundred")
    check(len(text) < 8_000_000, f"100 runs: {len(text)} bytes")
    summary = text.split('id="summary"')[1].split("</section>")[0]
    check(summary.count("<tr>") == 101, "a row for each run")
    check("The same in all 100 runs: State finished" in summary, "what is the same must be told once")
    check(text.split('id="runs"')[1].count("<details>") >= 100, "what each run has for itself must be folded")
    check("100 runs have one replica" in text, "replicas of their own are nothing to compare")


def resumed_runs(reports):
    result, _, data, text = reports.make("resumed")
    loss = series_of(data, "Loss", "train")
    check(40 < loss["time"][-1] < 90, f"training time must leave the pause out: {loss['time']}")
    check(len(data["breaks"][0]) == 1 and 250_000 < data["breaks"][0][0]["seconds"] < 270_000, f"the pause must be known: {data['breaks']}")
    check("Attempts: the run was started 2 times" in text and "libtorch = 2.12.0" in text, "attempts must be listed")
    check("epoch 4; train" in text and "no validation" not in text, "the last known validation and its epoch")
    check(result["runs"][0]["last"]["val_loss"] > 0, "the last known value")
    check('</i>Checkpoint</th>' in text and "</i>Compile</th>" not in text, "parts over 1 % must be shown")
    parts = next(chart for chart in data["charts"] if chart["kind"] == "stack")["series"]
    check([part["role"] for part in parts] == ["Input", "Compute", "Communication", "Update", "Waiting", "Checkpoint", "Other"],
          f"the parts of the stack: {parts}")


def intervals_are_stretches(reports):
    _, _, data, text = reports.make("short")
    loss = series_of(data, "Loss", "interval")
    check(loss["step"] == [1, 171] and loss["gaps"] == [[0, 0, 0, 0]], f"means of steps 1 and 2 to 171: {loss}")
    drawn = text.split("<figure")[1].split("</figure>")[0].split('class="series c0 d0 faint"><path d="')[1].split('"')[0]
    check("L" not in drawn and drawn.count("H") == 3, f"intervals must be stairs: {drawn}")


def folders_and_files(reports):
    runs = reports.root / "runs"
    everything = json.loads(reports.run(runs, "-o", "all.html", "--json").stdout)
    check(len(everything["runs"]) == 113, "a folder of runs stands for all of them")
    Page((reports.root / "all.html").read_text())
    done = reports.run(runs / "empty", runs / "plain", "-o", "some.html")
    check(done.returncode == 1 and "empty is not the folder of a run: it has no run.json" in done.stderr, f"a folder without a run: {done}")
    check("is not the folder of a run" in (reports.root / "some.html").read_text(), "the page must tell it too")
    done = reports.run(runs / "nothing", "-o", "none.html")
    check(done.returncode == 1 and "there is no such folder" in done.stderr, f"no folder: {done}")
    check(not (reports.root / "none.html").exists(), "no report without a run")
    done = reports.run(runs / "plain", "-o", reports.root / "missing" / "report.html")
    check(done.returncode == 1 and "the report must be writable" in done.stderr, f"no place to write: {done}")
    done = reports.run(runs / "plain", "-o", "plain.html")
    check(done.returncode == 0 and done.stdout == "report of 1 run: plain.html\n" and not done.stderr, f"one line for people: {done}")
    check(not list(reports.root.glob("*.partial*")), "nothing is left beside a report")


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_runs.write_all(root / "runs")
        reports = Reports(str(pathlib.Path(sys.argv[1]).resolve()), root)
        numbers_are_those_of_the_folder(reports)
        text_stays_text(reports)
        odd_runs_are_shown(reports)
        many_runs_are_folded(reports)
        resumed_runs(reports)
        intervals_are_stretches(reports)
        folders_and_files(reports)
    print("report command: passed")


if __name__ == "__main__":
    main()
