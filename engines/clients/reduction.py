"""From recorded requests to the steps of a scenario.

- Values that the server made (ids, signatures, encrypted reasoning) become references to the answer (`$from`).
- Long texts of the client become placeholders; those of a proprietary client always. Its tools keep names, types and allowed values.
- Ids of sessions, times and paths of this machine become fixed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Any
_SERVER_MADE = frozenset({"id", "call_id", "tool_use_id", "tool_call_id", "signature", "encrypted_content"})
_REFERENCES = _SERVER_MADE | {"previous_response_id"}
"""The members of a request with a value that the server made."""
_OPTIONAL = {"responses": frozenset({"id", "encrypted_content"}), "messages": frozenset({"signature"})}
"""Those that a client omits if the server does not return them, by API."""
_SET_BY_THE_SUITE = frozenset({"model", "stream", "stream_options"})
_LONGEST_TEXT = 240
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VOLATILE = (
    (re.compile(r"[0-9a-f]{64}"), "0" * 64),
    (re.compile(r"^\d{13}$"), "0"),
    (re.compile(r"_at_unix_ms\":\d+"), '_at_unix_ms":0'),
    (re.compile(r"Chunk ID: \w+"), "Chunk ID: 000000"),
    (re.compile(r"Wall time: [\d.]+"), "Wall time: 0.0000"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "2025-06-28"),
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A recorded request and the answer to it: not streamed, and as the client received it."""

    body: Mapping[str, Json]
    headers: Mapping[str, str]
    answer: Mapping[str, Json]
    received: bytearray

    @property
    def answers(self) -> Iterator[Json]:
        """Yield the answer, and the last one of a stream of Responses, whose items have ids of their own."""
        yield self.answer
        for line in self.received.decode().split("\n"):
            if line.startswith("data: {") and (event := json.loads(line[6:])).get("type") == "response.completed":
                yield event["response"]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Reduction of a client's texts. `own_texts`: texts of the conversation, which are kept as they are."""

    keeps_texts: bool
    own_texts: frozenset[str]
    folder: str
    api: str
    uuids: dict[str, str] = field(default_factory=dict[str, str])

    def requests(self, recorded: Sequence[Recorded], steps: Sequence[str]) -> Iterator[Mapping[str, Json]]:
        """Yield the reduced requests, with references to the answers of earlier steps."""
        known: dict[str, str] = {}
        for step, one in zip(steps, recorded, strict=True):
            body = {name: value for name, value in one.body.items() if name not in _SET_BY_THE_SUITE}
            yield {name: self._reduced(value, (name,), known) for name, value in body.items()}
            for answer in one.answers:
                known |= {value: f"{step}#{place}" for place, value in _server_made(answer, "")}

    def _reduced(self, value: Json, where: tuple[str, ...], known: Mapping[str, str]) -> Json:
        match value:
            case dict():
                return {name: self._reduced(member, (*where, name), known) for name, member in value.items()}
            case list():
                return [self._reduced(item, where, known) for item in value]
            case str() if where[-1] in _REFERENCES and value in known:
                return {
                    "$from": known[value],
                    **({"optional": True} if where[-1] in _OPTIONAL.get(self.api, ()) else {}),
                }
            case str():
                return self._text(value, where)
            case _:
                return value

    def _text(self, value: str, where: tuple[str, ...]) -> str:
        if value.strip() in self.own_texts:
            return value
        value = value.replace(self.folder, "/work")
        value = _UUID.sub(self._numbered, value)
        for pattern, fixed in _VOLATILE:
            value = pattern.sub(fixed, value)
        if where[0] == "tools" and where[-1] == "description":
            is_kept = self.keeps_texts and len(value) <= _LONGEST_TEXT
            return value if is_kept else f"A description of the client, {len(value)} characters."
        if where[-1] not in ("text", "content", "instructions", "system"):
            return value
        if self.keeps_texts:
            return (
                value
                if len(value) <= _LONGEST_TEXT
                else f"{value[:_LONGEST_TEXT]} … (shortened, {len(value)} characters)"
            )
        return f"A text of the client, {len(value)} characters."

    def _numbered(self, uuid: re.Match[str]) -> str:
        return self.uuids.setdefault(uuid[0], f"00000000-0000-4000-8000-{len(self.uuids) + 1:012}")


def _server_made(value: Json, where: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, member in value.items():
                if isinstance(member, str) and name in _SERVER_MADE:
                    yield f"{where}/{name}", member
                yield from _server_made(member, f"{where}/{name}")
        case list():
            for place, item in enumerate(value):
                yield from _server_made(item, f"{where}/{place}")
        case _:
            pass
