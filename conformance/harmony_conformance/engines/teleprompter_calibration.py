"""What is tried of a server before a teleprompter is believed.

How many tokens it writes between the end of a last message and the answer, for each role whose messages can carry a script; whether it counts the token that
ends a turn; whether a grammar may hold its output. What a wrong number of the first loses is the first tokens of the script, which are special and which no
text shows. So a trailer is believed only where the ids that were returned, else `completion_tokens`, are those of the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, Api
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import Scripting, as_played, with_script
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens

_WORD = "quokka"
_SCRIPT = tuple(
    encode_with_special_tokens(
        f"<|channel|>analysis<|message|>Say it.<|end|><|start|>assistant<|channel|>final<|message|>{_WORD}<|return|>"
    )
)
_TRAILERS = (3, 4, 5, 6, 7, 8, 2)
"""What is tried, the likeliest first: 3 for a plain text, 4 where it is quoted."""
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
"""A request that ends with a message of each role."""
_NUMBER: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
_HOLDING: Mapping[str, tuple[JsonObject, str]] = {
    "tools": (
        {"tools": [{"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": _NUMBER}}]},
        f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{_WORD}<|call|>",
    ),
    "response_format": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _NUMBER}}},
        f"<|channel|>final<|message|>{_WORD}<|return|>",
    ),
}
"""Requests that a server may hold the output for, and what no grammar made of them lets through."""


@dataclass(frozen=True, kw_only=True)
class CalibrationTarget:
    """Where a server is asked, in the words of which API; `shows_ids`: whether an answer can be made to show the ids of the output."""

    send: SendRequest
    api: Api = CHAT_COMPLETIONS
    path: str = CHAT
    shows_ids: bool = False

    async def ask(self, step: str, body: JsonObject, script: tuple[int, ...], way: Scripting) -> Exchange:
        """The answer to a chat request that carries a script, put in the words of the API."""
        told: JsonObject = {**body, "max_tokens": len(script) + _SPARE, "temperature": 0}
        spelled = self.api.write_request(with_script(told, script, way))
        request = Request(path=self.path, body=dumps(spelled).encode())
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


async def calibrate(door: CalibrationTarget, plain: JsonObject) -> tuple[Scripting, list[Exchange]]:
    """What was found, and the exchanges that showed it; `trailers` has no role after whose messages nothing was played."""
    way = Scripting(method=ScriptMethod.TELEPROMPTER)
    shown: list[Exchange] = []
    for role, ending in _ENDINGS.items():
        trailer, x, counts_stop = await _find_trailer(door, role, {**plain, **ending}, way)
        if x is not None:
            way = replace(way, suffix_tokens={**way.suffix_tokens, role: trailer}, counts_stop=counts_stop)
            shown.append(x)
    if "user" not in way.suffix_tokens or door.shows_ids:
        return way, shown
    held: set[str] = set()
    for name, (member, out_of_form) in _HOLDING.items():
        script = tuple(encode_with_special_tokens(out_of_form))
        x = await door.ask(f"held by {name}", {**plain, **_ENDINGS["user"], **member}, script, way)
        if (
            x.response is None or _WORD.encode() not in x.response.body
        ):  # the script did not arrive: a grammar may hold it
            held.add(name)
    return replace(way, grammar_members=frozenset(held)), shown


async def _find_trailer(
    door: CalibrationTarget, role: str, asked: JsonObject, way: Scripting
) -> tuple[int, Exchange | None, bool]:
    """The trailer after a message of the role, what showed it (None where nothing was played), and whether the token that ends the turn is counted.

    An answer one token short is the whole script without that token, or what a trailer too short by one has lost of it. The next trailer tells: it plays the
    script, or the last was right.
    """
    short: tuple[int, Exchange] | None = None
    for trailer in _TRAILERS:
        tried = replace(way, suffix_tokens={role: trailer})
        x = await door.ask(f"script after {role}", asked, _SCRIPT, tried)
        has_ids = x.turn is not None and x.turn.output_ids is not None
        if (_counted(x) is not None or has_ids) and as_played(x, tried).script is not None:
            return trailer, x, way.counts_stop
        if short is not None and trailer == short[0] + 1:
            return *short, False
        short = (trailer, x) if _counted(x) == len(_SCRIPT) - 1 else None
    return 0, None, way.counts_stop


def _counted(x: Exchange) -> int | None:
    return x.turn.usage.completion_tokens if x.turn is not None and x.turn.usage is not None else None
