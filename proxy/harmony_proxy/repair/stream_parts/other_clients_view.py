"""Texts of a stream that only some clients show. For blocking, they are read too.

- These are read as they arrive: names, ids, comments, unknown fields, data that is no JSON, and members with rare texts.
- An event with other readings (see `other_readings`) is buffered with all that follows. At the end of the stream, each reading of it is judged.
- A stream with an error status is buffered too: some clients show it as an answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, integer, items, members, strings, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge

SEARCHED = 16 * 1024
"""Characters at the end of the joined texts of a field that are searched."""
_MOST_FIELDS = 64
"""Fields whose texts are joined for each; those of all further ones are joined."""
_STEPS = 8
"""A text is searched again once it has grown by this part."""
_READ = frozenset({"content", *REASONING_FIELDS, "thinking"})
_SKIPPED = frozenset({"role", "tool_calls", "finish_reason", "logprobs", "index"})
_REASONING = frozenset({*REASONING_FIELDS, "reasoning_details", "thinking"})
_READ_DELTAS = frozenset(
    f"response.{name}.delta"
    for name in ("output_text", "reasoning_text", "reasoning_summary_text", "function_call_arguments")
)


@dataclass
class _Text:
    """The end of the joined texts of a field, and the number of characters that were not searched yet."""

    end: str = ""
    new: int = 0

    def add(self, text: str) -> bool:
        """Add a text, and return True if the joined text must be searched: not each time, since a server may send it in single letters."""
        self.end = (self.end + text)[-SEARCHED:]
        self.new += len(text)
        if self.new * _STEPS < len(self.end):
            return False
        self.new = 0
        return True


class OtherClientsView:
    """Reads one stream. Stores the texts of each field, and whether the stream is buffered until its end."""

    def __init__(self, judge: StreamJudge, checks: frozenset[str], *, is_error: bool) -> None:
        self._judge, self._checks = judge, checks
        self._texts = defaultdict[str, _Text](_Text)
        self._is_error = is_error
        self.is_waiting = bool(checks) and is_error

    @property
    def is_reading(self) -> bool:
        """True if a check of leaks blocks."""
        return bool(self._checks)

    def read(self, piece: RawEvent) -> frozenset[str]:
        """Read an event, and return the checks that fail on its texts outside of the answer."""
        if not self._checks:
            return frozenset()
        self.is_waiting = self.is_waiting or bool(piece.other_values)
        texts = [*piece.unread_texts()]
        if piece.data is not None:
            texts += _rare_texts(piece.value)
            if piece.is_error or self._is_error:
                texts.append(("error", "\n".join((*strings(piece.value), ""))))
        found = frozenset[str]()
        for field, one in texts:
            place = field if field in self._texts or len(self._texts) < _MOST_FIELDS else ""
            found |= self._search(place) if self._texts[place].add(one) else frozenset[str]()
        return found

    def _search(self, field: str) -> frozenset[str]:
        checks = (
            self._checks & {"channels.no_marker_leak"} if not _REASONING.isdisjoint(field.split("/")) else self._checks
        )
        return self._judge.failures_of_text(self._texts[field].end, checks)

    def failing_checks(self, emitted: Iterable[bytes], buffered: Sequence[RawEvent]) -> frozenset[str]:
        """Return the checks that fail on another reading of the stream so far."""
        found, before = frozenset[str](), b"".join(emitted)
        for field, one in self._texts.items():
            found |= self._search(field) if one.new else frozenset[str]()
        for place in range(max((len(piece.other_values) for piece in buffered), default=0)):
            data = before + b"".join(_with_reading(piece, place) for piece in buffered)
            found |= self._judge.failures_of(self._judge.with_body(data), self._checks).keys()
        return found


def _with_reading(piece: RawEvent, place: int) -> bytes:
    values = piece.other_values
    return piece.encode_value(values[min(place, len(values) - 1)]) if values else piece.raw


def _rare_texts(value: Json) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event that clients read rarely, with their paths: neither content nor reasoning, or not as one text."""
    for place, choice in enumerate(map(members, items(value_at(value, "choices")))):
        index = integer(choice.get("index"))
        yield from _walk(choice, f"choices/{place if index is None else index}")
    yield from _walk(members(value_at(value, "message")), "message")
    kind = text(value_at(value, "type"))
    if kind.endswith(".delta") and kind not in _READ_DELTAS:
        yield from _walk(value_at(value, "delta"), f"{kind}/{text(value_at(value, 'item_id'))}")


def _walk(value: Json, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case list():
            for place, one in enumerate(value):
                index = integer(value_at(one, "index"))
                yield from _walk(one, f"{path}/{place if index is None else index}")
        case dict():
            is_message = path == "message" or path.endswith("/delta")
            for name, one in value.items():
                if name not in _SKIPPED and not (is_message and name in _READ and isinstance(one, str)):
                    yield from _walk(one, f"{path}/{name}")
        case _:
            return
