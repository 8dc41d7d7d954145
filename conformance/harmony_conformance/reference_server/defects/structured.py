"""Defects of structured output: unscripted answers and calls that have to follow a schema."""

from collections.abc import Callable
from dataclasses import replace

from harmony_conformance.json_value import JsonObject, at, dumps, items
from harmony_conformance.reference_server.defects.body_changes import without
from harmony_conformance.reference_server.defects.stages import Defect, OnRequest, OnWords
from harmony_conformance.reference_server.model.generation import Words
from harmony_conformance.reference_server.requests.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_conformance.reference_server.requests.fields import AnswerForm
from harmony_ref import tokens


def _where(applies: Callable[[ChatRequest], bool], change: Callable[[Words], Words]) -> OnWords:
    return OnWords(lambda request, words: change(words) if applies(request) else words)


def _wants_json(request: ChatRequest) -> bool:
    return request.form is not AnswerForm.TEXT and request.demanded is None


def _wants_schema(request: ChatRequest) -> bool:
    return request.form is AnswerForm.JSON_SCHEMA and request.demanded is None


def _streams_json(request: ChatRequest) -> bool:
    return _wants_json(request) and request.streamed


def _answers_again(request: ChatRequest) -> bool:
    return _wants_json(request) and any(message.role == "assistant" for message in request.messages)


def _has_pattern(request: ChatRequest) -> bool:
    return _wants_json(request) and '"pattern":' in dumps(request.schema)


def _prose(words: Words) -> Words:
    return replace(words, content="Teal is a fine colour.")


def _other_json(words: Words) -> Words:
    return replace(words, content='{"colour":"teal"}')


def _nothing(words: Words) -> Words:
    return replace(words, before=(), content="")


def _requires_call(request: ChatRequest) -> bool:
    return request.demanded is not None


def _call_as_content(words: Words) -> Words:
    """Write the call into a final message, as gpt-oss does if no grammar forces the call."""
    before = tokens.encode_with_special_tokens("<|channel|>final<|message|>")
    content = '{"name":"paint","arguments":' + words.content + "}"
    return replace(words, before=tuple(before), content=content, end=tokens.RETURN)


def _without_bad_schema(body: JsonObject) -> JsonObject:
    try:
        read_request({**body, "stream": False, "stream_options": None})
    except ApiError as problem:
        is_about_format = (problem.param or "").startswith("response_format")
        return without("response_format")(body) if is_about_format else body
    return body


def _strict_streams_fail(body: JsonObject) -> JsonObject:
    is_strict = any(at(tool, "function", "strict") is True for tool in items(body.get("tools")))
    if is_strict and body.get("stream") is True:
        raise server_failure("NotImplementedError: structure_info not used with HarmonyParser")
    return body


DEFECTS = (
    Defect(
        id="strict-arguments-unbound",
        catalogue=("V23",),
        summary="The arguments of a call do not follow the schema of its strict function.",
        change=_where(_requires_call, _other_json),
    ),
    Defect(
        id="demanded-call-as-content",
        catalogue=("P04",),
        summary="A call that `tool_choice` requires is returned as JSON in the content.",
        change=_where(_requires_call, _call_as_content),
    ),
    Defect(
        id="response-format-ignored",
        catalogue=("L06", "M15"),
        summary="`response_format` is ignored: the answer is prose.",
        change=_where(_wants_json, _prose),
    ),
    Defect(
        id="schema-not-enforced",
        catalogue=("V23",),
        summary="The answer is JSON but does not follow its schema.",
        change=_where(_wants_schema, _other_json),
    ),
    Defect(
        id="schema-not-enforced-in-streams",
        catalogue=("O08",),
        summary="In a stream the grammar is not enforced: the JSON is wrapped in a Markdown fence.",
        change=_where(_streams_json, lambda words: replace(words, content=f"```json\n{words.content}\n```")),
    ),
    Defect(
        id="uncompiled-schema-ignored",
        catalogue=("L07",),
        summary="A schema with a `pattern` cannot be compiled to a grammar and is ignored without an error.",
        change=_where(_has_pattern, _prose),
    ),
    Defect(
        id="grammar-from-first-token",
        catalogue=("T05",),
        summary="The grammar applies from the first token: no header, no reasoning, only JSON.",
        change=_where(_wants_json, lambda words: replace(words, before=())),
    ),
    Defect(
        id="structured-answer-empty",
        catalogue=("O07",),
        summary="The grammar does not allow a header, so the answer is empty.",
        change=_where(_wants_json, _nothing),
    ),
    Defect(
        id="second-structured-answer-empty",
        catalogue=("V22",),
        summary="If the history has an answer, the grammar applies from the first token, and the new answer is empty.",
        change=_where(_answers_again, _nothing),
    ),
    Defect(
        id="bad-schema-accepted",
        summary="A `response_format` with an invalid JSON schema is accepted and ignored.",
        change=OnRequest(_without_bad_schema),
    ),
    Defect(
        id="strict-tool-stream-500",
        catalogue=("S07",),
        summary="A stream with a strict tool fails with a 500.",
        change=OnRequest(_strict_streams_fail),
    ),
)
