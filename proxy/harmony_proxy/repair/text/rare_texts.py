"""Texts that official clients do not show as content, reasoning or a call, each with its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.registry import MESSAGES, OLLAMA, OLLAMA_GENERATE, RESPONSES
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_proxy.repair.text import response_texts
from harmony_proxy.repair.text.response_texts import OF_OTHER_APIS, walk

REASONING_NAMES = frozenset({*REASONING_FIELDS, "reasoning_details", "thinking"})
"""Names in the path of a text that is reasoning."""

_KNOWN = {OLLAMA.name: ("message",), OLLAMA_GENERATE.name: ("response",)}
_WITHOUT_CHOICES = frozenset({MESSAGES.name, RESPONSES.name, OLLAMA.name, OLLAMA_GENERATE.name})
_READ_OF_BLOCKS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "text": frozenset({"text"}),
        "thinking": frozenset({"thinking", "signature"}),
        "tool_use": frozenset({"id", "name", "input"}),
    }
)
"""Members of the content blocks of Messages that the checks read, by type. A signature is opaque."""
_READ_OF_DELTAS: Mapping[str, str] = MappingProxyType(
    {
        "text_delta": "text",
        "thinking_delta": "thinking",
        "signature_delta": "signature",
        "input_json_delta": "partial_json",
    }
)
"""The member of a delta of Messages that the handler of the stream reads, or that is opaque, by type."""
_OF_MESSAGES = tuple(name for name in OF_OTHER_APIS if name != "content")


def rare_texts_of_answer(value: Json, api: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a complete answer outside of its message, whose texts the checks read."""
    body = members(value)
    read = frozenset[str]() if api in _WITHOUT_CHOICES else frozenset({"message"})
    for choice in map(members, items(body.get("choices"))):
        bare: JsonObject = {name: one for name, one in choice.items() if name not in read}
        yield from walk(bare, "choices")
    if api == RESPONSES.name:
        yield from response_texts.of_response(body, "response")
        yield from response_texts.of_later_parts(body)
    elif api == MESSAGES.name:
        yield from _of_message(body, "message", _READ_OF_BLOCKS)
        texts = [text(value_at(block, "text")) for block in items(body.get("content"))]
        yield from (("content", one) for one in texts[1:])
    else:
        others = (name for name in OF_OTHER_APIS if name not in _KNOWN.get(api, ()))
        yield from (one for name in others for one in walk(body.get(name), name))


def rare_texts_of_event(value: Json, api: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event that are not tracked, and that other events may continue."""
    body = members(value)
    if api == RESPONSES.name:
        yield from response_texts.of_delta(body)
    elif api == MESSAGES.name:
        yield from _of_messages_event(body)
    else:
        for place, choice in enumerate(map(members, items(body.get("choices")))):
            index = integer(choice.get("index"))
            yield from walk(choice, f"choices/{place if index is None else index}")
        yield from walk(body.get("message"), "message") if api == OLLAMA.name else ()
        others = (name for name in OF_OTHER_APIS if name not in _KNOWN.get(api, ()))
        yield from (one for name in others for one in walk(body.get(name), name))


def whole_texts_of_event(value: Json, api: str, *, with_repeated: bool) -> Iterator[tuple[str, str]]:
    """Yield the complete texts of an event that are not tracked; with `with_repeated` also those that repeat tracked deltas."""
    if api == RESPONSES.name:
        yield from response_texts.of_whole(members(value), with_repeated=with_repeated)


def kind_of_call(value: Json, api: str) -> str:
    """Return the type of the call that an event begins or ends, with all that it has of it; empty for other events."""
    if api == RESPONSES.name and text(value_at(value, "type")) in response_texts.ITEM_EVENTS:
        kind = text(value_at(value, "item", "type"))
        return kind if kind.endswith("_call") or kind == "mcp_approval_request" else ""
    kind = text(value_at(value, "content_block", "type")) if api == MESSAGES.name else ""
    return kind if kind.endswith("_tool_use") else ""


def _of_messages_event(event: JsonObject) -> Iterator[tuple[str, str]]:
    kind, path = text(event.get("type")), f"{text(event.get('type'))}/{integer(event.get('index'))}"
    match kind:
        case "content_block_delta":
            delta = event.get("delta")
            read = _READ_OF_DELTAS.get(text(value_at(delta, "type")), "")
            if read == "partial_json":
                yield f"{path}/arguments", text(value_at(delta, read))
            yield from walk(_without_text(delta, read), path)
        case "content_block_start":
            block = event.get("content_block")
            is_call = value_at(block, "type") == "tool_use"
            yield from walk(value_at(block, "name"), f"{path}/name") if is_call else ()
            yield from walk(value_at(block, "id"), f"{path}/id") if is_call else ()
            yield from _of_blocks([block], path, _READ_OF_BLOCKS)
        case "message_start":
            yield from _of_message(
                members(event.get("message")), kind, {**_READ_OF_BLOCKS, "tool_use": frozenset({"input"})}
            )
        case _:
            yield from walk(event, kind, has_read_deltas=False)


def _of_message(message: JsonObject, path: str, read: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    yield from _of_blocks(message.get("content"), f"{path}/content", read)
    yield from (one for name in _OF_MESSAGES for one in walk(message.get(name), f"{path}/{name}"))


def _of_blocks(content: Json, path: str, read: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Yield the texts of content blocks that are not read: unknown types, unknown members, and content in another form."""
    for place, block in enumerate(content if isinstance(content, list) else [content]):
        if not isinstance(content, list) or not isinstance(block, dict):
            yield from walk(block, path)
            continue
        names = read.get(text(block.get("type")), frozenset[str]())
        yield from walk({name: one for name, one in block.items() if name not in names}, f"{path}/{place}")
        if isinstance(block.get("input"), str):
            yield from walk(block["input"], f"{path}/{place}/arguments")


def _without_text(value: Json, name: str) -> Json:
    """Return a value without a member, if that is a text."""
    is_read = isinstance(value_at(value, name), str)
    return {one: member for one, member in members(value).items() if one != name} if is_read else value
