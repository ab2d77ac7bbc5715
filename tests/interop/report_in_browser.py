#!/usr/bin/env python3
"""Opens a report in Chromium: no error on the console, no request, numbers on hover and by keyboard, switches, print.

  report_in_browser.py LOCKSTEP CHROMIUM [FOLDER]      with FOLDER it keeps screenshots and the printed pages there

Needs no package: it talks to the browser through pipes (--remote-debugging-pipe).
"""

import base64
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Browser:
    """One page of a browser without a window."""

    def __init__(self, program, profile):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "_", program, "--headless", "--no-sandbox",
                   "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.from_read], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.from_read, 1 << 20) if ready else b""
            if not part:
                raise SystemExit("FAILED: the browser does not answer")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to_write, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + 120
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        deadline = time.monotonic() + 120
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(deadline))

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path):
        height = self.run("Math.ceil(document.documentElement.scrollHeight)")
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def troubles(self):
        """What the console and the network tell: there must be nothing but the page itself."""
        found = []
        for event in self.events:
            method, details = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(json.dumps(details)[:500])
            if method == "Network.requestWillBeSent" and details["type"] != "Document":
                found.append("request: " + details["request"]["url"][:200])
        return found

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (SystemExit, OSError):
            self.process.kill()
        self.process.wait(timeout=60)


KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27, "Tab": 9}


def check(condition, message):
    if not condition:
        raise SystemExit("FAILED: " + message)


def keyboard(browser):
    """The cursor of the first chart stands where the keys lead it, and its reading has the numbers of the data."""
    browser.run("document.querySelector('.plot').focus({focusVisible: true})")
    browser.press("Home")
    browser.press("ArrowRight")
    reading = browser.run("document.querySelector('.plot .reading').innerText")
    first = browser.run("""(() => { const chart = JSON.parse(document.getElementById('data').textContent).charts[0];
        const series = chart.series.find((entry) => entry.role === 'interval');
        return {step: series.step[1], value: Format.of(series.y[1], '', 5)}; })()""")
    check(f"step {first['step']}" in reading and first["value"] in reading, f"the keys must read {first}: {reading}")
    check(browser.run("document.getElementById('spoken').textContent").startswith(f"step {first['step']} "), "a reading must be spoken")
    browser.press("End")
    check("step 4800" in browser.run("document.querySelector('.plot .reading').innerText"), "End must lead to the last point")
    browser.press("Escape")
    check(browser.run("document.querySelector('.plot .reading').hidden"), "Escape must hide the reading")
    browser.press("Tab")
    check(browser.run("document.activeElement.tagName") == "BUTTON" or browser.run("document.activeElement.classList.contains('plot')"),
          "Tab must lead on")


def pointer(browser, keep):
    box = browser.run("(() => { const b = document.querySelector('.plot').getBoundingClientRect(); return [b.left, b.top, b.width]; })()")
    browser.point(box[0] + box[2] / 2, box[1] + 60)
    check(browser.run("document.querySelector('.plot .reading').innerText").count("\n") >= 3, "the pointer must read all series")
    check(browser.run("document.querySelectorAll('.cursor path').length") > 3, "all charts must show the cursor")
    if keep:
        (keep / "hover.png").write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
    browser.point(1, 1)


def switches(browser):
    lines = "document.querySelectorAll('.plot')[0].querySelectorAll('.series').length"
    before = browser.run(lines)
    browser.run("document.querySelector('.run-toggle').click()")
    check(browser.run(lines) < before, "a button must hide its run")
    browser.run("document.querySelector('.run-toggle').click()")
    check(browser.run(lines) == before, "and show it again")
    for axis in ("epoch", "time"):
        browser.run(f"document.querySelector('input[value={axis}]').click()")
        check(browser.run("document.querySelector('.axis-name').textContent").startswith(axis), f"the axis must be {axis}")
    browser.run("document.querySelector('input[value=step]').click()")
    browser.run("document.querySelector('button.log').click()")
    check("NaN" not in browser.run("document.querySelector('.plot').innerHTML"), "a logarithmic axis must have numbers")
    browser.run("document.querySelector('button.log').click()")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
    check(browser.run(colour) != light, "the switch must make the page dark")
    browser.run("document.getElementById('theme').click()")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    check(browser.run(colour) != light, "the page must follow a dark system")


def fits(browser, name):
    """Nothing is wider than the window, apart from tables that scroll."""
    wide = browser.run("document.documentElement.scrollWidth - innerWidth")
    check(wide <= 0, f"{name}: the page is {wide} pixels wider than the window")
    broken = browser.run("[...document.querySelectorAll('.plot svg')].filter((svg) => /NaN|Infinity/.test(svg.outerHTML)).length")
    check(broken == 0, f"{name}: {broken} pictures have coordinates that are no numbers")


def main():
    lockstep, chromium = sys.argv[1:3]
    keep = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as folder:
        runs = pathlib.Path(folder) / "runs"
        subprocess.run([sys.executable, str(HERE.parent / "tools" / "make_runs.py"), str(runs)], check=True)
        cases = {"compared": ["plain", "four", "running", "nan"], "single": ["four"], "names": ["names"], "many": ["many"],
                 "long": ["long"], "one_epoch": ["one_epoch"], "no_steps": ["no_steps"], "damaged": ["damaged"]}
        for name, chosen in cases.items():
            subprocess.run([lockstep, "report", *(str(runs / run) for run in chosen), "-o", f"{folder}/{name}.html"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        browser = Browser(chromium, folder + "/profile")
        try:
            for name in cases:
                for width in (1280, 400):
                    browser.size(width, 900)
                    browser.open(f"{folder}/{name}.html")
                    check(not browser.troubles(), f"{name}: {browser.troubles()}")
                    check(browser.run("document.documentElement.className") == "js", f"{name}: the script must run")
                    fits(browser, f"{name} at {width}")
                    if keep:
                        browser.screenshot(keep / f"{name}-{width}.png")
            browser.size(1280, 900)
            browser.open(folder + "/compared.html")
            keyboard(browser)
            pointer(browser, keep)
            switches(browser)
            check(not browser.troubles(), f"after use: {browser.troubles()}")
            if keep:
                browser.screenshot(keep / "dark.png")
            browser.call("Emulation.setEmulatedMedia", features=[])
            printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
            check(printed.startswith(b"%PDF"), "the page must print")
            if keep:
                (keep / "print.pdf").write_bytes(printed)
            browser.call("Emulation.setScriptExecutionDisabled", value=True)
            browser.open(folder + "/compared.html")
            check(not browser.troubles(), f"without scripts: {browser.troubles()}")
            if keep:
                browser.screenshot(keep / "no_script.png")
        finally:
            browser.close()
    print("report in browser: passed")


if __name__ == "__main__":
    main()
