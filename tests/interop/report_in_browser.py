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
    spoken = browser.run("document.getElementById('spoken').textContent")
    check(spoken.startswith(f"step {first['step']}: run A single steps {first['value']} (steps 41 to 80)"), f"a reading must be spoken: {spoken}")
    check("steps 41 to 80" in reading, f"a mean must name its steps: {reading}")
    browser.press("PageDown")
    reading, spoken = browser.run("[document.querySelector('.plot .reading').innerText, document.getElementById('spoken').textContent]")
    check("step 480" in reading and not reading.startswith("step 480"), f"a value of another step must name it: {reading}")
    check("train" in spoken and "(step 480)" in spoken, f"a value of another step must name it: {spoken}")
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
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    check(browser.run("document.querySelector('.plot .reading').innerText").count("\n") >= 3, "the pointer must read all series")
    check(browser.run("document.querySelectorAll('.cursor path').length") >= 2, "the charts in sight must show the cursor")
    if keep:
        (keep / "hover.png").write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
    browser.point(1, 1)


def middle_of_plot(browser, height=60):
    """Moves the pointer into the first chart, and returns its reading once it is there."""
    box = browser.run("""(() => { const plot = document.querySelector('.plot'); plot.scrollIntoView({block: 'center'});
        const b = plot.getBoundingClientRect(); return [b.left, b.top, b.width]; })()""")
    browser.point(box[0] + box[2] / 2, box[1] + height)
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return browser.run("document.querySelector('.plot .reading').innerText")


def short_run(browser):
    """One interval of 170 steps: between its ends there is its mean, and no other number."""
    reading = middle_of_plot(browser)
    check("steps 2 to 171" in reading and "0.15" in reading, f"a mean must name its steps: {reading}")
    path = browser.run("document.querySelector('.plot .series.faint path').getAttribute('d')")
    check("L" not in path, f"intervals must be stairs: {path}")
    browser.point(1, 1)


def hundred_runs(browser):
    """The curves can be seen and read, and what each run has for itself is folded."""
    bar = browser.run("document.querySelector('.controls').offsetHeight")
    check(bar < 80, f"what stays at the top must be small: {bar} pixels")
    legend = browser.run("document.querySelector('.legend').offsetHeight")
    check(legend < 200, f"the legend must scroll: {legend} pixels")
    check(browser.run("document.querySelectorAll('details[open]').length") == 0, "what each run has must be folded")
    check(browser.run("document.querySelectorAll('.ends text').length") == 0, "no letters at the ends of a hundred curves")
    for anchor in ("curves", "speed", "replicas", "runs"):
        browser.run(f"location.hash = '#{anchor}'")
        top, below = browser.run(f"[document.getElementById('{anchor}').getBoundingClientRect().top, "
                                 "document.querySelector('.controls').getBoundingClientRect().bottom]")
        check(top >= below - 1 or browser.run("scrollY + innerHeight >= document.documentElement.scrollHeight - 1"),
              f"#{anchor} is at {top}, under the bar, which ends at {below}")
    reading = middle_of_plot(browser)
    check("and 88 more" in reading, f"a hundred runs in a reading: {reading}")
    rows, inside = browser.run("""(() => { const box = document.querySelector('.plot .reading'); const b = box.getBoundingClientRect();
        return [box.querySelectorAll('tr').length, b.top >= 0 && b.left >= 0 && b.bottom <= innerHeight && b.right <= innerWidth]; })()""")
    check(rows == 13 and inside, f"{rows} rows, in the window: {inside}")
    duration = browser.run("""(async () => { const plot = document.querySelector('.plot'); const b = plot.getBoundingClientRect();
        const frame = () => new Promise(requestAnimationFrame); let longest = 0;
        for (let i = 0; i < 5; ++i) { await frame(); const begin = performance.now();
          plot.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 100 + 20 * i, clientY: b.top + 60})); await frame();
          plot.querySelector('.reading').offsetWidth; longest = Math.max(longest, performance.now() - begin); } return longest; })()""")
    check(duration < 400, f"a move of the pointer takes {duration} ms")
    browser.run("document.querySelectorAll('main > section details').forEach((part) => { part.open = true; })")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    drawn = browser.run("[...document.querySelectorAll('figure.chart svg')].every((svg) => svg.getAttribute('aria-hidden') === 'true')")
    check(drawn, "charts must be drawn when their part is opened")
    browser.run("document.querySelector('[data-all=\"0\"]').click(); document.querySelector('.run-toggle').click()")
    check(browser.run("document.querySelectorAll('.plot')[0].querySelectorAll('.series').length") == 3, "one of all runs")
    browser.point(1, 1)


