"""A server that answers as a test tells it to, byte by byte; and the official library, which this project is held to."""

import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.metadata import version
from threading import Event, Thread
from typing import Self

import httpx
import openai
import openai_harmony
import pytest
import uvicorn.protocols.http.auto  # noqa: F401 - `pytester` forgets what its test imports first, and the parser in C raises the exceptions of its first import

from harmony_conformance.reference_server import running
from harmony_ref.tokenizer import vocabulary

# a proxy of this machine is none of the tests'
for _name in ("http", "https", "all", "no"):
    for _variable in (f"{_name}_proxy", f"{_name}_proxy".upper()):
        os.environ.pop(_variable, None)

Answer = Callable[[socket.socket, bytes], None]


class RawServer:
    """Hands each request, whole, to `answer(connection, request)` and closes the connection. `requests` is what it was sent."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.closing = Event()
        self._answer = answer
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listening.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), ExitStack() as opened:
            opened.enter_context(connection)
            if self._tls is not None:
                connection = opened.enter_context(self._tls.wrap_socket(connection, server_side=True))
            request = _request(connection)
            if request:
                self.requests.append(request)
                self._answer(connection, request)


def _request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            return b""
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")),
        0,
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    """Starts servers that answer as told; all are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda answer, tls=None: stack.enter_context(RawServer(answer, tls))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """openai-harmony 0.0.8; its vocabulary comes from a temporary folder, not from the network."""
    assert version("openai-harmony") == "0.0.8"
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        return openai_harmony.load_harmony_encoding("HarmonyGptOss")


@pytest.fixture(scope="session")
def render_by_library(library):
    """The official library's rendering of messages in its wire form, nothing dropped: the ids of a prompt."""

    def rendered(messages):
        conversation = json.dumps({"messages": list(messages)})
        return library._inner.render_conversation_for_completion(
            conversation, "assistant", {"auto_drop_analysis": False}
        )

    return rendered


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a reference server listens, until the tests of the file are over: others need a process without threads."""
    with running() as base:
        yield base


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=url, headers={"content-type": "application/json"}) as client:
        yield client


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    """OpenAI's own client of it."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
