"""Requests of steps for one endpoint: converted to the API, with script, limit and the members that request token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.profiles import LoadMetric, PromptEcho, ScriptMethod
from harmony_conformance.engines.scripting import Scripting, with_default_script, with_forced_prefix, with_script
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES, Validity
from harmony_conformance.golden.scenario import UNSCRIPTED_LIMIT, Step
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, resolve, text, value_at
from harmony_conformance.transport.messages import Request

_SPARE = 16  # tokens allowed beyond a script, so that the limit is not what ends it
_CONTINUATION = 64  # tokens for the model's text after a prefix; random weights may never end it
_INVALID_LIMIT = 16  # the output for an invalid request is not judged


@dataclass(frozen=True, kw_only=True)
class RequestProfile:
    """Properties of the requests to one API of an endpoint.

    Attributes:
        reasoning_field: The endpoint's name of the message member that scenarios call `reasoning`.
        ids_field: Request member that makes the response show token ids, None if unsupported.
        ids_in_streams: True if `ids_field` works for streams as well.
        prompt_echo: Request members that make the response repeat the prompt, None if unsupported.
        load_metric: Metric of running requests, None if unknown.
    """

    model: str
    script_method: ScriptMethod = ScriptMethod.NONE
    endpoint_scripting: Scripting = field(default_factory=Scripting)
    reasoning_field: str = "reasoning"
    ids_field: str | None = None
    ids_in_streams: bool = True
    prompt_echo: PromptEcho | None = None
    extra_body: JsonObject
    seed: int | None = None
    load_metric: LoadMetric | None = None
    api: Api = CHAT_COMPLETIONS
    path: str = CHAT_PATH

    @property
    def scripting(self) -> Scripting:
        """Script method with its calibration."""
        return replace(self.endpoint_scripting, method=self.script_method)

    @property
    def unscripted(self) -> RequestProfile:
        """Profile for requests without a script."""
        return replace(self, script_method=ScriptMethod.NONE)


class StepSkippedError(Exception):
    """A step that cannot be sent: an earlier response lacks a value, or the server lacks a capability."""


def build_request(step: Step, profile: RequestProfile, answers: Mapping[str, Json]) -> Request:
    """Return the request of an expanded step. `answers`: earlier responses by step.

    Raises:
        StepSkippedError: An earlier response lacks a value, or the server has no load metric or no choice of chunks.
        ScriptUnsupportedError: The request has no place for the script.
        UnsupportedByApiError: The API has no equivalent of a member.
    """
    if step.stream_chunk_size is not None and not profile.script_method.capabilities.can_choose_event_size:
        raise StepSkippedError("the server does not support a number of tokens per event")
    if step.wait_until_idle is not None:
        if profile.load_metric is None:
            raise StepSkippedError("no metric of running requests is known for this engine")
        return Request(path=profile.load_metric.path, method="GET", body=b"")
    if step.raw_body is not None:
        exact = _raw_text(_fill(step.raw_body, answers)).replace("{model}", profile.model)
        return _request(step, profile, exact.encode("utf-8", "surrogateescape"), answers)
    if step.method != "POST":
        return _request(step, profile, b"", answers)
    filled = members(_fill(step.request, answers))
    body = _native(step, profile, filled) if step.is_native else profile.api.write_request(_chat(step, profile, filled))
    return _request(step, profile, dumps({**body, **profile.extra_body}).encode("utf-8", "backslashreplace"), answers)


def _native(step: Step, profile: RequestProfile, filled: JsonObject) -> JsonObject:
    """Return a request written for its API, with model, script and token ids."""
    body: JsonObject = {"model": profile.model, "stream": step.is_streamed, **filled}
    if profile.ids_field is not None and step.requests_token_ids and step.validity not in REFUSABLE_VALIDITIES:
        body.setdefault(profile.ids_field, True)
    return _add_script(step, profile, body)


def _chat(step: Step, profile: RequestProfile, filled: JsonObject) -> JsonObject:
    named = filled if step.keeps_reasoning_name else _with_reasoning_field(filled, profile.reasoning_field)
    body: JsonObject = {"model": profile.model, **named}
    if step.is_streamed and "stream" not in step.request:
        body["stream"] = True
        body.setdefault("stream_options", {"include_usage": True})
    if step.validity is Validity.VALID:
        body.setdefault("temperature", 0)
        if profile.seed is not None:
            body.setdefault("seed", profile.seed)
    shows_ids = (
        step.requests_token_ids
        and step.validity not in REFUSABLE_VALIDITIES
        and (profile.ids_in_streams or not step.is_streamed)
    )
    if profile.prompt_echo is not None and shows_ids:
        body = {**dict.fromkeys(profile.prompt_echo.members, True), **body}
    if profile.ids_field is not None and shows_ids:
        body.setdefault(profile.ids_field, True)
    body = _add_script(step, profile, body)
    if "max_tokens" not in body and "max_completion_tokens" not in body:
        body["max_tokens"] = default_limit(step, scripted=profile.script_method is not ScriptMethod.NONE)
    return body


def _add_script(step: Step, profile: RequestProfile, body: JsonObject) -> JsonObject:
    """Return the request with the script of the step, its pace and its chunks."""
    if profile.script_method is ScriptMethod.NONE:
        return body
    if step.forced_prefix is not None:
        return with_forced_prefix(body, step.forced_prefix, profile.scripting)
    if step.script is None:
        return with_default_script(body, profile.scripting)
    body = with_script(body, step.script, profile.scripting)
    if step.pace is not None and profile.script_method is ScriptMethod.REFERENCE:
        body["harmony_token_delay"] = step.pace
    if step.stream_chunk_size is not None and profile.script_method is ScriptMethod.REFERENCE:
        body["harmony_event_tokens"] = step.stream_chunk_size
    if step.continues_after_stop:
        body["ignore_eos"] = True
    return body


def _request(step: Step, profile: RequestProfile, body: bytes, answers: Mapping[str, Json]) -> Request:
    path = profile.path if step.path == CHAT_PATH else _fill_path(step.path, answers)
    return Request(path=path, method=step.method, headers=step.headers, body=body)


_LONGEST_SEGMENT = 1024  # characters
_DOT_SEGMENTS = frozenset({".", ".."})
"""Parts of a path that a client removes, and with `..` the part before: an id of the server would choose another path."""
_PLACEHOLDER = re.compile(r"\{([^{}#]+#[^{}]*)\}")


def _fill_path(path: str, answers: Mapping[str, Json]) -> str:
    """Return a path with each `{step#/pointer}` replaced by the text in the response to that step.

    Raises:
        StepSkippedError: An earlier response lacks the text, or has one that cannot be a part of a path.
    """

    def segment(match: re.Match[str]) -> str:
        value = _fill({"$from": match[1]}, answers)
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_SEGMENT or value in _DOT_SEGMENTS:
            raise StepSkippedError(f"the response to step {match[1].partition('#')[0]} has no id that a path can have")
        return quote(value.encode("utf-8", "replace"), safe="")

    return _PLACEHOLDER.sub(segment, path)


def _raw_text(raw: Json) -> str:
    """Return the exact text of a body: a string, or a list of strings and of `{"bytes": …}` in hexadecimal."""
    if isinstance(raw, list):
        return "".join(map(_raw_text, raw))
    return text(raw) or bytes.fromhex(text(value_at(raw, "bytes"))).decode("utf-8", "surrogateescape")


def default_limit(step: Step, *, scripted: bool) -> int:
    """Return `max_tokens` for a scenario without one."""
    if scripted and step.script is not None:
        return len(step.script) + _SPARE
    if scripted and step.forced_prefix is not None:
        return len(step.forced_prefix) + _CONTINUATION
    return _INVALID_LIMIT if step.validity in REFUSABLE_VALIDITIES else UNSCRIPTED_LIMIT


def _fill(value: Json, answers: Mapping[str, Json]) -> Json:
    if isinstance(value, list):
        pairs = ((item, _fill(item, answers)) for item in value)
        # a repeated list extends the list around it
        return [
            one for item, new in pairs for one in (items(new) if isinstance(value_at(item, "$repeat"), list) else [new])
        ]
    if not isinstance(value, dict):
        return value
    source, times = value.get("$from"), integer(value.get("times"))
    if "$repeat" in value and times is not None:
        return _repeated(value["$repeat"], times)
    if not isinstance(source, str):
        return {name: _fill(member, answers) for name, member in value.items() if not _is_missing(member, answers)}
    step, _, where = source.partition("#")
    if step not in answers:
        raise StepSkippedError(f"step {step} has no response")
    try:
        return resolve(answers[step], where)
    except LookupError as missing:
        raise StepSkippedError(f"the response to step {step} has {missing}") from None


def _is_missing(value: Json, answers: Mapping[str, Json]) -> bool:
    """Return True for an optional value of an earlier response that does not have it."""
    if value_at(value, "optional") is not True or not isinstance(value_at(value, "$from"), str):
        return False
    try:
        _fill(value, answers)
    except StepSkippedError:
        return text(value_at(value, "$from")).partition("#")[0] in answers
    return False


def _with_reasoning_field(request: JsonObject, name: str) -> JsonObject:
    """Return a request with `reasoning` of its messages renamed."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return request
    renamed: list[Json] = [
        {name if member == "reasoning" else member: value for member, value in message.items()}
        if isinstance(message, dict)
        else message
        for message in messages
    ]
    return {**request, "messages": renamed}


def _repeated(value: Json, times: int) -> Json:
    """Return a string or a list repeated `times` times, with `{n}` replaced by the number of the repetition."""
    if isinstance(value, str):
        numbered = (value.replace("{n}", str(count)) for count in range(1, times + 1))
        return "".join(numbered) if "{n}" in value else value * times
    return [_with_number(item, count) for count in range(1, times + 1) for item in items(value)]


def _with_number(value: Json, count: int) -> Json:
    match value:
        case str():
            return value.replace("{n}", str(count))
        case list():
            return [_with_number(item, count) for item in value]
        case dict():
            return {name: _with_number(member, count) for name, member in value.items()}
        case _:
            return value
