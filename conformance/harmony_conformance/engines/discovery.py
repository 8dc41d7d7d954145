"""What an endpoint is and shows: a plain request first, then one probe per extra field. A field that is refused is never sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.api_discovery import (
    SCRIPT,
    WORD,
    ApiSupport,
    counts_prompts,
    probe_api,
    probe_prompts,
    says,
    shows_prompts,
)
from harmony_conformance.engines.diagnosis import (
    REFUSED_KEY,
    EndpointUnusableError,
    KeyRefusedError,
    RateLimitedProbes,
    rate_limited,
    refusal,
)
from harmony_conformance.engines.identification import identify
from harmony_conformance.engines.profiles import (
    DERENDER,
    ENGINES,
    RENDERS,
    Engine,
    PromptEcho,
    PromptEndpoint,
    ScriptMethod,
)
from harmony_conformance.engines.prompt_endpoint import revealed_prompt
from harmony_conformance.engines.render_derender import answer_in_halves, with_response
from harmony_conformance.engines.scripting import Scripting, with_script
from harmony_conformance.engines.teleprompter_calibration import CalibrationTarget, calibrate
from harmony_conformance.evidence.exchange import Exchange, PromptLevel, Validity
from harmony_conformance.evidence.recording import DISCOVERY
from harmony_conformance.json_value import Json, JsonObject, at, dumps, members, text
from harmony_conformance.transport.client import SendRequest, SendResult
from harmony_conformance.transport.messages import Request

_LIMITS = (16, 64, 1024)
_NO_PATH = (404, 405, 501)
_PLAIN = "Say hello."

"""The scenario that the exchanges of discovery are recorded under."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What was found out.

    `steady_count`: the same request twice gave the same prompt_tokens. `script_by`: how scripts travel, if they do, and `way`, see `Scripting`.
    `reasoning_field`: the member in which an answer showed reasoning, None where none did. `generates`: whether chat requests are answered; a server that
    only renders prompts and derenders outputs answers none. `speaks_chat`: whether there is a path for chat requests, or for those of another API alone.
    `offers`: what was found of the other APIs that were asked for.
    `engine` and `signs`: what it was asked as, and by what it was known where nobody had said so. `unknown`: the APIs of which not all could be found out,
    by name, and why.
    """

    model: str
    engine_version: str | None
    prompt: PromptLevel
    ids_field: str | None
    prompt_endpoint: PromptEndpoint | None
    script_method: ScriptMethod
    steady_count: bool
    exchanges: tuple[Exchange, ...]
    generates: bool = True
    speaks_chat: bool = True
    prompt_echo: PromptEcho | None = None
    count_endpoint: str | None = None
    script_capabilities: Scripting = field(default_factory=Scripting)
    reasoning_field: str | None = None
    api_support: tuple[ApiSupport, ...] = ()
    engine: Engine = ENGINES["openai"]
    signatures: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def judged_apis(self) -> Mapping[str, ScriptMethod]:
        """How scripts travel in each API that is offered, or of which nobody knows whether it is."""
        unknown = {offer.api.name: self.script_method for offer in self.api_support if offer.api.name in self.unknown}
        return {**unknown, **self.script_methods}

    @property
    def script_methods(self) -> Mapping[str, ScriptMethod]:
        """How scripts travel in each API that is offered, by its name."""
        chat = {CHAT_COMPLETIONS.name: self.script_method} if self.speaks_chat else {}
        return chat | {offer.api.name: offer.script_method for offer in self.api_support if not offer.reason}

    @property
    def prompt_endpoints(self) -> Mapping[str, PromptEndpoint | None]:
        """What shows prompts without a generation, by the name of the API that they are for."""
        return {CHAT_COMPLETIONS.name: self.prompt_endpoint} | {
            offer.api.name: offer.prompt_endpoint for offer in self.api_support
        }

    @property
    def count_endpoints(self) -> Mapping[str, str | None]:
        """Where prompts are counted, by the name of the API that they are for."""
        return {CHAT_COMPLETIONS.name: self.count_endpoint} | {
            offer.api.name: offer.count_endpoint for offer in self.api_support
        }

    def to_json(self) -> JsonObject:
        """The capabilities as they stand in a report's header."""
        return {
            "prompt": self.prompt.value,
            "prompt_source": self.ids_field
            or (self.prompt_echo.name if self.prompt_echo is not None else None)
            or (self.prompt_endpoint.name if self.prompt_endpoint is not None else None)
            or ("usage.prompt_tokens" if self.steady_count else None)
            or self.count_endpoint,
            "script": self.script_method.value,
            "steady_prompt_count": self.steady_count,
            "generates": self.generates,
            **({} if self.speaks_chat else {"chat": False}),
            **({"apis": {offer.api.name: offer.to_json() for offer in self.api_support}} if self.api_support else {}),
            **({"unknown": {**self.unknown}} if self.unknown else {}),
        }

    @property
    def output(self) -> str:
        """Where outputs come from, in words."""
        if not self.generates:
            return f"none is generated, {DERENDER} is given scripts" if self.scripted else "none is generated"
        return "scripted" if self.scripted else "the model's own"

    @property
    def scripted(self) -> bool:
        """Whether the suite chooses what the model says."""
        return self.script_method is not ScriptMethod.NONE


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """What is asked of an endpoint: by which engine's ways, for which model (None: the first listed), with which way of scripts and members of a request.

    `apis`: those that are looked for besides Chat Completions. `is_open`: nobody said which engine it is, so that it is to be found out.
    """

    engine: Engine
    model: str | None = None
    script: str = "auto"
    extra: JsonObject = field(default_factory=dict[str, Json])
    apis: tuple[Api, ...] = ()
    detect_engine: bool = False


