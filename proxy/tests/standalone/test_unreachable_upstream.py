"""An upstream without a connection: the client gets the reason, without the host name of the upstream."""

import socket
import ssl
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from threading import Thread

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

pytest.importorskip("aiohttp")

from harmony_proxy.capture.recorder import End

CERTIFICATE = "the upstream's TLS certificate is not trusted, or has another name"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def server_context(folder, name):
    """TLS with a certificate of its own for one name; its file is certificate.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@contextmanager
def server(context=None):
    """The port of a server that answers each request of one part by `{}`."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                connection.recv(65536)
                connection.sendall(ANSWER)
                connection.close()

    Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def message(hands):
    answer = httpx.post(f"http://127.0.0.1:{hands.port}/v1/chat/completions", json={"model": "m"}, timeout=60)
    assert answer.status_code == 502
    assert hands.next().end is End.NO_CONNECTION
    return answer.json()["error"]["message"]


ADDRESS = x509.IPAddress(ip_address("127.0.0.1"))


@pytest.mark.parametrize("name", [ADDRESS, x509.DNSName("other.example")], ids=["unknown authority", "another name"])
def test_a_certificate_that_is_not_accepted(serving, tmp_path, monkeypatch, name):
    with server(server_context(tmp_path, name)) as port:
        if name is not ADDRESS:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        with serving(f"https://127.0.0.1:{port}") as hands:
            assert message(hands) == CERTIFICATE


def test_an_upstream_that_speaks_plain_http(serving):
    with server() as port, serving(f"https://127.0.0.1:{port}") as hands:
        assert message(hands) == "the upstream does not speak TLS"


def test_a_host_name_without_an_address(serving):
    with serving("http://upstream.invalid") as hands:
        assert message(hands) == "the upstream's host name cannot be resolved"
