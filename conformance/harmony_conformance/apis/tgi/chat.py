"""TGI's Messages API: Chat Completions with finish reasons, grammars and chunks of its own (Text Generation Inference 3.3.7, router/src)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import Api, UnsupportedByApiError
from harmony_conformance.apis.request_fields import failure, refuse_others, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

_NEUTRAL: Mapping[str, tuple[Json, ...]] = MappingProxyType(
    {
        "n": (None, 1),
        "parallel_tool_calls": (None, True),
        "logit_bias": (None, {}),
        "logprobs": (None, False),
        "top_logprobs": (None,),
        "ignore_eos": (None, False),
        "skip_special_tokens": (None, True),
        "reasoning_format": (None,),
        "chat_template_kwargs": (None, {}),
        "functions": (None,),
        "function_call": (None,),
    }
)
"""Members that the API does not have, or does not read, with the values that ask for nothing."""

_ENDINGS: Mapping[Json, str] = MappingProxyType({"eos_token": "stop", "stop_sequence": "stop"})
"""Finish reasons by the words of Chat Completions."""

_ANY_OBJECT: JsonObject = {"type": "object"}


def _spell(request: JsonObject) -> JsonObject:
    refuse_others(request, _NEUTRAL)
    if items(request.get("tools")) and at(request, "response_format", "type") not in (None, "text"):
        raise UnsupportedByApiError("grammar beside tools")
    if at(request, "tool_choice", "type") == "allowed_tools":
        raise UnsupportedByApiError("`tool_choice` of several functions")
    stop = request.get("stop")
    return {
        **without(request, {*_NEUTRAL, "response_format"}),
        **({"stop": [stop]} if isinstance(stop, str) else {}),
        **_grammar(request.get("response_format")),
    }


def _grammar(form: Json) -> JsonObject:
    match at(form, "type"):
        case None | "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object", "value": _ANY_OBJECT}}
        case "json_schema":
            described = members(at(form, "json_schema"))
            value: JsonObject = {name: described[name] for name in ("name", "schema") if name in described}
            return {"response_format": {"type": "json_schema", "value": value}}
        case _:
            raise UnsupportedByApiError("`response_format` of this type")


def _asked(request: Json) -> Json:
    if not isinstance(request, dict):
        return request
    return {**without(request, {"response_format"}), **_form(request.get("response_format"))}


def _form(grammar: Json) -> JsonObject:
    """The `response_format` that a grammar is; a grammar binds every token, so that its schema is strict."""
    value = at(grammar, "value")
    if not isinstance(value, dict) or at(grammar, "type") not in ("json", "json_object", "json_schema"):
        return {}
    described: JsonObject = value if "schema" in value else {"schema": value}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", **described, "strict": True}}}


def _whole(body: Json) -> Json:
    if not items(at(body, "choices")):
        return failure(body)
    choices: list[Json] = [
        _ended(choice, called=bool(items(at(choice, "message", "tool_calls")))) for choice in items(at(body, "choices"))
    ]
    return {**members(body), "choices": choices}


def _ended(choice: Json, *, called: bool) -> Json:
    """A choice with its finish reason in the words of Chat Completions; the API has none for calls."""
    if not isinstance(choice, dict):
        return choice
    said = choice.get("finish_reason")
    reason = _ENDINGS.get(said, said) if isinstance(said, str) else said
    return {**choice, "finish_reason": "tool_calls" if called and reason == "stop" else reason}


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    role: Json = None
    called = False
    for value in values:
        if not items(at(value, "choices")):
            yield failure(value)
            continue
        choices: list[Json] = []
        for choice in items(at(value, "choices")):
            called = called or bool(items(at(choice, "delta", "tool_calls")))
            choices.append(_said_once(_ended(choice, called=called), role))
            role = at(choice, "delta", "role") or role
        yield {**members(value), "choices": choices}


def _said_once(choice: Json, role: Json) -> Json:
    """A choice whose delta tells the role only where it is a new one: the API repeats it."""
    delta = at(choice, "delta")
    if not isinstance(delta, dict) or delta.get("role") != role or not text(role):
        return choice
    return {**members(choice), "delta": without(delta, {"role"})}


TGI = Api(
    name="tgi",
    title="TGI's Messages API",
    path="/tgi/v1/chat/completions",
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="choices: […]",
    counts_reasoning=False,
)