async def discover(send: SendRequest, question: ProbeOptions) -> Capabilities:
    """Ask an endpoint what it is.

    Raises:
        NothingThere: it can not be used; the message says why.
    """
    engine, script = question.engine, question.script
    unanswered = RateLimitedProbes(send)
    told = await identify(unanswered.of(CHAT_COMPLETIONS.name), question.model, engine, is_open=question.detect_engine)
    engine, models, version = told.engine or engine, told.models, told.version
    chosen = question.model or models[0]
    plain: JsonObject = {
        "model": chosen,
        "messages": [{"role": "user", "content": _PLAIN}],
        "max_tokens": _LIMITS[0],
        **question.extra,
    }
    first, limited = await _first_answer(send, plain, models)
    if first.turn is None and (elsewhere := await _without_chat(unanswered, replace(question, engine=engine), limited)):
        return replace(elsewhere, engine_version=version, signatures=told.signatures, unknown=unanswered.why)
    if first.turn is None:
        halves = await _in_halves(send, engine, first, script, models)
        offers = tuple([await probe_prompts(unanswered.of(api.name), api, engine, limited) for api in question.apis])
        known = replace(halves, engine_version=version, engine=engine, signatures=told.signatures, api_support=offers)
        return replace(known, unknown=unanswered.why)
    send = unanswered.of(CHAT_COMPLETIONS.name)
    seen = [first]
    second = _exchange("plain again", limited, await send(_chat(limited)))
    seen.append(second)
    is_steady = first.prompt.count is not None and first.prompt.count == second.prompt.count
    ids_field = await _probe_ids(send, engine, limited, seen)
    reveals = await _probe_reveals(send, engine, limited, seen) if ids_field is None else None
    is_shown = (ids_field is not None and engine.ids_in_streams) or reveals is not None
    side = None if is_shown else await _probe_side(send, engine, limited)
    counted = replace(_chat(limited), path=CHAT + engine.count_endpoint) if engine.count_endpoint is not None else None
    counts = await counts_prompts(send, counted) if counted is not None else None
    script_by = _script_way(script, engine, identified=told.is_reference)
    way = Scripting(method=script_by)
    if script_by is ScriptMethod.TELEPROMPTER:
        way, played = await calibrate(CalibrationTarget(send=send, shows_ids=reveals is not None), limited)
        if "user" not in way.suffix_tokens:
            raise _no_script(script_by, unanswered.why.get(CHAT_COMPLETIONS.name, ""))
        seen += played
    elif script_by is not ScriptMethod.NONE:
        seen.append(await _probe_script(send, limited, script_by))
    offers = tuple([await probe_api(unanswered.of(api.name), api, engine, limited, way) for api in question.apis])
    return Capabilities(
        model=chosen,
        engine_version=version,
        prompt=_level(ids_field, side or reveals, counted=is_steady or counts is not None),
        ids_field=ids_field,
        prompt_endpoint=side,
        script_method=script_by,
        prompt_echo=reveals,
        count_endpoint=counts,
        steady_count=is_steady,
        exchanges=(*seen, *(x for offer in offers for x in offer.exchanges)),
        api_support=offers,
        engine=engine,
        signatures=told.signatures,
        script_capabilities=way,
        reasoning_field=next((x.turn.reasoning_field for x in seen if x.turn and x.turn.reasoning), None),
        unknown=unanswered.why,
    )


