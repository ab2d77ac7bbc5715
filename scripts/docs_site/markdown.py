"""Renders the Markdown of this repository to HTML: what GitHub shows of headings, paragraphs, nested lists, tables, code, quotes,
links, images and comments. Raw HTML is shown as text."""

import html
import re

from docs_site.highlight import highlight

FENCE = re.compile(r"^( *)(```+|~~~+) *([\w+#-]*)[^`]*$")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)]) +")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
RULE = re.compile(r"^ {0,3}([-*_])( *\1){2,} *$")
DIVIDER = re.compile(r"^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?$")


def anchor(title):
    """Returns the anchor that GitHub gives a heading."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def plain(text):
    """Returns Markdown of one paragraph without its marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(\*\*|\*|`)", "", text).replace("\\|", "|").strip()


def breakable(code):
    """Returns code as HTML in which long words may be broken behind their parts, and options of a command may not."""
    def word(text):
        if len(text) > 20:
            parts = re.split(r"(?<=::)|(?<=[./(_,=])(?=\w)", text)
            return "<wbr>".join(html.escape(part, quote=False) for part in parts)
        shown = html.escape(text, quote=False)
        return f'<span class="word">{shown}</span>' if "-" in text else shown
    return "".join(word(match) for match in re.findall(r"\s+|\S+", code))


class Markdown:
    """One page. `link(target)` returns the address for the target of a link, `code_link(text)` one for a name in backticks or
    None, `picture(target, alt)` the HTML of an image. After `render`, `headings` has (level, anchor, title, text below it)."""

    def __init__(self, link=lambda target: target, code_link=lambda text: None, picture=None, first_level=1):
        self.link = link
        self.code_link = code_link
        self.picture = picture or (lambda target, alt: f'<img src="{html.escape(target)}" alt="{html.escape(alt)}">')
        self.first_level = first_level
        self.headings = []
        self.used = {}

    def render(self, text):
        text = re.sub(r"^<!--.*?-->[ ]*\n", "", text, flags=re.S | re.M)
        return self.blocks(text.expandtabs(4).split("\n"))

    def blocks(self, lines, tight=False):
        out = []
        at = 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                at += 1
            elif FENCE.match(line):
                at = self.fence(lines, at, out)
            elif HEADING.match(line):
                self.heading(HEADING.match(line), out)
                at += 1
            elif RULE.match(line):
                out.append("<hr>")
                at += 1
            elif ITEM.match(line) and len(ITEM.match(line).group(1)) < 4:
                at = self.items(lines, at, out)
            elif line.startswith("    "):
                at = self.indented(lines, at, out)
            elif line.startswith(">"):
                end = next((i for i in range(at, len(lines)) if not lines[i].startswith(">")), len(lines))
                inner = self.blocks([re.sub(r"^> ?", "", text) for text in lines[at:end]])
                out.append(f"<blockquote>{inner}</blockquote>")
                at = end
            elif at + 1 < len(lines) and "|" in line and DIVIDER.match(lines[at + 1]):
                at = self.table(lines, at, out)
            else:
                at = self.paragraph(lines, at, out, tight)
        return "\n".join(out)

    def note(self, text):
        """Adds text to what the search finds below the last heading."""
        if self.headings:
            self.headings[-1][3].append(text)

    def heading(self, match, out):
        level, title = len(match.group(1)) + self.first_level - 1, match.group(2)
        name = anchor(title)
        count = self.used.get(name, 0)
        self.used[name] = count + 1
        if count:
            name = f"{name}-{count}"
        self.headings.append((level, name, plain(title), []))
        out.append(f'<h{level} id="{name}">{self.inline(title)} <a class="anchor" href="#{name}" '
                   f'aria-label="link to this section">#</a></h{level}>')

    def code(self, lines, language):
        self.note("\n".join(lines))
        return (f'<div class="code"><pre tabindex="0"><code class="{language or "text"}">'
                f'{highlight(chr(10).join(lines), language)}</code></pre></div>')

    def fence(self, lines, at, out):
        indent, mark, language = FENCE.match(lines[at]).groups()
        end = at + 1
        while end < len(lines) and not (lines[end].strip().startswith(mark) and not lines[end].strip(mark[0] + " ")):
            end += 1
        out.append(self.code([text[min(len(indent), len(text) - len(text.lstrip())):] for text in lines[at + 1:end]], language))
        return end + 1

    def indented(self, lines, at, out):
        end = at
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
            end += 1
        block = [text[4:] for text in lines[at:end]]
        while block and not block[-1].strip():
            block.pop()
        shell = any(re.match(r"\$ |lockstep |srun |mpirun |mpiexec |torchrun |ssh |cmake |make ", text) for text in block)
        out.append(self.code(block, "sh" if shell else ""))
        return end

    def items(self, lines, at, out):
        first = ITEM.match(lines[at])
        ordered = first.group(2)[0].isdigit()
        items, loose = [], False
        while at < len(lines):
            match = ITEM.match(lines[at])
            if not match or len(match.group(1)) > len(first.group(1)) + 1 or match.group(2)[0].isdigit() != ordered:
                break
            width = len(match.group(0))
            body = [lines[at][width:]]
            at += 1
            while at < len(lines):
                line = lines[at]
                spaces = len(line) - len(line.lstrip())
                if not line.strip():
                    after = next((text for text in lines[at + 1:] if text.strip()), "")
                    if len(after) - len(after.lstrip()) < min(width, 2 + len(first.group(1))):
                        if ITEM.match(after) and len(ITEM.match(after).group(1)) == len(first.group(1)):
                            loose = loose or (ITEM.match(after).group(2)[0].isdigit() == ordered)
                        break
                    body.append("")
                elif spaces >= width or (spaces > len(first.group(1)) and not ITEM.match(line)) or spaces >= width - 1 and ITEM.match(line):
                    body.append(line[min(spaces, width):])
                elif ITEM.match(line) or HEADING.match(line) or FENCE.match(line) or not body[-1].strip():
                    break
                else:
                    body.append(line.strip())
                at += 1
            while body and not body[-1].strip():
                body.pop()
            items.append(body)
            while at < len(lines) and not lines[at].strip():
                at += 1
            if at < len(lines) and not ITEM.match(lines[at]):
                break
        loose = loose or any("" in body for body in items)
        tag = "ol" if ordered else "ul"
        out.append(f"<{tag}>" + "".join(f"<li>{self.blocks(body, tight=not loose)}</li>" for body in items) + f"</{tag}>")
        return at

    def table(self, lines, at, out):
        def cells(line):
            line = line.strip().removeprefix("|")
            line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
            return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        head = cells(lines[at])
        sides = [("right" if cell.endswith(":") else "") for cell in cells(lines[at + 1])]
        at += 2
        rows = []
        while at < len(lines) and "|" in lines[at] and lines[at].strip():
            rows.append(cells(lines[at]))
            at += 1

        def line(row, tag):
            text = ""
            for i, cell in enumerate(row):
                right = ' class="number"' if i < len(sides) and sides[i] else ""
                text += f"<{tag}{right}>{self.inline(cell)}</{tag}>"
            return f"<tr>{text}</tr>"
        for row in [head, *rows]:
            self.note(" ".join(plain(cell) for cell in row))
        # A head of empty cells is no head.
        top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
        out.append(f'<div class="table" tabindex="0"><table>{top}<tbody>{"".join(line(row, "td") for row in rows)}</tbody></table></div>')
        return at

    def paragraph(self, lines, at, out, tight):
        end = at + 1
        while end < len(lines) and lines[end].strip() and not HEADING.match(lines[end]) and not FENCE.match(lines[end]) \
                and not (ITEM.match(lines[end]) and not re.match(r" *(?!1[.)])\d+[.)]", lines[end])) and not lines[end].startswith(">"):
            end += 1
        text = "\n".join(part.strip() for part in lines[at:end])
        self.note(plain(text))
        out.append(self.inline(text) if tight else f"<p>{self.inline(text)}</p>")
        return end

    def inline(self, text):
        """Returns the HTML of a paragraph's text."""
        kept = []

        def keep(value):
            kept.append(value)
            return f"\0{len(kept) - 1}\0"

        def code(match):
            inner = match.group(2).strip() if match.group(1) != "`" else match.group(2)
            shown = f"<code>{breakable(inner)}</code>"
            address = None if self.inside_link else self.code_link(inner)
            return keep(f'<a class="name" href="{html.escape(address)}">{shown}</a>' if address else shown)

        def link(match):
            if match.group(1):
                return keep(self.picture(match.group(3), match.group(2)))
            inside, self.inside_link = self.inside_link, True
            inner = self.inline(match.group(2))
            self.inside_link = inside
            return keep(f'<a href="{html.escape(self.link(match.group(3)))}">{inner}</a>')

        text = re.sub(r"(!?)\[((?:`[^`]*`|[^\[\]])*)\]\(([^)\s]+)\)", link, text)
        text = re.sub(r"(`+)(.+?)\1(?!`)", code, text, flags=re.S)
        text = re.sub(r"<(https?://[^>\s]+)>", lambda m: keep(f'<a href="{html.escape(m.group(1))}">{html.escape(m.group(1))}</a>'), text)
        text = re.sub(r"\\([\\`*_{}\[\]()#+.!|<>-])", lambda m: keep(html.escape(m.group(1))), text)
        text = html.escape(text, quote=False)
        text = re.sub(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", r"<strong>\1</strong>", text, flags=re.S)
        text = re.sub(r"(?<![\w*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![\w*])", r"<em>\1</em>", text, flags=re.S)
        while "\0" in text:
            text = re.sub("\0(\\d+)\0", lambda m: kept[int(m.group(1))], text)
        return text

    inside_link = False
