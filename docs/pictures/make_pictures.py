#!/usr/bin/env python3
"""Draws the pictures of the documentation as SVG files beside this script.

    docs/pictures/make_pictures.py [--check]

With --check nothing is written, and a file that differs is an error. Colours are set for light and dark pages."""

import html
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent

STYLE = """
.NAME { --ink: #1d2430; --soft: #566072; --line: #8a94a5; --page: #ffffff;
  --a: #cfe2fb; --b: #fbe0c4; --c: #d5eccf; --d: #ead7f3; --e: #e6e9ee; }
@media (prefers-color-scheme: dark) { .NAME { --ink: #e4e7ec; --soft: #a3adbc; --line: #7f8a9b; --page: #14171c;
  --a: #1f4673; --b: #6b4216; --c: #2a5527; --d: #53306a; --e: #323944; } }
:root[data-theme="light"] .NAME { --ink: #1d2430; --soft: #566072; --line: #8a94a5; --page: #ffffff;
  --a: #cfe2fb; --b: #fbe0c4; --c: #d5eccf; --d: #ead7f3; --e: #e6e9ee; }
:root[data-theme="dark"] .NAME { --ink: #e4e7ec; --soft: #a3adbc; --line: #7f8a9b; --page: #14171c;
  --a: #1f4673; --b: #6b4216; --c: #2a5527; --d: #53306a; --e: #323944; }
.NAME text { font: 14px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink); }
.NAME .small { font-size: 12px; fill: var(--soft); }
.NAME .inside { font-size: 12px; }
.NAME .bold { font-weight: 600; }
.NAME .code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
.NAME rect { stroke: var(--line); }
.NAME path, .NAME line { stroke: var(--line); fill: none; stroke-width: 1.5; }
.NAME .dashed { stroke-dasharray: 4 4; }
.NAME .head { fill: var(--line); stroke: none; }
"""


