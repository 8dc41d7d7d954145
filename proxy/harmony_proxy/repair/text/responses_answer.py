"""Whole answers of the Responses API, read and rewritten as one reasoning, one message and the calls. Streams: `responses_stream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.apis.responses.request_reader import reasoning_text
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_proxy.repair.text.annotations import move_annotations
from harmony_proxy.repair.text.api_dialects import DIALECTS, ChoiceContent, Dialect
from harmony_proxy.repair.text.leak_prefixes import MARKER
from harmony_proxy.repair.text.logprobs import entries_for_text
from harmony_proxy.repair.text.messages_answer import MESSAGES_ANSWER


def _parts(value: Json) -> tuple[ChoiceContent, ...]:
    """Return the content of the answer; nothing if it has several texts for the user, which cannot be assigned when rewritten."""
    output = [members(item) for item in items(value_at(value, "output"))]
    messages = [item for item in output if item.get("type") == "message"]
    contents = [items(item.get("content")) for item in messages]
    if len(messages) > 1 or any(len(parts) != 1 or value_at(parts[0], "type") != "output_text" for parts in contents):
        return ()
    thoughts = _reasoning_texts(output)
    calls: list[Json] = [_call_of_item(item) for item in output if item.get("type") == "function_call"]
    message: JsonObject = {"reasoning": "\n".join(thoughts)} if thoughts else {}
    message |= {"content": "".join(text(value_at(parts[0], "text")) for parts in contents)}
    return (ChoiceContent(choice=0, message={**message, "tool_calls": calls} if calls else message),) if output else ()


def _call_of_item(item: JsonObject) -> JsonObject:
    function: JsonObject = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _rewrite(value: Json, parts: Mapping[int, Sequence[JsonObject]], _finish: Mapping[int, str]) -> list[Json]:
    messages = parts.get(0)
    if not messages:
        return [value]
    message = messages[0]
    output = [members(item) for item in items(value_at(value, "output"))]
    rewriter = _ItemRewriter(output, message)
    items_now: list[Json] = [rewritten for item in output if (rewritten := rewriter.rewrite(item)) is not None]
    return [{**members(value), "output": [*_new_reasoning(output, message), *items_now, *_new_items(output, message)]}]


def with_status(response: JsonObject, *, is_cut: bool) -> JsonObject:
    """Return a response with the status of an answer that the token limit truncated, or that ended by itself."""
    details: JsonObject | None = {"reason": "max_output_tokens"} if is_cut else None
    return {**response, "status": "incomplete" if is_cut else "completed", "incomplete_details": details}


class _ItemRewriter:
    """Rewrites the existing items, each in its place."""

    def __init__(self, output: Sequence[JsonObject], message: JsonObject) -> None:
        self._message = message
        self._is_same_reasoning = text(message.get("reasoning")) == "\n".join(_reasoning_texts(output))
        self._first_reasoning = next((item for item in output if item.get("type") == "reasoning"), None)
        self._calls = [item for item in output if item.get("type") == "function_call"]

    def rewrite(self, item: JsonObject) -> JsonObject | None:
        """Return the new form of an item; None if it is removed."""
        match item.get("type"):
            case "reasoning" if not self._is_same_reasoning:
                is_first = item is self._first_reasoning
                return _with_thought(item, text(self._message.get("reasoning"))) if is_first else None
            case "message":
                content, calls = text(self._message.get("content")), items(self._message.get("tool_calls"))
                if not content and len(calls) > len(self._calls):
                    return None
                return {**item, "content": [_with_text(members(value_at(item, "content", 0)), content)]}
            case "function_call":
                position = next(position for position, own in enumerate(self._calls) if own is item)
                return _with_call(item, items(self._message.get("tool_calls"))[position])
            case _:
                return item


def _with_thought(item: JsonObject, reasoning: str) -> JsonObject:
    """Return a reasoning item with another text. A separate summary stays, unless it repeats the leaking text."""
    if not reasoning_text({"content": item.get("content")}):
        return {**item, "summary": [{"type": "summary_text", "text": reasoning}]}
    summary = reasoning_text({"summary": item.get("summary")})
    is_separate = summary != reasoning_text(item) and not MARKER.search(summary)
    content: Json = [{"type": "reasoning_text", "text": reasoning}]
    return {**item, "content": content, **({} if is_separate else {"summary": []})}


def _with_text(part: JsonObject, content: str) -> JsonObject:
    """Return a part with another text, and with the annotations and log probabilities that still apply."""
    if content != text(part.get("text")) and items(part.get("logprobs")):
        part = {**part, "logprobs": entries_for_text(items(part["logprobs"]), content)}
    if not items(part.get("annotations")):
        return {**part, "text": content}
    remaining: list[Json] = [
        one for _, one in move_annotations(items(part["annotations"]), text(part.get("text")), content)
    ]
    return {**part, "text": content, "annotations": remaining}


def _reasoning_texts(output: Sequence[JsonObject]) -> list[str]:
    return [reasoning_text(item) for item in output if item.get("type") == "reasoning"]


def _with_call(item: JsonObject, call: Json) -> JsonObject:
    function = value_at(call, "function")
    return {
        **item,
        "call_id": value_at(call, "id"),
        "name": value_at(function, "name"),
        "arguments": value_at(function, "arguments"),
    }


def _new_reasoning(output: Sequence[JsonObject], message: JsonObject) -> list[Json]:
    thought = text(message.get("reasoning"))
    if not thought or _reasoning_texts(output):
        return []
    content: Json = [{"type": "reasoning_text", "text": thought}]
    return [{"id": _new_id("rs", output), "type": "reasoning", "summary": [], "content": content}]


def _new_items(output: Sequence[JsonObject], source: JsonObject) -> list[Json]:
    """Return a new message, if the text for the user leaked elsewhere, and the calls that leaked as text."""
    kinds = [item.get("type") for item in output]
    content = text(source.get("content"))
    part: Json = {"type": "output_text", "text": content, "annotations": []}
    identity = _new_id("msg", output)
    new_message: JsonObject = {"id": identity, "type": "message", "role": "assistant", "status": "completed"}
    calls: list[Json] = []
    for call in items(source.get("tool_calls"))[kinds.count("function_call") :]:
        identity = "fc_" + text(value_at(call, "id")).removeprefix("call_")
        calls.append(_with_call({"type": "function_call", "id": identity, "status": "completed"}, call))
    return [{**new_message, "content": [part]}, *calls] if content and "message" not in kinds else calls


def _new_id(kind: str, output: Sequence[JsonObject]) -> str:
    """Return an id for a new item, derived from the first item of the server."""
    known = next((name for item in output if (name := text(item.get("id")))), "0")
    return f"{kind}_{known.rpartition('_')[2]}r"


_RESPONSES = Dialect(
    content="content",
    reasoning=("reasoning",),
    parts=_parts,
    rewrite=_rewrite,
    delta=lambda _choice, message, _ids: message,
    calls_are_whole=False,
    finishes_with_calls=False,
)

ANSWER_DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {**DIALECTS, "responses": _RESPONSES, "messages": MESSAGES_ANSWER}
)
"""Forms of the APIs whose whole answers are repaired, by API name."""
