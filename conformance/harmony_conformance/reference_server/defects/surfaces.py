"""Defects of the APIs beside Chat Completions: of the JSON that only they have.

What is wrong between request and answer (prompt, sampling, reading) is wrong in every API and stands in the other
modules; those of the Responses API have one of their own. No check speaks these APIs yet, so the selftest does not run
this table: it is to be merged into `DEFECTS` when one does.
"""

from http import HTTPStatus

from harmony_conformance.json_value import JsonObject, items, members, text
from harmony_conformance.reference_server.changes import Api
from harmony_conformance.reference_server.defects.bodies import Body, in_list, in_member, on_json, on_request, without
from harmony_conformance.reference_server.errors import ApiError

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


def _tool_prompt(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    if not body.get("tools") or not messages:
        return body
    asked = "\n---\nGiven the functions available, please respond with a JSON for a function call."
    last = members(messages[-1])
    return {**body, "messages": [*messages[:-1], {**last, "content": text(last.get("content")) + asked}]}


SURFACE_DEFECTS = (
    on_json(
        Api.OLLAMA,
        "ollama-header-as-name",
        ["O01"],
        "The name of a called function is a piece of a header.",
        _in_calls(lambda function: {**function, "name": "assistant<|channel|>analysis"}),
    ),
    on_request(Api.OLLAMA, "ollama-think-ignored", ["O10"], "`think` does not change the prompt.", without("think")),
    on_request(
        Api.OLLAMA,
        "ollama-names-underscored",
        ["O18"],
        "Characters of a tool's name are replaced by `_`, in the prompt and in the answer.",
        in_list("tools", in_member("function", _underscored)),
    ),
    on_request(
        Api.OLLAMA,
        "ollama-thinking-unread",
        ["O19"],
        "The `thinking` of past messages never reaches the prompt.",
        in_list("messages", without("thinking")),
    ),
    on_json(
        Api.OLLAMA,
        "ollama-prompt-count-missing",
        ["O20"],
        "`prompt_eval_count` is missing.",
        without("prompt_eval_count"),
    ),
    on_json(
        Api.OLLAMA,
        "ollama-all-in-thinking",
        ["O21"],
        "The answer is told as `thinking`; the content is empty and the reason `stop`.",
        in_member("message", _all_thought),
    ),
    on_json(
        Api.TGI,
        "tgi-channels-in-content",
        ["T01"],
        "Nothing is parsed: the content is `analysis…assistantfinal…`.",
        in_list("choices", in_member("message", _unread)),
    ),
    on_request(
        Api.TGI,
        "tgi-results-refused",
        ["T02"],
        "A history with the result of a tool is refused by the template.",
        in_list("messages", _refuse_results),
    ),
    on_request(
        Api.TGI,
        "tgi-tool-prompt",
        ["T03"],
        "A prompt about the functions is appended to the user's message.",
        _tool_prompt,
    ),
    on_request(Api.TGI, "tgi-effort-ignored", ["T04"], "`reasoning_effort` is ignored.", without("reasoning_effort")),
)
