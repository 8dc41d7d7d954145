"""Calibration of a teleprompter.

It measures the trailer, the number of tokens between a last message and the answer, for each role that can carry a script. It also detects
whether usage counts the token that ends a turn, and whether a grammar may replace the script. A wrong trailer loses the first tokens of the
script, which are special tokens and invisible in text. A trailer is therefore accepted only if the returned ids, else `completion_tokens`, match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import Scripting, drop_unplayed_script, with_script
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens

_WORD = "quokka"
_TRAILERS = (3, 4, 5, 6, 7, 8, 2)
"""Numbers of tokens to try, the likeliest first: 3 for plain text, 4 for quoted text."""
_SPARE = 16
_CALL: JsonObject = {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
_TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "get_time", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}
_ENDINGS: Mapping[str, JsonObject] = {
    "user": {"messages": [{"role": "user", "content": "Say hello."}]},
    "tool": {
        "messages": [
            {"role": "user", "content": "What time is it?"},
            {"role": "assistant", "content": None, "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
        ],
        "tools": [_TOOL],
    },
}
"""Requests by the role of their last message."""
_NUMBER: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
_GRAMMAR_PROBES: Mapping[str, tuple[JsonObject, str]] = {
    "tools": (
        {"tools": [{"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": _NUMBER}}]},
        f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{_WORD}<|call|>",
    ),
    "response_format": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _NUMBER}}},
        f"<|channel|>final<|message|>{_WORD}<|return|>",
    ),
}
"""Request members that may cause a grammar, and a script that every such grammar forbids."""


@cache
def _script() -> tuple[int, ...]:
    """Return the output to play. It is encoded when it is needed: loading the vocabulary takes half a second."""
    return tuple(
        encode_with_special_tokens(
            f"<|channel|>analysis<|message|>Say it.<|end|><|start|>assistant<|channel|>final<|message|>{_WORD}<|return|>"
        )
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationTarget:
    """Path and API of the calibration requests. `shows_ids`: True if a response can show the output ids."""

    send: SendRequest
    api: Api = CHAT_COMPLETIONS
    path: str = CHAT_PATH
    shows_ids: bool = False

    async def ask(self, step: str, body: JsonObject, script: tuple[int, ...], way: Scripting) -> Exchange:
        """Send a chat request with a script, converted to the API, and return the exchange."""
        chat: JsonObject = {**body, "max_tokens": len(script) + _SPARE, "temperature": 0}
        api_request = self.api.write_request(with_script(chat, script, way))
        request = Request(path=self.path, body=dumps(api_request).encode())
        sent = await self.send(request)
        return Exchange(
            id=f"discovery/{self.api.name}/{step}/0",
            scenario="discovery",
            step=step,
            api=self.api.name,
            request=request,
            response=sent.response,
            failure=sent.failure,
            script=script,
        )


async def calibrate(target: CalibrationTarget, plain: JsonObject) -> tuple[Scripting, list[Exchange]]:
    """Return the calibrated script method and the probes; `suffix_tokens` has only roles that played a script."""
    way = Scripting(method=ScriptMethod.TELEPROMPTER)
    probes: list[Exchange] = []
    for role, ending in _ENDINGS.items():
        trailer, x, counts_stop = await _find_trailer(target, role, {**plain, **ending}, way)
        if x is not None:
            way = replace(way, suffix_tokens={**way.suffix_tokens, role: trailer}, counts_stop=counts_stop)
            probes.append(x)
    if "user" not in way.suffix_tokens or target.shows_ids:
        return way, probes
    grammar_members: set[str] = set()
    for name, (member, forbidden) in _GRAMMAR_PROBES.items():
        script = tuple(encode_with_special_tokens(forbidden))
        x = await target.ask(f"held by {name}", {**plain, **_ENDINGS["user"], **member}, script, way)
        if x.response is None or _WORD.encode() not in x.response.body:  # the script was not played
            grammar_members.add(name)
    return replace(way, grammar_members=frozenset(grammar_members)), probes


async def _find_trailer(
    target: CalibrationTarget, role: str, body: JsonObject, way: Scripting
) -> tuple[int, Exchange | None, bool]:
    """Return the trailer after a message of the role, its probe (None if no script was played), and `counts_stop`.

    An output one token short has two explanations: usage omits the stop token, or the trailer is too short by one. The next trailer decides:
    if it does not play the script either, the last one was right.
    """
    short: tuple[int, Exchange] | None = None
    for trailer in _TRAILERS:
        trial = replace(way, suffix_tokens={role: trailer})
        x = await target.ask(f"script after {role}", body, _script(), trial)
        has_ids = x.turn is not None and x.turn.output_ids is not None
        if (_completion_tokens(x) is not None or has_ids) and drop_unplayed_script(x, trial).script is not None:
            return trailer, x, way.counts_stop
        if short is not None and trailer == short[0] + 1:
            return *short, False
        short = (trailer, x) if _completion_tokens(x) == len(_script()) - 1 else None
    return 0, None, way.counts_stop


def _completion_tokens(x: Exchange) -> int | None:
    return x.turn.usage.completion_tokens if x.turn is not None and x.turn.usage is not None else None
