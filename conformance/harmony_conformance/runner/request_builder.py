"""A step as the request that is sent to one endpoint: in the words of its API, with its script, its limit and what shows its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.profiles import LoadMetric, PromptEcho, ScriptMethod
from harmony_conformance.engines.scripting import Scripting, with_beginning, with_script, with_some_words
from harmony_conformance.evidence.exchange import ODD, Validity
from harmony_conformance.golden.scenario import UNSCRIPTED_LIMIT, Step
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, resolve, text
from harmony_conformance.transport.messages import Request

_SPARE = 16  # tokens allowed beyond a script, so that the limit is not what ends it
_OWN_WORDS = 64  # tokens for what a model adds to the beginning of an answer; random weights may find no end
_LIMIT_OF_THE_ODD = 16  # what is said to a wrong request, should it be answered, is of no interest


@dataclass(frozen=True, kw_only=True)
class RequestProfile:
    """How requests are put to one endpoint: the model, the script's way, the field that asks for token ids, members added to each request, its gauge.

    `api` and `path`: in whose words, and where they are sent.
    `way`: what was found of the way of scripts. `reasoning_field`: how the endpoint calls the reasoning of a message, which scenarios call `reasoning`.
    """

    model: str
    script_method: ScriptMethod = ScriptMethod.NONE
    script_capabilities: Scripting = field(default_factory=Scripting)
    reasoning_field: str = "reasoning"
    ids_field: str | None = None
    ids_in_streams: bool = True
    prompt_echo: PromptEcho | None = None
    extra: JsonObject
    seed: int | None = None
    load_metric: LoadMetric | None = None
    api: Api = CHAT_COMPLETIONS
    path: str = CHAT

    @property
    def scripting(self) -> Scripting:
        """The way of scripts."""
        return replace(self.script_capabilities, method=self.script_method)

    @property
    def unscripted(self) -> RequestProfile:
        """The same, for requests that go without a script."""
        return replace(self, script_method=ScriptMethod.NONE)


class StepSkippedError(Exception):
    """A step that can not be sent, since an earlier answer lacks what it takes from it, or the server is not known to have what it asks for."""


def build_request(step: Step, asking: RequestProfile, answers: Mapping[str, Json]) -> Request:
    """The request of an expanded step.

    Raises:
        NotSent: an earlier answer lacks what the step takes from it, the endpoint chunks its streams as it likes, or it has no known gauge.
        NotCarried: it has no place for the script.
        NotSpelled: it asks for something that the API has no words for.
    """
    if step.event_tokens is not None and not asking.script_method.capabilities.choose_chunks:
        raise StepSkippedError("the server chooses how many tokens an event of a stream has")
    if step.wait_until_idle is not None:
        return _look_at(asking.load_metric)
    if step.raw is not None:
        exact = _joined(_filled(step.raw, answers)).replace("{model}", asking.model)
        return _request(step, asking, exact.encode("utf-8", "surrogateescape"))
    filled = members(_filled(step.request, answers))
    body = _native(step, asking, filled) if step.is_native else asking.api.write_request(_chat(step, asking, filled))
    return _request(step, asking, dumps({**body, **asking.extra}).encode("utf-8", "backslashreplace"))


def _native(step: Step, asking: RequestProfile, filled: JsonObject) -> JsonObject:
    """A request that is in the words of its API, with what is ours alone."""
    body: JsonObject = {"model": asking.model, "stream": step.is_streamed, **filled}
    if asking.ids_field is not None and step.shows_ids and step.validity not in ODD:
        body.setdefault(asking.ids_field, True)
    return _scripted(step, asking, body)


def _chat(step: Step, asking: RequestProfile, filled: JsonObject) -> JsonObject:
    body: JsonObject = {"model": asking.model, **_respelled(filled, asking.reasoning_field)}
    if step.is_streamed and "stream" not in step.request:
        body["stream"] = True
        body.setdefault("stream_options", {"include_usage": True})
    if step.validity is Validity.VALID:
        body.setdefault("temperature", 0)
        if asking.seed is not None:
            body.setdefault("seed", asking.seed)
    shows_ids = step.shows_ids and step.validity not in ODD and (asking.ids_in_streams or not step.is_streamed)
    if asking.prompt_echo is not None and shows_ids:
        body = {**dict.fromkeys(asking.prompt_echo.members, True), **body}
    if asking.ids_field is not None and shows_ids:
        body.setdefault(asking.ids_field, True)
    body = _scripted(step, asking, body)
    if "max_tokens" not in body and "max_completion_tokens" not in body:
        body["max_tokens"] = _limit(step, scripted=asking.script_method is not ScriptMethod.NONE)
    return body


def _scripted(step: Step, asking: RequestProfile, body: JsonObject) -> JsonObject:
    """The request with what makes the model emit what the step says, at its pace and in its chunks."""
    if asking.script_method is ScriptMethod.NONE:
        return body
    if step.forced_prefix is not None:
        return with_beginning(body, step.forced_prefix, asking.scripting)
    if step.script is None:
        return with_some_words(body, asking.scripting)
    body = with_script(body, step.script, asking.scripting)
    if step.pace is not None and asking.script_method is ScriptMethod.REFERENCE:
        body["harmony_token_delay"] = step.pace
    if step.event_tokens is not None and asking.script_method is ScriptMethod.REFERENCE:
        body["harmony_event_tokens"] = step.event_tokens
    if step.continues_after_stop:
        body["ignore_eos"] = True
    return body


def _look_at(gauge: LoadMetric | None) -> Request:
    if gauge is None:
        raise StepSkippedError("this kind of server is not known to tell how many requests it is working on")
    return Request(path=gauge.path, method="GET", body=b"")


def _request(step: Step, asking: RequestProfile, body: bytes) -> Request:
    return Request(
        path=asking.path if step.path == CHAT else step.path, method=step.method, headers=step.headers, body=body
    )


def _joined(raw: Json) -> str:
    """The exact text of a body: a text, or a list of texts and of `{"bytes": …}` in hexadecimal."""
    if isinstance(raw, list):
        return "".join(map(_joined, raw))
    return text(raw) or bytes.fromhex(text(at(raw, "bytes"))).decode("utf-8", "surrogateescape")


def _limit(step: Step, *, scripted: bool) -> int:
    """How many tokens are allowed where the scenario does not say it."""
    if scripted and step.script is not None:
        return len(step.script) + _SPARE
    if scripted and step.forced_prefix is not None:
        return len(step.forced_prefix) + _OWN_WORDS
    return _LIMIT_OF_THE_ODD if step.validity in ODD else UNSCRIPTED_LIMIT


def _filled(value: Json, answers: Mapping[str, Json]) -> Json:
    if isinstance(value, list):
        filled = ((item, _filled(item, answers)) for item in value)
        return [one for item, whole in filled for one in (items(whole) if _is_long_list(item) else [whole])]
    if not isinstance(value, dict):
        return value
    source, times = value.get("$from"), number(value.get("times"))
    if "$repeat" in value and times is not None:
        return _repeated(value["$repeat"], times)
    if not isinstance(source, str):
        return {name: _filled(member, answers) for name, member in value.items()}
    step, _, where = source.partition("#")
    if step not in answers:
        raise StepSkippedError(f"there is no answer to {step}")
    try:
        return resolve(answers[step], where)
    except LookupError as missing:
        raise StepSkippedError(f"the answer to {step} has {missing}") from None


def _is_long_list(value: Json) -> bool:
    return isinstance(at(value, "$repeat"), list)


def _respelled(request: JsonObject, name: str) -> JsonObject:
    """A request with the reasoning of its messages under another name."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return request
    renamed: list[Json] = [
        _renamed(message, name) if "reasoning" in members(message) else message for message in messages
    ]
    return {**request, "messages": renamed}


def _renamed(message: Json, name: str) -> JsonObject:
    return {name if member == "reasoning" else member: value for member, value in members(message).items()}


def _repeated(value: Json, times: int) -> Json:
    """A text or a list that many times, the number of each repetition written for `{n}`."""
    if isinstance(value, str):
        numbered = (value.replace("{n}", str(count)) for count in range(1, times + 1))
        return "".join(numbered) if "{n}" in value else value * times
    return [_counted(item, count) for count in range(1, times + 1) for item in items(value)]


def _counted(value: Json, count: int) -> Json:
    match value:
        case str():
            return value.replace("{n}", str(count))
        case list():
            return [_counted(item, count) for item in value]
        case dict():
            return {name: _counted(member, count) for name, member in value.items()}
        case _:
            return value
