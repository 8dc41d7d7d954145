"""Templates of events that differ only in their text, as nearly all events of a stream do. A matching event is not parsed again.

A template is the bytes of an event with holes for its text, counters and timestamps. A matching event is the same JSON with another text.
Reason: a string without quotes, backslashes and control characters ends exactly at the end of its hole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from harmony_conformance.json_value import Json
from harmony_proxy.repair.stream_parts.text_tracker import TextTracker

_MOST = 4
"""Number of templates: reasoning, content, arguments, and a spare one."""
_TRIES = 32
"""Maximum number of events that are tried as a template. Streams whose events all differ get none."""
_TIME = "time"
_SENTINEL = b'"\xf0\x9f\xa7\xb1 of a mould"'
_LOOSE = re.compile(
    rb'"(?:(?P<name>sequence_number|created)" ?: ?(?P<number>0|[1-9]\d*)(?=[,} ])'
    rb'|(?:created_at|obfuscation)" ?: ?"(?P<string>[^"\\]*)")'
)
"""Members of an event, at any depth, that do not depend on its text. Their quotes are escaped within a text, so that a text cannot match."""

Key = tuple[int, str, int]
"""The text that an event continues: choice or item, kind of text, and part."""


@dataclass(frozen=True, kw_only=True)
class EventTemplate:
    """The bytes before the first hole, then for each hole its kind (`text`, `number`, `time`, `string`) and the bytes after it."""

    key: Key
    tracker: TextTracker
    start: bytes
    holes: tuple[tuple[str, bytes], ...]

    def fit(self, raw: bytes) -> tuple[str, int | None] | None:
        """Return the text and the sequence number of a matching event; None if the event does not match."""
        if not raw.startswith(self.start):
            return None
        position, fragment, number = len(self.start), b"", None
        for kind, suffix in self.holes:
            end = raw.find(suffix[:1], position)
            if end < 0 or not raw.startswith(suffix, end):
                return None
            filling = raw[position:end]
            if kind == "text":
                fragment = filling
            elif kind in ("number", _TIME):
                if not filling.isdigit() or (filling[:1] == b"0" and len(filling) > 1):
                    return None
                number = int(filling) if kind == "number" else number
            elif b"\\" in filling or not filling.decode("utf-8", "replace").isprintable():
                return None
            position = end + len(suffix)
        if position != len(raw) or b"\\" in fragment:
            return None
        decoded = fragment.decode("utf-8", "replace")
        return (decoded, number) if decoded.isprintable() else None


class EventTemplates:
    """Stores the learned templates, the last used one first."""

    def __init__(self) -> None:
        self._all: list[EventTemplate] = []
        self._tries = 0

    def fit(self, raw: bytes) -> tuple[EventTemplate, str, int | None] | None:
        """Return the matching template with the text and the sequence number of the event; None if no template matches."""
        for position, template in enumerate(self._all):
            match = template.fit(raw)
            if match is not None:
                if position:
                    self._all.insert(0, self._all.pop(position))
                return template, match[0], match[1]
        return None

    def learn(
        self, raw: bytes, fragment: str, key: Key, tracked: TextTracker, is_same: Callable[[Json, str], bool]
    ) -> None:
        """Learn a template from an event with this text. `is_same` compares a JSON value with the event, with another text in it."""
        quoted = f'"{fragment}"'.encode()
        if (
            self._tries >= _TRIES
            or not fragment
            or not fragment.isascii()
            or not fragment.isprintable()
            or "\\" in fragment
        ):
            return
        self._tries += 1
        start = raw.find(quoted)
        if start < 0 or raw.find(quoted, start + 1) >= 0 or _SENTINEL in raw:
            return
        head, tail = raw[: start + 1], raw[start + len(quoted) - 1 :]
        changed = _parse_data(head[:-1] + _SENTINEL + tail[1:])
        if changed is None or not is_same(changed, _SENTINEL.decode().strip('"')):
            return
        prefix, head_holes = _cut_holes(head)
        suffix, tail_holes = _cut_holes(tail)
        template = EventTemplate(
            key=key, tracker=tracked, start=prefix, holes=(*head_holes, ("text", suffix), *tail_holes)
        )
        if template.fit(raw) is not None:
            self._all = [template, *self._all[: _MOST - 1]]


def _cut_holes(raw: bytes) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Cut bytes at their variable members. Return the bytes before the first hole, and each hole with the bytes after it."""
    cuts: list[tuple[str, int, int]] = []
    for match in _LOOSE.finditer(raw):
        group = "number" if match["name"] else "string"
        cuts.append((_TIME if match["name"] == b"created" else group, *match.span(group)))
    if not cuts:
        return raw, ()
    ends = [start for _, start, _ in cuts[1:]] + [len(raw)]
    return raw[: cuts[0][1]], tuple((kind, raw[end:next_]) for (kind, _, end), next_ in zip(cuts, ends, strict=True))


def _parse_data(raw: bytes) -> Json:
    """Return the JSON of an event with a single line of data, or of a JSON line. The result of any other event is null."""
    lines = [line for line in raw.split(b"\n") if line]
    data = [line.removeprefix(b"data:") for line in lines if line.startswith((b"data:", b"{"))]
    try:
        value: Json = json.loads(data[0]) if len(data) == 1 else None
    except (ValueError, RecursionError):
        return None
    return value
