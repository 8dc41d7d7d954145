"""The turns of a client on a WebSocket: each request with its last response, and the scripts of those that generate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reduction import Recorded
from starlette.types import Message, Receive, Send

_CREATE, _COMPLETED = "response.create", "response.completed"


@dataclass(kw_only=True)
class SocketRecorder:
    """One connection between client and server. `next_script` returns the script of the next turn that generates, None after the last one."""

    headers: Mapping[str, str]
    client_receive: Receive
    client_send: Send
    next_script: Callable[[], str | None]
    keep: Callable[[Recorded], None]
    _sent: Mapping[str, Any] | None = None

    async def receive(self) -> Message:
        """Return the next message of the client, with its script."""
        message = await self.client_receive()
        body = json.loads(message.get("text") or "{}")
        if body.get("type") != _CREATE:
            return message
        self._sent = {name: value for name, value in body.items() if name != "type"}
        script = self.next_script() if body.get("generate") is not False else None
        scripted = {**body, "harmony_script": script} if script is not None else body
        return {**message, "text": json.dumps(scripted)}

    async def send(self, message: Message) -> None:
        """Pass a message on to the client, and keep the turn that it completes."""
        event = json.loads(message.get("text") or "{}")
        if event.get("type") == _COMPLETED and self._sent is not None:
            answer = event["response"]
            self.keep(Recorded(body=self._sent, headers=self.headers, answer=answer, received=bytearray()))
            self._sent = None
        await self.client_send(message)
