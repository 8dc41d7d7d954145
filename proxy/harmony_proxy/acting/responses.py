"""A whole answer of the Responses API told anew: its items are one reasoning, one message and the calls. Its streams number the items, and are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_proxy.acting.dialect import DIALECTS, Dialect, Part

_TOLD = ("reasoning", "message", "function_call")


def _parts(value: Json) -> tuple[Part, ...]:
    """What the answer says; nothing, where it is more than one text for the user, whose places are not told anew."""
    output = [members(item) for item in items(at(value, "output"))]
    messages = [item for item in output if item.get("type") == "message"]
    contents = [items(item.get("content")) for item in messages]
    if len(messages) > 1 or any(len(parts) != 1 or at(parts[0], "type") != "output_text" for parts in contents):
        return ()
    thoughts = [_thought(item) for item in output if item.get("type") == "reasoning"]
    calls: list[Json] = [_called(item) for item in output if item.get("type") == "function_call"]
    said: JsonObject = {"reasoning": "\n".join(thoughts)} if thoughts else {}
    said |= {"content": "".join(text(at(parts[0], "text")) for parts in contents)}
    return (Part(choice=0, said={**said, "tool_calls": calls} if calls else said),) if output else ()


def _thought(item: JsonObject) -> str:
    return "".join(text(at(part, "text")) for name in ("content", "summary") for part in items(item.get(name)))


def _called(item: JsonObject) -> JsonObject:
    function: JsonObject = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _told(value: Json, parts: Mapping[int, Sequence[JsonObject]], _finish: Mapping[int, str]) -> list[Json]:
    told = parts.get(0)
    if not told:
        return [value]
    said = told[0]
    output = [members(item) for item in items(at(value, "output"))]
    others: list[Json] = [item for item in output if item.get("type") not in _TOLD]
    made: list[Json] = [*_reasoning(output, said), *others, *_message(output, said), *_calls(output, said)]
    return [{**members(value), "output": made}]


def _reasoning(output: Sequence[JsonObject], said: JsonObject) -> list[Json]:
    own = [item for item in output if item.get("type") == "reasoning"]
    thought = text(said.get("reasoning"))
    if not thought or thought == "\n".join(map(_thought, own)):
        return [*own]
    bare: JsonObject = {"id": _id("rs", output), "type": "reasoning", "summary": []}
    return [{**(own[0] if own else bare), "content": [{"type": "reasoning_text", "text": thought}]}]


def _message(output: Sequence[JsonObject], said: JsonObject) -> list[Json]:
    own = next((item for item in output if item.get("type") == "message"), None)
    content = text(said.get("content"))
    if own is None and not content:
        return []
    if not content and items(said.get("tool_calls")):
        return []
    bare: JsonObject = {"id": _id("msg", output), "type": "message", "role": "assistant", "status": "completed"}
    part: JsonObject = {"type": "output_text", "annotations": []}
    held = members(at(own, "content", 0)) if own is not None else part
    return [{**(own if own is not None else bare), "content": [{**held, "text": content}]}]


def _calls(output: Sequence[JsonObject], said: JsonObject) -> list[Json]:
    own = [item for item in output if item.get("type") == "function_call"]
    calls = items(said.get("tool_calls"))
    told: list[Json] = []
    for place, call in enumerate(calls):
        identity = text(at(call, "id"))
        bare: JsonObject = {
            "type": "function_call",
            "id": "fc_" + identity.removeprefix("call_"),
            "status": "completed",
        }
        item = own[place] if place < len(own) else bare
        name, arguments = at(call, "function", "name"), at(call, "function", "arguments")
        told.append({**item, "call_id": identity, "name": name, "arguments": arguments})
    return told


def _id(kind: str, output: Sequence[JsonObject]) -> str:
    """An id for an item that the server did not make, by the first that it made."""
    known = next((name for item in output if (name := text(item.get("id")))), "0")
    return f"{kind}_{known.rpartition('_')[2]}r"


def _delta(_choice: int, said: JsonObject, _ids: Sequence[Json]) -> JsonObject:
    return said


_RESPONSES = Dialect(
    content="content",
    reasoning=("reasoning",),
    parts=_parts,
    told=_told,
    delta=_delta,
    calls_are_whole=False,
    finishes_with_calls=False,
)

WHOLE: Mapping[str, Dialect] = MappingProxyType({**DIALECTS, "responses": _RESPONSES})
"""The APIs whose whole answers are repaired, by their name."""
