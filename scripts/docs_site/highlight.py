"""Marks keywords, strings, numbers and comments of code for the style sheet."""

import html
import re

CPP = """alignas auto bool break case catch char class co_await co_return co_yield concept const consteval constexpr const_cast continue
decltype default delete do double dynamic_cast else enum explicit export extern false final float for friend goto if inline int long
mutable namespace new noexcept nullptr operator override private protected public reinterpret_cast requires return short signed sizeof
static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile while int64_t int32_t uint64_t uint32_t uint8_t size_t"""
PYTHON = """and as assert break class continue def del elif else except False finally for from global if import in is lambda None not or pass
raise return True try while with yield"""
SHELL = "case do done elif else esac export fi for function if in local set then while"
CMAKE = """add_executable add_library add_subdirectory else endforeach endfunction endif find_package foreach function if include project
set target_link_libraries target_sources"""

STRING = r'"(?:\\.|[^"\\\n])*"'
NUMBER = r"(?<![\w.])(?:0x[0-9a-fA-F']+|\d[\d']*(?:\.\d+)?(?:e[+-]?\d+)?)[uUlLfF]*(?![\w])"


# A word of a shell counts where a command begins, and a number where it is a word or a value.
BEGIN = r"(?:^|(?<=[;&|({] )|(?<=\$ )|(?<=\bdo )|(?<=\bthen )|(?<=\belse ))[ ]*"
VALUE = r"(?:(?<=[\s=])|^)-?\d+(?:\.\d+)?(?=[\s;)]|$)"


def pattern(comment, words, strings=STRING, extra=r"(?!)", begin=r"(?<![\w./$-])", number=NUMBER):
    word = begin + r"(?:" + "|".join(words.split()) + r")\b" if words else r"(?!)"
    return re.compile(f"(?P<c>{comment})|(?P<s>{strings})|(?P<p>{extra})|(?P<k>{word})|(?P<n>{number})", re.M)


LANGUAGES = {
    "cpp": pattern(r"//[^\n]*|/\*(?:.|\n)*?\*/", CPP, STRING + r"|(?<![\w])'(?:\\.|[^'\\\n])'", r"^[ ]*#[ ]*\w+(?: [<\"][^\n>\"]*[>\"])?"),
    "python": pattern(r"#[^\n]*", PYTHON, r'"""(?:.|\n)*?"""|' + STRING + r"|'(?:\\.|[^'\\\n])*'"),
    "sh": pattern(r"(?:(?<=\s)|^)#[^\n]*", SHELL, STRING + r"|'[^'\n]*'", r"^\$ ", BEGIN, VALUE),
    "cmake": pattern(r"#[^\n]*", CMAKE),
    "yaml": pattern(r"(?:(?<=\s)|^)#[^\n]*", "true false null", STRING + r"|'[^'\n]*'", r"^[ -]*[\w.-]+(?=:)", number=VALUE),
    "toml": pattern(r"#[^\n]*", "true false", STRING, r"^\[+[^\]\n]*\]+"),
    "json": pattern(r"(?!)", "true false null"),
}
LANGUAGES.update({"c++": LANGUAGES["cpp"], "h": LANGUAGES["cpp"], "hpp": LANGUAGES["cpp"], "py": LANGUAGES["python"],
                  "bash": LANGUAGES["sh"], "shell": LANGUAGES["sh"], "console": LANGUAGES["sh"], "yml": LANGUAGES["yaml"]})


def highlight(text, language):
    """Returns the HTML of code; code of an unknown language is not marked."""
    marks = LANGUAGES.get(language.lower())
    if not marks:
        return html.escape(text, quote=False)
    out, at = [], 0
    for match in marks.finditer(text):
        out.append(html.escape(text[at:match.start()], quote=False))
        out.append(f'<i class="{match.lastgroup}">{html.escape(match.group(), quote=False)}</i>')
        at = match.end()
    out.append(html.escape(text[at:], quote=False))
    return "".join(out)
