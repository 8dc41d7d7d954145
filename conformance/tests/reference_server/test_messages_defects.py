"""Each defect of Messages shows what its summary says, and the server without it does not."""

import asyncio
import json

import httpx
import pytest

from harmony_conformance.reference_server import DEFECTS, MODEL, create_app
from harmony_conformance.reference_server.defects import messages, messages_calls, messages_delivery
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_ref import decode

START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Hm.<|end|>{START}"
SAID = THINK + "<|channel|>final<|message|>Good day to you.<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}'
CALLED = f"{THINK}{CALL}<|call|>"
TWICE = f"{CALL}<|end|>{START}{CALL}<|call|>"
ONE_CALL = {"type": "auto", "disable_parallel_tool_use": True}
USER = {"role": "user", "content": "x"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
PAST = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, USE]}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "y"}]}],
}
LOOP = [USER, PAST, RESULT]
ORPHAN = [USER, PAST, {"role": "user", "content": [{**RESULT["content"][0], "tool_use_id": "u"}]}]


class Server:
    def __init__(self, *defects):
        self._app = create_app(defects=defects, now=lambda: 0.0)

    async def _sent(self, count, path, body):
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
            base = {"model": MODEL, "messages": [USER], "max_tokens": 99, "tools": [TOOL], "return_token_ids": True}
            return await asyncio.gather(*(client.post(path, json={**base, **body}) for _ in range(count)))

    def send(self, path="/v1/messages", **body):
        return asyncio.run(self._sent(1, path, body))[0]

    def crowd(self, count):
        """The stop reasons of requests that are answered at the same time."""
        body = {"harmony_script": SAID, "harmony_token_delay": 0.01}
        return [answer.json()["stop_reason"] for answer in asyncio.run(self._sent(count, "/v1/messages", body))]

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


def call_ids(body_or_events):
    """The ids of the calls of a message, or of the events of one."""
    is_stream = isinstance(body_or_events, list)
    blocks = (
        [e["content_block"] for e in body_or_events if "content_block" in e] if is_stream else body_or_events["content"]
    )
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def statuses(server, *bodies):
    return [server.send(harmony_script=SAID, **body).status_code for body in bodies]


def written(events, member):
    return "".join(event["delta"].get(member, "") for event in events if event["type"] == "content_block_delta")


