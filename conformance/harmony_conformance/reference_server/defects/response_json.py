"""Defects in the JSON of responses, with or without streaming, and in their HTTP status."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, items, members, number, text
from harmony_conformance.reference_server.defects.body_changes import Body, all_zero, in_choices
from harmony_conformance.reference_server.defects.stages import Defect, OnJson, OnReply
from harmony_conformance.reference_server.requests.errors import Reply


def _in_usage(change: Body) -> OnJson:
    return OnJson(lambda body: {**body, "usage": change(members(body["usage"]))} if "usage" in body else body)


def _in_names(change: Callable[[str], str]) -> OnJson:
    """Change the name of each called function."""

    def call(value: Json) -> Json:
        function = members(members(value).get("function"))
        if "name" not in function:
            return value
        return {**members(value), "function": {**function, "name": change(text(function["name"]))}}

    def choice(value: JsonObject) -> JsonObject:
        changed = dict(value)
        for name in ("message", "delta"):
            part = members(value.get(name))
            if part.get("tool_calls"):
                changed[name] = {**part, "tool_calls": [call(entry) for entry in items(part["tool_calls"])]}
        return changed

    return OnJson(in_choices(choice))


def _finish(old: str, new: str) -> OnJson:
    def change(choice: JsonObject) -> JsonObject:
        return {**choice, "finish_reason": new} if choice.get("finish_reason") == old else choice

    return OnJson(in_choices(change))


def _more_reasoning_than_output(usage: JsonObject) -> JsonObject:
    count = (number(usage.get("total_tokens")) or 0) + 1
    return {**usage, "completion_tokens_details": {"reasoning_tokens": count}}


def _client_errors_as_500(reply: Reply) -> Reply:
    is_client_error = HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return replace(reply, status=HTTPStatus.INTERNAL_SERVER_ERROR) if is_client_error else reply


def _error_without_message(reply: Reply) -> Reply:
    reason: JsonObject = {"type": "value_error", "loc": ["body"]}
    return replace(reply, body={"detail": [reason]}) if reply.body.get("error") is not None else reply


DEFECTS = (
    Defect(
        id="usage-all-zero",
        catalogue=("V26",),
        summary="Every count in `usage` is 0.",
        change=_in_usage(all_zero),
    ),
    Defect(
        id="reasoning-tokens-too-many",
        catalogue=("V27",),
        summary="`reasoning_tokens` is larger than `completion_tokens`.",
        change=_in_usage(_more_reasoning_than_output),
    ),
    Defect(
        id="reasoning-tokens-zero",
        catalogue=("V27", "P10"),
        summary="`reasoning_tokens` is 0 although there is reasoning.",
        change=_in_usage(lambda usage: {**usage, "completion_tokens_details": {"reasoning_tokens": 0}}),
    ),
    Defect(
        id="total-without-prompt",
        summary="`total_tokens` does not include the prompt.",
        change=_in_usage(lambda usage: {**usage, "total_tokens": usage["completion_tokens"]}),
    ),
    Defect(
        id="tool-name-underscored",
        catalogue=("O18",),
        summary="Characters of a tool's name are replaced by `_` and not restored in the response.",
        change=_in_names(lambda name: name.replace("-", "_").replace(".", "_")),
    ),
    Defect(
        id="tool-name-with-namespace",
        summary="The recipient is returned unparsed: the called function is named `functions.NAME`.",
        change=_in_names(lambda name: f"functions.{name}"),
    ),
    Defect(
        id="finish-stop-with-calls",
        summary="The finish reason is `stop` although calls are returned.",
        change=_finish("tool_calls", "stop"),
    ),
    Defect(
        id="finish-tool-calls-without-calls",
        summary="The finish reason is `tool_calls` although the message has no calls.",
        change=_finish("stop", "tool_calls"),
    ),
    Defect(
        id="finish-stop-when-cut",
        summary="The finish reason is `stop` although the token limit cut the answer.",
        change=_finish("length", "stop"),
    ),
    Defect(
        id="errors-with-status-200",
        catalogue=("V21",),
        summary="Errors are answered with HTTP 200.",
        change=OnReply(lambda reply: replace(reply, status=HTTPStatus.OK)),
    ),
    Defect(
        id="refusals-as-500",
        summary="An unknown model, malformed JSON and other errors of a request are answered with a 500.",
        change=OnReply(_client_errors_as_500),
    ),
    Defect(
        id="error-body-without-error",
        summary="The body of an error has no `error`, only a list `detail` without a message.",
        change=OnReply(_error_without_message),
    ),
)
