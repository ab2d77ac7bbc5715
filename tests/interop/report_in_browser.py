#!/usr/bin/env python3
"""Opens a report in Chromium: no error on the console, no request, numbers on hover and by keyboard, switches, print.

  report_in_browser.py LOCKSTEP CHROMIUM [FOLDER]      with FOLDER it keeps screenshots and the printed pages there
"""

import base64
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser

HERE = pathlib.Path(__file__).resolve().parent


def page(path):
    return pathlib.Path(path).resolve().as_uri()


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
                    browser.open(page(f"{folder}/{name}.html"))
                    check(not browser.troubles(), f"{name}: {browser.troubles()}")
                    check(browser.run("document.documentElement.className") == "js", f"{name}: the script must run")
                    fits(browser, f"{name} at {width}")
                    if keep:
                        browser.screenshot(keep / f"{name}-{width}.png")
            browser.size(1280, 900)
            browser.open(page(folder + "/compared.html"))
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
            browser.open(page(folder + "/compared.html"))
            check(not browser.troubles(), f"without scripts: {browser.troubles()}")
            if keep:
                browser.screenshot(keep / "no_script.png")
        finally:
            browser.close()
    print("report in browser: passed")


if __name__ == "__main__":
    main()
