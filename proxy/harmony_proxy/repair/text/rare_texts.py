"""Texts that official clients do not show as content, reasoning or a call, each with its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.registry import MESSAGES, OLLAMA, OLLAMA_GENERATE, RESPONSES
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS

REASONING_NAMES = frozenset({*REASONING_FIELDS, "reasoning_details", "thinking"})
"""Names in the path of a text that is reasoning."""

_READ = frozenset({"content", *REASONING_FIELDS, "thinking"})
_SKIPPED = frozenset(
    {"role", "finish_reason", "logprobs", "index", "type", "tools", "instructions", "results", "usage"}
)
_OF_OTHER_APIS = ("answer", "completion", "content", "generated_text", "message", "output_text", "response", "text")
_KNOWN = {OLLAMA.name: ("message",), OLLAMA_GENERATE.name: ("response",), MESSAGES.name: ("content",)}
_WITHOUT_CHOICES = frozenset({MESSAGES.name, RESPONSES.name, OLLAMA.name, OLLAMA_GENERATE.name})
_READ_OF_BLOCKS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "text": frozenset({"text"}),
        "thinking": frozenset({"thinking", "signature"}),
        "tool_use": frozenset({"id", "name", "input"}),
    }
)
"""Members of the content blocks of Messages that the checks read, by type. A signature is opaque."""
_READ_EVENTS = frozenset(
    {
        *(f"response.{name}.delta" for name in ("output_text", "reasoning_text", "reasoning_summary_text")),
        *(f"response.{name}.done" for name in ("output_text", "reasoning_text", "reasoning_summary_text")),
        *(f"response.function_call_arguments.{end}" for end in ("delta", "done")),
        *("response.content_part.done", "response.output_item.done", "response.reasoning_summary_part.done"),
        *("response.completed", "response.incomplete", "response.failed"),
        *("message_start", "content_block_start", "content_block_stop", "message_stop"),
    }
)
"""Types of events whose texts the checks read."""
_ANNOUNCING = frozenset({"response.created", "response.queued", "response.in_progress"})
_READ_DELTAS = frozenset({"text_delta", "thinking_delta", "input_json_delta", "signature_delta"})


def rare_texts_of_answer(value: Json, api: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a complete answer outside of its message, whose texts the checks read."""
    body = members(value)
    read = frozenset[str]() if api in _WITHOUT_CHOICES else frozenset({"message"})
    for choice in map(members, items(body.get("choices"))):
        bare: JsonObject = {name: one for name, one in choice.items() if name not in read}
        yield from _walk(bare, "choices")
    if api == MESSAGES.name:
        yield from _of_blocks(body.get("content"), "content")
        yield from _walk(body.get("stop_sequence"), "stop_sequence")
    others = (name for name in _OF_OTHER_APIS if name not in _KNOWN.get(api, ()))
    yield from (one for name in others for one in _walk(body.get(name), name))


def rare_texts_of_event(value: Json, api: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of an event that are not tracked: the checks read them only at the end of the stream, or not at all."""
    body = members(value)
    if api in (RESPONSES.name, MESSAGES.name):
        yield from _of_typed_event(body)
        return
    for place, choice in enumerate(map(members, items(body.get("choices")))):
        index = integer(choice.get("index"))
        yield from _walk(choice, f"choices/{place if index is None else index}")
    yield from _walk(body.get("message"), "message") if api == OLLAMA.name else ()
    others = (name for name in _OF_OTHER_APIS if name not in _KNOWN.get(api, ()))
    yield from (one for name in others for one in _walk(body.get(name), name))


def _of_typed_event(event: JsonObject) -> Iterator[tuple[str, str]]:
    kind, delta = text(event.get("type")), event.get("delta")
    if kind in _ANNOUNCING:
        yield from _walk(value_at(event, "response", "output"), kind)
        yield from _walk(value_at(event, "response", "output_text"), kind)
    elif kind == "content_block_delta":
        yield from _walk(delta, kind) if text(value_at(delta, "type")) not in _READ_DELTAS else ()
    elif kind not in _READ_EVENTS:
        yield from _walk(event, f"{kind}/{text(event.get('item_id'))}", has_read_deltas=False)
    elif kind == "message_start":
        yield from _of_blocks(value_at(event, "message", "content"), kind)
    elif kind == "content_block_start":
        yield from _of_blocks([event.get("content_block")], f"{kind}/{integer(event.get('index'))}")
    elif not isinstance(delta, str):
        yield from _walk(delta, kind)


def _of_blocks(content: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of content blocks that the checks do not read: unknown types, unknown members, and content in another form."""
    for place, block in enumerate(content if isinstance(content, list) else [content]):
        if not isinstance(content, list) or not isinstance(block, dict):
            yield from _walk(block, path)
            continue
        read = _READ_OF_BLOCKS.get(text(block.get("type")), frozenset[str]())
        yield from _walk({name: one for name, one in block.items() if name not in read}, f"{path}/{place}")


def _walk(value: Json, path: str, *, has_read_deltas: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the texts of a value. `has_read_deltas`: the checks read messages and deltas in it."""
    match value:
        case str():
            yield path, value
        case list():
            for place, one in enumerate(value):
                index = integer(value_at(one, "index"))
                yield from _walk(one, f"{path}/{place if index is None else index}", has_read_deltas=has_read_deltas)
        case dict():
            is_message = has_read_deltas and (path == "message" or path.endswith("/delta"))
            for name, one in value.items():
                is_read = is_message and name in _READ and isinstance(one, str)
                if name not in _SKIPPED and not is_read:
                    yield from _walk(one, f"{path}/{name}", has_read_deltas=has_read_deltas)
        case _:
            return
