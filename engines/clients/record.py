"""Record what real clients send to the reference server, as scenarios in golden/scenarios: `record.py [CLIENT ...]`.

Each client is started twice, with a separate home folder: for one call, and for two calls in one turn. The answers are scripted.
Nothing but loopback is contacted. Headers that may have a key are not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import uvicorn
from clients import CLIENTS, INSTALLED, RecordedClient
from reduction import Recorded, Reduction
from socket_recorder import SocketRecorder
from starlette.types import Message, Receive, Scope, Send

from harmony_conformance.reference_server.server.app import create_app

SCENARIOS = Path(__file__).parents[2] / "golden" / "scenarios"
_PATHS = frozenset({"/v1/responses", "/v1/messages", "/v1/chat/completions"})
_SECONDS = 120
_REASONED, _PREAMBLE, _DONE = "I look at it first.", "One moment.", "Here it is."
_FILES = {"a.txt": "one\n", "b.txt": "two\n"}
_ANALYSIS = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
_COMMENTARY = "<|channel|>commentary<|message|>{}<|end|><|start|>assistant"
_CALL = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}"
_ANSWER = _ANALYSIS.format("That is all.") + f"<|channel|>final<|message|>{_DONE}<|return|>"
_WARM_UP = "warm-up"
_EXERCISED = (
    "errors.valid_request_is_answered",
    "tool_calls.calls_arrive",
    "tool_calls.call_is_complete",
    "tool_calls.finish_reason_agrees",
    "reasoning.analysis_is_reasoning",
    "channels.content_is_the_answer",
    "prompt.calls_are_rendered",
    "prompt.results_are_rendered",
    "prompt.tools_are_declared",
    "hierarchy.instructions_reach_the_model",
    "usage.counts_the_prompt",
)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One conversation with a client: the number of calls, a preamble before them, and the transport."""

    topic: str
    about: str
    calls: int
    preamble: str = ""
    over_websocket: bool = False

    def is_possible(self, client: RecordedClient) -> bool:
        """Return True if the client speaks the transport of the conversation."""
        return not self.over_websocket or bool(client.websocket_setting)

    def turns(self, client: RecordedClient) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
        """Return name, script and expected output of each turn. A connection begins with one that generates nothing, without a script."""
        calls = [(client.tool, json.dumps(arguments)) for arguments in client.arguments[: self.calls]]
        script = _ANALYSIS.format(_REASONED) + (_COMMENTARY.format(self.preamble) if self.preamble else "")
        script += "<|end|><|start|>assistant".join(_CALL.format(*call) for call in calls) + "<|call|>"
        called = {
            "reasoning": [_REASONED],
            **({"preambles": [self.preamble]} if self.preamble else {}),
            "calls": [{"name": name, "arguments": arguments} for name, arguments in calls],
            "finish": "tool_calls",
        }
        answered = {"reasoning": ["That is all."], "finals": [_DONE], "finish": "stop"}
        begin = ((_WARM_UP, "", {}),) if self.over_websocket else ()
        return *begin, ("call", script, called), ("result", _ANSWER, answered)


_EXERCISED_BY_SOCKETS = (
    *(one for one in _EXERCISED if one not in ("errors.valid_request_is_answered", "prompt.calls_are_rendered")),
    "responses.websocket_continues_the_last_response",
    "responses.websocket_warm_up_generates_nothing",
    "responses.websocket_turns_are_separate",
    "responses.stored_context_reaches_the_model",
)
CONVERSATIONS = (
    Conversation(topic="call", about="a call after a preamble, then its result", calls=1, preamble=_PREAMBLE),
    Conversation(topic="parallel_calls", about="two calls in one turn, then both results", calls=2),
    Conversation(
        topic="websocket",
        about="a call over a WebSocket, then its result on the same connection",
        calls=1,
        over_websocket=True,
    ),
)


