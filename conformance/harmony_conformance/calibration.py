"""How many tokens a server writes between the end of a last message and the answer: tried once for each role whose messages can carry a script.

What a wrong number loses is the first tokens of the script, which are special and which no text shows. So a trailer is believed only where the ids that were
returned, else `completion_tokens`, are those of the script.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.client import SendRequest
from harmony_conformance.engines import CHAT, ScriptBy
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.scripting import Scripting, as_played, with_script
from harmony_conformance.wire import Request
from harmony_ref import encode_with_special_tokens

_SCRIPT = tuple(
    encode_with_special_tokens(
        "<|channel|>analysis<|message|>Say it.<|end|><|start|>assistant<|channel|>final<|message|>quokka<|return|>"
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


async def find_trailers(send: SendRequest, plain: JsonObject) -> tuple[dict[str, int], list[Exchange]]:
    """The trailer after a last message of each role that can carry a script, and the exchanges that showed it; a role is left out where none was played."""
    found: dict[str, int] = {}
    shown: list[Exchange] = []
    for role, ending in _ENDINGS.items():
        for trailer in _TRAILERS:
            way = Scripting(by=ScriptBy.TELEPROMPTER, trailers={role: trailer})
            asked: JsonObject = {**plain, **ending, "max_tokens": len(_SCRIPT) + _SPARE, "temperature": 0}
            request = Request(path=CHAT, body=dumps(with_script(asked, _SCRIPT, way)).encode())
            sent = await send(request)
            x = Exchange(
                id=f"discovery/chat/script after {role}/0",
                scenario="discovery",
                step=f"script after {role}",
                request=request,
                response=sent.response,
                failure=sent.failure,
                script=_SCRIPT,
            )
            if _was_played(x, way):
                found[role] = trailer
                shown.append(x)
                break
    return found, shown


def _was_played(x: Exchange, way: Scripting) -> bool:
    usage = x.turn.usage if x.turn is not None else None
    is_counted = usage is not None and usage.completion_tokens is not None
    has_ids = x.turn is not None and x.turn.output_ids is not None
    return (is_counted or has_ids) and as_played(x, way).script is not None