async def _without_chat(
    unanswered: RateLimitedProbes, question: ProbeOptions, plain: JsonObject
) -> Capabilities | None:
    """What is known of a server that has no path for chat requests, but answers another API that is asked for; None where it does not.

    Raises:
        NothingThere: it does not follow the way of scripts that is asked for.
    """
    engine = question.engine
    for api in question.apis:
        first = await probe_api(unanswered.of(api.name), api, engine, plain, Scripting())
        if not first.reason:
            break
    else:
        return None
    script_by = _script_way(question.script, engine, identified=False)
    way, seen = Scripting(method=script_by), list(first.exchanges)
    if script_by is ScriptMethod.TELEPROMPTER:
        door = CalibrationTarget(send=unanswered.of(first.api.name), api=first.api, path=first.path)
        way, played = await calibrate(door, plain)
        if "user" not in way.suffix_tokens:
            raise _no_script(script_by, unanswered.why.get(first.api.name, ""))
        seen += played
    offers = tuple([await probe_api(unanswered.of(api.name), api, engine, plain, way) for api in question.apis])
    best = next((offer for offer in offers if not offer.reason), first)
    if script_by is not ScriptMethod.NONE and best.script_method is ScriptMethod.NONE:
        raise _no_script(script_by, unanswered.why.get(first.api.name, ""))
    return Capabilities(
        model=text(plain["model"]),
        engine_version=None,
        prompt=_level(
            best.ids_field, best.prompt_endpoint, counted=best.steady_count or best.count_endpoint is not None
        ),
        ids_field=None,
        prompt_endpoint=None,
        script_method=best.script_method,
        steady_count=best.steady_count,
        exchanges=(*seen, *(x for offer in offers for x in offer.exchanges)),
        speaks_chat=False,
        api_support=offers,
        engine=engine,
        script_capabilities=way,
    )


async def _in_halves(
    send: SendRequest, engine: Engine, first: Exchange, script: str, models: list[str]
) -> Capabilities:
    """What is known of a server that has no path for chat requests: it may show prompts, and read outputs, all the same.

    Raises:
        NothingThere: it does not, or a way of scripting is asked for that needs a generation.
    """
    body = members(first.chat_request)
    shown = await _probe_side(send, engine, body) if engine.prompt_endpoint is RENDERS else None
    if shown is None:
        raise EndpointUnusableError(refusal(first, models))
    if script not in ("auto", "none", ScriptMethod.DERENDER):
        raise EndpointUnusableError(
            f"--script {script}: nothing is generated there; --script {ScriptMethod.DERENDER} is what it can do"
        )
    seen, way = [first], ScriptMethod.NONE
    if script != "none":
        try:
            seen.append(await _probe_script(send, body, ScriptMethod.DERENDER))
            way = ScriptMethod.DERENDER
        except EndpointUnusableError:
            if script == ScriptMethod.DERENDER:
                raise
    return Capabilities(
        model=text(at(first.chat_request, "model")),
        engine_version=None,
        prompt=PromptLevel.RENDERED,
        ids_field=None,
        prompt_endpoint=shown,
        script_method=way,
        steady_count=False,
        exchanges=tuple(seen),
        generates=False,
    )


