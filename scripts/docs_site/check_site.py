"""Finds links of a site that lead nowhere, and resources from elsewhere."""

import html.parser
import posixpath


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links, self.resources, self.twice = set(), [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            if attributes["id"] in self.ids:
                self.twice.append(attributes["id"])
            self.ids.add(attributes["id"])
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag in ("link", "script", "img"):
            self.resources.append(attributes.get("href") or attributes.get("src"))


def broken_links(folder):
    """Returns what is wrong with the pages of a folder, one text for each fault."""
    pages = {}
    for file in sorted(folder.rglob("*.html")):
        parser = Links()
        parser.feed(file.read_text())
        pages[file.relative_to(folder).as_posix()] = parser
    for name, page in pages.items():
        for place in page.twice:
            yield f"{name}: the id {place} is there twice"
        for target in page.links + [text for text in page.resources if text]:
            if target.startswith(("http:", "https:", "mailto:", "data:")):
                if target in page.resources and not target.startswith("data:"):
                    yield f"{name}: {target} is a resource from elsewhere"
                continue
            path, _, place = target.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if there not in pages:
                if not (folder / there).is_file():
                    yield f"{name}: the link {target} leads nowhere"
            elif place and place not in pages[there].ids:
                yield f"{name}: the link {target} leads to no place of {there}"
