"""Detection of the API of a logged exchange, by the adapters of the registry: by path, response and request.

A new API needs no line here. Its path, its translated response and the members of its requests identify it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from harmony_conformance.apis.registry import APIS, Api, UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject, items, members, value_at

_EVENTS_EXAMINED = (16, 256)
"""Numbers of first events in which output is looked for: most streams have some at once."""
MOST_EXAMINED = max(_EVENTS_EXAMINED)
_ALL_MEMBERS = (1.0, False)
_TEXTS = ("content", "reasoning", "reasoning_content", "refusal", "tool_calls")
_NO_EVIDENCE = frozenset({"model", "stream"})


def detect_api(path: str, request: Json, response: Json, events: Sequence[Json] | None = None) -> Api | None:
    """Return the API of an exchange, or None if it is for none of the registry.

    Args:
        path: The request path without query, empty if unknown.
        request: The request body, None if unknown.
        response: The response body, None for a stream.
        events: The values of a stream, None for a complete response.
    """
    possible = _by_path(path) or list(APIS.values())
    for count in _EVENTS_EXAMINED if events is not None else (0,):

        def is_answered(api: Api, first: int = count) -> bool:
            return has_answer(api, response) if events is None else _has_streamed(api, events[:first])

        certain = (api for api in possible if _matching_members(api, request) == _ALL_MEMBERS and is_answered(api))
        if not _has_flag(request) and (found := next(certain, None)) is not None:
            return found
        if answered := [api for api in possible if is_answered(api)]:
            return _by_request(answered, request)
    return _by_request(possible if _may_be_request(path, request, possible) else [], request)


def has_answer(api: Api, response: Json) -> bool:
    """Return True if the adapter finds output of a model in a complete response."""
    return any(
        _has_text(value_at(choice, "message")) for choice in items(value_at(api.read_response(response), "choices"))
    )


def _may_be_request(path: str, request: Json, possible: Sequence[Api]) -> bool:
    """Return True if a request without a readable answer may be one of these APIs: by its path, or else by its members."""
    return len(possible) < len(APIS) or (not path and any(_matching_members(api, request)[0] for api in possible))


def _by_path(path: str) -> list[Api]:
    """Return the APIs whose path ends like a path: those with the longest common end, all if it is one segment as `/generate`."""
    lengths = {api.name: _common_end(path, api.path) for api in APIS.values()} if path else {}
    longest = max(lengths.values(), default=0)
    enough = max(1, longest)
    return [APIS[name] for name, length in lengths.items() if length >= enough]


def _common_end(path: str, other: str) -> int:
    """Return the number of equal segments at the end of two paths."""
    pairs = list(zip(reversed(path.strip("/").split("/")), reversed(other.strip("/").split("/")), strict=False))
    return next((length for length, (one, two) in enumerate(pairs) if one != two), len(pairs))


def _has_streamed(api: Api, events: Sequence[Json]) -> bool:
    chunks = api.read_events(iter(events))
    return any(_has_text(value_at(choice, "delta")) for chunk in chunks for choice in items(value_at(chunk, "choices")))


def _has_text(message: Json) -> bool:
    return any(isinstance(value := value_at(message, name), str | list) and value for name in _TEXTS)


def _by_request(possible: Sequence[Api], request: Json) -> Api | None:
    """Return the API whose characteristic members a request has most completely. The first one of several in the registry."""
    return max(possible, key=lambda api: _matching_members(api, request), default=None)


def _has_flag(request: Json) -> bool:
    """Return True if a request has a flag of an API, such as Ollama's `raw`. Another API may have the same members without it."""
    body = members(request)
    return any(
        value is True and body.get(name) is True
        for shape in _request_members().values()
        for name, value in shape.items()
    )


def _matching_members(api: Api, request: Json) -> tuple[float, bool]:
    """Return the share of the characteristic members of the API's requests that a request has, and True if one of them is a flag.

    A flag that is set must be set in both.
    """
    body, shape = members(request), _request_members()[api.name]
    flags = [name for name, value in shape.items() if value is True and body.get(name) is True]
    found = [name for name, value in shape.items() if value is not True and name in body]
    return (len(flags) + len(found)) / max(len(shape), 1), bool(flags)


@cache
def _request_members() -> Mapping[str, JsonObject]:
    """Return the characteristic members of each API's requests: those of a request with one message."""
    conversation: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    shapes: dict[str, JsonObject] = {}
    for api in APIS.values():
        try:
            written = api.write_request(conversation)
        except UnsupportedByApiError:
            written = {}
        shapes[api.name] = {name: value for name, value in written.items() if name not in _NO_EVIDENCE}
    return MappingProxyType(shapes)