def printed_width(browser, name):
    """On paper nothing can be scrolled."""
    browser.size(700, 900)
    browser.call("Emulation.setEmulatedMedia", media="print")
    wide = browser.run("[...document.querySelectorAll('.wide')].filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1).length")
    check(wide == 0, f"{name}: {wide} tables are cut off on paper")
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.size(1280, 900)


def labels_differ(browser, name):
    """The numbers of a vertical axis, which end at one place."""
    same = browser.run("""[...document.querySelectorAll('.ticks')].map((group) => [...group.querySelectorAll('text[text-anchor=end]')]
        .filter((text, index, all) => text.getAttribute('x') === all[0].getAttribute('x')).map((text) => text.textContent))
        .filter((all) => new Set(all).size < all.length)""")
    check(not same, f"{name}: numbers of an axis are the same: {same}")


def contrast(browser):
    """Letters on the card need 4.5, areas 3 (WCAG)."""
    for mode in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": mode}])
        weak = browser.run("""(() => { const probe = document.body.appendChild(document.createElement('i'));
            const light = (name) => { probe.style.color = `var(--${name})`;
              const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
                .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
              return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05; };
            const ratio = (name) => { const both = [light(name), light('card')]; return Math.max(...both) / Math.min(...both); };
            const need = (prefix, least) => [0, 1, 2, 3, 4, 5, 6, 7].map((index) => prefix + index).filter((name) => ratio(name) < least)
              .map((name) => name + ' ' + ratio(name).toFixed(2));
            const found = [...need('c', 4.5), ...need('p', 3)]; probe.remove(); return found; })()""")
        check(not weak, f"{mode}: weak contrast: {weak}")
    browser.call("Emulation.setEmulatedMedia", features=[])


def switches(browser):
    lines = "document.querySelectorAll('.plot')[0].querySelectorAll('.series').length"
    before = browser.run(lines)
    browser.run("document.querySelector('.run-toggle').click()")
    check(browser.run(lines) < before, "a button must hide its run")
    browser.run("document.querySelector('.run-toggle').click()")
    check(browser.run(lines) == before, "and show it again")
    for axis in ("epoch", "time"):
        browser.run(f"document.querySelector('input[value={axis}]').click()")
        check(axis in browser.run("document.querySelector('.axis-name').textContent"), f"the axis must be {axis}")
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
                 "long": ["long"], "one_epoch": ["one_epoch"], "no_steps": ["no_steps"], "damaged": ["damaged"],
                 "short": ["short"], "narrow": ["narrow"], "resumed": ["resumed"], "hundred": ["hundred"]}
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
                    labels_differ(browser, name)
                    if keep:
                        browser.screenshot(keep / f"{name}-{width}.png")
            browser.size(1280, 900)
            for name, look in (("short", short_run), ("hundred", hundred_runs)):
                browser.open(page(f"{folder}/{name}.html"))
                look(browser)
                check(not browser.troubles(), f"{name} after use: {browser.troubles()}")
            for name in ("hundred", "compared"):
                browser.open(page(f"{folder}/{name}.html"))
                printed_width(browser, name)
            contrast(browser)
            browser.open(page(folder + "/resumed.html"))
            browser.run("document.querySelector('input[value=time]').click()")
            check("h 00 min left out" in browser.run("document.querySelector('.plot').textContent"), "the axis of time must name the pause")
            labels_differ(browser, "resumed over time")
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
