"""Each defect of Messages shows what its summary says, and the server without it does not."""

import asyncio
import json

import httpx
import pytest

from harmony_conformance.reference_server import DEFECTS, MODEL, create_app
from harmony_conformance.reference_server.defects import messages
from harmony_ref import decode

START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Hm.<|end|>{START}"
SAID = THINK + "<|channel|>final<|message|>Good day to you.<|return|>"
CALLED = THINK + '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
USER = {"role": "user", "content": "x"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
PAST = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, USE]}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "y"}]}],
}
LOOP = [USER, PAST, RESULT]


class Server:
    def __init__(self, *defects):
        self._app = create_app(defects=defects, now=lambda: 0.0)

    def send(self, path="/v1/messages", **body):
        async def sent():
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
                base = {"model": MODEL, "messages": [USER], "max_tokens": 99, "tools": [TOOL], "return_token_ids": True}
                return await client.post(path, json={**base, **body})

        return asyncio.run(sent())

    def whole(self, script=SAID, **body):
        return self.send(harmony_script=script, **body).json()

    def events(self, script=SAID, **body):
        lines = self.send(harmony_script=script, stream=True, **body).text.splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    def prompt(self, **body):
        return decode(self.send(**body).json()["prompt_token_ids"])

    def count(self):
        return self.send("/v1/messages/count_tokens").json()["input_tokens"]


def types(blocks):
    return [block["type"] for block in blocks]


def started(events):
    return [(event["index"], event["content_block"]["type"]) for event in events if "content_block" in event]


def deltas(events):
    return [event["delta"].get("type") for event in events if event["type"] == "content_block_delta"]


def ending(events):
    return next(event["delta"] for event in events if event["type"] == "message_delta")


SHOWN = {
    "messages-thinking-dropped": [
        (lambda s: types(s.whole()["content"]), ["text"]),
        (lambda s: started(s.events()), [(0, "text")]),
    ],
    "messages-end-turn-with-calls": [
        (lambda s: s.whole(CALLED)["stop_reason"], "end_turn"),
        (lambda s: ending(s.events(CALLED))["stop_reason"], "end_turn"),
    ],
    "messages-empty-text": [
        (lambda s: s.whole(CALLED)["content"][0], {"type": "text", "text": ""}),
        (lambda s: started(s.events(CALLED)), [(0, "text"), (1, "thinking"), (2, "tool_use")]),
    ],
    "messages-thinking-in-a-text-block": [(lambda s: started(s.events()), [(0, "text"), (1, "text")])],
    "messages-started-twice": [(lambda s: types(s.events())[:2], ["message_start", "message_start"])],
    "messages-thinking-unsigned": [
        (lambda s: "signature" in s.whole()["content"][0], False),
        (lambda s: "signature_delta" in deltas(s.events()), False),
    ],
    "messages-thinking-doubled": [
        (lambda s: "".join(e["delta"].get("thinking", "") for e in s.events() if "delta" in e), "Hm.Hm.")
    ],
    "messages-count-estimated": [(lambda s: s.count() == s.whole()["usage"]["input_tokens"], False)],
    "messages-system-role-refused": [
        (lambda s: s.send(messages=[USER, {"role": "system", "content": "y"}]).status_code, 400)
    ],
    "messages-system-role-dropped": [
        (lambda s: "In French." in s.prompt(messages=[USER, {"role": "system", "content": "In French."}, USER]), False)
    ],
    "messages-stop-sequence-as-end-turn": [
        (lambda s: s.whole(stop_sequences=["day"])["stop_reason"], "end_turn"),
        (lambda s: ending(s.events(stop_sequences=["day"])), {"stop_reason": "end_turn", "stop_sequence": None}),
    ],
    "messages-effort-ignored": [(lambda s: "Reasoning: high" in s.prompt(output_config={"effort": "high"}), False)],
    "messages-results-as-python": [(lambda s: "[{'type': 'text', 'text': 'y'}]" in s.prompt(messages=LOOP), True)],
    "messages-errors-of-chat": [(lambda s: list(s.send(max_tokens=-1).json()), ["error"])],
    "messages-input-estimated": [
        (lambda s: len({e["usage"]["input_tokens"] for e in (s.events()[0]["message"], s.events()[-2])}), 2)
    ],
    "messages-thinking-unread": [(lambda s: "Hm." in s.prompt(messages=LOOP), False)],
    "messages-thinking-last": [(lambda s: types(s.whole()["content"]), ["text", "thinking"])],
    "messages-id-empty": [(lambda s: s.whole()["id"], "")],
    "messages-events-unnamed": [(lambda s: "event: " in s.send(harmony_script=SAID, stream=True).text, False)],
    "messages-blocks-all-zero": [(lambda s: started(s.events()), [(0, "thinking"), (0, "text")])],
    "messages-usage-at-the-start-only": [(lambda s: "usage" in s.events()[-2], False)],
}


def test_every_defect_is_shown():
    assert set(SHOWN) == {defect.id for defect in messages.DEFECTS} <= set(DEFECTS)


@pytest.mark.parametrize(("ident", "look", "expected"), [(name, *one) for name, rows in SHOWN.items() for one in rows])
def test_defect_shows(ident, look, expected):
    assert look(Server(ident)) == expected
    assert look(Server()) != expected


def test_a_dropped_block_leaves_the_tokens_in_the_stream():
    for ident in ("messages-thinking-dropped", "messages-thinking-unsigned"):
        shown = [
            [token for event in server.events() for token in event.get("token_ids", [])]
            for server in (Server(ident), Server())
        ]
        assert shown[0] == shown[1]


def test_other_apis_stay_right():
    for defect in messages.DEFECTS:
        answers = [
            server.send("/v1/chat/completions", harmony_script=SAID, tools=[]).json()
            for server in (Server(defect.id), Server())
        ]
        assert answers[0] == answers[1], defect.id
