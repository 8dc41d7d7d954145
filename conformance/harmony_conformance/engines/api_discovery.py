"""Which APIs an endpoint offers besides Chat Completions, and what each of them shows: the same plain question in the words of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harmony_conformance.apis.registry import Api, UnsupportedByApiError
from harmony_conformance.engines.diagnosis import json_of, rate_limited
from harmony_conformance.engines.profiles import RENDERS, Engine, PromptEndpoint, ScriptMethod, renders_at
from harmony_conformance.engines.prompt_endpoint import asks_for_prompt, counted_prompt, shown_prompt
from harmony_conformance.engines.render_derender import with_response
from harmony_conformance.engines.scripting import Scripting, with_script
from harmony_conformance.evidence.exchange import Exchange, Validity
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens

WORD = "quokka"
"""What a scripted answer says, so that it is known by it."""
SCRIPT = tuple(encode_with_special_tokens(f"<|channel|>final<|message|>{WORD}<|return|>"))
"""A completion that says it."""


@dataclass(frozen=True, kw_only=True)
class ApiSupport:
    """What is known of one API of an endpoint.

    Attributes:
        path: where it was asked.
        reason: why it is not offered, or why nobody knows; empty where it is.
        is_known: whether it could be found out.
        ids_field: the member of a request that makes it show token ids, None where there is none.
        script_by: how scripts travel in it.
        steady_count: the same request twice gave the same number of prompt tokens.
        side: what shows a prompt without a generation; None where nothing does.
        counts: a path that tells how many tokens a prompt has; None where there is none.
        exchanges: what showed it.
    """

    api: Api
    path: str
    reason: str = ""
    is_known: bool = True
    ids_field: str | None = None
    script_method: ScriptMethod = ScriptMethod.NONE
    steady_count: bool = False
    prompt_endpoint: PromptEndpoint | None = None
    count_endpoint: str | None = None
    exchanges: tuple[Exchange, ...] = ()

    def to_json(self) -> JsonObject:
        """The offer as it stands in a report's header."""
        if self.reason:
            return {"offered": False if self.is_known else None, "reason": self.reason}
        side = self.prompt_endpoint.name if self.prompt_endpoint is not None else None
        shown = self.ids_field or side or ("usage" if self.steady_count else None) or self.count_endpoint
        return {"offered": True, "path": self.path, "prompt_source": shown, "script": self.script_method.value}


async def probe_api(send: SendRequest, api: Api, engine: Engine, plain: JsonObject, way: Scripting) -> ApiSupport:
    """Whether an API is offered, by a plain question; and whether it shows ids, and plays scripts. `plain` is the question as a chat request."""
    path = engine.paths.get(api.name, api.path)
    asking = _Asking(send=send, api=api, path=path)
    try:
        first = await asking.ask("plain", plain)
    except UnsupportedByApiError as problem:
        return ApiSupport(api=api, path=path, reason=f"the API has no {problem}")
    if first.turn is None:
        limited = rate_limited(first.failure, None)
        return ApiSupport(
            api=api, path=path, reason=limited or _refusal(first), is_known=not limited, exchanges=(first,)
        )
    seen = [first, await asking.ask("plain again", plain)]
    counts = [x.prompt.count for x in seen]
    ids_field = None
    if engine.ids_field is not None:
        seen.append(await asking.ask("token ids", {**plain, engine.ids_field: True}))
        shown = seen[-1].turn
        ids_field = engine.ids_field if shown is not None and shown.prompt_ids else None
    script_by = ScriptMethod.NONE
    if way.method not in (ScriptMethod.NONE, ScriptMethod.DERENDER):
        seen.append(await asking.ask("script", with_script({**plain, "max_tokens": 64}, SCRIPT, way), SCRIPT))
        script_by = way.method if says(seen[-1], WORD) else ScriptMethod.NONE
    side = renders_at(path) if engine.prompt_endpoint is RENDERS and ids_field is None and not api.is_raw else None
    counted = replace(first.request, path=path + engine.count_endpoint) if engine.count_endpoint is not None else None
    return ApiSupport(
        api=api,
        path=path,
        ids_field=ids_field,
        script_method=script_by,
        steady_count=counts[0] is not None and counts[0] == counts[1],
        prompt_endpoint=side if side is not None and await shows_prompts(send, side, first.request) else None,
        count_endpoint=await counts_prompts(send, counted) if counted is not None else None,
        exchanges=tuple(seen),
    )


async def probe_prompts(send: SendRequest, api: Api, engine: Engine, plain: JsonObject) -> ApiSupport:
    """Whether a server that generates nothing shows the prompts of an API."""
    path = engine.paths.get(api.name, api.path)
    try:
        asked = Request(path=path, body=dumps(api.write_request(plain)).encode())
    except UnsupportedByApiError as problem:
        return ApiSupport(api=api, path=path, reason=f"the API has no {problem}")
    side = renders_at(path)
    if api.is_raw or not await shows_prompts(send, side, asked):
        return ApiSupport(
            api=api, path=path, reason=f"nothing is generated there, and no prompt is shown at {side.path}"
        )
    return ApiSupport(api=api, path=path, prompt_endpoint=side)


async def shows_prompts(send: SendRequest, side: PromptEndpoint, request: Request) -> bool:
    """Whether a side endpoint shows the prompt of a request."""
    asked = asks_for_prompt(side, request)
    sent = await send(asked) if asked is not None else None
    return sent is not None and sent.response is not None and shown_prompt(side, json_of(sent.response)) is not None


async def counts_prompts(send: SendRequest, request: Request) -> str | None:
    """The path of a request, where it tells how many tokens its prompt has."""
    sent = await send(request)
    told = counted_prompt(request.path, json_of(sent.response)) if sent.response is not None else None
    return request.path if told is not None else None


def says(x: Exchange | None, word: str) -> bool:
    """Whether a word stands in an answer."""
    return x is not None and x.response is not None and word.encode() in x.response.body


@dataclass(frozen=True, kw_only=True)
class _Asking:
    send: SendRequest
    api: Api
    path: str

    async def ask(self, step: str, chat: JsonObject, script: Sequence[int] | None = None) -> Exchange:
        asked = Exchange(
            id=f"discovery/{self.api.name}/{step}/0",
            scenario="discovery",
            step=step,
            api=self.api.name,
            request=Request(path=self.path, body=dumps(self.api.write_request(chat)).encode()),
            validity=Validity.VALID,
            script=tuple(script) if script is not None else None,
        )
        return with_response(asked, await self.send(asked.request))


def _refusal(x: Exchange) -> str:
    """Why there is no answer, in a few words."""
    if x.response is None:
        return x.failure.detail if x.failure is not None else "no answer"
    return f"HTTP {x.response.status}" if not x.response.is_success else "the answer is none of this API"
