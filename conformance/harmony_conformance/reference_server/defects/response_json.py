"""Defects in the JSON of responses, with or without streaming, and in their HTTP status."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from harmony_conformance.json_value import JsonObject, integer, members, text
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    all_zero,
    in_answer,
    in_choices,
    in_list,
    in_member,
)
from harmony_conformance.reference_server.defects.stages import Defect, OnJson, OnReply
from harmony_conformance.reference_server.requests.errors import Reply


def _in_usage(change: BodyChange) -> OnJson:
    return OnJson(lambda body: {**body, "usage": change(members(body["usage"]))} if "usage" in body else body)


def _in_names(change: Callable[[str], str]) -> OnJson:
    """Change the name of each called function."""

    def changed(function: JsonObject) -> JsonObject:
        return {**function, "name": change(text(function["name"]))} if "name" in function else function

    return OnJson(in_choices(in_answer(in_list("tool_calls", in_member("function", changed)))))


def _finish(old: str, new: str) -> OnJson:
    return OnJson(
        in_choices(lambda choice: {**choice, "finish_reason": new} if choice.get("finish_reason") == old else choice)
    )


def _more_reasoning_than_output(usage: JsonObject) -> JsonObject:
    return {**usage, "completion_tokens_details": {"reasoning_tokens": (integer(usage.get("total_tokens")) or 0) + 1}}


def _client_errors_as_500(reply: Reply) -> Reply:
    is_client_error = HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return replace(reply, status=HTTPStatus.INTERNAL_SERVER_ERROR) if is_client_error else reply


def _error_without_message(reply: Reply) -> Reply:
    reason: JsonObject = {"type": "value_error", "loc": ["body"]}
    return replace(reply, body={"detail": [reason]}) if reply.body.get("error") is not None else reply


DEFECTS = (
    Defect("usage-all-zero", "Every count in `usage` is 0.", _in_usage(all_zero), ("V26",)),
    Defect(
        "reasoning-tokens-too-many",
        "`reasoning_tokens` is larger than `completion_tokens`.",
        _in_usage(_more_reasoning_than_output),
        ("V27",),
    ),
    Defect(
        "reasoning-tokens-zero",
        "`reasoning_tokens` is 0 although there is reasoning.",
        _in_usage(lambda usage: {**usage, "completion_tokens_details": {"reasoning_tokens": 0}}),
        ("V27", "P10"),
    ),
    Defect(
        "total-without-prompt",
        "`total_tokens` does not include the prompt.",
        _in_usage(lambda usage: {**usage, "total_tokens": usage["completion_tokens"]}),
    ),
    Defect(
        "tool-name-underscored",
        "Characters of a tool's name are replaced by `_` and not restored in the response.",
        _in_names(lambda name: name.replace("-", "_").replace(".", "_")),
        ("O18",),
    ),
    Defect(
        "tool-name-with-namespace",
        "The recipient is returned unparsed: the called function is named `functions.NAME`.",
        _in_names(lambda name: f"functions.{name}"),
    ),
    Defect(
        "finish-stop-with-calls",
        "The finish reason is `stop` although calls are returned.",
        _finish("tool_calls", "stop"),
    ),
    Defect(
        "finish-tool-calls-without-calls",
        "The finish reason is `tool_calls` although the message has no calls.",
        _finish("stop", "tool_calls"),
    ),
    Defect(
        "finish-stop-when-cut",
        "The finish reason is `stop` although the token limit cut the answer.",
        _finish("length", "stop"),
    ),
    Defect(
        "errors-with-status-200",
        "Errors are answered with HTTP 200.",
        OnReply(lambda reply: replace(reply, status=HTTPStatus.OK)),
        ("V21",),
    ),
    Defect(
        "refusals-as-500",
        "An unknown model, malformed JSON and other errors of a request are answered with a 500.",
        OnReply(_client_errors_as_500),
    ),
    Defect(
        "error-body-without-error",
        "The body of an error has no `error`, only a list `detail` without a message.",
        OnReply(_error_without_message),
    ),
)