class Picture:
    """Shapes in pixels; the file has a title and a description for readers that do not see it."""

    def __init__(self, name, width, height, title, description):
        self.name, self.width, self.height, self.title, self.description = name, width, height, title, description
        self.shapes = []

    def box(self, x, y, width, height, fill="e", text="", kind="", align="middle"):
        self.shapes.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" style="fill: var(--{fill})"/>')
        if text:
            at = x + width / 2 if align == "middle" else x + 10
            self.text(at, y + height / 2 + 5, text, "inside" if kind == "small" else kind, align)

    def text(self, x, y, text, kind="", align="start"):
        mark = f' class="{kind}"' if kind else ""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{align}"{mark}>{html.escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind=""):
        mark = f' class="{kind}"' if kind else ""
        self.shapes.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{mark}/>')

    def arrow(self, x1, y1, x2, y2, kind=""):
        """Draws a line with a head, along x or along y or oblique."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        self.line(x1, y1, x2 - 6 * dx, y2 - 6 * dy, kind)
        points = [(x2, y2), (x2 - 9 * dx + 4 * dy, y2 - 9 * dy - 4 * dx), (x2 - 9 * dx - 4 * dy, y2 - 9 * dy + 4 * dx)]
        self.shapes.append('<path class="head" d="M' + " L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ' Z"/>')

    def svg(self):
        kind = f"picture-{self.name}"
        return (f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" aria-label="{html.escape(self.title)}">\n'
                f"<title>{html.escape(self.title)}</title>\n<desc>{html.escape(self.description)}</desc>\n"
                f"<style>{STYLE.replace('.NAME', '.' + kind)}</style>\n" + "\n".join(self.shapes) + "\n</svg>\n")


def layers():
    picture = Picture("layers", 760, 430, "The layers of lockstep",
                      "Each folder includes only those below it: train, nn, strategy, then six folders side by side, device, base.")
    picture.box(10, 10, 740, 36, "page", "your program · examples/ · bench/ · tools/ (the command lockstep) · tests/")
    picture.arrow(380, 46, 380, 66)
    rows = [("train", "a", "Trainer, losses, metrics, callbacks, schedules, checkpoints, preemption, elastic jobs"),
            ("nn", "a", "synchronised batch normalization, mixed precision"),
            ("strategy", "b", "Strategy and its implementations, contexts, variables, modules, optimizers, input")]
    y = 68
    for name, fill, what in rows:
        picture.box(10, y, 740, 52, fill)
        picture.text(24, y + 31, name, "bold")
        picture.text(130, y + 31, what)
        y += 60
    columns = [("comm", "collectives,", "engines, jobs"), ("cluster", "who takes", "part in a job"), ("data", "datasets,", "transforms"),
               ("state", "names, values,", "files"), ("value", "PerReplica,", "printing"), ("xla", "lazy tensors,", "plugins")]
    for i, (name, first, second) in enumerate(columns):
        x = 10 + i * 124
        picture.box(x, y, 120, 76, "c")
        picture.text(x + 60, y + 22, name, "bold", "middle")
        picture.text(x + 60, y + 45, first, "inside", "middle")
        picture.text(x + 60, y + 62, second, "inside", "middle")
    y += 84
    for name, fill, what in [("device", "d", "devices, logical devices, streams, replica threads, random numbers"),
                             ("base", "e", "errors, log, environment variables, nests")]:
        picture.box(10, y, 740, 40, fill)
        picture.text(24, y + 25, name, "bold")
        picture.text(130, y + 25, what)
        y += 46
    return picture


def step():
    picture = Picture("step", 760, 330, "One step on two replicas",
                      "Both replicas compute forward and backward on their rows, wait for each other, sum and update half of the "
                      "parameters each for both, wait again, and return.")
    picture.text(10, 24, "strategy.run(step, batch)", "code")
    picture.text(750, 24, "time →", "small", "end")
    parts = [("rows 0–31", 100, 78, "e"), ("forward", 178, 88, "a"), ("backward", 266, 144, "b")]
    for replica, y in ((0, 50), (1, 170)):
        picture.text(10, y + 20, f"replica {replica}", "bold")
        picture.text(10, y + 38, "calling thread" if replica == 0 else "own thread", "small")
        late = 30 if replica else 0
        for text, x, width, fill in parts:
            x, width = (x, width + late) if text == "backward" else (x, width)
            picture.box(x, y, width, 44, fill, text if replica == 0 or not text.startswith("rows") else "rows 32–63",
                        "small" if text.startswith("rows") else "")
        if replica == 0:
            picture.box(410, y, 30, 44, "page", "wait", "small")
        picture.box(446, y, 104, 44, "c", "sum gradients", "small")
        picture.box(550, y, 90, 44, "d", "update", "")
        picture.text(446, y + 62, f"{'first' if replica == 0 else 'second'} half of the parameters,", "small")
        picture.text(446, y + 78, "written to both copies", "small")
        picture.box(646, y, 104, 44, "e", "result", "")
    for x, text in ((443, "all gradients are there"), (643, "all copies are equal")):
        picture.line(x, 40, x, 262, "dashed")
        picture.text(x, 280, text, "small", "middle")
    picture.text(380, 312, "strategy.reduce(\"sum\", losses) adds the two results; the loss is that of the whole batch", "small", "middle")
    return picture


def buckets():
    picture = Picture("buckets", 760, 300, "Buckets of gradients during backward",
                      "Backward computes gradients from the last layer to the first. A bucket that is full is sent to the other "
                      "workers while backward goes on; the update begins when the last one is there.")
    names = ["layer 4", "layer 3", "layer 2", "layer 1"]
    picture.text(10, 24, "a worker, between machines", "bold")
    picture.text(750, 24, "time →", "small", "end")
    picture.text(10, 70, "backward")
    picture.text(10, 135, "network")
    picture.text(10, 205, "update")
    for i, name in enumerate(names):
        picture.box(100 + i * 100, 44, 98, 42, "b", name)
    sends = [(200, 130, "bucket 1: layer 4"), (334, 130, "bucket 2: layer 3"), (468, 150, "bucket 3: layers 2, 1")]
    ends = [200, 300, 500]
    for (x, width, text), end in zip(sends, ends):
        start = max(x, end)
        picture.box(start, 112, width, 42, "a", text, "small")
        picture.line(end, 86, max(start, end), 112, "dashed")
    picture.box(654, 180, 96, 42, "d", "update")
    picture.line(650, 154, 654, 180, "dashed")
    picture.line(500, 40, 500, 232, "dashed")
    picture.text(496, 248, "end of backward", "small", "end")
    picture.text(505, 248, "only the last bucket is waited for", "small")
    picture.text(380, 284, "Shared memory needs no buckets: replicas of one machine read each other's gradients in place.", "small", "middle")
    return picture


def mesh():
    picture = Picture("mesh", 760, 330, "A mesh of logical devices",
                      "Two replicas have four logical devices each, a mesh of 2 by 2. A batch is divided among replicas, then rows along one "
                      "axis of the mesh and columns along the other.")
    fills = ["a", "b", "c", "d"]
    for replica in range(2):
        x0 = 40 + replica * 250
        picture.text(x0 + 100, 28, f"replica {replica}", "bold", "middle")
        picture.box(x0 - 10, 40, 220, 220, "page")
        for row in range(2):
            for column in range(2):
                device = row * 2 + column
                picture.box(x0 + column * 102, 52 + row * 100, 96, 94, fills[device])
                picture.text(x0 + column * 102 + 48, 92 + row * 100, f"device {device}", "", "middle")
                picture.text(x0 + column * 102 + 48, 112 + row * 100, f"tile [{row}, {column}]", "inside", "middle")
    picture.arrow(255, 150, 275, 150)
    picture.arrow(275, 150, 255, 150)
    picture.text(265, 282, "gradients: summed over replicas", "small", "middle")
    x = 560
    picture.text(x + 80, 28, "one tensor of a replica", "bold", "middle")
    for row in range(2):
        for column in range(2):
            picture.box(x + column * 80, 52 + row * 60, 80, 60, fills[row * 2 + column], f"[{row}, {column}]", "small")
    picture.text(x + 80, 196, "split_to_logical_devices(x, {2, 2})", "small", "middle")
    picture.text(x + 80, 222, "each device stores its tile;", "small", "middle")
    picture.text(x + 80, 238, "XLA adds the communication", "small", "middle")
    picture.text(380, 316, "DeviceAssignment: 8 devices are 2 replicas of 4 logical devices", "small", "middle")
    return picture


def main():
    check = "--check" in sys.argv[1:]
    stale = 0
    for picture in (layers(), step(), buckets(), mesh()):
        file = FOLDER / f"{picture.name}.svg"
        text = picture.svg()
        if check:
            if not file.exists() or file.read_text() != text:
                print(f"{file.name}: differs from what docs/pictures/make_pictures.py draws; run it and commit the file")
                stale += 1
        else:
            file.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
