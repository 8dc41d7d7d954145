"""Defects in the JSON of Ollama and TGI.

Defects of the stages that all APIs share (prompt, sampling, parsing) are in other modules.
Modules of their own: `responses`, `raw_continuation` (Completions, TGI's /generate) and `sglang`.
"""

from dataclasses import replace
from functools import partial
from http import HTTPStatus

from harmony_conformance.json_value import JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    TOOL_ROLE_REFUSED,
    BodyChange,
    drop_done,
    drop_members,
    in_list,
    in_member,
    on_json,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnReply, OnStream
from harmony_conformance.reference_server.requests.errors import ApiError, Reply

# Ollama


def _in_calls(change: BodyChange) -> BodyChange:
    """Apply `change` to each called function of a line of the stream."""
    return in_member("message", in_list("tool_calls", in_member("function", change)))


def _content_to_thinking(message: JsonObject) -> JsonObject:
    content = text(message.get("content"))
    return {**message, "content": "", "thinking": text(message.get("thinking")) + content} if content else message


def _underscored(function: JsonObject) -> JsonObject:
    return {**function, "name": text(function.get("name")).replace("-", "_").replace(".", "_")}


def _context_of_the_prompt(body: JsonObject) -> JsonObject:
    size = integer(body.get("prompt_eval_count"))
    return {**body, "context": items(body["context"])[:size]} if "context" in body else body


def _error_as_object(reply: Reply) -> Reply:
    if reply.status < HTTPStatus.BAD_REQUEST:
        return reply
    return replace(reply, body={"error": {"message": value_at(reply.body, "error"), "type": "invalid_request_error"}})


# TGI


def _unparsed(message: JsonObject) -> JsonObject:
    """Return the message as it looks when special tokens are dropped and channels are not parsed."""
    if "reasoning" not in message:
        return message
    prefix = f"analysis{text(message['reasoning'])}assistantfinal"
    return {**drop_members("reasoning")(message), "content": prefix + text(message.get("content"))}


def _refuse_results(message: JsonObject) -> JsonObject:
    if message.get("role") == "tool":
        raise ApiError(TOOL_ROLE_REFUSED, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return message


def _characters_as_tokens(reply: Reply) -> Reply:
    count = reply.headers.get("x-compute-characters")
    return reply if count is None else replace(reply, headers={**reply.headers, "x-prompt-tokens": count})


def _tool_prompt(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    if not body.get("tools") or not messages:
        return body
    tool_prompt = "\n---\nGiven the functions available, please respond with a JSON for a function call."
    last = members(messages[-1])
    return {**body, "messages": [*messages[:-1], {**last, "content": text(last.get("content")) + tool_prompt}]}


_ollama_json = partial(on_json, ApiFamily.OLLAMA)
_ollama_request = partial(on_request, ApiFamily.OLLAMA)
_tgi_json = partial(on_json, ApiFamily.TGI)
_tgi_request = partial(on_request, ApiFamily.TGI)

DEFECTS = (
    _ollama_json(
        "ollama-header-as-name",
        "The name of a called function is a fragment of a Harmony header.",
        _in_calls(lambda function: {**function, "name": "assistant<|channel|>analysis"}),
        ("O01",),
    ),
    _ollama_request("ollama-think-ignored", "`think` does not change the prompt.", drop_members("think"), ("O10",)),
    _ollama_request(
        "ollama-thinking-unread",
        "The `thinking` of past messages never reaches the prompt.",
        in_list("messages", drop_members("thinking")),
        ("O19",),
    ),
    _ollama_json(
        "ollama-prompt-count-missing", "`prompt_eval_count` is missing.", drop_members("prompt_eval_count"), ("O20",)
    ),
    _ollama_json(
        "ollama-all-in-thinking",
        "The answer is returned as `thinking`; the content is empty and `done_reason` is `stop`.",
        in_member("message", _content_to_thinking),
        ("O21",),
    ),
    _tgi_json(
        "tgi-channels-in-content",
        "The output is not parsed: the content is `analysis…assistantfinal…`.",
        in_list("choices", in_member("message", _unparsed)),
        ("T01",),
    ),
    _tgi_request(
        "tgi-results-refused",
        "A history with a tool result is rejected by the template.",
        in_list("messages", _refuse_results),
        ("T02",),
    ),
    _tgi_request(
        "tgi-tool-prompt", "A prompt about the functions is appended to the user's message.", _tool_prompt, ("T03",)
    ),
    _tgi_request("tgi-effort-ignored", "`reasoning_effort` is ignored.", drop_members("reasoning_effort"), ("T04",)),
    Defect(
        "tgi-header-counts-characters",
        "The header `x-prompt-tokens` counts the characters of the prompt.",
        OnReply(_characters_as_tokens, ApiFamily.TGI),
    ),
    Defect(
        "tgi-stream-without-done", "The stream of TGI's chat ends without `[DONE]`.", OnStream(drop_done, ApiFamily.TGI)
    ),
    Defect(
        "ollama-lines-as-events",
        "The lines of a stream are framed as server-sent events.",
        OnStream(lambda stream: (f"data: {dumps(value)}" for value in stream), ApiFamily.OLLAMA),
    ),
    _ollama_json("ollama-done-on-every-line", "`done` is true on every line.", lambda body: {**body, "done": True}),
    _ollama_json(
        "ollama-arguments-as-text",
        "The arguments of a call are a string of JSON instead of an object.",
        _in_calls(lambda function: {**function, "arguments": dumps(function.get("arguments"))}),
    ),
    _ollama_json(
        "ollama-context-without-the-answer",
        "The `context` contains the prompt without the answer.",
        _context_of_the_prompt,
    ),
    Defect(
        "ollama-refusals-in-objects",
        "The `error` of a response is an object; Ollama's is a string.",
        OnReply(_error_as_object, ApiFamily.OLLAMA),
    ),
)

SURFACE_DEFECTS = (
    _ollama_request(
        "ollama-names-underscored",
        "Characters of a tool's name are replaced by `_`, in the prompt and in the response.",
        in_list("tools", in_member("function", _underscored)),
        ("O18",),
    ),
)
"""Defects that no check detects: Ollama may rename a function in the prompt if the response restores the name."""
