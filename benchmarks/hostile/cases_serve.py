"""The reference server as a web page or a hostile client reaches it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from attacked_processes import Listener, Reply, get, post, raw, serve
from case import Case, expect

PART = "serve"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "x"}]


def schema(value: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def nested(depth: int, keyword: str) -> object:
    """A schema whose instance multiplies at each level."""
    value: object = {"type": "string", "minLength": 10}
    for _ in range(depth):
        value = {"type": "array", keyword: 100, "items": value}
    return value


def deep(depth: int) -> str:
    return '{"type":"array","items":' * depth + '{"type":"string"}' + "}" * depth


AMPLIFIERS: Mapping[str, object] = {
    "minLength 1,000,000,000": schema({"type": "string", "minLength": 10**9}),
    "minItems 1,000,000,000": schema({"type": "array", "minItems": 10**9, "items": {"type": "string"}}),
    "minItems 100, nested 6 deep": schema(nested(6, "minItems")),
    "minProperties 1,000,000,000": schema({"type": "object", "minProperties": 10**9}),
    "pattern with a billion repeats": schema({"type": "string", "pattern": "^(a{1000}){1000000}$"}),
    "pattern that backtracks": schema({"type": "string", "pattern": "^(a+)+$", "minLength": 100_000}),
    "recursive $ref": schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/a"}}}}
    ),
    "enum of 200,000": schema({"enum": [f"value {number}" for number in range(200_000)]}),
    "128 choices of long output": {"n": 128, "max_tokens": 2**31, **schema({"type": "string", "minLength": 10**6})},
    "logprobs of long output": {"logprobs": True, "top_logprobs": 20, **schema({"type": "string", "minLength": 10**7})},
    "10^6 stop strings": {"stop": ["x"] * 10**6},
    "10^7 letters": {"messages": [{"role": "user", "content": "x" * 10**7}]},
    "10^6 messages": {"messages": [{"role": "user", "content": "x"}] * 10**6},
    "number of 10,000 digits": {"max_tokens": int("9" * 4000)},
}


def amplifier(name: str, folder: Path) -> str:
    body = json.dumps({"model": "gpt-oss-reference", "messages": MESSAGES, **dict(AMPLIFIERS[name])}).encode()  # type: ignore[call-overload]
    with serve(folder) as listener:
        return sent(listener, body)


def sent(listener: Listener, body: bytes) -> str:
    try:
        reply = post(listener.url + CHAT, body, seconds=50)
    except ConnectionError:
        reply = Reply(413, {}, b"")  # the connection was closed while the body was sent
    expect(reply.status < 500, f"status {reply.status}")
    expect(len(reply.body) < 64 * 2**20, f"an answer of {len(reply.body):,} bytes")
    usual(listener)
    return f"status {reply.status}; {len(body):,} bytes sent, {len(reply.body):,} answered"


def usual(listener: Listener) -> None:
    """Check that an ordinary request is answered."""
    body = json.dumps({"model": "gpt-oss-reference", "messages": MESSAGES}).encode()
    expect(post(listener.url + CHAT, body).status == 200, "an ordinary request is not answered")


def deep_bodies(folder: Path) -> str:
    texts = ["[" * 200_000, '{"a":' * 200_000]
    wrapped = '{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":%s}}}'
    texts += [wrapped % deep(depth) for depth in (100, 900, 50_000)]
    with serve(folder) as listener:
        return "; ".join(sent(listener, text.encode()).split(";")[0] for text in texts)


def foreign_page(folder: Path) -> str:
    """Requests that a web page can make a browser send."""
    body = json.dumps({"model": "gpt-oss-reference", "messages": MESSAGES}).encode()
    with serve(folder) as listener:
        own = f"127.0.0.1:{listener.port}"
        got = {
            "other Host": post(listener.url + CHAT, body, headers={"Host": "evil.example"}).status,
            "own name as prefix": post(listener.url + CHAT, body, headers={"Host": f"{own}.evil.example"}).status,
            "text/plain": post(listener.url + CHAT, body, headers={"Content-Type": "text/plain"}).status,
            "form": post(
                listener.url + CHAT, body, headers={"Content-Type": "application/x-www-form-urlencoded"}
            ).status,
            "no type": int(([*raw(listener.port, request(own, body)).split(b" "), b"", b"0"])[1] or 0),
        }
        usual(listener)
        accepted = [name for name, status in got.items() if not 400 <= status < 500]
        expect(not accepted, f"accepted: {', '.join(accepted)}")
        return ", ".join(f"{name}: {status}" for name, status in got.items())


def request(host: str, body: bytes) -> bytes:
    return (
        f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def traversal(folder: Path) -> str:
    with serve(folder) as listener:
        got = {
            path: raw(listener.port, f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode()) for path in TRAVERSALS
        }
        leaking = [path for path, reply in got.items() if b"root:" in reply]
        expect(not leaking, f"files are read: {leaking}")
        expect(get(f"{listener.url}/v1/models").status == 200, "not serving")
        return f"{len(got)} paths, no file read"


TRAVERSALS = (
    "/../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/v1/..%2f..%2fetc/passwd",
    "//etc/passwd",
    "/static/..\\..\\etc\\passwd",
)


def case(name: str, report: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(name=f"serve.{name}", part=PART, report=report, expected=expected, attack=attack, **limits)  # type: ignore[arg-type]


CASES = (
    *(
        case(name, "F4", "an answer or a 4xx; still serving", functools.partial(amplifier, name), memory=700)
        for name in AMPLIFIERS
    ),
    case("deep JSON", "F4", "an answer or a 4xx; still serving", deep_bodies, memory=500),
    case("requests of a web page", "F4", "each a 4xx", foreign_page),
    case("path traversal", "survived 7", "no file read", traversal),
)
