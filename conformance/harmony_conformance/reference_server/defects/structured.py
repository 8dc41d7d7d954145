"""Defects of sampling under a grammar: what the model says when an answer or a call has to follow a schema."""

from collections.abc import Callable
from dataclasses import replace

from harmony_conformance.json_value import JsonObject, dumps, items, members
from harmony_conformance.reference_server.defects.stages import Defect, OnRequest, OnWords
from harmony_conformance.reference_server.model.generation import Words
from harmony_conformance.reference_server.requests.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_conformance.reference_server.requests.fields import AnswerForm
from harmony_ref import tokens

_Change = Callable[[ChatRequest, Words], Words]


def _where(applies: Callable[[ChatRequest], bool], change: Callable[[Words], Words]) -> _Change:
    return lambda request, words: change(words) if applies(request) else words


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


def _fenced(words: Words) -> Words:
    return replace(words, content=f"```json\n{words.content}\n```")


def _bare(words: Words) -> Words:
    return replace(words, before=())


def _nothing(words: Words) -> Words:
    return replace(words, before=(), content="")


def _is_demanded(request: ChatRequest) -> bool:
    return request.demanded is not None


def _invented_arguments(words: Words) -> Words:
    return replace(words, content='{"colour":"teal"}')


def _as_content(words: Words) -> Words:
    """A call as gpt-oss writes it when it takes the demand for a question."""
    before = tokens.encode_with_special_tokens("<|channel|>final<|message|>")
    content = '{"name":"paint","arguments":' + words.content + "}"
    return replace(words, before=tuple(before), content=content, end=tokens.RETURN)


def _without_bad_schema(body: JsonObject) -> JsonObject:
    try:
        read_request({**body, "stream": False, "stream_options": None})
    except ApiError as problem:
        about = (problem.param or "").startswith("response_format")
        return {name: value for name, value in body.items() if name != "response_format"} if about else body
    return body


def _strict_streams_fail(body: JsonObject) -> JsonObject:
    strict = any(members(members(tool).get("function")).get("strict") is True for tool in items(body.get("tools")))
    if strict and body.get("stream") is True:
        raise server_failure("NotImplementedError: structure_info not used with HarmonyParser")
    return body


DEFECTS = (
    Defect(
        id="strict-arguments-unbound",
        catalogue=("V23",),
        summary="A strict function's schema does not bind the arguments of its calls.",
        change=OnWords(_where(_is_demanded, _invented_arguments)),
    ),
    Defect(
        id="demanded-call-as-content",
        catalogue=("P04",),
        summary="A call that the request demands is written as JSON into the content.",
        change=OnWords(_where(_is_demanded, _as_content)),
    ),
    Defect(
        id="response-format-ignored",
        catalogue=("L06", "M15"),
        summary="`response_format` does not bind the answer, which is prose.",
        change=OnWords(_where(_wants_json, _prose)),
    ),
    Defect(
        id="schema-not-enforced",
        catalogue=("V23",),
        summary="The answer is JSON, and not what its schema describes.",
        change=OnWords(_where(_wants_schema, _other_json)),
    ),
    Defect(
        id="schema-not-enforced-in-streams",
        catalogue=("O08",),
        summary="In a stream the answer is not bound: its JSON stands in a Markdown fence.",
        change=OnWords(_where(_streams_json, _fenced)),
    ),
    Defect(
        id="uncompiled-schema-ignored",
        catalogue=("L07",),
        summary="A schema that no grammar can be made of, for it has a pattern, is ignored without a word.",
        change=OnWords(_where(_has_pattern, _prose)),
    ),
    Defect(
        id="grammar-from-first-token",
        catalogue=("T05",),
        summary="The grammar holds from the first token on: no header, no reasoning, only JSON.",
        change=OnWords(_where(_wants_json, _bare)),
    ),
    Defect(
        id="structured-answer-empty",
        catalogue=("O07",),
        summary="A grammar that leaves no room for a header ends the answer before it began.",
        change=OnWords(_where(_wants_json, _nothing)),
    ),
    Defect(
        id="second-structured-answer-empty",
        catalogue=("V22",),
        summary="After an earlier answer in the history the grammar holds from the first token on, and the answer is empty.",
        change=OnWords(_where(_answers_again, _nothing)),
    ),
    Defect(
        id="bad-schema-accepted",
        catalogue=(),
        summary="A `response_format` that is no JSON schema is accepted, and the answer bound to nothing.",
        change=OnRequest(_without_bad_schema),
    ),
    Defect(
        id="strict-tool-stream-500",
        catalogue=("S07",),
        summary="A stream with a strict tool fails with a 500.",
        change=OnRequest(_strict_streams_fail),
    ),
)
