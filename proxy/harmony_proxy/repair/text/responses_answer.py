"""A whole answer of the Responses API told anew: its items are one reasoning, one message and the calls. Its streams are told in `responses_stream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.apis.responses.request_reader import thought_of
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_proxy.repair.text.annotations import moved
from harmony_proxy.repair.text.api_dialects import DIALECTS, ChoiceContent, Dialect
from harmony_proxy.repair.text.leak_prefixes import MARKER
from harmony_proxy.repair.text.logprobs import spelled_by


def _parts(value: Json) -> tuple[ChoiceContent, ...]:
    """What the answer says; nothing, where it is more than one text for the user, whose places are not told anew."""
    output = [members(item) for item in items(at(value, "output"))]
    messages = [item for item in output if item.get("type") == "message"]
    contents = [items(item.get("content")) for item in messages]
    if len(messages) > 1 or any(len(parts) != 1 or at(parts[0], "type") != "output_text" for parts in contents):
        return ()
    thoughts = _thoughts(output)
    calls: list[Json] = [_called(item) for item in output if item.get("type") == "function_call"]
    said: JsonObject = {"reasoning": "\n".join(thoughts)} if thoughts else {}
    said |= {"content": "".join(text(at(parts[0], "text")) for parts in contents)}
    return (ChoiceContent(choice=0, said={**said, "tool_calls": calls} if calls else said),) if output else ()


def _called(item: JsonObject) -> JsonObject:
    function: JsonObject = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _told(value: Json, parts: Mapping[int, Sequence[JsonObject]], _finish: Mapping[int, str]) -> list[Json]:
    now = parts.get(0)
    if not now:
        return [value]
    said = now[0]
    output = [members(item) for item in items(at(value, "output"))]
    kept = _Kept(output, said)
    made: list[Json] = [told for item in output if (told := kept.item(item)) is not None]
    return [{**members(value), "output": [*_new_reasoning(output, said), *made, *_new_items(output, said)]}]


def with_status(response: JsonObject, *, is_cut: bool) -> JsonObject:
    """A response with the status of an answer that the limit cut, or that ended by itself."""
    details: JsonObject | None = {"reason": "max_output_tokens"} if is_cut else None
    return {**response, "status": "incomplete" if is_cut else "completed", "incomplete_details": details}


class _Kept:
    """What becomes of the items that there are, each in its place."""

    def __init__(self, output: Sequence[JsonObject], said: JsonObject) -> None:
        self._said = said
        self._same_thought = text(said.get("reasoning")) == "\n".join(_thoughts(output))
        self._first = next((item for item in output if item.get("type") == "reasoning"), None)
        self._own_calls = [item for item in output if item.get("type") == "function_call"]

    def item(self, item: JsonObject) -> JsonObject | None:
        """The item as it is told now, None where it is not."""
        match item.get("type"):
            case "reasoning" if not self._same_thought:
                return _with_thought(item, text(self._said.get("reasoning"))) if item is self._first else None
            case "message":
                content, calls = text(self._said.get("content")), items(self._said.get("tool_calls"))
                if not content and len(calls) > len(self._own_calls):
                    return None
                return {**item, "content": [_with_text(members(at(item, "content", 0)), content)]}
            case "function_call":
                place = next(place for place, own in enumerate(self._own_calls) if own is item)
                return _as_item(item, items(self._said.get("tool_calls"))[place])
            case _:
                return item


def _with_thought(item: JsonObject, now: str) -> JsonObject:
    """A reasoning with another text, where it has its text; a summary beside that stays, unless it is the text that leaked."""
    if not thought_of({"content": item.get("content")}):
        return {**item, "summary": [{"type": "summary_text", "text": now}]}
    summary = thought_of({"summary": item.get("summary")})
    is_other = summary != thought_of(item) and not MARKER.search(summary)
    return {**item, "content": [{"type": "reasoning_text", "text": now}], **({} if is_other else {"summary": []})}


def _with_text(part: JsonObject, now: str) -> JsonObject:
    """A part with another text, and the annotations and log probabilities that still hold."""
    if now != text(part.get("text")) and items(part.get("logprobs")):
        part = {**part, "logprobs": spelled_by(items(part["logprobs"]), now)}
    if not items(part.get("annotations")):
        return {**part, "text": now}
    kept: list[Json] = [one for _, one in moved(items(part["annotations"]), text(part.get("text")), now)]
    return {**part, "text": now, "annotations": kept}


def _thoughts(output: Sequence[JsonObject]) -> list[str]:
    return [thought_of(item) for item in output if item.get("type") == "reasoning"]


def _as_item(item: JsonObject, call: Json) -> JsonObject:
    function = at(call, "function")
    told: JsonObject = {"name": at(function, "name"), "arguments": at(function, "arguments")}
    return {**item, "call_id": at(call, "id"), **told}


def _new_reasoning(output: Sequence[JsonObject], said: JsonObject) -> list[Json]:
    thought = text(said.get("reasoning"))
    if not thought or _thoughts(output):
        return []
    told: Json = [{"type": "reasoning_text", "text": thought}]
    return [{"id": _id("rs", output), "type": "reasoning", "summary": [], "content": told}]


def _new_items(output: Sequence[JsonObject], said: JsonObject) -> list[Json]:
    """A message, where the text for the user stood elsewhere, and the calls that were none."""
    kinds = [item.get("type") for item in output]
    content = text(said.get("content"))
    part: Json = {"type": "output_text", "text": content, "annotations": []}
    message: JsonObject = {"id": _id("msg", output), "type": "message", "role": "assistant", "status": "completed"}
    calls: list[Json] = []
    for call in items(said.get("tool_calls"))[kinds.count("function_call") :]:
        identity = "fc_" + text(at(call, "id")).removeprefix("call_")
        calls.append(_as_item({"type": "function_call", "id": identity, "status": "completed"}, call))
    return [{**message, "content": [part]}, *calls] if content and "message" not in kinds else calls


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
