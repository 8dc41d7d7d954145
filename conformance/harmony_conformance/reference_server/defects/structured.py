"""Defects of structured output: unscripted answers and calls that have to follow a schema."""

from collections.abc import Callable
from dataclasses import replace

from harmony_conformance.json_value import JsonObject, dumps, items, value_at
from harmony_conformance.reference_server.defects.changes.body import drop_members
from harmony_conformance.reference_server.defects.stages import Defect, OnRequest, OnUnscriptedOutput
from harmony_conformance.reference_server.model.generation import UnscriptedOutput
from harmony_conformance.reference_server.requests.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_conformance.reference_server.requests.fields import AnswerForm
from harmony_ref import tokens


def _where(
    applies: Callable[[ChatRequest], bool], change: Callable[[UnscriptedOutput], UnscriptedOutput]
) -> OnUnscriptedOutput:
    return OnUnscriptedOutput(lambda request, words: change(words) if applies(request) else words)


def _wants_json(request: ChatRequest) -> bool:
    return request.form is not AnswerForm.TEXT and request.required_tool is None


def _streams_json(request: ChatRequest) -> bool:
    return _wants_json(request) and request.is_streamed


def _answers_again(request: ChatRequest) -> bool:
    return _wants_json(request) and any(message.role == "assistant" for message in request.messages)


def _prose(words: UnscriptedOutput) -> UnscriptedOutput:
    return replace(words, content="Teal is a fine colour.")


def _other_json(words: UnscriptedOutput) -> UnscriptedOutput:
    return replace(words, content='{"colour":"teal"}')


def _nothing(words: UnscriptedOutput) -> UnscriptedOutput:
    return replace(words, prefix_tokens=(), content="")


def _requires_call(request: ChatRequest) -> bool:
    return request.required_tool is not None


def _call_as_content(words: UnscriptedOutput) -> UnscriptedOutput:
    """Write the call into a final message, as gpt-oss does if no grammar forces the call."""
    before = tokens.encode_with_special_tokens("<|channel|>final<|message|>")
    content = '{"name":"paint","arguments":' + words.content + "}"
    return replace(words, prefix_tokens=tuple(before), content=content, end=tokens.RETURN)


def _without_bad_schema(body: JsonObject) -> JsonObject:
    try:
        read_request({**body, "stream": False, "stream_options": None})
    except ApiError as problem:
        is_about_format = (problem.param or "").startswith("response_format")
        return drop_members("response_format")(body) if is_about_format else body
    return body


def _strict_streams_fail(body: JsonObject) -> JsonObject:
    is_strict = any(value_at(tool, "function", "strict") is True for tool in items(body.get("tools")))
    if is_strict and body.get("stream") is True:
        raise server_failure("NotImplementedError: structure_info not used with HarmonyParser")
    return body


DEFECTS = (
    Defect(
        "strict-arguments-unbound",
        "The arguments of a call do not follow the schema of its strict function.",
        _where(_requires_call, _other_json),
        ("V23",),
    ),
    Defect(
        "demanded-call-as-content",
        "A call that `tool_choice` requires is returned as JSON in the content.",
        _where(_requires_call, _call_as_content),
        ("P04",),
    ),
    Defect(
        "response-format-ignored",
        "`response_format` is ignored: the answer is prose.",
        _where(_wants_json, _prose),
        ("L06", "M15"),
    ),
    Defect(
        "schema-not-enforced",
        "The answer is JSON but does not follow its schema.",
        _where(lambda request: request.form is AnswerForm.JSON_SCHEMA and request.required_tool is None, _other_json),
        ("V23",),
    ),
    Defect(
        "schema-not-enforced-in-streams",
        "In a stream the grammar is not enforced: the JSON is wrapped in a Markdown fence.",
        _where(_streams_json, lambda words: replace(words, content=f"```json\n{words.content}\n```")),
        ("O08",),
    ),
    Defect(
        "uncompiled-schema-ignored",
        "A schema with a `pattern` cannot be compiled to a grammar and is ignored without an error.",
        _where(lambda request: _wants_json(request) and '"pattern":' in dumps(request.schema), _prose),
        ("L07",),
    ),
    Defect(
        "grammar-from-first-token",
        "The grammar applies from the first token: no header, no reasoning, only JSON.",
        _where(_wants_json, lambda words: replace(words, prefix_tokens=())),
        ("T05",),
    ),
    Defect(
        "structured-answer-empty",
        "The grammar does not allow a header, so the answer is empty.",
        _where(_wants_json, _nothing),
        ("O07",),
    ),
    Defect(
        "second-structured-answer-empty",
        "If the history has an answer, the grammar applies from the first token, and the new answer is empty.",
        _where(_answers_again, _nothing),
        ("V22",),
    ),
    Defect(
        "bad-schema-accepted",
        "A `response_format` with an invalid JSON schema is accepted and ignored.",
        OnRequest(_without_bad_schema),
    ),
    Defect(
        "strict-tool-stream-500",
        "A stream with a strict tool fails with a 500.",
        OnRequest(_strict_streams_fail),
        ("S07",),
    ),
)
