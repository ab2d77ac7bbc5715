"""The frame of a page: head, navigation, contents, links to the pages before and after."""

import html
import itertools


def link(site, page, other, text=None, current=False):
    mark = ' aria-current="page"' if current else ""
    return f'<a href="{site.relative(page, other.address)}"{mark}>{html.escape(text or other.title)}</a>'


def navigation(site, page):
    """Returns the pages by section; of the reference, the headers of the folder that is open."""
    out = []
    guides = [other for other in site.pages if not other.address.startswith(("api/", "source/"))]
    for section, pages in itertools.groupby(guides, key=lambda other: other.section):
        links = "".join(f"<li>{link(site, page, other, current=other is page)}</li>" for other in pages)
        out.append(f"{f'<h2>{html.escape(section)}</h2>' if section else ''}<ul>{links}</ul>")
    index = next(other for other in site.pages if other.address == "api/index.html")
    links = f"<li>{link(site, page, index, 'All headers', current=index is page)}</li>"
    folders = sorted({other.folder for other in site.headers if other.listed})
    for folder in folders:
        headers = [other for other in site.headers if other.folder == folder and (other.listed or other is page)]
        inner = "".join(f"<li>{link(site, page, other, other.title.removeprefix(folder + '/'), other is page)}</li>"
                        for other in sorted(headers, key=lambda other: other.source))
        is_open = " open" if getattr(page, "folder", None) == folder else ""
        links += f"<li><details{is_open}><summary>{folder}</summary><ul>{inner}</ul></details></li>"
    out.append(f"<h2>API reference</h2><ul>{links}</ul>")
    return "".join(out)


def contents(page):
    """Returns the sections of a page, for a wide screen."""
    places = [(place, title) for level, place, title, _ in page.headings if level == 2]
    if len(places) < 2:
        return ""
    items = "".join(f'<li><a href="#{place}">{html.escape(title)}</a></li>' for place, title in places)
    return f'<nav class="contents" aria-label="on this page"><h2>On this page</h2><ul>{items}</ul></nav>'


def page_html(site, page, before, after):
    top = "../" * page.address.count("/")
    nearby = ""
    if before:
        nearby += f'<a class="before" rel="prev" href="{site.relative(page, before.address)}"><span>previous</span>{html.escape(before.title)}</a>'
    if after:
        nearby += f'<a class="after" rel="next" href="{site.relative(page, after.address)}"><span>next</span>{html.escape(after.title)}</a>'
    return f"""<!DOCTYPE html>
<html lang="en" data-top="{top}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(page.title)} – lockstep</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{top}style.css">
<script src="{top}search.js"></script>
<script src="{top}site.js"></script>
<script defer src="{top}search_index.js"></script>
</head>
<body>
<a class="skip" href="#main">To the text</a>
<header>
<button id="menu" aria-label="pages" aria-expanded="false" aria-controls="pages">☰</button>
<a class="home" href="{top}index.html">lockstep</a>
<div class="find" role="search"><input id="search" type="search" placeholder="Search  ( / )" aria-label="search" autocomplete="off" spellcheck="false">
<div id="found" role="listbox" hidden></div></div>
<button id="theme" aria-label="colours: light or dark" title="light or dark">◐</button>
</header>
<div class="columns">
<nav id="pages" aria-label="pages">{navigation(site, page)}</nav>
<main id="main">
{page.body}
<nav class="nearby" aria-label="pages before and after">{nearby}</nav>
</main>
{contents(page)}
</div>
</body>
</html>
"""