def kind(response):
    return response.headers["content-type"].partition(";")[0]


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
    "messages-streams-unasked": [(lambda s: kind(s.send(harmony_script=SAID)), "text/event-stream")],
    "messages-answered-whole": [(lambda s: kind(s.send(harmony_script=SAID, stream=True)), "application/json")],
    "messages-stream-ignores-effort": [
        (
            lambda s: "high" in decode(s.events(output_config={"effort": "high"})[0]["message"]["prompt_token_ids"]),
            False,
        )
    ],
    "messages-text-lost": [(lambda s: written(s.events(), "text"), "Good to you.")],
    "messages-text-again": [(lambda s: written(s.events(), "text"), "Good day to you.Good day to you.")],
    "messages-input-lost": [(lambda s: written(s.events(CALLED), "partial_json"), "")],
    "messages-stream-end-turn": [(lambda s: ending(s.events(CALLED))["stop_reason"], "end_turn")],
    "messages-usage-counts-events": [(lambda s: len(s.events()) - s.events()[-2]["usage"]["output_tokens"], 2)],
    "messages-thinking-after-text": [
        (lambda s: started(s.events()), [(1, "text"), (0, "thinking")]),
    ],
    "messages-usage-zero": [
        (lambda s: s.whole()["usage"]["input_tokens"], 0),
        (lambda s: s.events()[-2]["usage"]["output_tokens"], 0),
    ],
    "messages-same-id-for-all": [
        (lambda s: s.whole()["id"], "msg_123"),
        (lambda s: s.events()[0]["message"]["id"], "msg_123"),
    ],
    "messages-call-without-name": [
        (lambda s: "name" in s.whole(CALLED)["content"][-1], False),
        (lambda s: [e["content_block"].get("name") for e in s.events(CALLED) if "content_block" in e], [None, None]),
    ],
    "messages-errors-with-status-200": [(lambda s: s.send(max_tokens=-1).status_code, 200)],
    "messages-errors-unexplained": [(lambda s: "error" in s.send(max_tokens=-1).json(), False)],
    "messages-parallel-calls-unasked": [
        (lambda s: len(call_ids(s.whole(TWICE, tool_choice=ONE_CALL))), 2),
        (lambda s: len(call_ids(s.events(TWICE, tool_choice=ONE_CALL))), 2),
    ],
    "messages-call-ids-from-zero": [
        (lambda s: call_ids(s.whole(TWICE)), ["toolu_0", "toolu_1"]),
        (lambda s: call_ids(s.events(TWICE)), ["toolu_0", "toolu_1"]),
    ],
    "messages-call-ids-repeated": [
        (lambda s: call_ids(s.whole(TWICE)), ["toolu_0", "toolu_0"]),
        (lambda s: call_ids(s.events(TWICE)), ["toolu_0", "toolu_0"]),
    ],
    "messages-calls-returned-twice": [(lambda s: len(set(call_ids(s.whole(CALLED)))), 2)],
    "messages-input-as-text": [(lambda s: s.whole(CALLED)["content"][-1]["input"], '{"a":1}')],
    "messages-orphan-result-to-first-call": [(lambda s: s.send(messages=ORPHAN).status_code, 200)],
    "messages-end-turn-when-cut": [
        (lambda s: s.whole(max_tokens=7)["stop_reason"], "end_turn"),
        (lambda s: ending(s.events(max_tokens=7))["stop_reason"], "end_turn"),
    ],
    "messages-out-of-range-500": [(lambda s: statuses(s, {"temperature": 1}, {"temperature": 7}), [200, 500])],
    "messages-engine-down-after-empty-stop": [
        (lambda s: statuses(s, {}, {"stop_sequences": [""]}, {}), [200, 500, 500]),
    ],
}


OF_MESSAGES = (*messages.DEFECTS, *messages_delivery.DEFECTS, *messages_calls.DEFECTS)


def test_every_defect_is_shown():
    defects = {defect.id for defect in OF_MESSAGES}
    assert set(SHOWN) | {"messages-all-at-once"} == defects <= set(DEFECTS)


@pytest.mark.parametrize(("ident", "look", "expected"), [(name, *one) for name, rows in SHOWN.items() for one in rows])
def test_defect_shows(ident, look, expected):
    assert look(Server(ident)) == expected
    assert look(Server()) != expected


def test_all_at_once_reads_the_whole_stream_before_its_first_event():
    tokens = iter(["a", "b", "c"])
    stream = Changes([DEFECTS["messages-all-at-once"]]).stream(tokens, ApiFamily.MESSAGES)
    assert next(stream) == "a"
    assert list(tokens) == []
    assert list(stream) == ["b", "c"]


def test_a_dropped_block_leaves_the_tokens_in_the_stream():
    for ident in ("messages-thinking-dropped", "messages-thinking-unsigned"):
        shown = [
            [token for event in server.events() for token in event.get("token_ids", [])]
            for server in (Server(ident), Server())
        ]
        assert shown[0] == shown[1]


def test_other_apis_stay_right():
    for defect in OF_MESSAGES:
        answers = [
            server.send("/v1/chat/completions", harmony_script=SAID, tools=[]).json()
            for server in (Server(defect.id), Server())
        ]
        assert answers[0] == answers[1], defect.id


def test_a_crash_of_the_engine_ends_the_other_api_too():
    server = Server("messages-engine-down-after-empty-stop")
    server.send(stop_sequences=[""])
    chat = [one.send("/v1/chat/completions", harmony_script=SAID, tools=[]).status_code for one in (server, Server())]
    assert chat == [500, 200]


def test_a_crowd_cuts_messages_as_it_cuts_chats():
    reasons = [Server(*defects).crowd(10) for defects in (("cut-short-in-a-crowd",), ())]
    assert reasons == [["end_turn"] * 8 + ["max_tokens"] * 2, ["end_turn"] * 10]
