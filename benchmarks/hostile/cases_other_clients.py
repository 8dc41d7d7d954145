"""Leaks that only some clients show, through a proxy that blocks them with `fail = "open"`."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attacked_processes import post, proxy
from case import expect
from cases_large_answers import watched
from cases_proxy import BODY, CHAT, STREAMED, case, healthy
from payloads import LEAK
from servers import EVENTS_HEAD, JSON_HEAD, Received, completion, event, hostile, whole

OPEN = ("--block", "channels.*")
SECRET = b"wants a secret"
INNOCENT = "The sky is blue."
TYPE = b"content-type: %b\r\n"


def answer(text: str, name: str = "content", more: str = "") -> bytes:
    message = f'{{"role": "assistant", "{name}": {json.dumps(text)}{more}}}'
    return f'{{"id": "c1", "choices": [{{"index": 0, "message": {message}, "finish_reason": "stop"}}]}}'.encode()


def of_type(kind: bytes, body: bytes, status: bytes = b"200 OK") -> bytes:
    return whole(body, TYPE % kind, status)


def delta(text: str, name: str = "content") -> bytes:
    return event({"id": "c1", "choices": [{"index": 0, "delta": {name: text}, "finish_reason": None}]})


def letters(text: str, make: Callable[[str], bytes] = delta) -> bytes:
    return b"".join(make(letter) for letter in text) + b"data: [DONE]\n\n"


def stream(body: bytes, kind: bytes = b"text/event-stream", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\n%bconnection: close\r\n\r\n%b" % (status, TYPE % kind, body)


WHOLE: Mapping[str, Callable[[str], bytes]] = {
    "first of two members": lambda text: whole(answer(text, more=', "content": "Hello."')),
    "another case": lambda text: whole(answer(text, "Content")),
    "UTF-16": lambda text: whole(answer(text).decode().encode("utf-16")),
    "byte order mark": lambda text: whole(b"\xef\xbb\xbf" + answer(text)),
    "NaN": lambda text: whole(answer(text, more=', "x": NaN')),
    "plain text": lambda text: of_type(b"text/plain", text.encode()),
    "HTML error": lambda text: of_type(b"text/html", f"<h1>Error</h1><p>{text}</p>".encode(), b"500 X"),
    "text error": lambda text: of_type(b"text/plain", f"cannot parse: {text}".encode(), b"502 X"),
    "problem": lambda text: of_type(b"application/problem+json", json.dumps({"detail": text}).encode(), b"400 X"),
    "another API": lambda text: whole(json.dumps({"output": [{"content": [{"text": text}]}]}).encode()),
    "events as JSON": lambda text: of_type(b"application/json", letters(text)),
}
STREAMS: Mapping[str, Callable[[str], bytes]] = {
    "comments": lambda text: stream(letters(text, lambda letter: b":%b\n\n" % letter.encode())),
    "ids": lambda text: stream(b"id: %b\n\n" % text.encode() + letters("Hi")),
    "unknown field": lambda text: stream(b"text: %b\n\n" % text.encode() + letters("Hi")),
    "refusal": lambda text: stream(letters(text, lambda letter: delta(letter, "refusal"))),
    "DATA:": lambda text: stream(letters(text, lambda letter: delta(letter).replace(b"data:", b"DATA:"))),
    "Delta": lambda text: stream(letters(text, lambda letter: delta(letter).replace(b"delta", b"Delta"))),
    "no name of the field": lambda text: stream(letters(text, lambda letter: delta(letter)[6:])),
    "status 500": lambda text: stream(letters(text), status=b"500 X"),
}


def shown(body: bytes) -> bytes:
    """The letters of an answer that a lenient client joins, after its bytes."""
    lines = [line for line in body.splitlines() if b'"index"' in line or line.startswith(b":")]
    return body + b"".join(line[1:2] if line.startswith(b":") else letter_of(line) for line in lines)


def letter_of(line: bytes) -> bytes:
    value = json.loads(line[line.index(b"{") :])
    deltas = (choice.get("delta") or choice.get("Delta") or {} for choice in value.get("choices", ()))
    return "".join(text for one in deltas for text in one.values() if isinstance(text, str)).encode()


def leaks(cases: Mapping[str, Callable[[str], bytes]], asked: bytes, folder: Path) -> str:
    wrong: list[str] = []
    turn = [b""]
    with hostile(lambda request: [turn[0]]) as server, proxy(folder, server.port, *OPEN) as listener:
        for name, make in cases.items():
            turn[0] = make(LEAK)
            wrong += [f"{name} passes"] if SECRET in shown(post(listener.url + CHAT, asked).body) else []
            turn[0] = make(INNOCENT)
            wrong += (
                [] if b"blocked" not in post(listener.url + CHAT, asked).body else [f"{name} is blocked without a leak"]
            )
        healthy(listener)
    expect(not wrong, "; ".join(wrong))
    return f"{len(cases)} forms blocked, and passed without a leak"


def padding(folder: Path) -> str:
    body = gzip.compress(json.dumps(completion("Hello.")).encode()) + LEAK.encode()
    reply = whole(body, JSON_HEAD + b"content-encoding: gzip\r\n")
    with hostile(lambda request: [reply]) as server, proxy(folder, server.port, *OPEN) as listener:
        answered = post(listener.url + CHAT, BODY)
        expect(SECRET not in answered.body and b"Hello." in answered.body, f"{answered.body[:80]!r}")
        return "the client gets what was examined"


FILLERS = {
    "quotes": '\\"',
    "strings": '"<a b c d" ',
    "tags": "<!-- ",
    "comments": ":<a\n\n",
    "members": '{"a":1,"a":2,',
}


def costly(folder: Path) -> str:
    """4 MB that are no JSON: others wait little, and the answer comes."""
    slowest = {name: cost_of(filler, folder / name) for name, filler in FILLERS.items()}
    worst = max(slowest, key=lambda name: slowest[name])
    expect(slowest[worst] < 0.7, f"/healthz took {slowest[worst]:.2f} s, for {worst}")
    return f"answered; the slowest /healthz took {slowest[worst]:.2f} s, for {worst}"


def cost_of(filler: str, folder: Path) -> float:
    folder.mkdir()
    body = (filler * (4 * 2**20 // len(filler))).encode()

    def send(request: Received) -> Iterator[bytes]:
        if not filler.startswith(":"):
            yield of_type(b"text/plain", body, b"500 X")
            return
        yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]
            time.sleep(0.001)

    with hostile(send) as server, proxy(folder, server.port, *OPEN) as listener:
        reply, worst = watched(listener, STREAMED)
        expect(len(reply) == len(body), f"{len(reply):,} bytes of {len(body):,}")
        return worst


CASES = (
    case(
        "forms of whole answers",
        "",
        "leaks blocked, others pass",
        lambda folder: leaks(WHOLE, BODY, folder),
        seconds=90,
    ),
    case(
        "forms of streams",
        "",
        "leaks blocked, others pass",
        lambda folder: leaks(STREAMS, STREAMED, folder),
        seconds=90,
    ),
    case("bytes after a compressed answer", "", "not sent on", padding),
    case(
        "4 MB of quotes, tags, comments", "", "answered; others wait less than 0.7 s", costly, memory=700, seconds=150
    ),
)
