"""Defects of the answer's JSON, in one piece or in chunks alike, and of its HTTP status."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, items, members, number, text
from harmony_conformance.reference_server.defects.stages import Defect, OnJson, OnReply
from harmony_conformance.reference_server.requests.errors import Reply


def _in_usage(change: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject], JsonObject]:
    return lambda body: {**body, "usage": change(members(body["usage"]))} if "usage" in body else body


def _in_choices(change: Callable[[JsonObject], JsonObject]) -> Callable[[JsonObject], JsonObject]:
    def changed(body: JsonObject) -> JsonObject:
        return {**body, "choices": [change(members(choice)) for choice in items(body.get("choices"))]}

    return changed


def _in_names(change: Callable[[str], str]) -> Callable[[JsonObject], JsonObject]:
    """Answers with the name of each called function changed."""

    def call(value: Json) -> Json:
        function = members(members(value).get("function"))
        if "name" not in function:
            return value
        return {**members(value), "function": {**function, "name": change(text(function["name"]))}}

    def choice(value: JsonObject) -> JsonObject:
        changed = dict(value)
        for part in ("message", "delta"):
            held = members(value.get(part))
            if held.get("tool_calls"):
                changed[part] = {**held, "tool_calls": [call(entry) for entry in items(held["tool_calls"])]}
        return changed

    return _in_choices(choice)


def _finish(old: str, new: str) -> Callable[[JsonObject], JsonObject]:
    return _in_choices(
        lambda choice: {**choice, "finish_reason": new} if choice.get("finish_reason") == old else choice
    )


def _all_zero(usage: JsonObject) -> JsonObject:
    return {name: 0 if number(value) is not None else value for name, value in usage.items()}


def _more_reasoning_than_output(usage: JsonObject) -> JsonObject:
    beyond = (number(usage.get("total_tokens")) or 0) + 1
    return {**usage, "completion_tokens_details": {"reasoning_tokens": beyond}}


def _no_reasoning_counted(usage: JsonObject) -> JsonObject:
    return {**usage, "completion_tokens_details": {"reasoning_tokens": 0}}


def _wrong_total(usage: JsonObject) -> JsonObject:
    return {**usage, "total_tokens": usage["completion_tokens"]}


def _underscored(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _with_namespace(name: str) -> str:
    return f"functions.{name}"


def _errors_with_status_200(reply: Reply) -> Reply:
    return replace(reply, status=HTTPStatus.OK)


def _refusals_as_500(reply: Reply) -> Reply:
    refused = HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return replace(reply, status=HTTPStatus.INTERNAL_SERVER_ERROR) if refused else reply


def _error_without_words(reply: Reply) -> Reply:
    reason: JsonObject = {"type": "value_error", "loc": ["body"]}
    return replace(reply, body={"detail": [reason]}) if reply.body.get("error") is not None else reply


DEFECTS = (
    Defect(
        id="usage-all-zero",
        catalogue=("V26",),
        summary="Every count in `usage` is 0.",
        change=OnJson(_in_usage(_all_zero)),
    ),
    Defect(
        id="reasoning-tokens-too-many",
        catalogue=("V27",),
        summary="`reasoning_tokens` is larger than `completion_tokens`.",
        change=OnJson(_in_usage(_more_reasoning_than_output)),
    ),
    Defect(
        id="reasoning-tokens-zero",
        catalogue=("V27", "P10"),
        summary="`reasoning_tokens` is 0 although there is reasoning.",
        change=OnJson(_in_usage(_no_reasoning_counted)),
    ),
    Defect(
        id="total-without-prompt",
        catalogue=(),
        summary="`total_tokens` leaves the prompt out.",
        change=OnJson(_in_usage(_wrong_total)),
    ),
    Defect(
        id="tool-name-underscored",
        catalogue=("O18",),
        summary="Characters of a tool's name are replaced by `_` and not put back in the answer.",
        change=OnJson(_in_names(_underscored)),
    ),
    Defect(
        id="tool-name-with-namespace",
        catalogue=(),
        summary="The recipient is passed on unread: the called function is named `functions.NAME`.",
        change=OnJson(_in_names(_with_namespace)),
    ),
    Defect(
        id="finish-stop-with-calls",
        catalogue=(),
        summary="The finish reason is `stop` although calls are returned.",
        change=OnJson(_finish("tool_calls", "stop")),
    ),
    Defect(
        id="finish-tool-calls-without-calls",
        catalogue=(),
        summary="The finish reason is `tool_calls` although there are none.",
        change=OnJson(_finish("stop", "tool_calls")),
    ),
    Defect(
        id="finish-stop-when-cut",
        catalogue=(),
        summary="The finish reason is `stop` although the limit of tokens cut the answer.",
        change=OnJson(_finish("length", "stop")),
    ),
    Defect(
        id="errors-with-status-200",
        catalogue=("V21",),
        summary="Errors are answered with HTTP 200.",
        change=OnReply(_errors_with_status_200),
    ),
    Defect(
        id="refusals-as-500",
        catalogue=(),
        summary="An unknown model, malformed JSON and other faults of a request are answered with a 500.",
        change=OnReply(_refusals_as_500),
    ),
    Defect(
        id="error-body-without-error",
        catalogue=(),
        summary="An error's body has a list of `detail` in which no word says what is wrong, and no `error`.",
        change=OnReply(_error_without_words),
    ),
)