@dataclass(kw_only=True)
class Relay:
    """The reference server behind a recorder, which scripts each request that offers tools."""

    scripts: Sequence[str]
    recorded: list[Recorded] = field(default_factory=list[Recorded])
    refused: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._app = create_app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            scripts = iter(self.scripts)
            recorder = SocketRecorder(
                headers=headers,
                client_receive=receive,
                client_send=send,
                next_script=lambda: next(scripts, None),
                keep=self.recorded.append,
            )
            await self._app(scope, recorder.receive, recorder.send)
            return
        if scope["type"] != "http" or scope["path"] not in _PATHS:
            await self._app(scope, receive, send)
            return
        body = json.loads(await _body(receive))
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        answer = bytearray()
        if body.get("tools") and len(self.recorded) < len(self.scripts):
            body["harmony_script"] = self.scripts[len(self.recorded)]
            await self._record(scope["path"], body, headers, answer)

        async def send_and_keep(message: Message) -> None:
            answer.extend(message.get("body", b""))
            await send(message)

        await self._app(*_with_body(scope, receive, json.dumps(body).encode()), send_and_keep)

    async def _record(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], sent_answer: bytearray
    ) -> None:
        """Keep a request with its answer: the one that the client receives, and the same one, not streamed."""
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://localhost") as client:
            whole = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
            answer = await client.post(path, json=whole)
        if answer.status_code == httpx.codes.OK:
            sent = {name: value for name, value in body.items() if name != "harmony_script"}
            self.recorded.append(Recorded(body=sent, headers=headers, answer=answer.json(), received=sent_answer))
        else:
            self.refused.append(f"{path}: {answer.status_code} {answer.text}")


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _with_body(scope: Scope, receive: Receive, body: bytes) -> tuple[Scope, Receive]:
    """Return the scope and the receiver of a request with another body."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_new() -> Message:
        return messages.pop() if messages else await receive()

    return {**scope, "headers": [*others, (b"content-length", str(len(body)).encode())]}, receive_new


@contextmanager
def serving(relay: Relay) -> Generator[str]:
    """Serve the relay on a free port of 127.0.0.1 and yield its URL."""
    server = uvicorn.Server(uvicorn.Config(relay, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        asyncio.run(asyncio.sleep(0.05))
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def record(client: RecordedClient, conversation: Conversation) -> tuple[list[Recorded], str]:
    """Return the recorded requests of a conversation and the working folder of the client.

    Raises:
        RuntimeError: The client sent fewer requests than the conversation has turns, or one was refused.
    """
    relay = Relay(scripts=[script for _, script, _ in conversation.turns(client) if script])
    with tempfile.TemporaryDirectory() as home, serving(relay) as url:
        work = Path(home) / "work"
        work.mkdir()
        for name, content in _FILES.items():
            (work / name).write_text(content)
        values = {"{url}": url, "{home}": home, "{prompt}": client.prompt}
        for name, content in client.files.items():
            (Path(home) / name).parent.mkdir(parents=True, exist_ok=True)
            settings = client.websocket_setting if conversation.over_websocket else ""
            (Path(home) / name).write_text(_filled(content + settings, values))
        environment = {name: _filled(value, values) for name, value in client.environment.items()}
        ended = subprocess.run(
            [_filled(word, values) for word in client.command],
            cwd=work,
            env={"PATH": os.environ["PATH"], "HOME": home, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    if len(relay.recorded) < len(conversation.turns(client)):
        reason = relay.refused or f"exit code {ended.returncode}: {ended.stderr[-2000:]}{ended.stdout[-500:]}"
        raise RuntimeError(f"{client.title} sent {len(relay.recorded)} requests with tools: {reason}")
    if _DONE not in ended.stdout:
        raise RuntimeError(f"{client.title} did not show the answer: {ended.stdout[-500:]}")
    return relay.recorded, str(work)


def _filled(template: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        template = template.replace(placeholder, value)
    return template


def scenario(client: RecordedClient, conversation: Conversation, version: str) -> Mapping[str, Any]:
    """Return the scenario of a recorded conversation."""
    recorded, work = record(client, conversation)
    turns = conversation.turns(client)
    own = frozenset({client.prompt, _REASONED, _PREAMBLE, _DONE, *map(str.strip, _FILES.values())})
    reduction = Reduction(keeps_texts=client.keeps_texts, own_texts=own, folder=work, api=client.api)
    requests = [*reduction.requests(recorded, [name for name, *_ in turns])]
    sends_reasoning = _REASONED in json.dumps(requests[-1])
    return {
        "about": f"{client.title} {version}: {conversation.about}. As the client sent it, with its long texts shortened.",
        "source": {
            "client": client.title,
            "package": client.package,
            "version": version,
            "licence": client.licence,
            "recorded": datetime.now(UTC).date().isoformat(),
        },
        "api": client.api,
        "needs_script": True,
        **({"websocket": True} if conversation.over_websocket else {}),
        "exercises": [
            *(_EXERCISED_BY_SOCKETS if conversation.over_websocket else _EXERCISED),
            *(["multi_turn.loop_reasoning_is_kept"] if sends_reasoning else []),
            *(["channels.preamble_is_shown", "prompt.preamble_is_kept"] if conversation.preamble else []),
        ],
        "steps": [
            {
                "as": name,
                "headers": {header: one.headers[header] for header in client.headers if header in one.headers},
                **({"send": "stream", "validity": "unknown"} if conversation.over_websocket else {}),
                "request": request,
                **({"script": script, "expected": expected} if script else {}),
            }
            for (name, script, expected), one, request in zip(turns, recorded, requests, strict=True)
        ],
    }


def package_version(client: RecordedClient) -> str:
    """Return the version of the installed package of a client."""
    registry, name = client.package.split()
    if registry == "npm":
        package = json.loads((INSTALLED / "npm" / "node_modules" / name / "package.json").read_text())
        return str(package["version"])
    asked = [
        str(INSTALLED / "venv/bin/python"),
        "-c",
        f"from importlib.metadata import version; print(version('{name}'))",
    ]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Record the named clients, or all; return 1 if one could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--out", type=Path, default=SCENARIOS)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.clients if name not in CLIENTS]:
        parser.error(f"invalid client: expected one of {', '.join(CLIENTS)}, got {unknown[0]!r}")
    code = 0
    for name in arguments.clients or CLIENTS:
        for conversation in (one for one in CONVERSATIONS if one.is_possible(CLIENTS[name])):
            file = arguments.out / f"recorded_{name.replace('-', '_')}_{conversation.topic}.json"
            try:
                written = scenario(CLIENTS[name], conversation, package_version(CLIENTS[name]))
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(f"{file.name}: {problem}", file=sys.stderr)
                code = 1
                continue
            file.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
            print(file.name)
    return code


if __name__ == "__main__":
    sys.exit(main())
