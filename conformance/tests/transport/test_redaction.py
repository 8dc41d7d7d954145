import asyncio
import base64
import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.transport.client import Client, ConnectionSettings
from harmony_conformance.transport.messages import Chunk, Request
from harmony_conformance.transport.redaction import (
    MASK,
    Mask,
    cookie_secrets,
    custom_header_secrets,
    header_secrets,
    query_secrets,
    request_secrets,
)

KEY = "sk-0123456789abcdef"
BODY = f'data: {{"a":"{KEY}"}}\n\ndata: {{"b":"{KEY} {KEY}"}}\n\ndata: [DONE]\n\n'


def cut(body, places):
    edges = [0, *sorted(places), len(body)]
    return tuple(
        Chunk(arrival_time=float(index), data=body[start:end]) for index, (start, end) in enumerate(pairwise(edges))
    )


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_a_key_is_masked_wherever_the_chunks_are_cut(places):
    chunks = cut(BODY.encode(), places)
    masked = Mask([KEY]).mask_chunks(chunks)
    assert b"".join(part.data for part in masked) == BODY.replace(KEY, MASK).encode()
    assert [part.arrival_time for part in masked] == [part.arrival_time for part in chunks]


@given(st.lists(st.integers(0, 30), max_size=4), st.binary(max_size=30))
def test_chunks_without_a_key_stay_as_they_are(places, body):
    chunks = cut(body, [min(place, len(body)) for place in places])
    assert Mask([KEY]).mask_chunks(chunks) == chunks


def test_the_mask_arrives_when_the_first_byte_of_the_key_did():
    chunks = (
        Chunk(arrival_time=1.0, data=b"x sk-0123"),
        Chunk(arrival_time=2.0, data=b"456789abcdef y"),
        Chunk(arrival_time=3.0, data=b"z"),
    )
    assert Mask([KEY]).mask_chunks(chunks) == (
        Chunk(arrival_time=1.0, data=b"x ***"),
        Chunk(arrival_time=2.0, data=b" y"),
        Chunk(arrival_time=3.0, data=b"z"),
    )


