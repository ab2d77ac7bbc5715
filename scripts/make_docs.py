#!/usr/bin/env python3
"""Builds the documentation as one static site: the guides in the order of docs/README.md, and a reference of the public headers.

    scripts/make_docs.py [--output build/site] [--quiet]

Needs only Python. Pages, names and sources that texts mention are linked. Fails where a page of docs/ is not listed in
docs/README.md, and where a link of the site leads nowhere. Opens without a server: build/site/index.html.
"""

import argparse
import collections
import html
import json
import pathlib
import posixpath
import re
import shutil
import sys

sys.dont_write_bytecode = True

from docs_site.check_site import broken_links
from docs_site.headers import missed_names, public_headers, read_header
from docs_site.highlight import highlight
from docs_site.markdown import Markdown, anchor, plain
from docs_site.template import page_html

COLUMNS = 88  # of code that a page shows whole
ROOT = pathlib.Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"


def comments_above(code):
    """Returns code in which comments behind lines that a page would cut are above them."""
    out = []
    for line in code.split("\n"):
        match = re.match(r"(\s*)(\S.*?)\s*(// .*)$", line) if len(line) > COLUMNS else None
        out += [match.group(1) + match.group(3), match.group(1) + match.group(2)] if match else [line]
    return "\n".join(out)


class Page:
    """One page of the site: where it comes from, its address, its title and, after rendering, its body."""

    def __init__(self, source, address, title, section):
        self.source, self.address, self.title, self.section = source, address, title, section
        self.body, self.headings = "", []


