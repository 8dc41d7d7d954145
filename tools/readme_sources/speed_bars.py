"""A picture that compares harmony_ref with openai-harmony, from the stored results. Light and dark colours, by the reader's preference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.json_value import Json, loads, number, value_at

_WORKS = {
    "Parse 100,000 tokens in messages of 20": "parse, 20-token messages, 100000",
    "Render 100,000 tokens in short messages": "render, short messages, 100000",
    "Render a chat with five tools": "render, five tools",
}
"""Works, by title."""
_CONTENDERS = {"ours": "harmony_ref", "openai-harmony": "openai-harmony"}
_WIDTH, _LEFT, _BAR = 720, 130, 440
_ROW, _WORK = 24, 88
_STYLE = """\
text { font: 15px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.ours { fill: #0b6b6b; }
.openai-harmony { fill: #9aa4ad; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.ours { fill: #58c9c1; }
.openai-harmony { fill: #66707a; }
}
"""


def speed_bars(results: Path) -> str:
    """Return the picture as SVG. Each work has its own scale: the longest bar is its slower contender."""
    measured = value_at(loads(results.read_text("utf-8")), "seconds")
    rows = "".join(_work(title, name, measured, _WORK * index) for index, (title, name) in enumerate(_WORKS.items()))
    size = f"0 0 {_WIDTH} {_WORK * len(_WORKS)}"
    return f'<svg viewBox="{size}" xmlns="http://www.w3.org/2000/svg">\n<style>\n{_STYLE}</style>\n{rows}</svg>\n'


def _work(title: str, name: str, measured: Json, top: int) -> str:
    medians = {one: number(value_at(measured, name, one, "median")) or 0.0 for one in _CONTENDERS}
    factor = medians["openai-harmony"] / medians["ours"]
    head = f'<text class="title" x="0" y="{top + 20}">{title}: {factor:.0f} times faster</text>\n'
    return head + "".join(_bars(medians, top + 30))


def _bars(medians: dict[str, float], top: int) -> Iterator[str]:
    slowest = max(medians.values())
    for index, (one, seconds) in enumerate(medians.items()):
        y, width = top + _ROW * index, max(2.0, _BAR * seconds / slowest)
        yield f'<text x="0" y="{y + 15}">{_CONTENDERS[one]}</text>\n'
        yield f'<rect class="{one}" x="{_LEFT}" y="{y + 2}" width="{width:.1f}" height="{_ROW - 6}" rx="3"/>\n'
        yield f'<text x="{_LEFT + width + 8:.1f}" y="{y + 15}">{_shown(seconds)}</text>\n'


def _shown(seconds: float) -> str:
    """Return a time with three digits."""
    milliseconds = 1000 * seconds
    return f"{milliseconds:.3g} ms" if milliseconds >= 1 else f"{1000 * milliseconds:.3g} µs"
