"""The client over WebSockets, against servers of the library `websockets` and against servers that break its rules."""

import asyncio
import json
import ssl
import struct
from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from http import HTTPStatus
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.server import serve

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.client import ConnectionSettings
from harmony_conformance.transport.http_transport import Network
from harmony_conformance.transport.messages import FailureKind, Request
from harmony_conformance.transport.websocket import as_server_sent_event, create_message
from harmony_conformance.transport.websocket_client import WebSocketClient, series_connections

BODY = {"model": "m", "input": "Hi", "stream": True, "store": False}
ASK = Request(path="/v1/responses", body=json.dumps(BODY).encode())
CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
COMPLETED = {"type": "response.completed", "response": {"id": "resp_1"}}
NOT_FOUND = {"type": "error", "status": 400, "error": {"code": "previous_response_not_found", "message": "gone"}}
KEY = "sk-secret-of-the-test"


async def send_all(base, requests, **options):
    settings = ConnectionSettings(base_url=base, headers={}, **{"timeout": 5.0, **options})
    async with WebSocketClient(settings) as client, series_connections(over_websocket=True):
        return [await client.send(request) for request in requests]


def talk(answer, requests=(ASK,), **options):
    """Return the results of requests to a server whose connections `answer` handles."""

    async def both():
        async with serve(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await send_all(f"http://127.0.0.1:{port}", requests, **options)

    return asyncio.run(both())


def saying(*messages):
    async def answer(connection):
        async for _ in connection:
            for message in messages:
                await connection.send(message if isinstance(message, str | bytes) else json.dumps(message))

    return answer


def events(result):
    x = Exchange(id="x", api="responses", request=ASK, response=result.response)
    return [event.value for event in x.events.events]


def test_a_streamed_request_is_one_message_and_its_events_are_a_stream():
    seen = []

    async def answer(connection):
        async for message in connection:
            seen.append((json.loads(message), connection.request.path, connection.request.headers["authorization"]))
            await connection.send(json.dumps(CREATED))
            await connection.send(json.dumps(COMPLETED))

    (result,) = talk(answer, api_key=KEY)
    message = {"type": "response.create", "model": "m", "input": "Hi", "store": False}
    assert seen == [(message, "/v1/responses", f"Bearer {KEY}")]
    assert result.failure is None
    assert result.websocket == 1
    assert result.response.status == HTTPStatus.OK
    assert events(result) == [CREATED, COMPLETED]


def test_turns_share_a_connection_and_an_error_does_not_end_it():
    async def answer(connection):
        for turn in ([CREATED, COMPLETED], [NOT_FOUND], [CREATED, COMPLETED]):
            await connection.recv()
            for event in turn:
                await connection.send(json.dumps(event))
        await connection.wait_closed()

    results = talk(answer, [ASK, ASK, ASK])
    assert [result.websocket for result in results] == [1, 1, 1]
    assert [result.response.status for result in results] == [200, 400, 200]
    assert results[1].response.json == NOT_FOUND


def test_after_an_error_amid_an_answer_the_next_turn_has_a_connection_of_its_own():
    late = {"type": "response.failed", "response": {"id": "resp_1"}}
    results = talk(saying(CREATED, NOT_FOUND, late), [ASK, ASK])
    assert [result.websocket for result in results] == [1, 2]
    assert [events(result) for result in results] == [[CREATED, NOT_FOUND]] * 2


def test_requests_at_the_same_time_have_connections_of_their_own():
    async def both():
        async with serve(saying(COMPLETED), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            settings = ConnectionSettings(base_url=f"http://127.0.0.1:{port}", headers={})
            async with WebSocketClient(settings) as client, series_connections(over_websocket=True):
                return await asyncio.gather(client.send(ASK), client.send(ASK))

    assert {result.websocket for result in asyncio.run(both())} == {1, 2}


def test_outside_of_such_a_series_the_request_goes_over_http():
    async def both():
        async with serve(saying(COMPLETED), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            settings = ConnectionSettings(base_url=f"http://127.0.0.1:{port}", headers={})
            async with WebSocketClient(settings) as client, series_connections(over_websocket=False):
                return await client.send(ASK)

    assert asyncio.run(both()).websocket is None


@pytest.mark.parametrize(
    "request_",
    [
        Request(path="/v1/responses", body=json.dumps({**BODY, "stream": False}).encode()),
        Request(path="/v1/responses", body=json.dumps({**BODY, "background": True}).encode()),
        Request(path="/v1/chat/completions", body=ASK.body),
        Request(path="/v1/responses", body=b'{"stream": true,'),
        Request(path="/v1/responses", body=b'[{"stream": true}]'),
        Request(path="/v1/responses", body=b'{"stream": true, "input": "\\ud800"}'),
        Request(path="/v1/responses", body=ASK.body, headers={"content-type": "text/plain"}),
        Request(path="/v1/responses/resp_1", body=b"", method="GET"),
    ],
)
def test_only_http_can_carry_some_requests(request_):
    assert create_message(request_) is None


def test_a_message_of_several_lines_is_one_event():
    assert as_server_sent_event('{\r\n"a": 1}') == b'data: {\ndata: "a": 1}\n\n'


async def close_at_once(connection):
    await connection.recv()
    await connection.close(1011, "out of memory")


async def close_amid_the_answer(connection):
    await connection.recv()
    await connection.send(json.dumps(CREATED))
    await connection.close(1001)


async def never_answer(connection):
    await connection.recv()
    await connection.wait_closed()


FAILURES = {
    "closed before the answer": (
        close_at_once,
        {},
        FailureKind.RESET,
        "the server closed the WebSocket with code 1011 (out of memory)",
    ),
    "closed in the middle": (
        close_amid_the_answer,
        {},
        FailureKind.CUT,
        "the server closed the WebSocket with code 1001",
    ),
    "silent": (never_answer, {"timeout": 0.2}, FailureKind.TIMEOUT, "no WebSocket message arrived for 0.2 s"),
    "binary": (
        saying(b"\x00\x01"),
        {},
        FailureKind.MALFORMED_HTTP,
        "invalid WebSocket message: expected text, got 2 bytes of binary data",
    ),
    "one large message": (
        saying("x" * 3000),
        {"body_limit": 2000},
        FailureKind.TOO_LARGE,
        "a WebSocket message is larger than 2000 bytes",
    ),
    "many messages": (
        saying(*[{"type": "response.output_text.delta", "delta": "x" * 500}] * 9),
        {"body_limit": 2000},
        FailureKind.TOO_LARGE,
        "the messages are larger than 2000 bytes",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_server_that_breaks_off_is_a_failure_with_one_line(what):
    answer, options, kind, detail = FAILURES[what]
    (result,) = talk(answer, **options)
    assert (result.failure.kind, result.failure.detail) == (kind, detail)


def test_no_compression_is_offered():
    seen = []

    async def answer(connection):
        seen.append(connection.request.headers.get("sec-websocket-extensions"))
        await connection.recv()
        await connection.send(json.dumps(COMPLETED))

    talk(answer)
    assert seen == [None]


ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def raw(first, after=b"", options=None):
    """Return the result of a request to a server that answers the handshake with `first`, or correctly for None, then sends `after`."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(
            line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        )
        accept = b64encode(sha1(key + ACCEPT_KEY).digest())
        right = b"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept
        writer.write(right + b"\r\n\r\n" if first is None else first)
        writer.write(after)
        if first == b"":
            writer.close()
        await reader.read()
        writer.close()

    async def both():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return (await send_all(base, [ASK], **(options or {})))[0]

    return asyncio.run(both())


def test_a_refused_handshake_is_recorded_as_the_http_response_that_it_is():
    body = b'{"error":{"message":"bad key sk-secret-of-the-test"}}'
    head = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    result = raw(head + body, options={"api_key": KEY})
    assert (result.failure, result.websocket, result.response.status) == (None, None, 401)
    assert KEY.encode() not in result.response.body
    assert b"bad key" in result.response.body


def test_a_redirect_is_not_followed():
    result = raw(b"HTTP/1.1 307 Go\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    assert (result.failure, result.response.status) == (None, 307)


FRAMES = {
    "a frame that claims 4 GB": (
        b"\x81\x7f" + struct.pack("!Q", 1 << 32),
        FailureKind.TOO_LARGE,
        "a WebSocket message is larger than",
    ),
    "a compressed frame": (b"\xc1\x05hello", FailureKind.MALFORMED_HTTP, "invalid WebSocket frame: "),
    "text that is not UTF-8": (b"\x81\x02\xff\xfe", FailureKind.MALFORMED_HTTP, "invalid WebSocket frame"),
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_breaks_the_rules_is_a_failure(what):
    frame, kind, detail = FRAMES[what]
    failure = raw(None, frame).failure
    assert failure.kind is kind
    assert failure.detail.startswith(detail)
    assert "\n" not in failure.detail


HANDSHAKES = {
    "a page": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        FailureKind.MALFORMED_HTTP,
        "the server answered the WebSocket handshake with HTTP 200, expected 101",
    ),
    "no HTTP": (b"what?\r\n\r\n", FailureKind.MALFORMED_HTTP, "invalid answer to the WebSocket handshake: "),
    "nothing": (b"", FailureKind.RESET, "the server closed the connection during the WebSocket handshake"),
}


@pytest.mark.parametrize("what", HANDSHAKES)
def test_a_handshake_that_fails_is_a_failure(what):
    first, kind, detail = HANDSHAKES[what]
    failure = raw(first).failure
    assert failure.kind is kind
    assert failure.detail.startswith(detail)


def test_a_handshake_without_an_answer_ends_in_time():
    async def ignore(reader, writer):
        await reader.read()
        writer.close()

    async def both():
        async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
            base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await send_all(base, [ASK], timeout=0.2)

    (result,) = asyncio.run(both())
    assert result.failure.kind is FailureKind.TIMEOUT
    assert result.failure.detail == "no answer to the WebSocket handshake within 0.2 s"


def test_a_closed_port_and_an_unknown_host_have_the_words_of_http():
    (closed,) = asyncio.run(send_all("http://127.0.0.1:9", [ASK]))
    (unknown,) = asyncio.run(send_all("http://nowhere.invalid", [ASK]))
    assert (closed.failure.kind, closed.failure.detail) == (FailureKind.NO_CONNECTION, "connection refused")
    assert (unknown.failure.kind, unknown.failure.detail) == (FailureKind.NO_CONNECTION, "no such host")


@pytest.fixture
def certificate(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "both.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file


@asynccontextmanager
async def tls_server(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with serve(saying(COMPLETED), "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_tls_server_is_trusted_by_its_authority_only(certificate, is_trusted):
    async def both():
        async with tls_server(certificate) as port:
            network = Network(ca_file=str(certificate)) if is_trusted else Network()
            return await send_all(f"https://127.0.0.1:{port}", [ASK], network=network)

    (result,) = asyncio.run(both())
    if is_trusted:
        assert events(result) == [COMPLETED]
    else:
        assert result.failure.kind is FailureKind.NO_CONNECTION
        assert "certificate verify failed" in result.failure.detail


def test_a_plain_port_behind_a_tls_url_has_a_hint():
    async def refuse(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async def both():
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            return await send_all(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", [ASK])

    (result,) = asyncio.run(both())
    assert result.failure.kind is FailureKind.NO_CONNECTION
    assert "plain http" in result.failure.detail


def test_a_connection_over_a_unix_socket(tmp_path):
    from websockets.asyncio.server import unix_serve

    async def both():
        async with unix_serve(saying(COMPLETED), str(tmp_path / "s")):
            return await send_all("http://localhost", [ASK], network=Network(unix_socket=str(tmp_path / "s")))

    assert events(asyncio.run(both())[0]) == [COMPLETED]


def test_a_connection_through_an_http_proxy():
    asked = []

    async def tunnel(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        host, port = asked[0].split()[1].decode().rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def copy(source, target):
            while data := await source.read(4096):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    async def both():
        async with (
            serve(saying(COMPLETED), "127.0.0.1", 0) as server,
            await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy,
        ):
            port, there = (one.sockets[0].getsockname()[1] for one in (server, proxy))
            network = Network(proxy=f"http://127.0.0.1:{there}")
            return port, await send_all(f"http://127.0.0.1:{port}", [ASK], network=network)

    port, (result,) = asyncio.run(both())
    assert events(result) == [COMPLETED]
    assert asked == [f"CONNECT 127.0.0.1:{port} HTTP/1.1".encode()]


def together(answer, count, *, in_flight):
    """Return the results of requests that are sent at the same time."""

    async def both():
        async with serve(answer, "127.0.0.1", 0) as server:
            base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            settings = ConnectionSettings(base_url=base, headers={}, timeout=5.0)
            async with (
                WebSocketClient(settings) as client,
                series_connections(over_websocket=True, in_flight=in_flight),
            ):
                return await asyncio.gather(*(client.send(ASK) for _ in range(count)))

    return asyncio.run(both())


async def answer_after_the_second_message(connection):
    """Answer two requests, one after the other, once both are there."""
    await connection.recv()
    await connection.recv()
    for name in ("resp_1", "resp_2"):
        for kind in ("response.created", "response.completed"):
            await connection.send(json.dumps({"type": kind, "response": {"id": name}}))
    await connection.wait_closed()


def test_requests_in_flight_share_a_connection_and_get_the_answers_in_order():
    results = together(answer_after_the_second_message, 2, in_flight=True)
    assert [result.websocket for result in results] == [1, 1]
    assert [[one["response"]["id"] for one in events(result)] for result in results] == [["resp_1"] * 2, ["resp_2"] * 2]


def test_a_refusal_of_the_second_request_leaves_the_rest_of_the_first_answer_to_be_read():
    async def refuse(connection):
        await connection.recv()
        await connection.send(json.dumps(CREATED))
        await connection.recv()
        await connection.send(json.dumps(NOT_FOUND))
        await connection.send(json.dumps(COMPLETED))
        await connection.wait_closed()

    first, second = together(refuse, 2, in_flight=True)
    assert [event["type"] for event in (*events(first), *events(second))] == [
        "response.created",
        "error",
        "response.completed",
    ]
    assert (first.failure, second.failure) == (None, None)


def test_requests_at_the_same_time_have_connections_of_their_own_unless_they_are_to_be_in_flight():
    results = together(saying(CREATED, COMPLETED), 2, in_flight=False)
    assert sorted(result.websocket for result in results) == [1, 2]
