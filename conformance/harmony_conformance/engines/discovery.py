"""What an endpoint is and shows: a plain request first, then one probe per extra field. A field that is refused is never sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.api_discovery import (
    SCRIPT,
    WORD,
    Offer,
    counts_prompts,
    look_for,
    look_for_prompts,
    says,
    shows_prompts,
)
from harmony_conformance.engines.diagnosis import (
    REFUSED_KEY,
    KeyRefused,
    NothingThere,
    Unanswered,
    rate_limited,
    refusal,
)
from harmony_conformance.engines.identification import identify
from harmony_conformance.engines.profiles import DERENDER, ENGINES, RENDERS, Engine, Reveals, ScriptBy, Side
from harmony_conformance.engines.prompt_endpoint import revealed_prompt
from harmony_conformance.engines.render_derender import answer_in_halves, answered
from harmony_conformance.engines.scripting import Scripting, with_script
from harmony_conformance.engines.teleprompter_calibration import Door, find_way
from harmony_conformance.evidence.exchange import Exchange, PromptLevel, Validity
from harmony_conformance.evidence.recording import DISCOVERY
from harmony_conformance.json_value import Json, JsonObject, at, dumps, members, text
from harmony_conformance.transport.client import SendRequest, Sent
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
    side: Side | None
    script_by: ScriptBy
    steady_count: bool
    exchanges: tuple[Exchange, ...]
    generates: bool = True
    speaks_chat: bool = True
    reveals: Reveals | None = None
    counts: str | None = None
    way: Scripting = field(default_factory=Scripting)
    reasoning_field: str | None = None
    offers: tuple[Offer, ...] = ()
    engine: Engine = ENGINES["openai"]
    signs: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def judged(self) -> Mapping[str, ScriptBy]:
        """How scripts travel in each API that is offered, or of which nobody knows whether it is."""
        unknown = {offer.api.name: self.script_by for offer in self.offers if offer.api.name in self.unknown}
        return {**unknown, **self.ways}

    @property
    def ways(self) -> Mapping[str, ScriptBy]:
        """How scripts travel in each API that is offered, by its name."""
        chat = {CHAT_COMPLETIONS.name: self.script_by} if self.speaks_chat else {}
        return chat | {offer.api.name: offer.script_by for offer in self.offers if not offer.reason}

    @property
    def shown_by(self) -> Mapping[str, Side | None]:
        """What shows prompts without a generation, by the name of the API that they are for."""
        return {CHAT_COMPLETIONS.name: self.side} | {offer.api.name: offer.side for offer in self.offers}

    @property
    def counted_at(self) -> Mapping[str, str | None]:
        """Where prompts are counted, by the name of the API that they are for."""
        return {CHAT_COMPLETIONS.name: self.counts} | {offer.api.name: offer.counts for offer in self.offers}

    def told(self) -> JsonObject:
        """The capabilities as they stand in a report's header."""
        return {
            "prompt": self.prompt.value,
            "prompt_source": self.ids_field
            or (self.reveals.name if self.reveals is not None else None)
            or (self.side.name if self.side is not None else None)
            or ("usage.prompt_tokens" if self.steady_count else None)
            or self.counts,
            "script": self.script_by.value,
            "steady_prompt_count": self.steady_count,
            "generates": self.generates,
            **({} if self.speaks_chat else {"chat": False}),
            **({"apis": {offer.api.name: offer.told() for offer in self.offers}} if self.offers else {}),
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
        return self.script_by is not ScriptBy.NONE


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of an endpoint: by which engine's ways, for which model (None: the first listed), with which way of scripts and members of a request.

    `apis`: those that are looked for besides Chat Completions. `is_open`: nobody said which engine it is, so that it is to be found out.
    """

    engine: Engine
    model: str | None = None
    script: str = "auto"
    extra: JsonObject = field(default_factory=dict[str, Json])
    apis: tuple[Api, ...] = ()
    is_open: bool = False


async def discover(send: SendRequest, question: Question) -> Capabilities:
    """Ask an endpoint what it is.

    Raises:
        NothingThere: it can not be used; the message says why.
    """
    engine, script = question.engine, question.script
    unanswered = Unanswered(send)
    told = await identify(unanswered.of(CHAT_COMPLETIONS.name), question.model, engine, is_open=question.is_open)
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
        return replace(elsewhere, engine_version=version, signs=told.signs, unknown=unanswered.why)
    if first.turn is None:
        halves = await _in_halves(send, engine, first, script, models)
        offers = tuple([await look_for_prompts(unanswered.of(api.name), api, engine, limited) for api in question.apis])
        known = replace(halves, engine_version=version, engine=engine, signs=told.signs, offers=offers)
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
    counted = replace(_chat(limited), path=CHAT + engine.counts) if engine.counts is not None else None
    counts = await counts_prompts(send, counted) if counted is not None else None
    script_by = _script_way(script, engine, identified=told.is_reference)
    way = Scripting(by=script_by)
    if script_by is ScriptBy.TELEPROMPTER:
        way, played = await find_way(Door(send=send, shows_ids=reveals is not None), limited)
        if "user" not in way.trailers:
            raise _no_script(script_by, unanswered.why.get(CHAT_COMPLETIONS.name, ""))
        seen += played
    elif script_by is not ScriptBy.NONE:
        seen.append(await _probe_script(send, limited, script_by))
    offers = tuple([await look_for(unanswered.of(api.name), api, engine, limited, way) for api in question.apis])
    return Capabilities(
        model=chosen,
        engine_version=version,
        prompt=_level(ids_field, side or reveals, counted=is_steady or counts is not None),
        ids_field=ids_field,
        side=side,
        script_by=script_by,
        reveals=reveals,
        counts=counts,
        steady_count=is_steady,
        exchanges=(*seen, *(x for offer in offers for x in offer.exchanges)),
        offers=offers,
        engine=engine,
        signs=told.signs,
        way=way,
        reasoning_field=next((x.turn.reasoning_field for x in seen if x.turn and x.turn.reasoning), None),
        unknown=unanswered.why,
    )


async def _without_chat(unanswered: Unanswered, question: Question, plain: JsonObject) -> Capabilities | None:
    """What is known of a server that has no path for chat requests, but answers another API that is asked for; None where it does not.

    Raises:
        NothingThere: it does not follow the way of scripts that is asked for.
    """
    engine = question.engine
    for api in question.apis:
        first = await look_for(unanswered.of(api.name), api, engine, plain, Scripting())
        if not first.reason:
            break
    else:
        return None
    script_by = _script_way(question.script, engine, identified=False)
    way, seen = Scripting(by=script_by), list(first.exchanges)
    if script_by is ScriptBy.TELEPROMPTER:
        door = Door(send=unanswered.of(first.api.name), api=first.api, path=first.path)
        way, played = await find_way(door, plain)
        if "user" not in way.trailers:
            raise _no_script(script_by, unanswered.why.get(first.api.name, ""))
        seen += played
    offers = tuple([await look_for(unanswered.of(api.name), api, engine, plain, way) for api in question.apis])
    best = next((offer for offer in offers if not offer.reason), first)
    if script_by is not ScriptBy.NONE and best.script_by is ScriptBy.NONE:
        raise _no_script(script_by, unanswered.why.get(first.api.name, ""))
    return Capabilities(
        model=text(plain["model"]),
        engine_version=None,
        prompt=_level(best.ids_field, best.side, counted=best.steady_count or best.counts is not None),
        ids_field=None,
        side=None,
        script_by=best.script_by,
        steady_count=best.steady_count,
        exchanges=(*seen, *(x for offer in offers for x in offer.exchanges)),
        speaks_chat=False,
        offers=offers,
        engine=engine,
        way=way,
    )


async def _in_halves(
    send: SendRequest, engine: Engine, first: Exchange, script: str, models: list[str]
) -> Capabilities:
    """What is known of a server that has no path for chat requests: it may show prompts, and read outputs, all the same.

    Raises:
        NothingThere: it does not, or a way of scripting is asked for that needs a generation.
    """
    body = members(first.asked)
    shown = await _probe_side(send, engine, body) if engine.side is RENDERS else None
    if shown is None:
        raise NothingThere(refusal(first, models))
    if script not in ("auto", "none", ScriptBy.DERENDER):
        raise NothingThere(
            f"--script {script}: nothing is generated there; --script {ScriptBy.DERENDER} is what it can do"
        )
    seen, way = [first], ScriptBy.NONE
    if script != "none":
        try:
            seen.append(await _probe_script(send, body, ScriptBy.DERENDER))
            way = ScriptBy.DERENDER
        except NothingThere:
            if script == ScriptBy.DERENDER:
                raise
    return Capabilities(
        model=text(at(first.asked, "model")),
        engine_version=None,
        prompt=PromptLevel.RENDERED,
        ids_field=None,
        side=shown,
        script_by=way,
        steady_count=False,
        exchanges=tuple(seen),
        generates=False,
    )


async def _probe_script(send: SendRequest, plain: JsonObject, way: ScriptBy) -> Exchange:
    """One scripted answer, so that nothing is expected of a server that ignores scripts.

    Raises:
        NothingThere: the word of the script is nowhere in the answer.
    """
    body = with_script({**plain, "max_tokens": _LIMITS[1]}, SCRIPT, Scripting(by=way))
    asked = replace(_exchange("script", body, Sent()), script=SCRIPT)
    is_derendered = way is ScriptBy.DERENDER
    x = await answer_in_halves(send, asked, 1) if is_derendered else answered(asked, await send(asked.request))
    if x is None or not says(x, WORD):
        raise _no_script(way, rate_limited(x.failure, x.response) if x is not None else "")
    return x


def _no_script(way: ScriptBy, limited: str) -> NothingThere:
    if limited:
        return NothingThere(limited)
    return NothingThere(
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
            raise KeyRefused(x.response.status)
        if x.response is not None and x.response.status in _NO_PATH:
            return x, body
        problem = refusal(x, models)
        if rate_limited(sent.failure, sent.response):
            break
    raise NothingThere(problem)


async def _probe_ids(send: SendRequest, engine: Engine, plain: JsonObject, seen: list[Exchange]) -> str | None:
    if engine.ids_field is None:
        return None
    body: JsonObject = {**plain, engine.ids_field: True}
    x = _exchange("token ids", body, await send(_chat(body)))
    seen.append(x)
    return engine.ids_field if x.turn is not None and x.turn.prompt_ids else None


async def _probe_reveals(send: SendRequest, engine: Engine, plain: JsonObject, seen: list[Exchange]) -> Reveals | None:
    if engine.reveals is None:
        return None
    body: JsonObject = {**plain, **dict.fromkeys(engine.reveals.members, True)}
    x = _exchange("prompt and tokens", body, await send(_chat(body)))
    seen.append(x)
    return engine.reveals if x.turn is not None and revealed_prompt(engine.reveals, x) is not None else None


async def _probe_side(send: SendRequest, engine: Engine, plain: JsonObject) -> Side | None:
    is_shown = engine.side is not None and await shows_prompts(send, engine.side, _chat(plain))
    return engine.side if is_shown else None


def _script_way(asked: str, engine: Engine, *, identified: bool) -> ScriptBy:
    match asked:
        case "auto":
            return ScriptBy.REFERENCE if identified else ScriptBy.NONE
        case "none":
            return ScriptBy.NONE
        case _:
            return ScriptBy(asked) if asked in set(ScriptBy) else engine.script_by


def _level(ids_field: str | None, side: Side | Reveals | None, *, counted: bool) -> PromptLevel:
    if ids_field is not None:
        return PromptLevel.IDS
    if side is not None:
        return PromptLevel.RENDERED
    return PromptLevel.ACCOUNTING if counted else PromptLevel.NONE


def _chat(body: JsonObject) -> Request:
    return Request(path=CHAT, body=dumps(body).encode())


def _exchange(step: str, body: JsonObject, sent: Sent) -> Exchange:
    return Exchange(
        id=f"discovery/chat/{step}/0",
        scenario=DISCOVERY,
        step=step,
        request=_chat(body),
        response=sent.response,
        failure=sent.failure,
        waited=sent.waited,
        validity=Validity.VALID,
    )