class Site:
    def __init__(self, output):
        self.output = output
        self.pages = []      # guides in their order, then the reference
        self.by_source = {}  # path of the repository to its page
        self.names = collections.defaultdict(set)  # name of the interface to addresses
        self.sources = {}    # path of the repository to the address of its text
        self.images = {}     # path of the repository to its address
        self.search = {}     # title and place to a row of the index of the search
        self.faults = []

    # What there is.

    def add(self, page):
        self.pages.append(page)
        self.by_source[page.source] = page

    def find_guides(self):
        """Adds the pages that docs/README.md links below its headings, in its order."""
        self.add(Page(INDEX, "index.html", "Documentation", ""))
        section = ""
        for line in (ROOT / INDEX).read_text().splitlines():
            if line.startswith("## "):
                section = line[3:].strip()
            if not section:
                continue
            for title, target in re.findall(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)", line):
                path = posixpath.normpath(posixpath.join("docs", target))
                if path in self.by_source or not (ROOT / path).exists():
                    continue
                name = path.removeprefix("docs/").removesuffix(".md").lower().replace("/", "_")
                name = "examples" if path == "examples/README.md" else name
                self.add(Page(path, name + ".html", plain(title[0].upper() + title[1:]), section))
        for file in sorted((ROOT / "docs").glob("**/*.md")):
            path = str(file.relative_to(ROOT))
            if path not in self.by_source:
                self.faults.append(f"{path}: not listed in {INDEX}; add a line with a link to it")

    def find_headers(self):
        """Reads the public headers and notes where each name is described."""
        listed = set(re.findall(r'#include "(lockstep/[^"]+)"', (ROOT / "lockstep/lockstep.h").read_text()))
        self.headers = []
        for path in public_headers(ROOT):
            text = (ROOT / path).read_text()
            header = read_header(path, text)
            self.faults += [f"{path}: scripts/docs_site/headers.py does not find {name}" for name in missed_names(text, header)]
            if not header.entries:
                continue
            folder = path.split("/")[1] if path.count("/") > 1 else "lockstep"
            page = Page(path, "api/" + path.removeprefix("lockstep/").replace("/", "_").removesuffix(".h") + ".html",
                        path.removeprefix("lockstep/"), "")
            page.header, page.folder, page.listed = header, folder, path in listed
            self.by_source[path] = page
            self.headers.append(page)
            used = {}
            for entry in header.entries:
                self.name_entry(entry, page, used)
        self.headers.sort(key=lambda page: (not page.listed, page.source))

    def name_entry(self, entry, page, used):
        entry.ids = []
        for name, _ in entry.declarations:
            full = f"{entry.scope}::{name}"
            place = re.sub(r"[^\w]+", "-", full.removeprefix("lockstep::")).strip("-") or "name"
            used[place] = used.get(place, 0) + 1
            entry.ids.append(place if used[place] == 1 else f"{place}-{used[place]}")
            if page.listed or entry.kind == "class":
                parts = full.split("::")
                for i in range(len(parts)):
                    # Classes before functions, outer names before inner ones.
                    self.names["::".join(parts[i:])].add((entry.kind == "function", len(parts), page.address, place))
        for member in entry.members:
            self.name_entry(member, page, used)

    def find_by(self, title, where, address, text, kind):
        """Adds a row to the index of the search (docs/site/search.js); names of the reference have one row each."""
        text = re.sub(r"\s+", " ", text).strip()
        key = (title, kind) if kind in ("class", "function", "member") else address
        if key in self.search:
            row = self.search[key]
            row[3] = f"{row[3]} {text}".strip() if text not in row[3] else row[3]
        else:
            self.search[key] = [title, where, address, text, kind]

    # Links.

    def link(self, page, target):
        """Returns the address for the target of a Markdown link on a page."""
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return target
        path, _, place = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), path))
        address = self.address_of(path)
        if address is None:
            self.faults.append(f"{page.source}: the link {target} leads nowhere")
            return target
        return self.relative(page, address) + (f"#{place}" if place else "")

    def address_of(self, path):
        """Returns the address of a file or folder of the repository; one without a page gets its text as a page."""
        if (ROOT / path).is_dir():
            path = f"{path}/README.md" if f"{path}/README.md" in self.by_source else path
        if path in self.by_source:
            return self.by_source[path].address
        if not (ROOT / path).exists() or path.startswith(("..", "/")):
            return None
        return self.sources.setdefault(path, "source/" + path.replace("/", "_") + ".html")

    @staticmethod
    def relative(page, address):
        return posixpath.relpath(address, posixpath.dirname(page.address) or ".")

    def code_link(self, page, text):
        """Returns the address of what a text in backticks names: a file, a class, a function with its class, or None."""
        if re.fullmatch(r"(?!build/)[\w.-]+(/[\w.-]+)+/?", text):
            for base in ("", "lockstep/"):
                if (ROOT / (base + text)).is_file():
                    return self.relative(page, self.address_of(base + text))
            return None
        match = re.fullmatch(r"(?:ls::|lockstep::)?([A-Za-z_]\w*(?:::~?\w+)*)(?:\(.*\))?", text, re.S)
        if not match or not re.search(r"[A-Z]|::", match.group(1)):
            return None
        found = sorted(self.names.get(match.group(1), set()))
        if not found or len(found) > 1 and found[0][:2] == found[1][:2]:
            return None
        address, place = found[0][2:]
        return (self.relative(page, address) if address != page.address else "") + f"#{place}"

    def picture(self, page, target, alt):
        """Returns a picture. A drawing is a part of the page, so that it follows its colours; others are copied to the site.
        Where there is NAME_dark.png beside NAME.png, dark pages show that."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), target))
        if not (ROOT / path).is_file() or path.startswith(("..", "/")):
            self.faults.append(f"{page.source}: the picture {target} must be a file of the repository")
            return ""
        if path.endswith(".svg"):
            shown = re.sub(r"^<\?xml[^>]*>\s*", "", (ROOT / path).read_text())
        else:
            shown = ""
            stem, _, ending = path.rpartition(".")
            for name, colours in ((path, "light"), (f"{stem}_dark.{ending}", "dark")):
                if (ROOT / name).is_file():
                    address = self.images.setdefault(name, "images/" + name.replace("/", "_"))
                    shown += f'<img class="{colours}" src="{self.relative(page, address)}" alt="{html.escape(alt)}">'
        return f'<figure tabindex="0">{shown}<figcaption>{html.escape(alt)}</figcaption></figure>'

    def markdown(self, page, **options):
        return Markdown(link=lambda target: self.link(page, target), code_link=lambda text: self.code_link(page, text),
                        picture=lambda target, alt: self.picture(page, target, alt), **options)

    # Pages.

    def render_guides(self):
        for page in self.pages:
            markdown = self.markdown(page)
            page.body = markdown.render((ROOT / page.source).read_text())
            page.headings = markdown.headings
            kind = "contributor" if page.section in ("", "For contributors") or page.source == "CHANGELOG.md" else "section"
            kind = "command" if page.source == "docs/command_reference.md" else kind
            for level, place, title, text in markdown.headings:
                self.find_by(title, page.title if level > 1 else page.section, f"{page.address}#{place}", " ".join(text),
                             "page" if level == 1 and kind != "contributor" else kind)

    def render_reference(self):
        folders = collections.defaultdict(list)
        for page in self.headers:
            page.section = page.folder
            page.body = self.header_html(page)
            folders[(page.listed, page.folder)].append(page)
        index = Page("api", "api/index.html", "API reference", "API reference")
        index.body = ('<h1 id="api">API reference</h1><p>The public headers. <code>#include &lt;lockstep/lockstep.h&gt;</code> '
                      "has those of the first list; <code>ls</code> stands for <code>lockstep</code> in the guides.</p>")
        for listed, title in ((True, "Interface"), (False, "Further headers")):
            note = "" if listed else "<p>Parts of the templates of the interface. Programs do not include them.</p>"
            index.body += f'<h2 id="{anchor(title)}">{title}</h2>{note}'
            for (is_listed, folder), pages in sorted(folders.items(), key=lambda item: item[0][1]):
                if is_listed == listed:
                    rows = "".join(self.index_row(index, page) for page in sorted(pages, key=lambda page: page.source))
                    place = anchor(f"{title} {folder}")
                    index.body += f'<h3 id="{place}">{folder}</h3><div class="table" tabindex="0"><table class="headers"><tbody>{rows}</tbody></table></div>'
                    index.headings.append((2 if listed else 3, place, folder, []))
        self.pages.append(index)
        self.pages += self.headers

    def index_row(self, index, page):
        """Returns the row of a header: its classes, and the functions outside of classes."""
        markdown = self.markdown(index)
        names = {}
        for entry in page.header.entries:
            for (name, _), place in zip(entry.declarations, entry.ids):
                names.setdefault(name, f'<a href="{self.relative(index, page.address)}#{place}"><code>{html.escape(name)}</code></a>')
        text = page.header.doc or next((entry.doc for entry in page.header.entries if entry.doc), "")
        first = re.split(r"(?<=[.:])\s", text.split("\n\n")[0].replace("\n", " "), maxsplit=1)[0].rstrip(":")
        return (f'<tr><td><a href="{self.relative(index, page.address)}">{page.title.removeprefix(page.folder + "/")}</a></td>'
                f'<td>{markdown.inline(first)}<div class="names">{" ".join(names.values())}</div></td></tr>')

    def header_html(self, page):
        header = page.header
        include = page.source if page.listed else "lockstep/lockstep.h"
        out = [f'<h1 id="top">{page.title}</h1><div class="code"><pre><code class="cpp">'
               f'{highlight(f"#include <{include}>", "cpp")}</code></pre></div>']
        if header.doc:
            out.append(self.prose(page, header.doc))
        for entry in header.entries:
            out.append(self.entry_html(page, entry, 2))
        self.find_by(page.title, "API reference", page.address, plain(header.doc), "header")
        return "\n".join(out)

    def prose(self, page, doc):
        doc = re.sub(r"^```$", "```cpp", doc, flags=re.M)
        doc = re.sub(r"(```cpp\n(?:(?!```).*\n)*)```cpp", r"\1```", doc)  # the closing one
        doc = re.sub(r"^```cpp\n.*?^```$|(?:^    [^\n]*\n?)+", lambda match: comments_above(match.group()), doc, flags=re.M | re.S)
        markdown = self.markdown(page)
        return re.sub(r'<code class="(?:text|sh)">(.*?)</code></pre>',
                      lambda match: f'<code class="cpp">{highlight(html.unescape(re.sub("<[^>]*>", "", match.group(1))), "cpp")}</code></pre>',
                      markdown.render(doc), flags=re.S)

    def entry_html(self, page, entry, level):
        scope = entry.scope.removeprefix("lockstep").removeprefix("::")
        whole = f"{scope}::{entry.name}" if scope else entry.name
        parent = f"lockstep::{scope}" if scope else "lockstep"
        kind = entry.kind if entry.kind == "class" else "function" if level == 2 else "member"
        self.find_by(whole, page.source, f"{page.address}#{entry.ids[0]}", plain(entry.doc), kind)
        shown = "".join(f'<div class="code signature" id="{place}"><pre tabindex="0"><code class="cpp">{highlight(text, "cpp")}</code></pre>'
                        f'<a class="anchor" href="#{place}" aria-label="link to {html.escape(name)}">#</a></div>'
                        for (name, text), place in zip(entry.declarations, entry.ids))
        doc = f'<div class="prose">{self.prose(page, entry.doc)}</div>' if entry.doc else ""
        if entry.kind not in ("class", "enum") and level > 2:
            return f'<div class="member">{shown}{doc}</div>'
        title = f'h{min(level, 4)}'
        place = f"{entry.ids[0]}-section"
        if level == 2:
            page.headings.append((2, place, entry.name, []))
        members = "".join(self.entry_html(page, member, level + 1) for member in entry.members)
        return (f'<section class="entry"><{title} id="{place}">{html.escape(entry.name)} <small>{parent}</small></{title}>{shown}{doc}'
                f'{members}</section>')

    def render_sources(self):
        """Adds the texts of files that pages mention, and lists of folders; a list may add further files."""
        done = set()
        while set(self.sources) - done:
            for path in sorted(set(self.sources) - done):
                done.add(path)
                page = Page(path, self.sources[path], path, "Sources")
                if (ROOT / path).is_dir():
                    names = sorted(file.name for file in (ROOT / path).iterdir() if file.is_file())
                    page.body = "".join(f'<li><a href="{self.relative(page, self.address_of(f"{path}/{name}"))}">{name}</a></li>'
                                        for name in names)
                    page.body = f"<h1>{path}</h1><ul>{page.body}</ul>"
                else:
                    text = (ROOT / path).read_bytes().decode(errors="replace")
                    language = {"CMakeLists.txt": "cmake"}.get(pathlib.Path(path).name, path.rsplit(".", 1)[-1])
                    page.body = f'<h1>{path}</h1><div class="code"><pre tabindex="0"><code>{highlight(text, language)}</code></pre></div>'
                self.pages.append(page)

    def write(self):
        if self.output.exists() and not (self.output / "search_index.js").is_file() and any(self.output.iterdir()):
            sys.exit(f"[make_docs] the folder must be empty or an older site: output={self.output}; name another one with --output")
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir(parents=True)
        for asset in sorted((ROOT / "docs/site").iterdir()):
            shutil.copy(asset, self.output / asset.name)
        for path, address in self.images.items():
            (self.output / address).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / path, self.output / address)
        (self.output / "search_index.js").write_text("const SEARCH_INDEX = " + json.dumps(list(self.search.values()), ensure_ascii=False, separators=(",", ":")) + ";\n")
        order = [page for page in self.pages if page.section != "Sources"]
        for page in self.pages:
            at = order.index(page) if page in order else -1
            before = order[at - 1] if at > 0 else None
            after = order[at + 1] if 0 <= at < len(order) - 1 else None
            file = self.output / page.address
            file.parent.mkdir(exist_ok=True)
            file.write_text(page_html(self, page, before, after))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "build/site")
    arguments.add_argument("--quiet", action="store_true", help="print only what is wrong")
    given = arguments.parse_args()
    site = Site(given.output)
    site.find_guides()
    site.find_headers()
    site.render_guides()
    site.render_reference()
    site.render_sources()
    site.write()
    faults = sorted({*site.faults, *broken_links(given.output)})
    for fault in faults:
        print(fault)
    if not given.quiet:
        print(f"docs: {len(site.pages)} pages, {len(site.headers)} headers, {len(faults)} faults: {given.output / 'index.html'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
