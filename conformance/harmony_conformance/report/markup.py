"""HTML made of pieces: whatever is not markup already is escaped, so that nothing a server sent can become markup by oversight."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from harmony_conformance.report.excerpt import LINE_LIMIT, Part, Piece, cut, line, spelled, visible

_VOID = frozenset({"meta", "br", "hr", "col"})


class Markup(str):
    """Text that is HTML; any other string is text."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element. A child that is no `Markup` is escaped, and cut where it is long; `class_` stands for class, an underscore inside a name for a hyphen."""
    written = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{escape(_seen(value), quote=True)}"'
        for attribute, value in attributes.items()
        if value or attribute != "class_"
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str], between: str = "") -> Markup:
    """Children one after another."""
    return Markup(
        between.join(
            child if isinstance(child, Markup) else pieces(cut(child, LINE_LIMIT), keep="") for child in children
        )
    )


def shown(value: str, keep: str = "") -> Markup:
    """Text as it reads: escaped, and what can not be seen spelled out and marked as such."""
    return Markup("".join(_run(run, keep) for run in _runs(value, keep)))


def words(value: str) -> Markup:
    """Text on one line for where no element may stand, as in a title."""
    return Markup(escape(line(value), quote=False))


def prose(value: str) -> Markup:
    """A sentence of ours or of a source, in which backticks stand around code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return shown(value)
    return join(tag("code", part) if place % 2 else part for place, part in enumerate(parts))


def pieces(parts: Iterable[Piece], keep: str = "\n") -> Markup:
    """A text that was cut or compared: what differs is marked, what was left out is said."""
    return join(_piece(piece, keep) for piece in parts)


def anchor(value: str) -> str:
    """The text as an id that a link can name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", value)


def _piece(piece: Piece, keep: str) -> Markup:
    match piece.part:
        case Part.SAME:
            return shown(piece.text, keep)
        case Part.DIFFERS:
            return tag("mark", shown(piece.text, keep))
        case Part.LEFT_OUT:
            return tag("span", f"… {piece.text} left out …", class_="cut")


def _runs(value: str, keep: str) -> Iterable[str]:
    """The text in stretches of what can be seen and what can not."""
    if value.isprintable():  # nearly always, and told at once
        yield from (value,) if value else ()
        return
    run: list[str] = []
    for char in value:
        if run and _can_be_seen(char, keep) != _can_be_seen(run[-1], keep):
            yield "".join(run)
            run = []
        run.append(char)
    if run:
        yield "".join(run)


def _run(run: str, keep: str) -> str:
    if _can_be_seen(run[0], keep):
        return escape(run, quote=False)
    return f'<span class="ctl">{"".join(map(spelled, run))}</span>'


def _can_be_seen(char: str, keep: str) -> bool:
    return char in keep or char.isprintable()


def _seen(value: str) -> str:
    return visible(value, keep="")
