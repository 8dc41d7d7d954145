"""The first screen of a run as SVG: one for wide pages, one for phones. Each has light and dark colours, by the reader's preference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from harmony_conformance.report.formats.terminal import NO_EDGE, print_summary
from harmony_conformance.report.model import Report

_PICTURES = {"first-screen.svg": 104, "first-screen-narrow.svg": 50}
"""The columns of each picture."""
_INDENT = "    "
_COMMAND = "$ harmony-conformance run vllm:http://127.0.0.1:8000/v1"
_CAUSES_SHOWN = 3
_CUT = "…"
_LIGHT = TerminalTheme((255, 255, 255), (31, 35, 40), [(31, 35, 40), (190, 20, 40), *[(31, 35, 40)] * 6])
_DARK = TerminalTheme((13, 17, 23), (230, 237, 243), [(230, 237, 243), (255, 123, 114), *[(230, 237, 243)] * 6])
_LEFT, _TOP = 14, 12
_UNIQUE = "screen"
_EMPTY = re.compile(r"<text [^>]*>\n</text>")
_CLIP = re.compile(r' clip-path="[^"]*"')


def first_screens(report: Report, folder: Path) -> dict[str, str]:
    """Return the pictures of a report's first screen, by name."""
    lines = [Text(_COMMAND), *_shortened(_lines(report, folder))]
    return {name: _svg(lines, columns) for name, columns in _PICTURES.items()}


def _lines(report: Report, folder: Path) -> list[Text]:
    """Return the first screen, each line in one row."""
    console = Console(record=True, width=NO_EDGE, file=StringIO(), highlight=False)
    print_summary(report, console, folder=folder)
    return [*Text.from_ansi(console.export_text(styles=True)).split("\n")]


def _shortened(lines: list[Text]) -> Iterator[Text]:
    """Yield the verdict, the first causes, and what could be judged."""
    causes = next(index for index, line in enumerate(lines) if line.plain.startswith("causes: "))
    rest = next(index for index, line in enumerate(lines) if " checks could judge " in line.plain)
    yield from lines[: causes + 1 + 2 * _CAUSES_SHOWN]
    yield Text(f"  {_CUT}")
    yield lines[rest]
    yield from lines[rest + 3 :]


def _wrapped(console: Console, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield lines in rows of the console's width. The rows after the first are indented."""
    for line in lines:
        if line.cell_len <= console.width:
            yield line
            continue
        margin = line.plain[: len(line.plain) - len(line.plain.lstrip())] or _INDENT
        for index, row in enumerate(line.wrap(console, console.width - len(margin))):
            row.rstrip()
            yield Text(margin) + row if index and not row.plain.startswith(margin) else row


def _svg(lines: Iterable[Text], columns: int) -> str:
    """Return lines in rows of so many columns as SVG, without fonts from the network."""
    console = Console(record=True, width=columns, file=StringIO(), highlight=False)
    for row in _wrapped(console, lines):
        console.print(row)

    def part(name: str, theme: TerminalTheme = _DARK) -> str:
        return console.export_svg(theme=theme, code_format=f"{{{name}}}", unique_id=_UNIQUE, clear=False)

    width, height = (float(part(name)) for name in ("terminal_width", "terminal_height"))
    size = f"{width + 2 * _LEFT:.0f} {height + 2 * _TOP:.0f}"
    frame_width, frame_height = (float(one) - 2 for one in size.split())
    rows = _EMPTY.sub("", _CLIP.sub("", part("matrix")))
    return f"""\
<svg viewBox="0 0 {size}" xmlns="http://www.w3.org/2000/svg">
<style>
.{_UNIQUE}-matrix {{ font: {part("char_height")}px "Fira Code", monospace; }}
.frame {{ fill: {_DARK.background_color.hex}; stroke: #8888; }}
{part("styles")}
@media (prefers-color-scheme: light) {{
.frame {{ fill: {_LIGHT.background_color.hex}; }}
{part("styles", _LIGHT)}
}}
</style>
<rect class="frame" x="1" y="1" width="{frame_width:.0f}" height="{frame_height:.0f}" rx="8"/>
<g class="{_UNIQUE}-matrix" transform="translate({_LEFT}, {_TOP})">
{rows.strip()}
</g>
</svg>
"""
