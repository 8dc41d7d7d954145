"""Hostile servers on loopback: a table of answers, sent as they are."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread

MODEL = "gpt-oss-20b"
JSON_HEAD = b"content-type: application/json\r\n"
EVENTS_HEAD = b"content-type: text/event-stream\r\n"


@dataclass(frozen=True)
class Received:
    """One request: its head, decoded as Latin-1, and its body."""

    head: str
    body: bytes

    @property
    def path(self) -> str:
        return self.head.split(" ", 2)[1] if " " in self.head else ""

    @property
    def is_chat(self) -> bool:
        return self.head.startswith("POST ")

    @property
    def streams(self) -> bool:
        return b'"stream":true' in self.body.replace(b" ", b"")

    def header(self, name: str) -> str:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.strip().lower() == name.lower():
                return value.strip()
        return ""


Answer = Callable[[Received], Iterable[bytes]]
"""The pieces of an answer; an empty one closes the connection without a word."""


@dataclass
class HostileServer:
    """A listening socket with one answer for every request; connections are closed after it."""

    answer: Answer
    listener: socket.socket
    received: list[Received] = field(default_factory=list)
    release: Event = field(default_factory=Event)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(120)
            request = read_request(connection)
            if request is None:
                return
            self.received.append(request)
            for piece in self.answer(request):
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(2)
            while connection.recv(65536):
                pass


@contextmanager
def hostile(answer: Answer) -> Iterator[HostileServer]:
    """A server with this answer, for as long as the context lasts."""
    server = HostileServer(answer, socket.create_server(("127.0.0.1", 0), backlog=512))
    Thread(target=server.accept, daemon=True).start()
    try:
        yield server
    finally:
        server.release.set()
        server.listener.close()


def read_request(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65536)):
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    request = Received(text, body)
    if request.header("transfer-encoding"):
        while not body.endswith(b"0\r\n\r\n"):
            if not (more := connection.recv(65536)):
                break
            body += more
        body = chunks_joined(body)
    length = int(request.header("content-length") or 0)
    parts, size = [body], len(body)
    while size < length and (more := connection.recv(65536)):
        parts.append(more)
        size += len(more)
    return Received(text, b"".join(parts))


def chunks_joined(data: bytes) -> bytes:
    joined = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if not length:
            break
        joined, data = joined + rest[:length], rest[length + 2 :]
    return joined


def whole(body: bytes, head: bytes = JSON_HEAD, status: bytes = b"200 OK") -> bytes:
    """An answer with a length."""
    return b"HTTP/1.1 %b\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, head, len(body), body)


def models(name: str = MODEL) -> bytes:
    return whole(json.dumps({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "x"}]}).encode())


def completion(content: str, *, model: str = MODEL, **message: object) -> dict[str, object]:
    """A chat completion with this content."""
    answer = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    usage = {"prompt_tokens": 80, "completion_tokens": 10, "total_tokens": 90}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}


def events(texts: Iterable[str], *, model: str = MODEL) -> Iterator[bytes]:
    """The events of a streamed completion, one for each text, with a finish and `[DONE]`."""
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}
    yield event(
        {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    )
    for text in texts:
        yield event({**base, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    yield event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def answer_with(content: str, *, model: str = MODEL) -> Answer:
    """A server that gives every request the same content, whole or streamed letter by letter."""

    def answer(request: Received) -> Iterator[bytes]:
        if not request.is_chat:
            yield models(model)
        elif request.streams:
            yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
            yield from events(content, model=model)
        else:
            yield whole(json.dumps(completion(content, model=model)).encode())

    return answer
