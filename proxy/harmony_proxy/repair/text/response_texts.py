"""Texts of the Responses API that the checks do not read, or only at the end of a stream, each with its path.

Of a response they are:

- items of other types than messages, reasoning and function calls;
- parts of messages that have another type or form;
- errors, and members of other APIs.

In a stream, a complete text is searched alone. The others are joined with those of their field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.checks.responses.views import STATUS_BY_FINAL_EVENT
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS

OF_OTHER_APIS = (
    *("answer", "completion", "content", "error", "generated_text", "message", "output", "output_text"),
    *("reasoning_content", "response", "stop_details", "stop_sequence", "text"),
)
"""Members of an answer that clients of some API show."""
_READ = frozenset({"content", *REASONING_FIELDS, "thinking"})
_SKIPPED = frozenset(
    {
        *("role", "finish_reason", "logprobs", "index", "type", "tools", "instructions", "results", "usage"),
        *("encrypted_content", "signature"),  # opaque
    }
)
_OF_RESPONSE = tuple(
    name for name in (*OF_OTHER_APIS, "choices", "incomplete_details") if name not in ("output", "text")
)
_TRACKED = MappingProxyType(
    {f"response.{name}.delta": "delta" for name in ("output_text", "reasoning_text", "reasoning_summary_text")}
)
"""The member that the handler of the stream reads, by type of event."""
_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {f"response.{name}_arguments.delta": "delta" for name in ("function_call", "mcp_call")}
)
_REPEATED: Mapping[str, str] = MappingProxyType(
    {
        **{f"response.{name}.done": "text" for name in ("output_text", "reasoning_text", "reasoning_summary_text")},
        "response.function_call_arguments.done": "arguments",
    }
)
"""The member that repeats what deltas had, by type of event."""
_PARTS = MappingProxyType({"message": ("content",), "reasoning": ("content", "summary")})
_READ_PARTS = frozenset({"output_text", "reasoning_text", "summary_text"})
_ANNOUNCING = frozenset({"response.created", "response.queued", "response.in_progress"})
_PART_DONE = frozenset({"response.content_part.done", "response.reasoning_summary_part.done"})
_ITEM_DONE = "response.output_item.done"
ITEM_EVENTS = frozenset({"response.output_item.added", _ITEM_DONE})
"""The events that have a whole item."""
_IDENTITY = ("output_index", "content_index", "summary_index", "item_id")


def of_response(response: JsonObject, path: str, *, with_repeated: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the texts of a response object; with `with_repeated` also those that the checks read."""
    output = response.get("output")
    for place, item in enumerate(output if isinstance(output, list) else [output]):
        yield from _of_item(item, f"{path}/{place}", with_repeated=with_repeated)
    yield from (one for name in _OF_RESPONSE for one in walk(response.get(name), f"{path}/{name}"))
    if isinstance(response.get("text"), str):  # otherwise the format that was requested
        yield from walk(response["text"], f"{path}/text")


def of_later_parts(response: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the texts of a response after the first one, as each may be shown alone."""
    parts = [part for item in items(response.get("output")) for part in items(value_at(item, "content"))]
    texts = [text(value_at(part, "text")) for part in parts if value_at(part, "type") == "output_text"]
    yield from (("content", one) for one in texts[1:])


def of_delta(event: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event that others may continue."""
    kind = text(event.get("type"))
    if (
        kind in _REPEATED
        or kind in _ANNOUNCING
        or kind in _PART_DONE
        or kind == _ITEM_DONE
        or kind in STATUS_BY_FINAL_EVENT
    ):
        return
    path = "/".join((_kind_of_text(kind), *(str(event.get(name)) for name in _IDENTITY)))
    if (arguments := _ARGUMENTS.get(kind)) is not None and isinstance(event.get(arguments), str):
        yield f"{path}/arguments", text(event[arguments])
    read = arguments or _TRACKED.get(kind, "")
    is_read = isinstance(event.get(read), str)
    rest: JsonObject = {
        name: one for name, one in event.items() if name not in _IDENTITY and not (is_read and name == read)
    }
    yield from walk(rest, path, has_read_deltas=False)


def of_whole(event: JsonObject, *, with_repeated: bool) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event that are complete; with `with_repeated` also those that repeat tracked deltas."""
    kind = text(event.get("type"))
    path = _kind_of_text(kind)
    if kind in _ANNOUNCING:
        yield from of_response(members(event.get("response")), path, with_repeated=True)
    elif kind in STATUS_BY_FINAL_EVENT:
        yield from of_response(members(event.get("response")), path, with_repeated=with_repeated)
    elif kind == _ITEM_DONE:
        yield from _of_item(event.get("item"), path, with_repeated=with_repeated)
    elif kind in _PART_DONE:
        yield from _of_part(event.get("part"), path, with_repeated=with_repeated)
    elif kind in _REPEATED:
        read = "" if with_repeated else _REPEATED[kind]
        rest: JsonObject = {name: one for name, one in event.items() if name != read or not isinstance(one, str)}
        yield from walk(rest, path, has_read_deltas=False)


def _kind_of_text(kind: str) -> str:
    """Return the type of an event, after the name of reasoning if it has reasoning."""
    return f"reasoning/{kind}" if kind.startswith("response.reasoning") else kind


def _of_item(item: Json, path: str, *, with_repeated: bool) -> Iterator[tuple[str, str]]:
    kind = text(value_at(item, "type"))
    path = f"{path}/reasoning" if kind == "reasoning" else path
    own = members(item)
    parts = [name for name in _PARTS.get(kind, ()) if isinstance(own.get(name), list)]
    for name in parts:
        for place, part in enumerate(items(own[name])):
            yield from _of_part(part, f"{path}/{name}/{place}", with_repeated=with_repeated)
    read = frozenset(parts)
    if kind == "function_call" and not with_repeated:
        read |= {name for name in ("name", "call_id", "arguments") if isinstance(own.get(name), str)}
    yield from walk({name: one for name, one in own.items() if name not in read} if own else item, path)


def _of_part(part: Json, path: str, *, with_repeated: bool) -> Iterator[tuple[str, str]]:
    is_read = not with_repeated and value_at(part, "type") in _READ_PARTS and isinstance(value_at(part, "text"), str)
    yield from walk({name: one for name, one in members(part).items() if name != "text"} if is_read else part, path)


def walk(value: Json, path: str, *, has_read_deltas: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the texts of a value. `has_read_deltas`: the checks read messages and deltas in it."""
    match value:
        case str():
            yield path, value
        case list():
            for place, one in enumerate(value):
                index = integer(value_at(one, "index"))
                yield from walk(one, f"{path}/{place if index is None else index}", has_read_deltas=has_read_deltas)
        case dict():
            is_message = has_read_deltas and (path == "message" or path.endswith("/delta"))
            for name, one in value.items():
                is_read = is_message and name in _READ and isinstance(one, str)
                if name not in _SKIPPED and not is_read:
                    yield from walk(one, f"{path}/{name}", has_read_deltas=has_read_deltas)
        case _:
            return