async def _probe_script(send: SendRequest, plain: JsonObject, way: ScriptMethod) -> Exchange:
    """One scripted answer, so that nothing is expected of a server that ignores scripts.

    Raises:
        NothingThere: the word of the script is nowhere in the answer.
    """
    body = with_script({**plain, "max_tokens": _LIMITS[1]}, SCRIPT, Scripting(method=way))
    asked = replace(_exchange("script", body, SendResult()), script=SCRIPT)
    is_derendered = way is ScriptMethod.DERENDER
    x = await answer_in_halves(send, asked, 1) if is_derendered else with_response(asked, await send(asked.request))
    if x is None or not says(x, WORD):
        raise _no_script(way, rate_limited(x.failure, x.response) if x is not None else "")
    return x


def _no_script(way: ScriptMethod, limited: str) -> EndpointUnusableError:
    if limited:
        return EndpointUnusableError(limited)
    return EndpointUnusableError(
        f"--script {way}: the server did not follow the script; it needs what plays scripts, or --script none"
    )


async def _first_answer(send: SendRequest, plain: JsonObject, models: list[str]) -> tuple[Exchange, JsonObject]:
    """The first answer with a completion, with the smallest limit the endpoint answers properly; or that there is no such path."""
    problem = ""
    for limit in _LIMITS:
        body: JsonObject = {**plain, "max_tokens": limit}
        sent = await send(_chat(body))
        x = _exchange("plain", body, sent)
        if x.turn is not None:
            return x, body
        if x.response is not None and x.response.status in REFUSED_KEY:
            raise KeyRefusedError(x.response.status)
        if x.response is not None and x.response.status in _NO_PATH:
            return x, body
        problem = refusal(x, models)
        if rate_limited(sent.failure, sent.response):
            break
    raise EndpointUnusableError(problem)


async def _probe_ids(send: SendRequest, engine: Engine, plain: JsonObject, seen: list[Exchange]) -> str | None:
    if engine.ids_field is None:
        return None
    body: JsonObject = {**plain, engine.ids_field: True}
    x = _exchange("token ids", body, await send(_chat(body)))
    seen.append(x)
    return engine.ids_field if x.turn is not None and x.turn.prompt_ids else None


async def _probe_reveals(
    send: SendRequest, engine: Engine, plain: JsonObject, seen: list[Exchange]
) -> PromptEcho | None:
    if engine.prompt_echo is None:
        return None
    body: JsonObject = {**plain, **dict.fromkeys(engine.prompt_echo.members, True)}
    x = _exchange("prompt and tokens", body, await send(_chat(body)))
    seen.append(x)
    return engine.prompt_echo if x.turn is not None and revealed_prompt(engine.prompt_echo, x) is not None else None


async def _probe_side(send: SendRequest, engine: Engine, plain: JsonObject) -> PromptEndpoint | None:
    is_shown = engine.prompt_endpoint is not None and await shows_prompts(send, engine.prompt_endpoint, _chat(plain))
    return engine.prompt_endpoint if is_shown else None


def _script_way(asked: str, engine: Engine, *, identified: bool) -> ScriptMethod:
    match asked:
        case "auto":
            return ScriptMethod.REFERENCE if identified else ScriptMethod.NONE
        case "none":
            return ScriptMethod.NONE
        case _:
            return ScriptMethod(asked) if asked in set(ScriptMethod) else engine.script_method


def _level(ids_field: str | None, side: PromptEndpoint | PromptEcho | None, *, counted: bool) -> PromptLevel:
    if ids_field is not None:
        return PromptLevel.IDS
    if side is not None:
        return PromptLevel.RENDERED
    return PromptLevel.ACCOUNTING if counted else PromptLevel.NONE


def _chat(body: JsonObject) -> Request:
    return Request(path=CHAT, body=dumps(body).encode())


def _exchange(step: str, body: JsonObject, sent: SendResult) -> Exchange:
    return Exchange(
        id=f"discovery/chat/{step}/0",
        scenario=DISCOVERY,
        step=step,
        request=_chat(body),
        response=sent.response,
        failure=sent.failure,
        retry_waits=sent.retry_waits,
        validity=Validity.VALID,
    )
