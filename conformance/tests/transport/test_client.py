import asyncio
import gzip
import socket
import ssl
import struct
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from queue import Queue
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import harmony_conformance.transport.client
from harmony_conformance.errors import UsageError
from harmony_conformance.transport.client import BODY_LIMIT, Client, ConnectionSettings
from harmony_conformance.transport.messages import Failure, FailureKind, Request
from harmony_conformance.transport.waits import Wait

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASK = Request(path="/v1/chat/completions", body=b'{"model":"m"}')


def send(url, *, timeout=5.0, key=None, headers=None, request=ASK):
    async def once():
        async with Client(
            ConnectionSettings(base_url=url, api_key=key, headers=headers or {}, timeout=timeout)
        ) as client:
            return await client.send(request)

    return asyncio.run(once())


def saying(*parts):
    def answer(connection, request):
        for part in parts:
            connection.sendall(part)

    return answer


def whole(body, *headers):
    return (
        JSON_HEAD + b"".join(header + b"\r\n" for header in headers) + b"content-length: %d\r\n\r\n" % len(body) + body
    )


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def reset(connection, request):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_an_answer_is_kept_chunk_by_chunk_in_the_order_of_its_times(raw_server):
    server = raw_server(saying(STREAM_HEAD, chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), chunk(b"")))
    sent = send(server.url)
    assert sent.failure is None
    assert sent.response.status == 200
    assert sent.response.body == b"data: 1\n\ndata: 2\n\n"
    times = [part.arrival_time for part in sent.response.chunks]
    assert times == sorted(times)
    assert times[0] > 0


def test_the_request_is_sent_once_with_the_key_and_the_headers(raw_server):
    server = raw_server(saying(whole(b"{}")))
    send(server.url, key="sk-0123456789", headers={"x-team": "blue"})
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"authorization: bearer sk-0123456789" in head.lower()
    assert b"x-team: blue" in head.lower()
    assert body == ASK.body


def test_a_gzip_body_is_decoded(raw_server):
    server = raw_server(saying(whole(gzip.compress(b'{"a":1}'), b"content-encoding: gzip")))
    assert send(server.url).response.json == {"a": 1}


