"""Text in templates: escaped wherever a template prints it, so that no text of a server or a model can become markup by oversight."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from markupsafe import Markup, escape

from harmony_conformance.report.text_excerpt import LINE_LIMIT, StretchKind, TextStretch, cut, spelled

_PIECES = {
    StretchKind.SAME: Markup("{}"),
    StretchKind.DIFFERS: Markup("<mark>{}</mark>"),
    StretchKind.LEFT_OUT: Markup('<span class="cut">… {} left out …</span>'),
}


def shown(value: str, keep: str = "") -> Markup:
    """Return the text escaped for HTML, with each run of characters that cannot be seen spelled out and marked."""
    if value.isprintable():  # nearly always true
        return escape(value)
    runs = groupby(value, key=lambda char: char in keep or char.isprintable())
    return Markup().join(
        "".join(run) if readable else Markup('<span class="ctl">{}</span>').format("".join(map(spelled, run)))
        for readable, run in runs
    )


def pieces(parts: Iterable[TextStretch], keep: str = "\n") -> Markup:
    """Return a text that was cut or compared, with marks around differences and the length of each gap."""
    return Markup().join(_PIECES[piece.part].format(shown(piece.text, keep)) for piece in parts)


def printed(value: object) -> Markup:
    """Return a value as the page prints it: markup as it is, all else as text on one line, cut where it is long."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return shown(text) if len(text) <= LINE_LIMIT else pieces(cut(text, LINE_LIMIT), keep="")


def prose(value: str) -> Markup:
    """Return a sentence of the suite or of a source as HTML, with backticks as code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return shown(value)
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(printed(part)) if place % 2 else printed(part) for place, part in enumerate(parts))


def anchor(value: str) -> str:
    """Return the text as an id that a link can name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", value)
