"""A page of Chromium without a window. Needs no package: it talks to the browser through pipes (--remote-debugging-pipe)."""

import base64
import json
import os
import select
import subprocess
import time

KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "PageDown": 34, "Escape": 27, "Tab": 9}


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

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
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
