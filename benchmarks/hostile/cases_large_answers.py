"""Large answers through the proxy: the memory that they take, and the time that others wait."""

from __future__ import annotations

import functools
import itertools
import json
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

from attacked_processes import Listener, Reply, post, proxy, resident
from case import expect
from cases_proxy import BLOCK, BODY, CHAT, STREAMED, case, healthy, request_bytes
from cases_run import fixed
from payloads import LEAK
from servers import EVENTS_HEAD, Answer, Received, answer_with, completion, event, events, hostile

LARGE = 15 * 2**20
STREAMED_TEXT = 12 * 2**20  # its events stay below the limit of 16 MiB


def held_streams(folder: Path) -> str:
    """60 streams of 15 MB each, held open before their end."""
    piece = event({"choices": [{"index": 0, "delta": {"content": "word " * 3000}}]})
    with ExitStack() as stack:

        def answer(request: Received) -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
            yield from itertools.repeat(piece, LARGE // len(piece))
            server.release.wait(100)

        server = stack.enter_context(hostile(answer))
        listener = stack.enter_context(proxy(folder, server.port))
        healthy(listener)
        before = resident(listener.process.pid)
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", listener.port))) for _ in range(60)]
        for client in clients:
            client.sendall(request_bytes(STREAMED))
            drain(client, LARGE - 2 * len(piece))
        held = resident(listener.process.pid)
        healthy(listener)
        for client in clients:
            client.close()
        server.release.set()
        time.sleep(5)
        after = resident(listener.process.pid)
        outcome = f"{before:.0f} MiB before, {held:.0f} held, {after:.0f} five seconds after"
        expect(after < before + (held - before) / 2 + 50, f"{outcome}: not given back")
        return outcome


def drain(client: socket.socket, size: int) -> None:
    client.settimeout(30)
    received = 0
    while received < size and (more := client.recv(1 << 20)):
        received += len(more)


FILLERS = {"words": "word ", "backticks": "a `", "half markers": "<|", "channel words": "assistant analysis final "}


def slow_neighbour(stream: bool, folder: Path) -> str:
    """Others wait while an answer of 15 MB is judged and blocked."""
    worst = {name: neighbour_delay(filler, stream, folder / name) for name, filler in FILLERS.items()}
    slowest = max(worst, key=lambda name: worst[name])
    outcome = f"blocked; the slowest /healthz took {worst[slowest]:.2f} s, for {slowest}"
    expect(worst[slowest] < 0.7, outcome)
    return outcome


def neighbour_delay(filler: str, stream: bool, folder: Path) -> float:
    folder.mkdir()
    text = filler * ((STREAMED_TEXT if stream else LARGE) // len(filler)) + LEAK
    answer = fixed(json.dumps(completion(text)).encode())
    if stream:
        answer = answer_with_pieces(text[offset : offset + 3000] for offset in range(0, len(text), 3000))
    with hostile(answer) as server, proxy(folder, server.port, *BLOCK) as listener:
        body, worst = watched(listener, STREAMED if stream else BODY)
        codes = (b"blocked_by_policy", b"not_examined") if stream else (b"blocked_by_policy",)
        expect(b"wants a secret" not in body and any(code in body for code in codes), f"not blocked: {body[-200:]!r}")
        return worst


def slow_neighbour_of_requests(folder: Path) -> str:
    """Others wait while the JSON of a request of 12 MB is read."""
    worst = {stream: neighbour_delay_of_request(stream, folder / str(stream)) for stream in (False, True)}
    outcome = f"blocked; the slowest /healthz took {max(worst.values()):.2f} s"
    expect(max(worst.values()) < 0.7, outcome)
    return outcome


def neighbour_delay_of_request(stream: bool, folder: Path) -> float:
    folder.mkdir()
    messages = [{"role": "user", "content": f"quote <|channel|>, {'word ' * 12}"}] * (STREAMED_TEXT // 100)
    asked = json.dumps({"model": "gpt-oss-20b", "stream": stream, "messages": messages}).encode()
    with hostile(answer_with(LEAK)) as server, proxy(folder, server.port, *BLOCK) as listener:
        reply, worst = watched(listener, asked)
        expect(b"wants a secret" not in reply and b"blocked_by_policy" in reply, f"not blocked: {reply[-200:]!r}")
        return worst


def watched(listener: Listener, asked: bytes) -> tuple[bytes, float]:
    """Send a request, and return its answer and the longest time that /healthz takes until then."""
    healthy(listener)
    replies: list[Reply] = []
    thread = Thread(target=lambda: replies.append(post(listener.url + CHAT, asked, seconds=50)))
    thread.start()
    worst = 0.0
    while thread.is_alive():
        begin = time.monotonic()
        healthy(listener)
        worst = max(worst, time.monotonic() - begin)
        time.sleep(0.01)
    return replies[0].body if replies else b"", worst


def answer_with_pieces(texts: Iterable[str]) -> Answer:
    return lambda request: [b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n", *events(texts)]


CASES = (
    case("60 held streams of 15 MB", "F5", "bounded, given back", held_streams, memory=700, seconds=150),
    *(
        case(
            f"{size} in block mode",
            "F10",
            "blocked; others wait less than 0.7 s",
            functools.partial(slow_neighbour, "stream" in size),
            memory=700,
            seconds=150,
        )
        for size in ("15 MB", "a stream of 12 MB")
    ),
    case(
        "a request of 12 MB in block mode",
        "F10",
        "blocked; others wait less than 0.7 s",
        slow_neighbour_of_requests,
        memory=900,
        seconds=120,
    ),
)
