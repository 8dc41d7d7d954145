"""Discovery of the APIs that an endpoint offers besides Chat Completions: one plain question, written for each API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import Api, UnsupportedByApiError
from harmony_conformance.engines.diagnosis import describe_lost_probe, json_of
from harmony_conformance.engines.profiles import RENDER_ENDPOINT, Engine, PromptEndpoint, ScriptMethod, render_endpoint
from harmony_conformance.engines.prompt_endpoint import build_prompt_request, read_prompt_count, read_rendered_prompt
from harmony_conformance.engines.render_derender import with_response
from harmony_conformance.engines.scripting import Scripting, with_script
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens

PROBE_WORD = "quokka"
"""A word that only a played script puts into an answer."""


@cache
def probe_script() -> tuple[int, ...]:
    """Return the token ids of a completion with that word. It is encoded when it is needed: loading the vocabulary takes half a second."""
    return tuple(encode_with_special_tokens(f"<|channel|>final<|message|>{PROBE_WORD}<|return|>"))


@dataclass(frozen=True, kw_only=True)
class ApiSupport:
    """Support of one API by an endpoint.

    Attributes:
        unsupported_reason: Cause why the API is not offered or could not be probed; empty if it is offered.
        is_known: False if the probe had no result, for example because of a rate limit or a lost connection.
        ids_field: Request member that makes the response show token ids, None if unsupported.
        script_method: Method that puts a script into a request of this API.
        has_steady_prompt_count: True if two equal requests reported the same number of prompt tokens.
        prompt_endpoint: Endpoint that shows a prompt without generating; None if unsupported.
        count_endpoint: Path that returns the number of prompt tokens; None if unsupported.
    """

    api: Api
    path: str
    unsupported_reason: str = ""
    is_known: bool = True
    ids_field: str | None = None
    script_method: ScriptMethod = ScriptMethod.NONE
    has_steady_prompt_count: bool = False
    prompt_endpoint: PromptEndpoint | None = None
    count_endpoint: str | None = None
    exchanges: tuple[Exchange, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the entry of this API in the header of a report."""
        if self.unsupported_reason:
            return {"offered": False if self.is_known else None, "reason": self.unsupported_reason}
        endpoint = self.prompt_endpoint.name if self.prompt_endpoint is not None else None
        counted_in = "usage" if self.has_steady_prompt_count else self.count_endpoint
        source = self.ids_field or endpoint or counted_in
        return {"offered": True, "path": self.path, "prompt_source": source, "script": self.script_method.value}


async def probe_api(send: SendRequest, api: Api, engine: Engine, plain: JsonObject, way: Scripting) -> ApiSupport:
    """Probe an API for a plain answer, for token ids and for scripts. `plain` is the question as a chat request."""
    path = engine.paths.get(api.name, api.path)
    probe = _Probe(send=send, api=api, path=path)
    try:
        first = await probe.ask("plain", plain)
    except UnsupportedByApiError as problem:
        return ApiSupport(api=api, path=path, unsupported_reason=f"the API has no {problem}")
    if first.turn is None:
        lost = describe_lost_probe(first.failure, first.response)
        reason = lost or _describe_failure(first)
        return ApiSupport(api=api, path=path, unsupported_reason=reason, is_known=not lost, exchanges=(first,))
    probes = [first, await probe.ask("plain again", plain)]
    counts = [x.prompt.count for x in probes]
    ids_field = None
    if engine.ids_field is not None:
        probes.append(await probe.ask("token ids", {**plain, engine.ids_field: True}))
        turn = probes[-1].turn
        ids_field = engine.ids_field if turn is not None and turn.prompt_ids else None
    script_method = ScriptMethod.NONE
    if way.method not in (ScriptMethod.NONE, ScriptMethod.DERENDER):
        body = with_script({**plain, "max_tokens": 64}, probe_script(), way)
        probes.append(await probe.ask("script", body, probe_script()))
        script_method = way.method if response_contains(probes[-1], PROBE_WORD) else ScriptMethod.NONE
    side = _prompt_endpoint(api, engine, path) if ids_field is None else None
    counter = replace(first.request, path=path + engine.count_endpoint) if engine.count_endpoint is not None else None
    return ApiSupport(
        api=api,
        path=path,
        ids_field=ids_field,
        script_method=script_method,
        has_steady_prompt_count=counts[0] is not None and counts[0] == counts[1],
        prompt_endpoint=side if side is not None and await probe_prompt_endpoint(send, side, first.request) else None,
        count_endpoint=await probe_count_endpoint(send, counter) if counter is not None else None,
        exchanges=tuple(probes),
    )


def _prompt_endpoint(api: Api, engine: Engine, path: str) -> PromptEndpoint | None:
    """Return the endpoint that may show the prompts of an API; one at the path of Chat Completions shares the endpoint of those."""
    if path == CHAT_PATH:
        return engine.prompt_endpoint
    return render_endpoint(path) if engine.prompt_endpoint is RENDER_ENDPOINT and not api.is_raw else None


async def probe_prompts(send: SendRequest, api: Api, engine: Engine, plain: JsonObject) -> ApiSupport:
    """Probe a server that generates nothing for the prompts of an API."""
    path = engine.paths.get(api.name, api.path)
    try:
        request = Request(path=path, body=dumps(api.write_request(plain)).encode())
    except UnsupportedByApiError as problem:
        return ApiSupport(api=api, path=path, unsupported_reason=f"the API has no {problem}")
    side = render_endpoint(path)
    if api.is_raw or not await probe_prompt_endpoint(send, side, request):
        reason = f"the server generates no output and shows no prompt at {side.path}"
        return ApiSupport(api=api, path=path, unsupported_reason=reason)
    return ApiSupport(api=api, path=path, prompt_endpoint=side)


async def probe_prompt_endpoint(send: SendRequest, side: PromptEndpoint, request: Request) -> bool:
    """Return True if a prompt endpoint shows the prompt of a request."""
    prompt_request = build_prompt_request(side, request)
    sent = await send(prompt_request) if prompt_request is not None else None
    if sent is None or sent.response is None:
        return False
    return read_rendered_prompt(side, json_of(sent.response)) is not None


async def probe_count_endpoint(send: SendRequest, request: Request) -> str | None:
    """Return the path of a request if its response counts the tokens of the prompt, else None."""
    response = (await send(request)).response
    return request.path if response is not None and read_prompt_count(request.path, json_of(response)) else None


def response_contains(x: Exchange | None, word: str) -> bool:
    """Return True if a response contains a word."""
    return x is not None and x.response is not None and word.encode() in x.response.body


@dataclass(frozen=True, kw_only=True)
class _Probe:
    send: SendRequest
    api: Api
    path: str

    async def ask(self, step: str, chat: JsonObject, script: Sequence[int] | None = None) -> Exchange:
        x = Exchange(
            id=f"discovery/{self.api.name}/{step}/0",
            scenario="discovery",
            step=step,
            api=self.api.name,
            request=Request(path=self.path, body=dumps(self.api.write_request(chat)).encode()),
            validity=Validity.VALID,
            script=tuple(script) if script is not None else None,
        )
        return with_response(x, await self.send(x.request))


def _describe_failure(x: Exchange) -> str:
    if x.response is None:
        return x.failure.detail if x.failure is not None else "no answer"
    return f"HTTP {x.response.status}" if not x.response.is_success else "the response is not valid for this API"
