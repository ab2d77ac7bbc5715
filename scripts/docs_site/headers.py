"""Reads the declarations of a C++ header and the `///` prose above them.

A light reader for sources in this repository's format, not a compiler: it follows braces, knows namespaces, classes and enums, and
takes every other declaration as text. Bodies, private members, namespaces named `detail` and prose that begins with "Internal" are
left out."""

import re
import textwrap
from dataclasses import dataclass, field

CONTAINER = re.compile(r"(?:^|> |>)\s*(class|struct|union|enum class|enum struct|enum)\s+((?:[\w:]+(?:<[^{]*>)?\s*)?)(final)?\s*(:(?!:).*)?$", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
LEFT_OUT = re.compile(r"^(friend class|friend struct|friend \w+|static_assert|extern template|template class|template struct|using namespace)\b"
                      r"|=\s*delete$|~\w+\(|operator=\(")


@dataclass
class Entry:
    """Declarations that share the prose above the first of them. A class has `members`."""
    doc: str
    declarations: list = field(default_factory=list)  # (name, text)
    kind: str = "function"
    members: list = field(default_factory=list)
    scope: str = ""
    line: int = 0

    @property
    def name(self):
        return self.declarations[0][0]


@dataclass
class Header:
    path: str
    doc: str
    entries: list


def without_preprocessor(text):
    return re.sub(r"^[ ]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def closing(text, at):
    """Returns the position behind the bracket that closes the one at `at`; strings and comments count as nothing."""
    pairs = {"{": "}", "(": ")", "[": "]"}
    stack = []
    skip = re.compile(r'"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.S)
    while at < len(text):
        match = skip.match(text, at)
        if match:
            at = match.end()
            continue
        if text[at] in pairs:
            stack.append(pairs[text[at]])
        elif stack and text[at] == stack[-1]:
            stack.pop()
            if not stack:
                return at + 1
        at += 1
    return at


def tidy(text):
    text = re.sub(r"\bLOCKSTEP_API\b\s*", "", text)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r",?\s*const std::source_location& \w+ = std::source_location::current\(\)", "", text)
    return textwrap.dedent("\n".join(line.rstrip() for line in text.strip("\n").split("\n") if line.strip())).strip()


def name_of(text):
    """Returns the name that a declaration introduces."""
    flat = re.sub(r"\s+", " ", text)
    while re.match(r"template ?<", flat):
        depth, at = 0, flat.index("<")
        for i in range(at, len(flat)):
            depth += {"<": 1, ">": -1}.get(flat[i], 0)
            if depth == 0:
                flat = flat[i + 1:].strip()
                break
        else:
            break
        flat = re.sub(r"^requires ?(?:\((?:[^()]|\([^()]*\))*\)|std::\w+<[^<>]*>) ?(?=\w)", "", flat)
        flat = re.sub(r"^requires (?:!?[\w:]+(?:<.*?>)?(?:\(.*?\))?(?:::\w+)?(?: (?:&&|\|\|) )?)+ (?=\w)", "", flat)
    match = re.match(r"using (\w+) ?=", flat) or re.match(r"concept (\w+)", flat)
    if match:
        return match.group(1)
    match = re.search(r"(operator ?(?:\(\)|\[\]|[^\s\w(]+|[\w:<> ]+?)|[\w:~]+) ?\(", flat)
    head = flat.split("=")[0].split("{")[0]
    if match and (match.start() < len(head) or "operator" in match.group(1)):
        return match.group(1)
    match = re.search(r"([\w:]+)(?:\[[^\]]*\])? ?$", head.strip())
    return match.group(1) if match else flat


class Reader:
    def __init__(self, text):
        self.text = without_preprocessor(text)
        self.file_doc = []

    def read(self, at, end, scope, public, in_class):
        """Reads the declarations between two positions of the text."""
        entries, doc, start, group = [], [], None, None
        text = self.text
        while at < end:
            if text[at] in " \n":
                blank = re.compile(r"\n[ ]*\n").match(text, at)
                if blank and start is None:
                    if doc and not in_class and not scope:
                        self.file_doc.append("\n".join(doc))
                        doc = []
                    group = None
                at += 1
                continue
            if text.startswith("///", at) and start is None:
                stop = text.index("\n", at)
                doc.append(re.sub(r"^///<? ?", "", text[at:stop]))
                group = None
                at = stop
                continue
            if text.startswith("//", at):
                at = text.index("\n", at)
                continue
            label = re.compile(r"(public|private|protected)\s*:(?!:)").match(text, at)
            if label and start is None:
                public = label.group(1) == "public"
                doc, group = [], None
                at = label.end()
                continue
            start = at
            column = at - text.rfind("\n", 0, at) - 1
            at, declaration, body = self.declaration(at, end)
            declaration = " " * column + declaration
            prose, doc = "\n".join(doc), []
            start = None
            namespace = re.match(r"(?:inline )?namespace(?:\s+([\w:]+))?$", declaration.strip())
            if namespace and body:
                if prose:
                    self.file_doc.append(prose)
                inner = namespace.group(1)
                if inner and not re.search(r"\b(detail|internal)\b", inner):
                    entries += self.read(body[0], body[1], f"{scope}::{inner}" if scope else inner, True, False)
                group = None
                continue
            if not public or not declaration.strip() or prose.startswith("Internal"):
                group = None
                continue
            entry = self.entry(declaration, body, prose, scope)
            if entry is None:
                continue
            if group is not None and not prose and entry.kind == "function" and entry.name == group.name:
                group.declarations += entry.declarations
                continue
            entries.append(entry)
            group = entry if entry.kind == "function" else None
        return entries

    def entry(self, declaration, body, prose, scope):
        text = tidy(declaration)
        flat = re.sub(r"\s+", " ", text)
        container = CONTAINER.search(flat) if "(" not in flat.split(":")[0] or flat.startswith("template") else None
        if container and body and not re.search(r"\)\s*(const|noexcept|override)*$", flat.split("{")[0]):
            kind, name = container.group(1), container.group(2).strip()
            name = re.sub(r"<.*", "", name)
            full = f"{scope}::{name}" if scope and name else name or scope
            if "::" in name:
                return None
            if kind.startswith("enum"):
                values = tidy(self.text[body[0]:body[1]].replace("///", "//"))
                inner = textwrap.indent(textwrap.dedent(self.text[body[0]:body[1]].strip("\n").rstrip()), "  ")
                shown = f"{text} {{\n{inner}\n}}" if "\n" in inner else f"{text} {{ {values} }}"
                return Entry(prose, [(name, shown)], "enum", [], scope)
            members = self.read(body[0], body[1], full, kind != "class", True)
            return Entry(prose, [(name, text)], "class", members, scope)
        if container and not body:
            return None  # a declaration of a class that is defined elsewhere
        if LEFT_OUT.search(flat):
            return None
        name = name_of(text)
        if "operator" not in name and not re.fullmatch(r"\w+", name):
            return None  # a definition of a member, or a specialization
        if "detail::" in flat and scope.endswith(f"::{name}"):
            return None  # a constructor for the library itself
        return Entry(prose, [(name, text)], "function", [], scope)

    def declaration(self, at, end):
        """Returns where the declaration at `at` ends, its text without a body, and the range of the body."""
        text, start = self.text, at
        while at < end:
            char = text[at]
            if char in "([":
                at = closing(text, at)
            elif char == '"':
                at = STRING.match(text, at).end()
            elif text.startswith("//", at):
                at = text.index("\n", at)
            elif char == ";":
                return at + 1, text[start:at], None
            elif char == ":" and text[at + 1] != ":" and text[at - 1] != ":" and re.search(
                    r"\)\s*(noexcept\s*)?$", re.sub(r"//[^\n]*", "", text[start:at])):
                return self.after_initializers(at), text[start:at], None
            elif char == "{":
                stop = closing(text, at)
                head = text[start:at]
                if re.search(r"=\s*$", head) or not re.search(r"[()]|namespace|\b(class|struct|union|enum)\b", head):
                    at = stop  # the value of a variable
                    continue
                semicolon = re.compile(r"\s*;").match(text, stop)
                return (semicolon.end() if semicolon else stop), head, (at + 1, stop - 1)
            else:
                at += 1
        return at, text[start:at], None

    def after_initializers(self, at):
        """Returns the position behind the body of a constructor, from the colon of its initializers on."""
        text = self.text
        while text[at] != ";":
            if text[at] in "({":
                stop = closing(text, at)
                if text[at] == "{" and text[at - 1] in " \n":
                    return stop
                at = stop
            else:
                at += 1
        return at + 1


def read_header(path, text):
    reader = Reader(text)
    entries = reader.read(0, len(reader.text), "", True, False)
    return Header(path, "\n\n".join(reader.file_doc), entries)


def all_names(entries):
    for entry in entries:
        yield from (name for name, _ in entry.declarations)
        yield from all_names(entry.members)


def missed_names(text, header):
    """Returns exported classes and functions of a header that the reader has not found, found in another way: by lines. What is
    internal may be missing."""
    inner = re.findall(r"namespace (?:\w+::)*detail \{(.*?)\n\}  // namespace (?:\w+::)*detail", text, re.S)
    internal = re.findall(r"/// Internal[^\n]*\n(?:\s*///[^\n]*\n)*[^;{]*", text)
    left_out = set(re.findall(r"\w+", " ".join(inner + internal)))
    declared = re.findall(r"^(?:class|struct) LOCKSTEP_API (\w+)(?: final)?(?: :[^;{]*)? \{", text, re.M)
    declared += re.findall(r"^LOCKSTEP_API [\w:<>,&* ]*?\b(\w+)\(", text, re.M)
    return sorted(set(declared) - set(all_names(header.entries)) - left_out)


def public_headers(root):
    """Returns the headers of all lists FILE_SET HEADERS, as paths of the repository, sorted."""
    found = set()
    for file in sorted((root / "lockstep").rglob("CMakeLists.txt")):
        for block in re.findall(r"FILE_SET HEADERS[^)]*?FILES\s([^)]*)\)", file.read_text()):
            for name in re.findall(r"[\w./-]+\.h\b", re.sub(r"#[^\n]*", "", block)):
                path = (file.parent / name).resolve()
                if path.exists():
                    found.add(str(path.relative_to(root.resolve())))
    return sorted(found)
