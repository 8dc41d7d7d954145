"""Markdown and HTML of generated pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"[\\`*_{}\[\]()#+!|~$<>&-]", lambda character: f"&#{ord(character[0])};", text)


def code(text: str) -> str:
    """Return code that may stand in a cell of a table. Markdown is read within HTML too, so its signs are entities."""
    return f"<code>{re.sub(r'[*`|]', lambda sign: f'&#{ord(sign[0])};', html.escape(text))}</code>"


def prose(text: str) -> str:
    """Return text whose code is in backticks."""
    parts = re.split(r"`([^`\n]+)`", text)
    return "".join(code(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def lines(texts: Iterable[str]) -> str:
    """Return the lines of a page."""
    return "".join(f"{text}\n" for text in texts)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty line."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def anchor(name: str, shown: str) -> str:
    """Return a link to its own place in the page, for a cell of a table."""
    return f'<a id="{html.escape(name)}" href="#{html.escape(name)}">{code(shown)}</a>'


def write_page(page: Path, texts: Iterable[str]) -> None:
    """Write the lines of a page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(lines(texts), encoding="utf-8")
