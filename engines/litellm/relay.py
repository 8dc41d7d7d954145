"""Relay around a gateway: suite -> front -> gateway -> behind -> reference server.

The front takes the script out of each request, so that the gateway gets what a client would send. It adds a numbered header, which the gateway forwards.
Behind, the script returns to the request with that number, and the server is asked for token ids. They are recorded, and taken out of the answer.
`POST PATH/render` returns the ids of the prompt that the last request with the same body led to, in the form of vLLM's render endpoint.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import count

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, loads

NUMBER = "x-harmony-request"
APIS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
"""The APIs whose prompts are recorded."""
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
OF_THE_CONNECTION = {"connection", "content-length", "date", "host", "keep-alive", "server", "transfer-encoding"}
IDS = ("prompt_token_ids", "token_ids")


class Relay:
    """Both sides, and what they share: the scripts of open requests by number, and the prompts by the body of the request in front."""

    def __init__(self, gateway: str, server: str, key: str) -> None:
        self._numbers = count(1)
        self._bodies: dict[str, bytes] = {}
        self._scripts: dict[str, JsonObject] = {}
        self._prompts: dict[bytes, list[Json]] = {}
        self._key = key
        # The gateway and the server decide how long an answer takes. No connection is reused: one that the other side just closed is an error of the relay.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._gateway = httpx.AsyncClient(base_url=gateway, timeout=None, limits=limits)
        self._server = httpx.AsyncClient(base_url=server, timeout=None, limits=limits)

    def front(self) -> Starlette:
        """Return the application that the suite calls."""
        renders = [Route(f"{path}/render", self.show_prompt, methods=["POST"]) for path in APIS]
        load = Route("/metrics", self.ask_server, methods=["GET"])
        return Starlette(routes=[*renders, load, Route("/{rest:path}", self.ask_gateway, methods=METHODS)])

    def behind(self) -> Starlette:
        """Return the application that the gateway calls."""
        return Starlette(routes=[Route("/{rest:path}", self.ask_server, methods=METHODS)])

    async def show_prompt(self, request: Request) -> Response:
        """Return the token ids of the prompt of a request that was sent before."""
        ids = self._prompts.get(await request.body())
        if ids is None:
            return JSONResponse({"error": {"message": "no request with this body reached the server"}}, 404)
        return Response(dumps({"token_ids": ids}), media_type="application/json")

    async def ask_gateway(self, request: Request) -> Response:
        """Send a request to the gateway without its script."""
        number, body = str(next(self._numbers)), await request.body()
        self._bodies[number] = body
        value = _json_object(body)
        script = {name: one for name, one in value.items() if name.startswith("harmony_") or name == "ignore_eos"}
        if script:
            self._scripts[number] = script
            body = dumps({name: one for name, one in value.items() if name not in script}).encode(
                "utf-8", "backslashreplace"
            )
        headers = {**_headers(request.headers), NUMBER: number, "authorization": f"Bearer {self._key}"}
        return await self._forward(self._gateway, request, headers, body)

    async def ask_server(self, request: Request) -> Response:
        """Send a request to the reference server with its script, and record the ids of its prompt."""
        number, body = request.headers.get(NUMBER, ""), await request.body()
        value = _json_object(body)
        if number and value and request.url.path in APIS:
            body = dumps({**value, **self._scripts.get(number, {}), "return_token_ids": True}).encode()
        headers = {name: one for name, one in _headers(request.headers).items() if name != "accept-encoding"}
        return await self._forward(self._server, request, headers, body, number)

    async def _forward(
        self, client: httpx.AsyncClient, request: Request, headers: Mapping[str, str], body: bytes, number: str = ""
    ) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        sent = client.build_request(request.method, path, headers=headers, content=body)
        try:
            answer = await client.send(sent, stream=True)
        except httpx.HTTPError as problem:
            return JSONResponse({"error": {"message": f"relay: {type(problem).__name__}: {problem}"}}, 502)
        pieces = self._without_ids(answer, number) if number else answer.aiter_raw()
        return StreamingResponse(_closing(answer, pieces), answer.status_code, _headers(answer.headers))

    async def _without_ids(self, answer: httpx.Response, number: str) -> AsyncIterator[bytes]:
        """Yield the body of an answer of the server without token ids: a JSON value, or the lines of a stream."""
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            yield self._line(await answer.aread(), number)
            return
        rest = b""
        async for piece in answer.aiter_raw():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield (b"data: " + self._line(line[6:], number) if line.startswith(b"data: ") else line) + b"\n"
        yield rest

    def _line(self, data: bytes, number: str) -> bytes:
        if not any(name.encode() in data for name in IDS):
            return data
        try:
            return dumps(self._stripped(loads(data), number)).encode("utf-8", "backslashreplace")
        except InvalidJsonError:
            return data

    def _stripped(self, value: Json, number: str) -> Json:
        if isinstance(value, list):
            return [self._stripped(one, number) for one in value]
        if not isinstance(value, dict):
            return value
        ids = value.get("prompt_token_ids")
        if isinstance(ids, list):
            self._prompts[self._bodies[number]] = ids
        return {name: self._stripped(one, number) for name, one in value.items() if name not in IDS}


async def _closing(answer: httpx.Response, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces, and close the answer as soon as the client leaves."""
    try:
        async for piece in pieces:
            yield piece
    finally:
        await answer.aclose()


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in OF_THE_CONNECTION}


def _json_object(body: bytes) -> JsonObject:
    try:
        value = loads(body)
    except InvalidJsonError:
        return {}
    return value if isinstance(value, dict) else {}