SPELLINGS = {
    "as it is": 'ab/c"d+e\\f',
    "in JSON": 'ab/c\\"d+e\\\\f',
    "in JSON with escaped slashes": 'ab\\/c\\"d+e\\\\f',
    "in a URL": "ab%2Fc%22d%2Be%5Cf",
    "in a path": "ab/c%22d%2Be%5Cf",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_key_is_masked_however_it_is_spelled(spelling):
    assert Mask(['ab/c"d+e\\f']).mask_text(f"<{SPELLINGS[spelling]}>") == f"<{MASK}>"


@pytest.mark.parametrize(
    "placeholder", ["EMPTY", "none", "token", "x", "dummy", "message", "model", "12345", "function"]
)
def test_a_word_that_stands_in_for_a_key_is_no_secret(placeholder):
    assert header_secrets(placeholder, {}) == ()


@pytest.mark.parametrize("key", ["prompt_tok", "sponse", "return role"])
def test_a_key_that_is_a_part_of_a_common_word_is_a_secret(key):
    assert header_secrets(key, {}) == (key,)


def test_headers_that_hold_credentials_are_secret_and_others_are_not():
    headers = {
        "Authorization": "Bearer abcdef-1",
        "api-key": "abcdef-2",
        "X-Auth-Token": "abcdef-3",
        "x-team": "production",
        "accept-language": "german",
    }
    assert header_secrets(None, headers) == ("abcdef-1", "abcdef-2", "abcdef-3")


def test_the_value_of_a_cookie_is_secret_without_its_name():
    assert {"abcdef-1", "abcdef-2"} <= set(header_secrets(None, {"cookie": "sid=abcdef-1; other=abcdef-2"}))


def test_what_the_servers_of_tools_are_sent_is_secret():
    tools = [
        {"type": "mcp", "authorization": "abcdef-1", "headers": {"Authorization": "Bearer abcdef-2", "X": "abcdef-3"}},
        {"type": "function", "name": "authorization", "parameters": {"properties": {"headers": {"type": "object"}}}},
    ]
    assert request_secrets({"tools": tools}) == ("abcdef-1", "abcdef-2", "abcdef-3")
    for odd in (None, [], {"tools": 1}, {"tools": [1, {"authorization": 1, "headers": ["x"]}]}):
        assert request_secrets(odd) == ()


@pytest.mark.parametrize(
    "query",
    [
        "api_key=abcdef-1",
        "a=1&key=abcdef-1",
        "access_token=abcdef-1",
        "sv=2024-11-04&sig=abcdef-1",
        "X-Amz-Signature=abcdef-1",
        "Ocp-Apim-Subscription-Key=abcdef-1",
        "client_secret=abcdef-1",
        "api%5Fkey=abcdef-1",
    ],
)
def test_a_key_in_a_query_is_secret(query):
    assert query_secrets(query) == ("abcdef-1",)


def test_a_key_in_a_query_is_secret_as_it_stands_there_and_as_it_is_read():
    assert query_secrets("sig=ab%2fcd%3D&x") == ("ab%2fcd%3D", "ab/cd=")


@pytest.mark.parametrize("query", ["", "api-version=2024-10-21", "max_tokens=100000", "keyword=weather", "key=", "key"])
def test_other_parameters_of_a_query_are_none(query):
    assert query_secrets(query) == ()


URLS = {
    "https://abcdef-1@mcp.example/sse": {"abcdef-1"},
    "https://oauth2:abcdef-1@mcp.example/sse": {"abcdef-1"},
    "https://mcp.example/sse?api_key=abcdef-1&region=europe": {"abcdef-1"},
    "https://mcp.example/sse#access_token=abcdef-1": {"abcdef-1"},
    "https://mcp.example/s/NzY1ZjQ0OWEtODk2/mcp": {"NzY1ZjQ0OWEtODk2"},
    "https://mcp.example/v1/servers/weather/mcp": set(),
    "https://[": set(),
}


@pytest.mark.parametrize("url", URLS)
def test_a_key_in_the_url_of_a_tool_is_secret(url):
    assert set(request_secrets({"tools": [{"type": "mcp", "server_label": "weather", "server_url": url}]})) == URLS[url]


def test_a_key_beside_the_messages_is_secret():
    assert request_secrets({"messages": [], "api_key": "abcdef-1"}) == ("abcdef-1",)


def test_a_cookie_that_a_server_sets_is_secret_without_its_name_and_what_is_no_credential_is_not():
    one = "sid=abcdef-1; Path=/; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Domain=example.com; HttpOnly; SameSite=Strict"
    assert cookie_secrets([("content-type", "text/html"), ("set-cookie", one), ("set-cookie", 'b="abcdef-2"')]) == (
        "abcdef-1",
        "abcdef-2",
    )
    assert cookie_secrets([("set-cookie", "a=abcdef-1; Path=/, b=abcdef-2")]) == ("abcdef-1", "abcdef-2")
    assert cookie_secrets([("set-cookie", "language=german"), ("x-request-id", "abcdef-1")]) == ()


ECHOES = {
    "a JSON body": (b"application/json", [json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()]),
    "a stream": (b"text/event-stream", [b'data: {"a":"', KEY.encode(), b'"}\n\n']),
    "a stream, cut within the key": (b"text/event-stream", [b'data: {"a":"sk-01234', b"56789abc", b'def"}\n\n']),
    "a page": (b"text/html", [f"<h1>{KEY}</h1>".encode()]),
}


@pytest.mark.parametrize("how", ECHOES)
def test_a_key_that_a_server_echoes_is_masked_in_headers_and_body(raw_server, how):
    kind, parts = ECHOES[how]

    def answer(connection, request):
        head = b"HTTP/1.1 401 No\r\ncontent-type: " + kind + b"\r\nx-key: " + KEY.encode()
        connection.sendall(head + b"\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in parts:
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            server.closing.wait(0.02)
        connection.sendall(b"0\r\n\r\n")

    server = raw_server(answer)

    async def once():
        async with Client(ConnectionSettings(base_url=server.url, api_key=KEY, headers={}, timeout=5)) as client:
            return await client.send(Request(path="/v1/models", method="GET", body=b""))

    sent = asyncio.run(once())
    assert KEY.encode() in server.requests[0]
    assert KEY not in repr(sent)
    assert sent.response.headers["x-key"] == MASK
    assert sent.response.body == b"".join(parts).replace(KEY.encode(), MASK.encode())


def test_a_cookie_that_a_server_sets_is_masked_where_it_says_it_again(raw_server):
    def answer(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nset-cookie: sid=abcdef-1; Path=/\r\nx-session: abcdef-1\r\n")
        connection.sendall(
            b'content-type: application/json\r\ncontent-length: 18\r\n\r\n{"sid": "abcdef-1"}'[:-1] + b" "
        )

    server = raw_server(answer)

    async def once():
        async with Client(ConnectionSettings(base_url=server.url, api_key=KEY, headers={}, timeout=5)) as client:
            return await client.send(Request(path="/v1/models", method="GET", body=b""))

    sent = asyncio.run(once())
    assert sent.response.headers["x-session"] == MASK
    assert "abcdef-1" not in repr(sent)


CASED = "sk-Ab0Cd1Ef2Gh3"
ESCAPED = {
    "upper case": CASED.upper(),
    "lower case": CASED.lower(),
    "JSON escapes": "".join(f"\\u{ord(char):04x}" for char in CASED),
    "JSON escapes of some letters": CASED.replace("A", "\\u0041").replace("G", "\\\\u0047"),
    "percent escapes": "".join(f"%{ord(char):02X}" for char in CASED),
    "percent escapes twice": "".join(f"%25{ord(char):02x}" for char in CASED),
    "HTML": "".join(f"&#{ord(char)};" for char in CASED),
    "percent escapes in JSON escapes": "".join(f"\\u0025{ord(char):02x}" for char in CASED),
    "JSON escapes in percent escapes": "".join(f"%5Cu{ord(char):04x}" for char in CASED),
    "HTML in percent escapes in JSON escapes": "".join(f"\\u002526#{ord(char)};" for char in CASED),
}


@pytest.mark.parametrize("spelling", ESCAPED.values(), ids=ESCAPED)
def test_a_key_is_masked_in_another_case_and_escaped(spelling):
    assert Mask([CASED]).mask_text(f"<{spelling}>") == f"<{MASK}>"


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "someone:"])
def test_a_key_is_masked_in_base64_alone_and_after_a_user(before):
    masked = Mask([CASED]).mask_text(base64.b64encode(f"{before}{CASED}".encode()).decode())
    assert MASK in masked
    assert len(masked) < len(before) * 2 + 10


def stream(deltas):
    events = [{"choices": [{"index": index, "delta": delta}]} for index, delta in deltas]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


def letters(field, index=0):
    return [(index, {field: char}) for char in f"a {CASED} b"]


SPLIT = {
    "content": stream(letters("content")),
    "reasoning": stream(letters("reasoning_content")),
    "arguments": stream([(0, {"tool_calls": [{"index": 0, "function": {"arguments": c}}]}) for c in f"a {CASED} b"]),
    "two choices in turn": stream(
        [one for pair in zip(letters("content"), letters("content", 1), strict=True) for one in pair]
    ),
    "pieces": stream([(0, {"content": piece}) for piece in ("a sk-A", "b0Cd1", "Ef2Gh3 b")]),
    "escaped letters": [one.replace(b'"A"', b'"\\u0041"') for one in stream(letters("content"))],
}


@pytest.mark.parametrize("events", SPLIT.values(), ids=SPLIT)
def test_a_key_is_masked_over_the_events_of_a_stream(events):
    chunks = tuple(Chunk(arrival_time=float(place), data=data) for place, data in enumerate(events))
    masked = Mask([CASED]).mask_chunks(chunks)
    joined = {}
    for chunk in masked:
        (choice,) = json.loads(chunk.data[6:])["choices"]
        delta = choice["delta"]
        value = delta["tool_calls"][0]["function"]["arguments"] if "tool_calls" in delta else next(iter(delta.values()))
        joined[choice["index"]] = joined.get(choice["index"], "") + value
    assert set(joined.values()) == {f"a {MASK} b"}
    assert [chunk.arrival_time for chunk in masked] == [chunk.arrival_time for chunk in chunks]


def write_odd_events(place, char):
    """Yield events with one letter of a key, each of another kind, as bytes."""
    plain = json.dumps({"choices": [{"index": 0, "delta": {"role": None, "content": char}}]})
    other = json.dumps({"choices": [{"index": 1, "delta": {"content": "x"}}]})
    extra = '{"content":"other","choices"' if place % 2 else '{"choices"'
    yield "escaped name", f"data: {plain}\n\ndata: {other}\n\n".replace("content", "conten\\u0074")
    yield "two lines", f"data: {plain}\n\ndata: {other}\n\n".replace('"content":', '"content":\ndata:')
    yield "two lines with CRLF", f"data: {plain}\r\n\r\ndata: {other}\r\n\r\n".replace('":', '":\r\ndata:')
    yield "extra member", f"data: {plain}\n\ndata: {other}\n\n".replace('{"choices"', extra)
    yield "a member twice", f"data: {plain}\n\n".replace('"role": null', '"content": "x"' if place % 2 else '"a": 1')
    yield "varying index", f"data: {plain}\n\ndata: {other}\n\n".replace('"index"', f'"xindex": {place}, "index"')
    yield "index at the end", f"data: {plain}\n\ndata: {other}\n\n".replace("}}", f'}}, "xindex": {place}}}')


ODD = (
    "escaped name",
    "two lines",
    "two lines with CRLF",
    "extra member",
    "a member twice",
    "varying index",
    "index at the end",
)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", [CASED, CASED * 20], ids=["short", "long"])
def test_a_key_is_masked_over_events_of_odd_form(kind, key):
    body = "".join(dict(write_odd_events(place, char))[kind] for place, char in enumerate(f"a {key} b")).encode()
    events = Mask([key]).mask_body(body).replace(b"\r", b"").replace(b"\ndata:", b"\n").split(b"\n\n")
    choices = [json.loads(event.removeprefix(b"data: "))["choices"][0] for event in events if event.strip()]
    assert "".join(one["delta"]["content"] for one in choices if one["index"] == 0) == f"a {MASK} b"
    assert set("".join(one["delta"]["content"] for one in choices if one["index"] == 1)) <= {"x"}


def test_a_long_secret_and_a_large_body_with_an_escape_take_little_memory():
    long = "".join(f"{place:x}g" for place in range(2_000))
    body = b'{"a":"' + b"a" * 2_000_000 + f'"}}\ndata: "\\u{ord(CASED[0]):04x}{CASED[1:]}"\n'.encode()
    pieces = "".join(f'data: {{"{long[place:]}":"{long[:place]}"}}\n\n' for place in range(1, 200))
    tracemalloc.start()
    masked = Mask([long, CASED]).mask_body(body + pieces.encode())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f'data: "{MASK}"'.encode() in masked
    assert most < 20 * len(body)


def test_a_number_is_masked_alone_and_json_stays_json():
    text = '{"created":1761234567,"tenant":761234,"said":"761234"}'
    assert json.loads(Mask(["761234"]).mask_text(text)) == {"created": 1761234567, "tenant": 0, "said": "0"}


def test_headers_that_a_user_adds_are_secret_however_named():
    headers = {"X-Team": "blue team", "X-Sig": "id=Abcdef1;x", "Accept": "text/plain", "User-Agent": "Browser/1.0 abc"}
    assert custom_header_secrets(headers) == ("blue team", "id=Abcdef1;x", "Abcdef1")


def test_members_named_like_credentials_are_secret_at_any_depth():
    request = {
        "messages": [{"role": "user", "content": "x", "token": "abcdef-0"}],
        "metadata": {"a": [{"password": "abcdef-1"}], "extra_headers": {"X-Team": "abcdef-2", "Accept": "abcdef-x"}},
        "secrets": {"a": ["abcdef-3"]},
        "max_tokens": 100,
        "eos_token": "<|return|>",
        "prompt_cache_key": "abcdef-y",
        "parameters": {"properties": {"token": {"type": "string"}}},
    }
    assert request_secrets(request) == ("abcdef-1", "abcdef-2", "abcdef-3")
