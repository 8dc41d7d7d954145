"""TGI's Messages API: Chat Completions with other finish reasons, grammars and chunks (Text Generation Inference 3.3.7, router/src)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from harmony_conformance.apis.adapter_helpers import neutral_values, omit_members, reject_unsupported, translate_error
from harmony_conformance.apis.api import Api, UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

_NEUTRAL = neutral_values(
    *("n", "parallel_tool_calls", "logit_bias", "logprobs", "top_logprobs", "ignore_eos", "skip_special_tokens"),
    *("reasoning_format", "chat_template_kwargs", "functions", "function_call"),
)
"""Members that the API lacks or ignores, and log probabilities, which are not judged here, with the values without effect."""

_FINISH_REASONS: Mapping[Json, str] = {"eos_token": "stop", "stop_sequence": "stop"}
"""TGI's finish reasons with those of Chat Completions."""

_GRAMMARS = ("json", "json_object", "json_schema")


def _write_request(request: JsonObject) -> JsonObject:
    reject_unsupported(request, _NEUTRAL)
    if items(request.get("tools")) and value_at(request, "response_format", "type") not in (None, "text"):
        raise UnsupportedByApiError("grammar next to tools")
    if value_at(request, "tool_choice", "type") == "allowed_tools":
        raise UnsupportedByApiError("`tool_choice` of several functions")
    if any(value_at(tool, "function", "parameters") is None for tool in items(request.get("tools"))):
        raise UnsupportedByApiError("functions without `parameters`")
    stop = request.get("stop")
    return {
        **omit_members(request, {*_NEUTRAL, "response_format"}),
        **({"stop": [stop]} if isinstance(stop, str) else {}),
        **_grammar(request.get("response_format")),
    }


def _grammar(form: Json) -> JsonObject:
    match value_at(form, "type"):
        case None | "text":
            return {}
        case "json_schema" if value_at(form, "json_schema", "schema", "properties") is None:
            raise UnsupportedByApiError("schema without `properties`")
        case "json_schema":
            described = members(value_at(form, "json_schema"))
            value: JsonObject = {name: described[name] for name in ("name", "schema") if name in described}
            return {"response_format": {"type": "json_schema", "value": value}}
        case _:
            raise UnsupportedByApiError("`response_format` of this type: every grammar has a schema")


def _read_request(request: Json) -> Json:
    """Read a request. The schema of a grammar is strict, since a grammar constrains every token."""
    if not isinstance(request, dict):
        return request
    others, value = omit_members(request, {"response_format"}), value_at(request, "response_format", "value")
    if not isinstance(value, dict) or value_at(request, "response_format", "type") not in _GRAMMARS:
        return others
    schema: JsonObject = {"name": "answer", **(value if "schema" in value else {"schema": value}), "strict": True}
    return {**others, "response_format": {"type": "json_schema", "json_schema": schema}}


def _read_response(body: Json) -> Json:
    if not items(value_at(body, "choices")):
        return translate_error(body)
    choices: list[Json] = [
        _translate_finish(choice, has_calls=bool(items(value_at(choice, "message", "tool_calls"))))
        for choice in items(value_at(body, "choices"))
    ]
    return {**members(body), "choices": choices}


def _translate_finish(choice: Json, *, has_calls: bool) -> Json:
    """Return the choice with a finish reason of Chat Completions. TGI has none for calls."""
    if not isinstance(choice, dict):
        return choice
    reason = choice.get("finish_reason")
    reason = _FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else reason
    return {**choice, "finish_reason": "tool_calls" if has_calls and reason == "stop" else reason}


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    role: Json = None
    has_calls = False
    for value in values:
        if not items(value_at(value, "choices")):
            yield translate_error(value)
            continue
        choices: list[Json] = []
        for choice in items(value_at(value, "choices")):
            has_calls = has_calls or bool(items(value_at(choice, "delta", "tool_calls")))
            choices.append(_without_repeated_role(_translate_finish(choice, has_calls=has_calls), role))
            role = value_at(choice, "delta", "role") or role
        yield {**members(value), "choices": choices}


def _without_repeated_role(choice: Json, role: Json) -> Json:
    """Remove the delta's role if it equals the previous one: TGI sends it in every chunk."""
    delta = value_at(choice, "delta")
    if not isinstance(delta, dict) or delta.get("role") != role or not text(role):
        return choice
    return {**members(choice), "delta": omit_members(delta, {"role"})}


TGI = Api(
    name="tgi",
    title="TGI's Messages API",
    path="/tgi/v1/chat/completions",
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="choices: […]",
    counts_reasoning=False,
)
