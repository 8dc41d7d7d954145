"""Ways to an endpoint, with real parts on loopback: proxies, private authorities, client certificates, IPv6, Unix sockets, HTTP/2."""

import asyncio
import json
import socket
import ssl
from base64 import b64encode
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harmony_conformance.cli.main import main
from harmony_conformance.engines.target import parse_target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.reference_server import running
from harmony_conformance.runner.reproduce import reproduce
from harmony_conformance.transport.client import Client, ConnectionSettings
from harmony_conformance.transport.http_transport import Network, proxy_from_environment, read_proxy
from harmony_conformance.transport.messages import FailureKind, Request


class Server:
    """Serves each connection in a thread of its own, until the end of the test."""

    def __init__(self, listening=None, tls=None):
        self._listening = listening or socket.create_server(("127.0.0.1", 0), backlog=128)
        self._tls, self._open = tls, ExitStack()
        name = self._listening.getsockname()
        self.port = name[1] if isinstance(name, tuple) else 0
        self.connections = 0

    def __enter__(self):
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with suppress(OSError), ExitStack() as opened:
            opened.enter_context(connection)
            if self._tls is not None:
                plain = opened.enter_context(connection.dup())
                try:
                    connection = opened.enter_context(self._tls.wrap_socket(connection, server_side=True))
                except ssl.SSLError:
                    while plain.recv(65536):  # unread bytes would turn the alert into a reset
                        pass
                    return
            self.serve(connection)


class Relay(Server):
    """Hands every byte on to a port of this machine: TLS, IPv6 or a Unix socket before a plain server."""

    def __init__(self, port, listening=None, tls=None):
        super().__init__(listening, tls)
        self._to = port

    def serve(self, connection):
        with socket.create_connection(("127.0.0.1", self._to)) as other:
            both(connection, other)


class HttpProxy(Server):
    """Forwards plain requests and opens tunnels. `heads`: the head of each request that it was sent itself."""

    def __init__(self, password=None, answer=None):
        super().__init__()
        self.heads, self._answer = [], answer
        self._wanted = password and b"proxy-authorization: basic " + b64encode(password.encode()).lower()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def serve(self, connection):
        while head := head_of(connection):
            self.heads.append(head)
            lines = head.split(b"\r\n")
            if self._answer is not None:
                connection.sendall(self._answer)
                return
            if self._wanted and self._wanted not in [line.lower() for line in lines]:
                connection.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n"
                )
                return
            method, target, version = lines[0].split(b" ")
            if method == b"CONNECT":
                host, _, port = target.decode().rpartition(":")
                with socket.create_connection((host.strip("[]"), int(port))) as other:
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    both(connection, other)
                return
            split = urlsplit(target.decode())
            others = [line for line in lines[1:] if not line.lower().startswith(b"proxy-")]
            path = split.path.encode() + (b"?" + split.query.encode() if split.query else b"")
            with socket.create_connection((split.hostname, split.port)) as other:
                other.sendall(b"\r\n".join([b" ".join([method, path, version]), *others]))
                both(connection, other)
            return


