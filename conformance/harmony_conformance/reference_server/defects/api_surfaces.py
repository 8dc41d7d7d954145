"""Defects of the APIs beside Chat Completions: of the JSON that only they have.

What is wrong between request and answer (prompt, sampling, reading) is wrong in every API and stands in the other
modules; those of the Responses API have one of their own, and so have those of what continues a prompt.
"""

from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, text
from harmony_conformance.reference_server.defects.body_changes import (
    Body,
    in_list,
    in_member,
    on_json,
    on_request,
    without,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnReply, OnStream
from harmony_conformance.reference_server.model.output_events import DONE
from harmony_conformance.reference_server.requests.errors import ApiError, Reply

# Ollama


def _in_calls(change: Body) -> Body:
    """Lines with every called function changed."""
    in_function = in_member("function", change)
    return in_member("message", in_list("tool_calls", in_function))


def _all_thought(said: JsonObject) -> JsonObject:
    if not text(said.get("content")):
        return said
    return {**said, "content": "", "thinking": text(said.get("thinking")) + text(said.get("content"))}


def _underscored(function: JsonObject) -> JsonObject:
    return {**function, "name": text(function.get("name")).replace("-", "_").replace(".", "_")}


def _as_events(stream: Iterator[Json]) -> Iterator[Json]:
    return (f"data: {dumps(value)}" for value in stream)


def _as_text(function: JsonObject) -> JsonObject:
    return {**function, "arguments": dumps(function.get("arguments"))}


def _context_of_the_prompt(body: JsonObject) -> JsonObject:
    if "context" not in body:
        return body
    return {**body, "context": items(body["context"])[: number(body.get("prompt_eval_count"))]}


def _in_an_object(reply: Reply) -> Reply:
    if reply.status < HTTPStatus.BAD_REQUEST:
        return reply
    return replace(reply, body={"error": {"message": at(reply.body, "error"), "type": "invalid_request_error"}})


# TGI


def _unread(said: JsonObject) -> JsonObject:
    """What is left of a completion when the special tokens are dropped and nothing is parsed."""
    if "reasoning" not in said:
        return said
    thought = f"analysis{text(said['reasoning'])}assistantfinal"
    return {**without("reasoning")(said), "content": thought + text(said.get("content"))}


def _refuse_results(message: JsonObject) -> JsonObject:
    if message.get("role") == "tool":
        raise ApiError(
            "Template error: Message has tool role, but there was no previous assistant message with a tool call!",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    return message


def _characters_as_tokens(reply: Reply) -> Reply:
    count = reply.headers.get("x-compute-characters")
    return reply if count is None else replace(reply, headers={**reply.headers, "x-prompt-tokens": count})


def _without_done(stream: Iterator[Json]) -> Iterator[Json]:
    return (value for value in stream if value != DONE)


def _tool_prompt(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    if not body.get("tools") or not messages:
        return body
    asked = "\n---\nGiven the functions available, please respond with a JSON for a function call."
    last = members(messages[-1])
    return {**body, "messages": [*messages[:-1], {**last, "content": text(last.get("content")) + asked}]}


DEFECTS = (
    on_json(
        ApiFamily.OLLAMA,
        "ollama-header-as-name",
        ["O01"],
        "The name of a called function is a piece of a header.",
        _in_calls(lambda function: {**function, "name": "assistant<|channel|>analysis"}),
    ),
    on_request(
        ApiFamily.OLLAMA, "ollama-think-ignored", ["O10"], "`think` does not change the prompt.", without("think")
    ),
    on_request(
        ApiFamily.OLLAMA,
        "ollama-thinking-unread",
        ["O19"],
        "The `thinking` of past messages never reaches the prompt.",
        in_list("messages", without("thinking")),
    ),
    on_json(
        ApiFamily.OLLAMA,
        "ollama-prompt-count-missing",
        ["O20"],
        "`prompt_eval_count` is missing.",
        without("prompt_eval_count"),
    ),
    on_json(
        ApiFamily.OLLAMA,
        "ollama-all-in-thinking",
        ["O21"],
        "The answer is told as `thinking`; the content is empty and the reason `stop`.",
        in_member("message", _all_thought),
    ),
    on_json(
        ApiFamily.TGI,
        "tgi-channels-in-content",
        ["T01"],
        "Nothing is parsed: the content is `analysis…assistantfinal…`.",
        in_list("choices", in_member("message", _unread)),
    ),
    on_request(
        ApiFamily.TGI,
        "tgi-results-refused",
        ["T02"],
        "A history with the result of a tool is refused by the template.",
        in_list("messages", _refuse_results),
    ),
    on_request(
        ApiFamily.TGI,
        "tgi-tool-prompt",
        ["T03"],
        "A prompt about the functions is appended to the user's message.",
        _tool_prompt,
    ),
    on_request(
        ApiFamily.TGI, "tgi-effort-ignored", ["T04"], "`reasoning_effort` is ignored.", without("reasoning_effort")
    ),
    Defect(
        id="tgi-header-counts-characters",
        catalogue=(),
        summary="The header `x-prompt-tokens` counts the characters of the prompt.",
        change=OnReply(_characters_as_tokens, ApiFamily.TGI),
    ),
    Defect(
        id="tgi-stream-without-done",
        catalogue=(),
        summary="The stream of TGI's chat ends without `[DONE]`.",
        change=OnStream(_without_done, ApiFamily.TGI),
    ),
    Defect(
        id="ollama-lines-as-events",
        catalogue=(),
        summary="The lines of a stream are framed as server-sent events.",
        change=OnStream(_as_events, ApiFamily.OLLAMA),
    ),
    on_json(
        ApiFamily.OLLAMA,
        "ollama-done-on-every-line",
        [],
        "`done` is true on every line.",
        lambda body: {**body, "done": True},
    ),
    on_json(
        ApiFamily.OLLAMA, "ollama-arguments-as-text", [], "The arguments of a call are a text.", _in_calls(_as_text)
    ),
    on_json(
        ApiFamily.OLLAMA,
        "ollama-context-without-the-answer",
        [],
        "The context ends where the prompt does.",
        _context_of_the_prompt,
    ),
    Defect(
        id="ollama-refusals-in-objects",
        catalogue=(),
        summary="A refusal has an object where Ollama's have a text.",
        change=OnReply(_in_an_object, ApiFamily.OLLAMA),
    ),
)
"""Those of Ollama and TGI."""

SURFACE_DEFECTS = (
    on_request(
        ApiFamily.OLLAMA,
        "ollama-names-underscored",
        ["O18"],
        "Characters of a tool's name are replaced by `_`, in the prompt and in the answer.",
        in_list("tools", in_member("function", _underscored)),
    ),
)
"""One that no check sees: in Ollama a name may be another in the prompt, as long as it comes back."""
