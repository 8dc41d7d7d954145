"""HTML escaping for templates: every printed value is escaped, so that text of a server or a model never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from markupsafe import Markup, escape

from harmony_conformance.report.text_excerpt import LINE_LIMIT, StretchKind, TextStretch, cut, escape_character

_PIECES = {
    StretchKind.SAME: Markup("{}"),
    StretchKind.DIFFERS: Markup("<mark>{}</mark>"),
    StretchKind.LEFT_OUT: Markup('<span class="cut">… {} left out …</span>'),
}
_ADDRESS = re.compile(r"https?://[\w.~:/?#@!$&'()*+,;=%-]{1,500}", re.ASCII)
_THREAD = re.compile(r"https://github\.com/[^/]+/(?P<repository>[^/]+)/(?:issues|pull)/(?P<number>\d+)")
_SPECIAL = re.compile(r"(<\|[a-z_]{1,20}\|>)")


def escape_text(value: str, keep: str = "") -> Markup:
    """Return the text escaped for HTML, with invisible characters except `keep` written as escapes and marked."""
    if value.isprintable():  # the usual case
        return escape(value)
    runs = groupby(value, key=lambda char: char in keep or char.isprintable())
    return Markup().join(
        "".join(run) if readable else Markup('<span class="ctl">{}</span>').format("".join(map(escape_character, run)))
        for readable, run in runs
    )


def pieces(parts: Iterable[TextStretch], keep: str = "\n") -> Markup:
    """Return a cut or compared text as HTML, with differences, special tokens and the length of each gap marked."""
    return Markup().join(_PIECES[piece.kind].format(_with_chips(piece.text, keep)) for piece in parts)


def _with_chips(value: str, keep: str) -> Markup:
    if "<|" not in value:  # the usual case
        return escape_text(value, keep)
    chip = Markup('<span class="chip">{}</span>')
    parts = _SPECIAL.split(value)
    return Markup().join(
        chip.format(escape_text(part)) if place % 2 else escape_text(part, keep) for place, part in enumerate(parts)
    )


def to_markup(value: object) -> Markup:
    """Return a value as HTML: markup unchanged, other values as text on one line, cut to `LINE_LIMIT` characters."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return escape_text(text) if len(text) <= LINE_LIMIT else pieces(cut(text, LINE_LIMIT), keep="")


def prose(value: str) -> Markup:
    """Return a sentence of at most `LINE_LIMIT` characters as HTML, with code for backticks. Special tokens are marked."""
    parts = value.split("`")
    if len(value) > LINE_LIMIT or len(parts) % 2 == 0:
        return pieces(cut(value, LINE_LIMIT))
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(_with_chips(part, "\n")) if place % 2 else _with_chips(part, "\n")
        for place, part in enumerate(parts)
    )


def thread_link(address: str) -> Markup:
    """Return a link to an issue or a pull request, with a short text. What is no plain address of the web becomes code."""
    if not is_web_address(address):
        return Markup("<code>{}</code>").format(to_markup(address))
    found = _THREAD.match(address)
    label = f"{found['repository']}#{found['number']}" if found else address.partition("://")[2]
    link = Markup('<a class="thread" href="{}" rel="noopener noreferrer">{}</a>')
    return link.format(address, to_markup(label))


def is_web_address(value: str) -> bool:
    """Return True for an address by http or https, of characters that HTML and Markdown leave as they are."""
    return _ADDRESS.fullmatch(value) is not None


def anchor(value: str) -> str:
    """Return the text as an HTML id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", value)