class SocksProxy(Server):
    """SOCKS 5, by host name or address; with a password where one is given. `targets`: what it was asked to connect to."""

    def __init__(self, password=None):
        super().__init__()
        self._password, self.targets = password, []

    def serve(self, connection):
        exactly(connection, exactly(connection, 2)[1])
        connection.sendall(bytes([5, 2 if self._password else 0]))
        if self._password:
            user = exactly(connection, exactly(connection, 2)[1])
            password = exactly(connection, exactly(connection, 1)[0])
            is_right = user + b":" + password == self._password.encode()
            connection.sendall(bytes([1, 0 if is_right else 1]))
            if not is_right:
                return
        kind = exactly(connection, 4)[3]
        raw = exactly(connection, 4 if kind == 1 else exactly(connection, 1)[0])
        host = socket.inet_ntoa(raw) if kind == 1 else raw.decode()
        port = int.from_bytes(exactly(connection, 2), "big")
        self.targets.append((host, port))
        with socket.create_connection((host, port)) as other:
            connection.sendall(bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
            both(connection, other)


class Http2(Server):
    """Sends parts of a body to each request, then ends or resets the stream. `requests`: their headers; `closed`: a client ended its connection."""

    def __init__(self, tls, parts, *, ends=True, resets=False):
        super().__init__(tls=tls)
        tls.set_alpn_protocols(["h2"])
        self._parts, self._ends, self._resets = parts, ends, resets
        self.requests, self.closed = [], Event()

    def serve(self, connection):
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        with suppress(OSError):
            while data := connection.recv(65536):
                for event in http.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        self.requests.append(dict(event.headers))
                    if isinstance(event, h2.events.StreamEnded):
                        self._respond(http, event.stream_id, connection)
                connection.sendall(http.data_to_send())
        self.closed.set()

    def _respond(self, http, stream, connection):
        if not self._parts:
            http.reset_stream(stream, 2)
            return
        http.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
        for part in self._parts:
            http.send_data(stream, part)
            connection.sendall(http.data_to_send())
        if self._resets:
            http.reset_stream(stream, 2)
        elif self._ends:
            http.end_stream(stream)


def exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def head_of(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1)
        if not more:
            return b""
        data += more
    return data


def both(first, second):
    """Hands bytes on in both directions until one side ends."""

    def pump(source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    other = Thread(target=pump, args=(second, first), daemon=True)
    other.start()
    pump(first, second)
    other.join()


class Authority:
    """A certificate authority in a folder: its own file, and certificates that it issues, each with its key in a file."""

    def __init__(self, folder, name="authority"):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        uses = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        signs = x509.KeyUsage(**uses, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        self.file.write_bytes(self._signed(self._name, self._key.public_key(), is_authority, signs))

    def _signed(self, subject, key, *extensions):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        own, issuer = x509.SubjectKeyIdentifier.from_public_key(key), self._key.public_key()
        builder = builder.add_extension(own, critical=False)  # as Python 3.13 requires
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name, password=None):
        """The file of a certificate for this machine, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ip_address(one)) for one in ("127.0.0.1", "::1")] + [x509.DNSName("localhost")]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cipher = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        file = self._folder / f"{name}.pem"
        file.write_bytes(
            self._signed(subject, key.public_key(), names)
            + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher)
        )
        return file

    def server(self, *, wants_certificate=False):
        """A context for a server of this machine."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue("server"))
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context


KEY, PASSWORD = "sk-0123456789abcdef", "s3cret-pass-word"
QUICK = ["--select", "simple_answer", "--latency", "0", "--out", "kept"]
ASK = Request(path="/v1/chat/completions", body=b"{}")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOOD_KEY", KEY)


@pytest.fixture(scope="module")
def port(url):
    return int(url.rpartition(":")[2])


@pytest.fixture
def started():
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def run(capsys, *words):
    try:
        code = main(["run", *map(str, words)])
    except SystemExit as refused:
        code = refused.code
    said = capsys.readouterr()
    return code, said.out + said.err


def send(url, *, leave_after=None, settings=None, **network):
    async def once():
        async with Client(
            ConnectionSettings(base_url=url, headers={}, timeout=5.0, network=Network(**network), **(settings or {}))
        ) as client:
            return await client.send(ASK, leave_after=leave_after)

    return asyncio.run(once())


def written(*secrets):
    """The files of the run that hold one of these."""
    files = [file for file in Path("kept").iterdir() if file.is_file()]
    assert files
    return [file.name for file in files if any(secret in file.read_text() for secret in secrets)]


def one_line(said):
    """The last line, which says why there was no run."""
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


# --- the ways that work


def test_a_run_through_a_proxy_that_forwards(capsys, started, port):
    proxy = started(HttpProxy())
    code, said = run(capsys, f"vllm:http://localhost:{port}", "--proxy", proxy.url, "--api-key-env", "GOOD_KEY", *QUICK)
    assert (code, "0 failed" in said) == (0, True)
    assert proxy.heads
    assert all(b" http://localhost:%d/" % port in head.splitlines()[0] for head in proxy.heads)


def test_a_run_through_a_tunnel_shows_the_proxy_no_key(capsys, started, port, authority):
    server, proxy = started(Relay(port, tls=authority.server())), started(HttpProxy(f"me:{PASSWORD}"))
    way = [f"openai:https://127.0.0.1:{server.port}", "--proxy", f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}"]
    code, said = run(capsys, *way, "--ca-file", authority.file, "--api-key-env", "GOOD_KEY", *QUICK)
    assert (code, "0 failed" in said) == (0, True)
    assert proxy.heads
    assert all(head.startswith(b"CONNECT 127.0.0.1:%d " % server.port) for head in proxy.heads)
    assert not any(b"\r\nauthorization" in head.lower() for head in proxy.heads)
    assert all(b"\r\nproxy-authorization" in head.lower() for head in proxy.heads)
    assert PASSWORD not in said
    assert written(PASSWORD, KEY) == []


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_variables_name_a_proxy(capsys, started, monkeypatch, port, variable):
    proxy = started(HttpProxy(f"me:{PASSWORD}"))
    monkeypatch.setenv(variable, f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}")
    assert run(capsys, f"vllm:http://127.0.0.1:{port}", *QUICK)[0] == 0
    assert proxy.heads
    proxy.heads.clear()
    monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
    assert run(capsys, f"vllm:http://127.0.0.1:{port}", *QUICK)[0] == 0
    assert run(capsys, f"vllm:http://127.0.0.1:{port}", "--unix-socket", "none", *QUICK)[0] == 2
    assert proxy.heads == []


def test_the_embedded_server_is_asked_without_a_proxy(capsys, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert run(capsys, "reference", *QUICK)[0] == 0


@pytest.mark.parametrize(
    ("excluded", "base"),
    [
        ("::1", "http://[::1]:8000"),
        ("[::1]", "http://[::1]:8000"),
        ("example.com", "http://api.Example.com"),
        (".example.com", "https://api.example.com:8443"),
        ("example.com:8000", "http://example.com:8000"),
        ("*", "http://anything"),
    ],
)
def test_hosts_that_no_proxy_excludes(monkeypatch, excluded, base):
    monkeypatch.setenv("HTTP_PROXY", "proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    assert proxy_from_environment(base) == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", excluded)
    assert proxy_from_environment(base) is None


@pytest.mark.parametrize("password", [None, f"me:{PASSWORD}"])
def test_a_socks_proxy(capsys, started, port, password):
    proxy = started(SocksProxy(password))
    given = f"socks5://{password + '@' if password else ''}127.0.0.1:{proxy.port}"
    code, said = run(capsys, f"vllm:http://localhost:{port}", "--proxy", given, *QUICK)
    assert (code, PASSWORD in said) == (0, False)
    assert set(proxy.targets) == {("localhost", port)}


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_an_endpoint_of_ipv6(capsys, started, port):
    listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    relay = started(Relay(port, listening))
    assert run(capsys, f"vllm:http://[::1]:{relay.port}", *QUICK)[0] == 0
    assert relay.connections


def test_a_unix_socket(capsys, started, port, tmp_path):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    relay = started(Relay(port, listening))
    code, _ = run(capsys, "vllm:http://localhost", "--unix-socket", "s", "--api-key-env", "GOOD_KEY", *QUICK)
    assert code == 0
    assert relay.connections


def test_a_client_certificate(capsys, started, port, authority):
    server = started(Relay(port, tls=authority.server(wants_certificate=True)))
    way = [f"vllm:https://localhost:{server.port}", "--ca-file", authority.file]
    code, _ = run(capsys, *way, "--client-cert", authority.issue("client"), *QUICK)
    assert code == 0
    code, said = run(capsys, *way, *QUICK)
    assert (code, one_line(said).endswith("the server wants a client certificate: name its file by --client-cert")) == (
        2,
        True,
    )


def test_a_file_of_authorities_adds_to_those_of_the_variable(started, authority, tmp_path, monkeypatch, port):
    other = Authority(tmp_path, "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    for one in (authority, other):
        server = started(Relay(port, tls=one.server()))
        assert send(f"https://127.0.0.1:{server.port}", ca_file=str(authority.file)).response is not None


EVENTS = [b"data: %d\n\n" % count for count in range(4)]


def test_http_2(started, authority):
    server = started(Http2(authority.server(), EVENTS))
    sent = send(f"https://127.0.0.1:{server.port}", settings={"api_key": KEY}, http2=True, ca_file=str(authority.file))
    assert (sent.failure, [chunk.data for chunk in sent.response.chunks]) == (None, EVENTS)
    (request,) = server.requests
    assert (request[":method"], request["authorization"]) == ("POST", f"Bearer {KEY}")
    assert not {"connection", "host"} & request.keys()


def test_a_stream_of_http_2_that_is_reset_is_cut(started, authority):
    server = started(Http2(authority.server(), EVENTS[:2], resets=True))
    sent = send(f"https://127.0.0.1:{server.port}", http2=True, ca_file=str(authority.file))
    assert (sent.failure.kind, sent.response.body) == (FailureKind.CUT, b"".join(EVENTS[:2]))


def test_a_stream_of_http_2_that_is_reset_at_once_is_not_asked_for_again(started, authority):
    server = started(Http2(authority.server(), []))

    async def twice():
        network = Network(http2=True, ca_file=str(authority.file))
        async with Client(
            ConnectionSettings(base_url=f"https://127.0.0.1:{server.port}", headers={}, timeout=5.0, network=network)
        ) as client:
            return [await client.send(ASK) for _ in range(2)]

    assert [(sent.response, sent.failure.kind) for sent in asyncio.run(twice())] == [(None, FailureKind.RESET)] * 2
    assert (len(server.requests), server.connections) == (2, 1)


def test_a_client_that_leaves_a_stream_of_http_2_is_seen_to_leave(started, authority):
    server = started(Http2(authority.server(), EVENTS, ends=False))
    sent = send(f"https://127.0.0.1:{server.port}", leave_after=2, http2=True, ca_file=str(authority.file))
    assert sent.failure.kind is FailureKind.CLIENT_LEFT
    assert server.closed.wait(5)


def test_a_server_without_http_2_answers_by_http_1(capsys, started, port, authority):
    server = started(Relay(port, tls=authority.server()))
    assert run(capsys, f"vllm:https://127.0.0.1:{server.port}", "--http2", "--ca-file", authority.file, *QUICK)[0] == 0


# --- secrets


def test_what_a_proxy_echoes_of_its_password_is_masked(started):
    pair = b64encode(f"me:{PASSWORD}".encode())
    page = b"no route for me:%s, %s" % (PASSWORD.encode(), pair)
    answer = b"HTTP/1.1 502 Bad Gateway\r\nx-seen: Basic %s\r\ncontent-length: %d\r\n\r\n%s" % (pair, len(page), page)
    proxy = started(HttpProxy(answer=answer))
    sent = send("http://target.example", proxy=f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}")
    assert sent.response.body == b"no route for me:***, ***"
    assert sent.response.headers["x-seen"] == "Basic ***"


def test_lines_that_show_a_finding_again_name_the_way_without_its_password(capsys, started):
    with running(defects=["stream-without-done"]) as base:
        proxy = started(HttpProxy(f"me:{PASSWORD}"))
        given = f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}"
        code, said = run(capsys, f"openai:{base}", "--script", "none", "--proxy", given, *QUICK)
    assert code == 1
    lines = [json.loads(line) for line in Path("kept/report.jsonl").read_text().splitlines()]
    shown = [line["reproduce"] for line in lines if line.get("reproduce")]
    assert shown
    assert all(f" --proxy {proxy.url} " in line for line in shown)
    assert PASSWORD not in said
    assert written(PASSWORD, b64encode(f"me:{PASSWORD}".encode()).decode()) == []


def test_curl_is_given_the_same_way():
    network = Network(unix_socket="/run/a b", ca_file="ca.pem", client_cert="c.pem", client_key="k.pem", http2=True)
    x = Exchange(id="1", scenario="s", step="t", request=ASK, engine="vllm")
    line = reproduce(parse_target("vllm:https://h"), x, "s", None, network.command_line_options)
    assert "--unix-socket '/run/a b' --cacert ca.pem --cert c.pem --key k.pem --http2" in line


# --- what can not be used is refused in one line, with exit code 2

WRONG = {
    "a proxy of no scheme": (["--proxy", "ftp://h:1"], "invalid --proxy: expected http://[USER:PASSWORD@]HOST:PORT"),
    "a proxy of no port": (["--proxy", f"http://me:{PASSWORD}@h:port"], "got 'http://***@h:***'"),
    "a proxy of no host": (["--proxy", f"me:{PASSWORD}@"], "got '***@'"),
    "a password in place of a host": (["--proxy", f"http://me:{PASSWORD}"], "got 'http://me:***'"),
    "a slash in a password": (["--proxy", f"http://me:{PASSWORD}/x@h:1"], "got 'http://***@h:1'"),
    "a proxy and a socket": (["--proxy", "h:1", "--unix-socket", "s"], "invalid --proxy: expected no --unix-socket"),
    "a socket that is not there": (["--unix-socket", "none"], "Unix socket none: No such file or directory"),
    "a key alone": (["--client-key", "k.pem"], "invalid --client-key: expected --client-cert too"),
    "HTTP/2 in plain": (["--http2"], "invalid --http2: expected an https URL, got http://127.0.0.1:9"),
    "a proxy that is not there": (["--proxy", "127.0.0.1:9"], "proxy http://127.0.0.1:9: connection refused"),
    "a proxy without a name": (["--proxy", "no-such.invalid:9"], "proxy http://no-such.invalid:9: no such host"),
    "a key to a proxy elsewhere": (["--proxy", "h:1", "--api-key-env", "GOOD_KEY"], "never sent over http"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_can_not_be_used(capsys, what):
    words, expected = WRONG[what]
    code, said = run(capsys, "vllm:http://127.0.0.1:9", *words, *QUICK)
    assert (code, expected in one_line(said)) == (2, True), said
    assert PASSWORD not in said
    assert not Path("kept").exists()


@pytest.mark.parametrize("option", [["--proxy", "h:1"], ["--unix-socket", "s"], ["--http2"]])
def test_the_embedded_server_has_one_way(capsys, option):
    code, said = run(capsys, "reference", *option, *QUICK)
    assert (code, one_line(said)) == (
        2,
        f"harmony-conformance run: invalid {option[0]}: expected a target with a URL, got reference",
    )


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_variable_that_names_no_proxy(capsys, monkeypatch, name):
    monkeypatch.setenv(name, f"ftp://me:{PASSWORD}@h:1")
    code, said = run(capsys, "vllm:http://127.0.0.1:9", *QUICK)
    assert (code, f"invalid {name}: expected http://" in one_line(said), PASSWORD in said) == (2, True, False)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("given", ["", "me:wrong-pass@"])
def test_a_proxy_that_wants_another_password(  # noqa: PLR0917
    capsys, started, port, authority, scheme, given
):
    server, proxy = started(Relay(port, tls=authority.server())), started(HttpProxy(f"me:{PASSWORD}"))
    target = f"vllm:{scheme}://127.0.0.1:{server.port if scheme == 'https' else port}"
    way = ["--proxy", f"http://{given}127.0.0.1:{proxy.port}", "--ca-file", authority.file]
    code, said = run(capsys, target, *way, *QUICK)
    assert code == 2
    right = "invalid credentials: expected USER:PASSWORD in the proxy URL, got 407 Proxy Authentication Required"
    assert one_line(said).endswith(f"no HTTP response: proxy {proxy.url}: {right}")
    assert "wrong-pass" not in said


@pytest.mark.parametrize("given", ["", "me:wrong-pass@"])
def test_a_socks_proxy_that_wants_another_password(capsys, started, port, given):
    proxy = started(SocksProxy(f"me:{PASSWORD}"))
    code, said = run(capsys, f"vllm:http://localhost:{port}", "--proxy", f"socks5://{given}127.0.0.1:{proxy.port}")
    assert (code, "invalid credentials: expected USER:PASSWORD in the proxy URL" in one_line(said)) == (2, True), said
    assert "wrong-pass" not in said


def test_a_proxy_that_opens_no_tunnel(capsys, started):
    proxy = started(HttpProxy(answer=b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"))
    code, said = run(capsys, "vllm:https://target.example", "--proxy", proxy.url, "--api-key-env", "GOOD_KEY", *QUICK)
    assert (code, one_line(said).endswith(f"proxy {proxy.url}: 403 Forbidden")) == (2, True), said


def test_an_authority_that_is_unknown(capsys, started, port, authority):
    server = started(Relay(port, tls=authority.server()))
    code, said = run(capsys, f"vllm:https://127.0.0.1:{server.port}", *QUICK)
    assert code == 2
    assert "certificate verify failed: " in one_line(said)
    assert "issued it by --ca-file or the variable SSL_CERT_FILE" in one_line(said)


@pytest.mark.parametrize("option", ["--ca-file", "--client-cert"])
@pytest.mark.parametrize("content", [None, "no certificate", "encrypted"])
def test_a_file_that_can_not_be_read(capsys, authority, tmp_path, option, content):
    file = tmp_path / "none.pem"
    if content == "encrypted":
        if option == "--ca-file":
            pytest.skip("a certificate alone is not encrypted")
        file = authority.issue("none", b"a password")
    elif content:
        file.write_text(content)
    code, said = run(capsys, "vllm:https://127.0.0.1:9", option, file, *QUICK)
    assert (code, f"invalid {option}: expected a PEM " in one_line(said)) == (2, True), said
    assert f"got {file} (" in one_line(said)


@pytest.mark.parametrize(
    ("words", "package", "expected"),
    [
        (["vllm:https://127.0.0.1:9", "--http2"], "h2", "invalid --http2: expected the extra `http2`"),
        (
            ["vllm:http://127.0.0.1:9", "--proxy", "socks5://h:1"],
            "socksio",
            "invalid --proxy: expected the extra `socks`",
        ),
    ],
)
def test_an_extra_that_is_missing(capsys, monkeypatch, words, package, expected):
    for module in ("transport.http_transport", "runner.options"):
        monkeypatch.setattr(f"harmony_conformance.{module}.find_spec", lambda name: None if name == package else 1)
    code, said = run(capsys, *words, *QUICK)
    assert (code, expected in one_line(said)) == (2, True), said


def test_a_redirect_to_another_host_is_not_followed_with_the_key(capsys, started, raw_server):
    other = raw_server(lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))
    head = f"HTTP/1.1 307 Moved\r\nlocation: {other.url}/v1/models\r\ncontent-length: 0\r\n\r\n".encode()
    server, proxy = raw_server(lambda connection, _: connection.sendall(head)), started(HttpProxy())
    for way in ([], ["--proxy", proxy.url]):
        code, said = run(capsys, f"vllm:{server.url}", "--api-key-env", "GOOD_KEY", *way, *QUICK)
        assert (
            code,
            f"the endpoint redirects to {other.url}/v1/models (HTTP 307); redirects are not followed" in one_line(said),
        ) == (
            2,
            True,
        )
    assert other.requests == []


@pytest.mark.parametrize(
    "url", [f"http://me:{PASSWORD}@h", f"http://me:{PASSWORD}@h:99999", f"http://h?api_key={PASSWORD}"]
)
def test_a_secret_in_the_url_of_a_target_is_refused_and_not_repeated(capsys, url):
    code, said = run(capsys, url, *QUICK)
    assert (code, PASSWORD in said) == (2, False)
    assert one_line(said).startswith("harmony-conformance run: invalid URL: expected ")


def test_a_proxy_without_a_scheme_is_one_of_http():
    assert read_proxy(" proxy:3128 ", "--proxy") == "http://proxy:3128"
    with pytest.raises(UsageError, match=r"invalid --proxy: expected .*, got ''"):
        read_proxy("", "--proxy")
