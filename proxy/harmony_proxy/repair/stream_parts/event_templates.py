"""Events that only differ in their text: of a stream nearly all. One that fits the bytes of one before need not be read again.

A mould is the bytes of an event with holes: its text, and the members that count or tell the time. What fits is the same JSON with another string in the
hole of the text, since a string without quotes, backslashes and control characters ends where the bytes go on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from harmony_conformance.json_value import Json
from harmony_proxy.repair.stream_parts.text_tracker import TextTracker

_MOST = 4
"""So many are kept: reasoning, content, arguments, and one to spare."""
_TRIES = 32
"""So many events of a stream are looked at for one: where they all differ, none is found."""
_TIME = "time"
_SENTINEL = b'"\xf0\x9f\xa7\xb1 of a mould"'
_LOOSE = re.compile(
    rb'"(?:(?P<name>sequence_number|created)" ?: ?(?P<number>0|[1-9]\d*)(?=[,} ])'
    rb'|(?:created_at|obfuscation)" ?: ?"(?P<string>[^"\\]*)")'
)
"""Members of an event, at any depth, that say nothing of its text. Within a text their quotes are escaped, so that they do not fit."""

Key = tuple[int, str, int]
"""Which text goes on: the choice or the item, what of it, and which part."""


@dataclass(frozen=True, kw_only=True)
class EventTemplate:
    """The bytes before the first hole, and for each hole what it is (`text`, `number`, `time`, `string`) and the bytes behind it."""

    key: Key
    tracked: TextTracker
    start: bytes
    holes: tuple[tuple[str, bytes], ...]

    def fit(self, raw: bytes) -> tuple[str, int | None] | None:
        """The text of an event, and its number, where it fits."""
        if not raw.startswith(self.start):
            return None
        place, said, number = len(self.start), b"", None
        for kind, behind in self.holes:
            end = raw.find(behind[:1], place)
            if end < 0 or not raw.startswith(behind, end):
                return None
            filling = raw[place:end]
            if kind == "text":
                said = filling
            elif kind in ("number", _TIME):
                if not filling.isdigit() or (filling[:1] == b"0" and len(filling) > 1):
                    return None
                number = int(filling) if kind == "number" else number
            elif b"\\" in filling or not filling.decode("utf-8", "replace").isprintable():
                return None
            place = end + len(behind)
        if place != len(raw) or b"\\" in said:
            return None
        told = said.decode("utf-8", "replace")
        return (told, number) if told.isprintable() else None


class EventTemplates:
    """State: those that were found, the last used first."""

    def __init__(self) -> None:
        self._all: list[EventTemplate] = []
        self._tries = 0

    def fit(self, raw: bytes) -> tuple[EventTemplate, str, int | None] | None:
        """The one that an event fits, its text, and its number."""
        for place, mould in enumerate(self._all):
            found = mould.fit(raw)
            if found is not None:
                if place:
                    self._all.insert(0, self._all.pop(place))
                return mould, found[0], found[1]
        return None

    def learn(
        self, raw: bytes, said: str, key: Key, tracked: TextTracker, is_same: Callable[[Json, str], bool]
    ) -> None:
        """Make one of an event with this text. `is_same`: whether a value is that of the event with another text."""
        literal = f'"{said}"'.encode()
        if self._tries >= _TRIES or not said or not said.isascii() or not said.isprintable() or "\\" in said:
            return
        self._tries += 1
        start = raw.find(literal)
        if start < 0 or raw.find(literal, start + 1) >= 0 or _SENTINEL in raw:
            return
        head, tail = raw[: start + 1], raw[start + len(literal) - 1 :]
        changed = _data(head[:-1] + _SENTINEL + tail[1:])
        if changed is None or not is_same(changed, _SENTINEL.decode().strip('"')):
            return
        before, holes = _holes(head)
        behind, others = _holes(tail)
        made = EventTemplate(key=key, tracked=tracked, start=before, holes=(*holes, ("text", behind), *others))
        if made.fit(raw) is not None:
            self._all = [made, *self._all[: _MOST - 1]]


def _holes(raw: bytes) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Bytes cut at what may differ: those before the first hole, and each hole with those behind it."""
    cuts: list[tuple[str, int, int]] = []
    for found in _LOOSE.finditer(raw):
        group = "number" if found["name"] else "string"
        cuts.append((_TIME if found["name"] == b"created" else group, *found.span(group)))
    if not cuts:
        return raw, ()
    ends = [start for _, start, _ in cuts[1:]] + [len(raw)]
    return raw[: cuts[0][1]], tuple((kind, raw[end:next_]) for (kind, _, end), next_ in zip(cuts, ends, strict=True))


def _data(raw: bytes) -> Json:
    """The JSON of an event of one line of data, or of a line; None where it is none."""
    lines = [line for line in raw.split(b"\n") if line]
    data = [line.removeprefix(b"data:") for line in lines if line.startswith((b"data:", b"{"))]
    try:
        value: Json = json.loads(data[0]) if len(data) == 1 else None
    except (ValueError, RecursionError):
        return None
    return value
