"""Detection of an endpoint's capabilities: a plain request, then one probe per extra field. A rejected field is not sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines import diagnosis
from harmony_conformance.engines.api_discovery import (
    PROBE_WORD,
    ApiSupport,
    probe_api,
    probe_count_endpoint,
    probe_prompt_endpoint,
    probe_prompts,
    probe_script,
    response_contains,
)
from harmony_conformance.engines.identification import identify
from harmony_conformance.engines.profiles import (
    DERENDER_PATH,
    ENGINES,
    RENDER_ENDPOINT,
    Engine,
    PromptEcho,
    PromptEndpoint,
    ScriptMethod,
)
from harmony_conformance.engines.prompt_endpoint import read_echoed_prompt
from harmony_conformance.engines.render_derender import render_and_derender, with_response
from harmony_conformance.engines.scripting import Scripting, with_script
from harmony_conformance.engines.teleprompter_calibration import CalibrationTarget, calibrate
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import DISCOVERY
from harmony_conformance.evidence.levels import PromptLevel, Validity
from harmony_conformance.json_value import Json, JsonObject, dumps, members, text, value_at
from harmony_conformance.transport.client import SendRequest, SendResult
from harmony_conformance.transport.messages import Request

_LIMITS = (16, 64, 1024)
_NO_PATH = (404, 405, 501)
_PLAIN = "Say hello."


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Detected capabilities of an endpoint.

    Attributes:
        ids_field: Request member that makes a response show token ids, None if unsupported.
        prompt_endpoint: Endpoint that shows a prompt without generating; None if unsupported.
        script_method: Method that puts scripts into requests; `scripting` has its details.
        has_steady_prompt_count: True if two equal requests reported the same `prompt_tokens`.
        generates: False for a server that only renders prompts and derenders outputs.
        has_chat_completions: False if only other APIs have a path.
        prompt_echo: Response member with the prompt, None if unsupported.
        count_endpoint: Path that returns the number of prompt tokens; None if unsupported.
        reasoning_field: Member in which a response showed reasoning, None if no response did.
        engine: Engine whose request members the probes used.
        signatures: Evidence by which the engine was detected; empty if the user named it.
        incomplete_probes: Reasons of incomplete probes, by the name of the API.
    """

    model: str
    engine_version: str | None = None
    prompt_level: PromptLevel
    ids_field: str | None = None
    prompt_endpoint: PromptEndpoint | None = None
    script_method: ScriptMethod
    has_steady_prompt_count: bool = False
    exchanges: tuple[Exchange, ...]
    generates: bool = True
    has_chat_completions: bool = True
    prompt_echo: PromptEcho | None = None
    count_endpoint: str | None = None
    scripting: Scripting = field(default_factory=Scripting)
    reasoning_field: str | None = None
    api_support: tuple[ApiSupport, ...] = ()
    engine: Engine = ENGINES["openai"]
    signatures: tuple[str, ...] = ()
    incomplete_probes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def judged_apis(self) -> Mapping[str, ScriptMethod]:
        """Script methods by the name of the API, for APIs that are offered or could not be probed."""
        incomplete = (one.api.name for one in self.api_support if one.api.name in self.incomplete_probes)
        return {**dict.fromkeys(incomplete, self.script_method), **self.script_methods}

    @property
    def script_methods(self) -> Mapping[str, ScriptMethod]:
        """Script methods by the name of the API, for APIs that are offered."""
        chat = {CHAT_COMPLETIONS.name: self.script_method} if self.has_chat_completions else {}
        return chat | {one.api.name: one.script_method for one in self.api_support if not one.unsupported_reason}

    @property
    def prompt_endpoints(self) -> Mapping[str, PromptEndpoint | None]:
        """Endpoints that show prompts without generating, by the name of the API."""
        chat = {CHAT_COMPLETIONS.name: self.prompt_endpoint}
        return chat | {one.api.name: one.prompt_endpoint for one in self.api_support}

    @property
    def count_endpoints(self) -> Mapping[str, str | None]:
        """Paths that count prompt tokens, by the name of the API."""
        chat = {CHAT_COMPLETIONS.name: self.count_endpoint}
        return chat | {one.api.name: one.count_endpoint for one in self.api_support}

    def to_json(self) -> JsonObject:
        """Return the capabilities for the header of a report."""
        return {
            "prompt": self.prompt_level.value,
            "prompt_source": self.ids_field
            or (self.prompt_echo.name if self.prompt_echo is not None else None)
            or (self.prompt_endpoint.name if self.prompt_endpoint is not None else None)
            or ("usage.prompt_tokens" if self.has_steady_prompt_count else None)
            or self.count_endpoint,
            "script": self.script_method.value,
            "steady_prompt_count": self.has_steady_prompt_count,
            "generates": self.generates,
            **({} if self.has_chat_completions else {"chat": False}),
            **({"apis": {one.api.name: one.to_json() for one in self.api_support}} if self.api_support else {}),
            **({"unknown": {**self.incomplete_probes}} if self.incomplete_probes else {}),
        }

    @property
    def output(self) -> str:
        """The source of outputs for a printed line."""
        if not self.generates:
            return f"not generated; scripts are sent to {DERENDER_PATH}" if self.is_scripted else "not generated"
        return "scripted" if self.is_scripted else "generated by the model"

    @property
    def is_scripted(self) -> bool:
        """True if the suite chooses the output."""
        return self.script_method is not ScriptMethod.NONE


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Options of discovery.

    Attributes:
        script: Value of `--script`.
        apis: APIs to probe besides Chat Completions.
        detect_engine: True if the user did not name the engine.
    """

    engine: Engine
    model: str | None = None
    script: str = "auto"
    extra: JsonObject = field(default_factory=dict[str, Json])
    apis: tuple[Api, ...] = ()
    detect_engine: bool = False


async def discover(send: SendRequest, question: ProbeOptions) -> Capabilities:
    """Detect the engine and the capabilities of an endpoint.

    Raises:
        EndpointUnusableError: The endpoint cannot be tested; the message has the reason.
    """
    engine, script = question.engine, question.script
    limits = diagnosis.UnansweredProbes(send)
    send_chat = limits.sender_for(CHAT_COMPLETIONS.name)
    identity = await identify(send_chat, question.model, engine, is_open=question.detect_engine)
    engine, models, version = identity.engine or engine, identity.models, identity.version
    model = question.model or models[0]
    plain: JsonObject = {
        "model": model,
        "messages": [{"role": "user", "content": _PLAIN}],
        "max_tokens": _LIMITS[0],
        **question.extra,
    }
    first, limited = await _first_answer(send, plain, models)
    if first.turn is None and (elsewhere := await _without_chat(limits, replace(question, engine=engine), limited)):
        return replace(elsewhere, engine_version=version, signatures=identity.signatures, incomplete_probes=limits.why)
    if first.turn is None:
        halves = await _without_generation(send, engine, first, script, models)
        apis = tuple([await probe_prompts(limits.sender_for(api.name), api, engine, limited) for api in question.apis])
        known = replace(halves, engine_version=version, engine=engine, signatures=identity.signatures, api_support=apis)
        return replace(known, incomplete_probes=limits.why)
    send = limits.sender_for(CHAT_COMPLETIONS.name)
    second = _exchange("plain again", limited, await send(_chat(limited)))
    probes = [first, second]
    is_steady = first.prompt.count is not None and first.prompt.count == second.prompt.count
    ids_field = await _probe_ids(send, engine, limited, probes)
    echo = await _probe_echo(send, engine, limited, probes) if ids_field is None else None
    is_shown = (ids_field is not None and engine.ids_in_streams) or echo is not None
    side = None if is_shown else await _probe_prompt_endpoint(send, engine, limited)
    endpoint = engine.count_endpoint
    counter = replace(_chat(limited), path=CHAT_PATH + endpoint) if endpoint is not None else None
    count_path = await probe_count_endpoint(send, counter) if counter is not None else None
    method = _choose_script_method(script, engine, identified=identity.is_reference)
    way = Scripting(method=method)
    if method is ScriptMethod.TELEPROMPTER:
        way, played = await calibrate(CalibrationTarget(send=send, shows_ids=echo is not None), limited)
        if "user" not in way.suffix_tokens:
            raise _script_error(method, limits.why.get(CHAT_COMPLETIONS.name, ""))
        probes += played
    elif method is not ScriptMethod.NONE:
        probes.append(await _probe_script(send, limited, method))
    apis = tuple([await probe_api(limits.sender_for(api.name), api, engine, limited, way) for api in question.apis])
    return Capabilities(
        model=model,
        engine_version=version,
        prompt_level=_prompt_level(ids_field, side or echo, counted=is_steady or count_path is not None),
        ids_field=ids_field,
        prompt_endpoint=side,
        script_method=method,
        prompt_echo=echo,
        count_endpoint=count_path,
        has_steady_prompt_count=is_steady,
        exchanges=(*probes, *(x for one in apis for x in one.exchanges)),
        api_support=apis,
        engine=engine,
        signatures=identity.signatures,
        scripting=way,
        reasoning_field=next((x.turn.reasoning_field for x in probes if x.turn and x.turn.reasoning), None),
        incomplete_probes=limits.why,
    )


async def _without_chat(
    limits: diagnosis.UnansweredProbes, question: ProbeOptions, plain: JsonObject
) -> Capabilities | None:
    """Return the capabilities of a server without a path for chat requests; None if no other API of the run responds.

    Raises:
        EndpointUnusableError: The server does not play scripts of the requested method.
    """
    engine = question.engine
    for api in question.apis:
        first = await probe_api(limits.sender_for(api.name), api, engine, plain, Scripting())
        if not first.unsupported_reason:
            break
    else:
        return None
    method = _choose_script_method(question.script, engine, identified=False)
    way, probes = Scripting(method=method), list(first.exchanges)
    if method is ScriptMethod.TELEPROMPTER:
        target = CalibrationTarget(send=limits.sender_for(first.api.name), api=first.api, path=first.path)
        way, played = await calibrate(target, plain)
        if "user" not in way.suffix_tokens:
            raise _script_error(method, limits.why.get(first.api.name, ""))
        probes += played
    apis = tuple([await probe_api(limits.sender_for(api.name), api, engine, plain, way) for api in question.apis])
    best = next((one for one in apis if not one.unsupported_reason), first)
    if method is not ScriptMethod.NONE and best.script_method is ScriptMethod.NONE:
        raise _script_error(method, limits.why.get(first.api.name, ""))
    counted = best.has_steady_prompt_count or best.count_endpoint is not None
    return Capabilities(
        model=text(plain["model"]),
        prompt_level=_prompt_level(best.ids_field, best.prompt_endpoint, counted=counted),
        script_method=best.script_method,
        has_steady_prompt_count=best.has_steady_prompt_count,
        exchanges=(*probes, *(x for one in apis for x in one.exchanges)),
        has_chat_completions=False,
        api_support=apis,
        engine=engine,
        scripting=way,
    )


async def _without_generation(
    send: SendRequest, engine: Engine, first: Exchange, script: str, models: list[str]
) -> Capabilities:
    """Return the capabilities of a server that only renders prompts and derenders outputs (`vllm launch render`).

    Raises:
        EndpointUnusableError: It does neither, or the requested script method needs a generation.
    """
    body = members(first.chat_request)
    side = await _probe_prompt_endpoint(send, engine, body) if engine.prompt_endpoint is RENDER_ENDPOINT else None
    if side is None:
        raise diagnosis.EndpointUnusableError(diagnosis.describe_refusal(first, models))
    if script not in ("auto", "none", ScriptMethod.DERENDER):
        expected = f"{ScriptMethod.DERENDER}, as the server generates no output"
        raise diagnosis.EndpointUnusableError(f"invalid --script: expected {expected}, got {script}")
    probes, method = [first], ScriptMethod.NONE
    if script != "none":
        try:
            probes.append(await _probe_script(send, body, ScriptMethod.DERENDER))
            method = ScriptMethod.DERENDER
        except diagnosis.EndpointUnusableError:
            if script == ScriptMethod.DERENDER:
                raise
    return Capabilities(
        model=text(value_at(first.chat_request, "model")),
        prompt_level=PromptLevel.RENDERED,
        prompt_endpoint=side,
        script_method=method,
        exchanges=tuple(probes),
        generates=False,
    )


async def _probe_script(send: SendRequest, plain: JsonObject, method: ScriptMethod) -> Exchange:
    """Send one script, so that a server that ignores scripts is detected before the checks.

    Raises:
        EndpointUnusableError: The response lacks the word of the script.
    """
    body = with_script({**plain, "max_tokens": _LIMITS[1]}, probe_script(), Scripting(method=method))
    x = replace(_exchange("script", body, SendResult()), script=probe_script())
    is_derendered = method is ScriptMethod.DERENDER
    answered = await render_and_derender(send, x, 1) if is_derendered else with_response(x, await send(x.request))
    if answered is None or not response_contains(answered, PROBE_WORD):
        limit = diagnosis.describe_lost_probe(answered.failure, answered.response) if answered is not None else ""
        raise _script_error(method, limit and f"the script of discovery was not answered: {limit}")
    return answered


def _script_error(method: ScriptMethod, limited: str) -> diagnosis.EndpointUnusableError:
    not_played = "the server did not play the script; set it up for scripts, or use --script none"
    return diagnosis.EndpointUnusableError(limited or f"--script {method}: {not_played}")


async def _first_answer(send: SendRequest, plain: JsonObject, models: list[str]) -> tuple[Exchange, JsonObject]:
    """Return the first completion and its request, with the smallest sufficient `max_tokens`; or a 404, 405 or 501."""
    problem = ""
    for limit in _LIMITS:
        body: JsonObject = {**plain, "max_tokens": limit}
        sent = await send(_chat(body))
        x = _exchange("plain", body, sent)
        if x.turn is not None:
            return x, body
        if x.response is not None and x.response.status in diagnosis.REFUSED_KEY_STATUSES:
            raise diagnosis.KeyRefusedError(x.response.status)
        if x.response is not None and x.response.status in _NO_PATH:
            return x, body
        problem = diagnosis.describe_refusal(x, models)
        if diagnosis.describe_rate_limit(sent.failure, sent.response):
            break
    raise diagnosis.EndpointUnusableError(problem)


async def _probe_ids(send: SendRequest, engine: Engine, plain: JsonObject, probes: list[Exchange]) -> str | None:
    if engine.ids_field is None:
        return None
    body: JsonObject = {**plain, engine.ids_field: True}
    probes.append(x := _exchange("token ids", body, await send(_chat(body))))
    return engine.ids_field if x.turn is not None and x.turn.prompt_ids else None


async def _probe_echo(
    send: SendRequest, engine: Engine, plain: JsonObject, probes: list[Exchange]
) -> PromptEcho | None:
    if engine.prompt_echo is None:
        return None
    body: JsonObject = {**plain, **dict.fromkeys(engine.prompt_echo.members, True)}
    probes.append(x := _exchange("prompt and tokens", body, await send(_chat(body))))
    return engine.prompt_echo if x.turn is not None and read_echoed_prompt(engine.prompt_echo, x) is not None else None


async def _probe_prompt_endpoint(send: SendRequest, engine: Engine, plain: JsonObject) -> PromptEndpoint | None:
    prompt_endpoint = engine.prompt_endpoint
    is_shown = prompt_endpoint is not None and await probe_prompt_endpoint(send, prompt_endpoint, _chat(plain))
    return engine.prompt_endpoint if is_shown else None


def _choose_script_method(script: str, engine: Engine, *, identified: bool) -> ScriptMethod:
    if script == "auto":
        return ScriptMethod.REFERENCE if identified else ScriptMethod.NONE
    return ScriptMethod(script) if script in set(ScriptMethod) else engine.script_method


def _prompt_level(ids_field: str | None, side: PromptEndpoint | PromptEcho | None, *, counted: bool) -> PromptLevel:
    if ids_field is None and side is None:
        return PromptLevel.ACCOUNTING if counted else PromptLevel.NONE
    return PromptLevel.IDS if ids_field is not None else PromptLevel.RENDERED


def _chat(body: JsonObject) -> Request:
    return Request(path=CHAT_PATH, body=dumps(body).encode())


def _exchange(step: str, body: JsonObject, sent: SendResult) -> Exchange:
    ident = f"discovery/chat/{step}/0"
    x = Exchange(id=ident, scenario=DISCOVERY, step=step, request=_chat(body), validity=Validity.VALID)
    return with_response(x, sent)
