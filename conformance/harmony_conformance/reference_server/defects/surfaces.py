"""Defects of the APIs beside Chat Completions: of the JSON that only they have.

What is wrong between request and answer (prompt, sampling, reading) is wrong in every API and stands in the other
modules. No check speaks these APIs yet, so the selftest does not run this table: it is to be merged into `DEFECTS`
when one does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_conformance.reference_server.changes import Api, Defect, OnConversation, OnJson, OnRequest, OnStream
from harmony_conformance.reference_server.errors import ApiError, server_failure
from harmony_ref import Message, Role

_Body = Callable[[JsonObject], JsonObject]


def _in_list(name: str, change: _Body) -> _Body:
    """Bodies with every entry of one list changed."""

    def changed(body: JsonObject) -> JsonObject:
        if not isinstance(body.get(name), list):
            return body
        return {**body, name: [change(entry) if isinstance(entry, dict) else entry for entry in items(body[name])]}

    return changed


def _in_member(name: str, change: _Body) -> _Body:
    """Bodies with one object changed."""
    return lambda body: {**body, name: change(members(body[name]))} if isinstance(body.get(name), dict) else body


def _without(*names: str) -> _Body:
    return lambda body: {name: value for name, value in body.items() if name not in names}


def _where(kind: str, change: _Body) -> _Body:
    """Changes only items of one type."""
    return lambda item: change(item) if item.get("type") == kind else item


# Responses


def _zero(usage: JsonObject) -> JsonObject:
    return {name: 0 if number(value) is not None else value for name, value in usage.items()}


def _no_output_when_cut(body: JsonObject) -> JsonObject:
    return {**body, "output": []} if body.get("status") == "incomplete" else body


def _as_output_text(item: JsonObject) -> JsonObject:
    parts: list[Json] = [{**members(part), "type": "output_text"} for part in items(item.get("content"))]
    return {**item, "role": "assistant", "content": parts}


def _only_with_content(item: JsonObject) -> JsonObject:
    if not items(item.get("content")):
        raise server_failure("item['content'] is not an array")
    return item


def _error(message: str) -> JsonObject:
    return {"type": "error", "code": None, "message": message, "param": None}


def _calls_break_the_stream(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if at(event, "item", "type") == "function_call":
            yield _error("list index out of range")
            return
        yield event


def _nameless_calls(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if at(event, "item", "type") == "function_call":
            yield {**members(event), "item": {**members(at(event, "item")), "name": None}}
            yield _error("1 validation error for ResponseFunctionToolCallItem: name")
            return
        yield event


def _without_channel_or_type(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(_bare(message) if message.author.role is Role.ASSISTANT else message for message in messages)


def _bare(message: Message) -> Message:
    channel = None if message.channel == "analysis" else message.channel
    return replace(message, channel=channel, content_type=None)


# Ollama


def _in_calls(change: _Body) -> _Body:
    """Lines with every called function changed."""
    in_function = _in_member("function", change)
    return _in_member("message", _in_list("tool_calls", in_function))


def _all_thought(said: JsonObject) -> JsonObject:
    if not text(said.get("content")):
        return said
    return {**said, "content": "", "thinking": text(said.get("thinking")) + text(said.get("content"))}


def _underscored(function: JsonObject) -> JsonObject:
    return {**function, "name": text(function.get("name")).replace("-", "_").replace(".", "_")}


# TGI


def _unread(said: JsonObject) -> JsonObject:
    """What is left of a completion when the special tokens are dropped and nothing is parsed."""
    if "reasoning" not in said:
        return said
    thought = f"analysis{text(said['reasoning'])}assistantfinal"
    return {**_without("reasoning")(said), "content": thought + text(said.get("content"))}


def _refuse_results(message: JsonObject) -> JsonObject:
    if message.get("role") == "tool":
        raise ApiError(
            "Template error: Message has tool role, but there was no previous assistant message with a tool call!",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    return message


def _tool_prompt(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    if not body.get("tools") or not messages:
        return body
    asked = "\n---\nGiven the functions available, please respond with a JSON for a function call."
    last = members(messages[-1])
    return {**body, "messages": [*messages[:-1], {**last, "content": text(last.get("content")) + asked}]}


def _on_json(api: Api, ident: str, catalogue: Sequence[str], summary: str, change: _Body) -> Defect:
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnJson(change, api))


def _on_request(api: Api, ident: str, catalogue: Sequence[str], summary: str, change: _Body) -> Defect:
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnRequest(change, api))


SURFACE_DEFECTS = (
    Defect(
        id="responses-stream-breaks-at-calls",
        catalogue=("V11",),
        summary="A stream ends with an error event where a call begins; no event tells of the call.",
        change=OnStream(_calls_break_the_stream, Api.RESPONSES),
    ),
    Defect(
        id="responses-items-bare",
        catalogue=("V18",),
        summary="Reasoning that comes back is rendered without a channel, calls without a content type.",
        change=OnConversation(_without_channel_or_type),
    ),
    _on_json(
        Api.RESPONSES,
        "responses-usage-zero",
        ["V26"],
        "Every count in `usage` is 0.",
        _in_member("usage", _zero),
    ),
    Defect(
        id="responses-call-without-name",
        catalogue=("V35",),
        summary="The item of a call is announced without a name, and the stream ends with an error event.",
        change=OnStream(_nameless_calls, Api.RESPONSES),
    ),
    _on_json(
        Api.RESPONSES,
        "responses-output-empty-when-cut",
        ["V39"],
        "An answer that the limit cut has no output, not even the reasoning.",
        _no_output_when_cut,
    ),
    _on_json(
        Api.RESPONSES,
        "responses-reasoning-as-output-text",
        ["P07"],
        "The parts of reasoning items are of type `output_text`, and the item has the role assistant.",
        _in_list("output", _where("reasoning", _as_output_text)),
    ),
    _on_request(
        Api.RESPONSES,
        "responses-reasoning-text-unread",
        ["O15"],
        "Of a reasoning item only `encrypted_content` and `summary` are read, not the `content` that it was returned with.",
        _in_list("input", _where("reasoning", _without("content"))),
    ),
    _on_request(
        Api.RESPONSES,
        "responses-summary-500",
        ["L10"],
        "A reasoning item without `content` is answered with a 500.",
        _in_list("input", _where("reasoning", _only_with_content)),
    ),
    _on_json(
        Api.RESPONSES,
        "responses-reasoning-tokens-zero",
        ["S09"],
        "`reasoning_tokens` is 0 although there is reasoning.",
        _in_member("usage", _in_member("output_tokens_details", _zero)),
    ),
    _on_json(
        Api.OLLAMA,
        "ollama-header-as-name",
        ["O01"],
        "The name of a called function is a piece of a header.",
        _in_calls(lambda function: {**function, "name": "assistant<|channel|>analysis"}),
    ),
    _on_request(Api.OLLAMA, "ollama-think-ignored", ["O10"], "`think` does not change the prompt.", _without("think")),
    _on_request(
        Api.OLLAMA,
        "ollama-names-underscored",
        ["O18"],
        "Characters of a tool's name are replaced by `_`, in the prompt and in the answer.",
        _in_list("tools", _in_member("function", _underscored)),
    ),
    _on_request(
        Api.OLLAMA,
        "ollama-thinking-unread",
        ["O19"],
        "The `thinking` of past messages never reaches the prompt.",
        _in_list("messages", _without("thinking")),
    ),
    _on_json(
        Api.OLLAMA,
        "ollama-prompt-count-missing",
        ["O20"],
        "`prompt_eval_count` is missing.",
        _without("prompt_eval_count"),
    ),
    _on_json(
        Api.OLLAMA,
        "ollama-all-in-thinking",
        ["O21"],
        "The answer is told as `thinking`; the content is empty and the reason `stop`.",
        _in_member("message", _all_thought),
    ),
    _on_json(
        Api.TGI,
        "tgi-channels-in-content",
        ["T01"],
        "Nothing is parsed: the content is `analysis…assistantfinal…`.",
        _in_list("choices", _in_member("message", _unread)),
    ),
    _on_request(
        Api.TGI,
        "tgi-results-refused",
        ["T02"],
        "A history with the result of a tool is refused by the template.",
        _in_list("messages", _refuse_results),
    ),
    _on_request(
        Api.TGI,
        "tgi-tool-prompt",
        ["T03"],
        "A prompt about the functions is appended to the user's message.",
        _tool_prompt,
    ),
    _on_request(Api.TGI, "tgi-effort-ignored", ["T04"], "`reasoning_effort` is ignored.", _without("reasoning_effort")),
)
