"""Questions and answers as bytes. The text of a question has the plan of its answer, because a text passes every proxy."""

import re
from dataclasses import dataclass

MODEL = "gpt-oss-20b"
PATH = "/v1/chat/completions"
AT = b'":" at '
"""Text before the time in an event: the time at which it was sent, in nanoseconds of the machine's monotonic clock."""
DIGITS = 16

_CHUNK = (
    b'data: {"id":"chatcmpl-7f9c0d2e41aa","object":"chat.completion.chunk","created":1763769600,"model":"gpt-oss-20b",'
    b'"choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}]}\n\n'
)
ROLE = _CHUNK % (b'"role":"assistant","content":""', b"null")
STOP = _CHUNK % (b"", b'"stop"')
DONE = b"data: [DONE]\n\n"
REASONING = _CHUNK.replace(b"%s", b'"reasoning_content":" at %016d%s"', 1).replace(b":%s}]", b":null}]")
CONTENT = REASONING.replace(b"reasoning_content", b"content")

WHOLE = (
    b'{"id":"chatcmpl-7f9c0d2e41aa","object":"chat.completion","created":1763769600,"model":"gpt-oss-20b","choices":[{"index":0,'
    b'"message":{"role":"assistant","reasoning_content":"The user wants the capital of France.","content":"The capital of France is Paris."},'
    b'"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":83,"completion_tokens":24,"total_tokens":107}}'
)
"""A small answer of about 380 bytes."""

GARBAGE = b'data: {"choices": [{"delta": {"content": "\xff\xfe \x00\n\n: \xe2\x82\n\ndata:\r\n\r\nevent: nothing\ndata: ]]]\n\n'

_PLAN = re.compile(rb"bench:(\d+),(\d+),(\d+),(\d+),([a-z]*);")


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Plan of an answer.

    Attributes:
        events: number of events with a time in a stream; 0 for a complete answer.
        pace: microseconds between two events, and before a complete answer; 0 for maximum speed.
        padding: further bytes of text in each event.
        number: number of the first event. If it is not 0, events have numbers instead of times, so that the client knows what must arrive.
        fault: name of a fault in faults.FAULTS.
    """

    events: int = 0
    pace: int = 0
    padding: int = 0
    number: int = 0
    fault: str = ""


def asked(body: bytes) -> Plan:
    """Return the plan in the body of a request, or a default plan."""
    found = _PLAN.search(body)
    if found is None:
        return Plan()
    events, pace, padding, number = map(int, found.groups()[:4])
    return Plan(events=events, pace=pace, padding=padding, number=number, fault=found[5].decode())


def question(plan: Plan) -> bytes:
    """Return the body of a request: a chat of two messages."""
    wish = f"bench:{plan.events},{plan.pace},{plan.padding},{plan.number},{plan.fault};"
    stream = ',"stream":true' if plan.events else ""
    return (
        f'{{"model":"{MODEL}","messages":[{{"role":"system","content":"You answer in one sentence."}},'
        f'{{"role":"user","content":"What is the capital of France? {wish}"}}],"max_tokens":512{stream}}}'
    ).encode()


def request(plan: Plan, host: str, path: str = PATH) -> bytes:
    """Return a complete HTTP/1.1 request, as clients send it."""
    body = question(plan)
    return (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: bench/1\r\naccept: application/json\r\n"
        f"authorization: Bearer sk-bench-not-a-key-0123456789\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


class Events:
    """Events of a stream, in order. The first quarter of the text is reasoning."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._padding = b" word" * (plan.padding // 5)
        self._reasoning = plan.events // 4

    def text(self, index: int, at: int) -> bytes:
        """Return the event at `index` with the time `at` or the plan's own numbers."""
        template = REASONING if index < self._reasoning else CONTENT
        return template % (self._plan.number + index if self._plan.number else at, self._padding)

    def last(self) -> bytes:
        return STOP + DONE