def test_html_is_kept_as_it_came(raw_server):
    server = raw_server(saying(b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\n\r\n<h1>Bad Gateway</h1>"))
    sent = send(server.url)
    assert sent.failure is None
    assert (sent.response.status, sent.response.content_type, sent.response.body) == (
        502,
        "text/html",
        b"<h1>Bad Gateway</h1>",
    )


def hang(server_holder):
    return lambda connection, request: server_holder[0].closing.wait(30)


FAILING = {
    "closes without a word": (lambda connection, request: None, FailureKind.RESET, False),
    "resets the connection": (reset, FailureKind.RESET, False),
    "speaks no HTTP": (saying(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), FailureKind.MALFORMED_HTTP, False),
    "a header that is none": (saying(b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n{}"), FailureKind.MALFORMED_HTTP, False),
    "a length that is none": (
        saying(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n{}"),
        FailureKind.MALFORMED_HTTP,
        False,
    ),
    "cut within a body of known length": (
        saying(JSON_HEAD + b"content-length: 100\r\n\r\n" + b'{"a":'),
        FailureKind.CUT,
        True,
    ),
    "cut within a stream": (saying(STREAM_HEAD, chunk(b"data: 1\n\n"), b"9\r\ndata"), FailureKind.CUT, True),
    "cut after a whole chunk": (saying(STREAM_HEAD, chunk(b"data: 1\n\n")), FailureKind.CUT, True),
    "broken chunked encoding": (
        saying(STREAM_HEAD, chunk(b"data: 1\n\n"), b"no length\r\n"),
        FailureKind.MALFORMED_HTTP,
        True,
    ),
    "gzip that is none": (saying(whole(b"plain text", b"content-encoding: gzip")), FailureKind.MALFORMED_HTTP, True),
}


@pytest.mark.parametrize("how", FAILING)
def test_what_breaks_on_the_wire_is_a_failure_of_its_kind(raw_server, how):
    answer, kind, begun = FAILING[how]
    sent = send(raw_server(answer).url)
    assert sent.failure is not None
    assert sent.failure.kind is kind
    assert sent.failure.detail
    assert "\n" not in sent.failure.detail
    assert (sent.response is not None) is begun


def closing_when_asked_again(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    connection.recv(65536)


def test_a_kept_connection_that_turns_out_to_be_closed_is_no_failure_of_the_next_request(raw_server):
    server = raw_server(closing_when_asked_again)

    async def twice():
        async with Client(ConnectionSettings(base_url=server.url, headers={}, timeout=5.0)) as client:
            return [await client.send(ASK) for _ in range(2)]

    assert [(sent.failure, sent.response.body) for sent in asyncio.run(twice())] == [(None, b"{}")] * 2
    assert len(server.requests) == 2


def test_a_request_that_makes_the_server_close_is_not_sent_for_ever(raw_server):
    def answering_only_the_first(connection, request):
        if not heard:
            heard.append(request)
            closing_when_asked_again(connection, request)

    heard = []
    server = raw_server(answering_only_the_first)

    async def twice():
        async with Client(ConnectionSettings(base_url=server.url, headers={}, timeout=5.0)) as client:
            return [await client.send(ASK) for _ in range(2)]

    assert [sent.failure and sent.failure.kind for sent in asyncio.run(twice())] == [None, FailureKind.RESET]
    assert len(server.requests) == 2


def test_what_came_before_a_cut_is_kept(raw_server):
    sent = send(raw_server(FAILING["cut within a stream"][0]).url)
    assert sent.response.body.startswith(b"data: 1\n\n")


def test_a_refused_connection():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    sent = send(f"http://127.0.0.1:{port}")
    assert sent.response is None
    assert (sent.failure.kind, sent.failure.detail) == (FailureKind.NO_CONNECTION, "connection refused")


def test_a_host_that_does_not_exist():
    sent = send("http://no-such-host.invalid")
    assert sent.response is None
    assert (sent.failure.kind, sent.failure.detail) == (FailureKind.NO_CONNECTION, "no such host")


def certificate(tmp_path, *names):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_certificate_that_nobody_vouches_for(raw_server, tmp_path):
    server = raw_server(saying(whole(b"{}")), certificate(tmp_path, x509.IPAddress(ip_address("127.0.0.1"))))
    sent = send(server.url, key="sk-0123456789")
    assert sent.failure.kind is FailureKind.NO_CONNECTION
    assert sent.failure.detail.startswith("certificate verify failed: self-signed certificate: name the file")
    assert "SSL_CERT_FILE" in sent.failure.detail
    assert server.requests == []


def test_a_certificate_of_another_name(raw_server, tmp_path, monkeypatch):
    server = raw_server(saying(whole(b"{}")), certificate(tmp_path, x509.DNSName("elsewhere.example")))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    assert send(server.url).failure.detail.endswith("'127.0.0.1': use the name that the certificate was issued for")


def test_a_certificate_that_a_variable_vouches_for(raw_server, tmp_path, monkeypatch, caplog):
    server = raw_server(saying(whole(b"{}")), certificate(tmp_path, x509.IPAddress(ip_address("127.0.0.1"))))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    assert send(server.url).failure is None
    assert caplog.messages == []  # asyncio has nothing to say of how we close


def test_a_folder_of_certificates_that_a_variable_names(raw_server, tmp_path, monkeypatch):
    server = raw_server(saying(whole(b"{}")), certificate(tmp_path, x509.IPAddress(ip_address("127.0.0.1"))))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert "certificate verify failed" in send(server.url).failure.detail


@pytest.mark.parametrize("content", [None, b"none"], ids=["not there", "no certificate"])
def test_certificates_that_can_not_be_read_are_reported_by_the_name_of_their_variable(tmp_path, monkeypatch, content):
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(UsageError, match=rf"SSL_CERT_FILE {path}: ."):
        send("https://127.0.0.1:9")
    assert send("http://127.0.0.1:9").failure.detail == "connection refused"


def test_a_client_has_the_proxy_of_its_settings_alone(raw_server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert send(raw_server(saying(whole(b"{}"))).url).failure is None


def test_a_port_that_answers_tls_in_plain_http():
    def answer(listening):
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=answer, args=(listening,), daemon=True).start()
        sent = send(f"https://127.0.0.1:{listening.getsockname()[1]}")
    assert (sent.failure.kind, sent.failure.detail) == (
        FailureKind.NO_CONNECTION,
        "this port speaks plain http: use http://",
    )


def test_plain_http_where_tls_is_expected(raw_server):
    server = raw_server(saying(whole(b"{}")))
    sent = send(server.url.replace("http:", "https:"), timeout=0.5)
    assert sent.response is None
    assert sent.failure is not None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_kept_and_not_followed(raw_server, status):
    other = raw_server(saying(whole(b"{}")))
    head = f"HTTP/1.1 {status} Moved\r\nlocation: {other.url}/v1/chat/completions\r\ncontent-length: 0\r\n\r\n"
    sent = send(raw_server(saying(head.encode())).url, key="sk-0123456789")
    assert sent.response.status == status
    assert other.requests == []


def test_silence_before_the_headers_ends_after_the_timeout(raw_server):
    held = []
    held.append(raw_server(hang(held)))
    sent = send(held[0].url, timeout=0.2)
    assert sent.response is None
    assert sent.failure.kind is FailureKind.TIMEOUT
    assert "0.2 s" in sent.failure.detail


def test_silence_within_a_stream_ends_after_the_timeout_and_keeps_what_came(raw_server):
    held = []

    def answer(connection, request):
        connection.sendall(STREAM_HEAD + chunk(b"data: 1\n\n"))
        held[0].closing.wait(30)

    held.append(raw_server(answer))
    sent = send(held[0].url, timeout=0.2)
    assert sent.failure.kind is FailureKind.TIMEOUT
    assert sent.response.body == b"data: 1\n\n"


def dripping(held, drops, pause):
    def answer(connection, request):
        connection.sendall(STREAM_HEAD)
        for _ in range(drops):
            connection.sendall(chunk(b": drop\n\n"))
            held[0].closing.wait(pause)
        connection.sendall(chunk(b""))

    return answer


def test_bytes_that_come_slowly_but_steadily_are_no_silence(raw_server):
    held = []
    held.append(raw_server(dripping(held, drops=6, pause=0.25)))
    sent = send(held[0].url, timeout=1.0)
    assert sent.failure is None
    assert sent.response.body == b": drop\n\n" * 6


def test_a_drip_without_end_is_cut_off_after_ten_times_the_timeout(raw_server):
    held = []
    held.append(raw_server(dripping(held, drops=10_000, pause=0.02)))
    sent = send(held[0].url, timeout=0.3)
    assert sent.failure.kind is FailureKind.TIMEOUT
    assert sent.failure.detail == "the answer was not complete after 3 s"
    assert sent.response.body.startswith(b": drop\n\n")


LEFT = Failure(kind=FailureKind.CLIENT_LEFT, detail="the client left after 2 events")


@pytest.mark.parametrize(
    ("events", "left"),
    [(1, None), (2, LEFT), (5, LEFT)],
    ids=["the stream ends before", "at its end", "in its middle"],
)
def test_a_client_that_is_told_to_leave_closes_the_connection_after_so_many_events(raw_server, events, left):
    closed = Queue()

    def answer(connection, request):
        try:
            connection.sendall(STREAM_HEAD)
            for count in range(events):
                connection.sendall(chunk(b": comment\n\ndata: %d\n\n" % count))
            if left is not None:
                closed.put(connection.recv(1) == b"")
            else:
                connection.sendall(chunk(b""))
        except OSError:  # it left with events unread, or before the last was sent
            closed.put(True)

    async def once(url):
        async with Client(ConnectionSettings(base_url=url, headers={}, timeout=5.0)) as client:
            sent = await client.send(ASK, leave_after=2)
            return sent, left is None or await asyncio.to_thread(closed.get, timeout=5)

    sent, is_closed = asyncio.run(once(raw_server(answer).url))
    assert sent.failure == left
    assert sent.response.body.startswith(b": comment\n\ndata: 0\n\n")
    assert is_closed


def test_a_body_without_end_is_dropped_at_the_limit(raw_server):
    block, count, taken = b"x" * 1_000_000, 200, []

    def answer(connection, request):
        connection.sendall(JSON_HEAD + b"content-length: %d\r\n\r\n" % (len(block) * count))
        for _ in range(count):
            connection.sendall(block)
            taken.append(len(block))

    sent = send(raw_server(answer).url)
    assert sent.failure.kind is FailureKind.TOO_LARGE
    assert len(sent.response.body) <= BODY_LIMIT
    assert sum(taken) < len(block) * count / 2


def test_a_small_body_that_unpacks_to_a_huge_one_is_dropped_at_the_limit(raw_server):
    packed = gzip.compress(bytes(200_000_000), compresslevel=1)
    sent = send(raw_server(saying(whole(packed, b"content-encoding: gzip"))).url)
    assert sent.failure.kind is FailureKind.TOO_LARGE
    assert len(sent.response.body) <= BODY_LIMIT


def busy(times, head):
    """Says that it is busy so many times, then answers."""
    seen = []

    def answer(connection, request):
        seen.append(request)
        connection.sendall(head if len(seen) <= times else whole(b'{"ok":true}'))

    return answer


def refusal(status, *headers):
    return (
        b"HTTP/1.1 %d Busy\r\n" % status
        + b"".join(h + b"\r\n" for h in (*headers, b"connection: close", b"content-length: 2"))
        + b"\r\n{}"
    )


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_waited_for_as_it_asks_and_the_waits_are_recorded(raw_server, status):
    server = raw_server(busy(2, refusal(status, b"retry-after: 0")))
    sent = send(server.url)
    assert sent.failure is None
    assert sent.response.json == {"ok": True}
    assert sent.retry_waits == (0.0, 0.0)
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_asked_four_times_and_rate_limits(raw_server):
    server = raw_server(busy(99, refusal(429, b"retry-after: 0")))
    sent = send(server.url)
    assert sent.failure.kind is FailureKind.RATE_LIMITED
    assert sent.response.status == 429
    assert len(sent.retry_waits) == 3
    assert len(server.requests) == 4


LIMITED = Failure(kind=FailureKind.RATE_LIMITED, detail="HTTP 429 without Retry-After")


@pytest.mark.parametrize(("status", "failure"), [(429, LIMITED), (503, None), (500, None), (502, None)])
def test_without_retry_after_nothing_is_repeated(raw_server, status, failure):
    head = refusal(status) if status in (429, 503) else refusal(status, b"retry-after: 0")
    server = raw_server(saying(head))
    sent = send(server.url)
    assert (sent.response.status, sent.failure, sent.retry_waits) == (status, failure, ())
    assert len(server.requests) == 1


def test_each_wait_is_reported_before_it_begins(raw_server, monkeypatch):
    slept, told = [], []

    async def sleep(seconds):
        slept.append((seconds, len(told)))

    async def once(url):
        async with Client(ConnectionSettings(base_url=url, headers={})) as client:
            return await client.send(ASK, told.append)

    server = raw_server(busy(99, refusal(429, b"retry-after: 150")))
    monkeypatch.setattr(harmony_conformance.transport.client, "_pause", sleep)
    sent = asyncio.run(once(server.url))
    assert slept == [(60.0, 1), (60.0, 2), (60.0, 3)]
    assert [str(wait) for wait in told] == [
        f"the server asks to wait 150 s; waiting 60 s, {place} of 3" for place in (1, 2, 3)
    ]
    assert sent.failure.detail == "HTTP 429 after 3 waits"
    assert str(Wait(requested_seconds=None, seconds=1.0, attempt=1)) == "the server is busy; waiting 1 s, 1 of 3"


SOON, TOMORROW = timedelta(minutes=2), timedelta(days=1)


def header(asked):
    """A date, counted from now, or the words themselves."""
    return asked if isinstance(asked, str) else format_datetime(datetime.now(UTC) + asked, usegmt=True)


@pytest.mark.parametrize("asked", ["181", "86400", TOMORROW])
def test_a_server_that_asks_for_more_than_all_waits_is_not_waited_for(raw_server, monkeypatch, asked):
    async def sleep(seconds):
        raise AssertionError(seconds)

    server = raw_server(busy(99, refusal(429, b"retry-after: " + header(asked).encode())))
    monkeypatch.setattr(harmony_conformance.transport.client, "_pause", sleep)
    sent = send(server.url)
    detail = "HTTP 429 after 0 waits, and the server asks to wait longer than 180 s"
    assert sent.failure == Failure(kind=FailureKind.RATE_LIMITED, detail=detail)
    assert (sent.retry_waits, len(server.requests)) == ((), 1)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        (" 7 ", 7, 7),
        ("180", 60, 60),
        (SOON, 60, 60),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("nan", 1, 1),
        ("-5", 1, 1),
        ("inf", 1, 1),
        ("soon", 1, 1),
        (f"Wed, {'9' * 20} Oct 2015 07:28:00 GMT", 1, 1),
        (f"Wed, 21 Oct 2015 07:28:00 +{'9' * 20}", 1, 1),
    ],
    ids=[
        "seconds",
        "seconds and blanks",
        "three minutes",
        "a date",
        "a date that has passed",
        "nan",
        "negative",
        "inf",
        "word",
        "a date of no calendar",
        "a zone of no clock",
    ],
)
def test_retry_after_in_all_its_forms_is_a_wait_of_a_minute_at_most(raw_server, monkeypatch, asked, least, most):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    server = raw_server(busy(1, refusal(429, b"retry-after: " + header(asked).encode())))
    monkeypatch.setattr(harmony_conformance.transport.client, "_pause", sleep)
    assert send(server.url).failure is None
    assert least <= slept[0] <= most
