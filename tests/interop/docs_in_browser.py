#!/usr/bin/env python3
"""Builds the site of the documentation and opens it in Chromium: the search finds guides first, pages fit the window, no errors.

  docs_in_browser.py CHROMIUM [FOLDER]      with FOLDER it keeps screenshots there
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["index.html", "examples.html", "quick_start.html", "training.html", "command_reference.html", "observing.html",
         "api/index.html", "api/train_trainer_trainer.html", "source/examples_01_first.cpp.html"]

# A query, and the titles and addresses of which the first results must be.
FIRST = [
    ("checkpoint", 1, ["checkpoints.html#checkpoints"]),
    ("dataset", 2, ["data.html#datasets", "api/data_dataset.html#data-Dataset"]),
    ("datasets", 1, ["data.html#datasets"]),
    ("train", 1, ["training.html#training"]),
    ("optimizer", 3, ["training.html#optimizers", "api/strategy_optimizer_optimizer.html#Optimizer"]),
    ("trainers", 2, ["training.html#trainer"]),
    ("kubernetes", 1, ["clusters.html#kubernetes"]),
    ("tensorboard", 3, ["observing.html#tensorboard"]),
    ("hang", 1, ["debugging_hangs.html#debugging-a-hang"]),
    ("MirroredStrategy", 1, ["api/strategy_strategies_mirrored.html#MirroredStrategy"]),
    ("mirroredstrategy", 1, ["api/strategy_strategies_mirrored.html#MirroredStrategy"]),
    ("average_loss", 1, ["api/strategy_losses.html#average_loss"]),
    ("--label-smoothing", 1, ["command_reference.html#lockstep-train"]),
    ("--clip-norm", 1, ["command_reference.html#lockstep-train"]),
    ("elastic example", 3, ["examples.html#14-workers-that-are-lost"]),
    ("trimmed mean", 2, ["examples.html#11-custom-collectives"]),
]


def check(condition, message):
    if not condition:
        raise SystemExit("FAILED: " + message)


def searches(browser):
    def find(query):
        return browser.run(f"Search.find({json.dumps(query)})")

    for query, count, addresses in FIRST:
        found = [row[2] for row in find(query)]
        for address in addresses:
            check(address in found[:count], f"`{query}` must find {address} among the first {count}: {found[:5]}")
    for query in ("checkpoint", "dataset", "optimizer"):
        names = [row[0] for row in find(query) if row[4] in ("class", "function", "member")]
        check(len(names) == len(set(names)), f"`{query}` must have one row for a name: {names}")
        check(all(row[4] != "member" for row in find(query)[:6]), f"`{query}` must not begin with members: {find(query)[:6]}")
    check(not [row for row in find("hang") if "change" in row[0].lower()], "`hang` must not find changes")
    check(find("") == [] and find("zzqy") == [], "what is not there must not be found")
    lost = browser.run("""SEARCH_INDEX.filter((row) => !row[2].endsWith(".html") && !row[2].includes("#")).map((row) => row[2])""")
    check(not lost, f"rows must have an address: {lost}")


def last_words(browser):
    """The last words of long sections are found, too."""
    for title, address, word in browser.run("""SEARCH_INDEX.filter((row) => row[4] === "section" && row[3].length > 4000)
            .map((row) => [row[0], row[2], (row[3].match(/[a-z]{4,}/g) || []).pop()])"""):
        found = browser.run(f"Search.find({json.dumps(title + ' ' + word)}).map((row) => row[2])")
        check(address in found, f"`{title} {word}` must find {address}: {found[:5]}")


def field(browser):
    """The field shows results, and a key leads to the first of them."""
    browser.run("""(() => { const field = document.getElementById("search"); field.focus(); field.value = "checkpoint";
        field.dispatchEvent(new Event("input")); })()""")
    rows = browser.run("document.querySelectorAll('#found a').length")
    check(rows > 5, f"the field must show results: {rows}")
    check(browser.run("document.querySelector('#found a').getAttribute('href')") == "checkpoints.html#checkpoints", "the guide must be the first")
    browser.press("Escape")
    check(browser.run("document.getElementById('found').hidden"), "Escape must close them")


def main():
    chromium = sys.argv[1]
    keep = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder) / "site"
        subprocess.run([sys.executable, str(ROOT / "scripts/make_docs.py"), "--output", str(site), "--quiet"], check=True)
        browser = Browser(chromium, folder + "/profile")
        try:
            for width in (1400, 400):
                browser.size(width, 900)
                for scheme in ("light", "dark"):
                    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                    for page in PAGES:
                        browser.open((site / page).as_uri())
                        found = [text for text in browser.troubles() if not text.startswith("request: file:")]
                        check(not found, f"{page}: {found}")
                        wide = browser.run("document.documentElement.scrollWidth - innerWidth")
                        check(wide <= 0, f"{page} at {width}: {wide} pixels wider than the window")
                        if keep:
                            browser.screenshot(keep / f"{page.replace('/', '_')}-{width}-{scheme}.png")
            browser.size(1400, 900)
            browser.open((site / "index.html").as_uri())
            searches(browser)
            last_words(browser)
            field(browser)
        finally:
            browser.close()
    print("docs in browser: passed")


if __name__ == "__main__":
    main()
