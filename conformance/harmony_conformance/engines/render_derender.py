"""Requests to the render and derender endpoints of vLLM's `launch render`.

Render returns the ids of a prompt; derender converts output ids to the client's response. Nothing is generated in between: the output ids come from a
script, and this module adds the finish reason of the generating server. A stream is derendered one event per request; each request carries the state
of the parser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.engines.profiles import DERENDER_PATH, render_endpoint
from harmony_conformance.engines.prompt_endpoint import read_rendered_prompt
from harmony_conformance.evidence.emitted_ids import GENERATION_END_TOKENS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, loads, members, text, value_at
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import tokens

LimitedSend = Callable[[Request], Awaitable[SendResult | None]]
"""Function that sends a request; it returns None if the limit of requests is reached."""
_ID = "chatcmpl-script"
_WITH_REASON = GENERATION_END_TOKENS - {tokens.RETURN}  # vLLM sets no stop_reason for the first end-of-sequence token
_EVENTS = "text/event-stream"


def with_response(x: Exchange, sent: SendResult) -> Exchange:
    """Return the exchange with the result of its request."""
    waits = (*x.retry_waits, *sent.retry_waits)
    return replace(x, response=sent.response, failure=sent.failure, retry_waits=waits, websocket=sent.websocket)


async def render_and_derender(send: LimitedSend, asked: Exchange, event_tokens: int) -> Exchange | None:
    """Return the exchange with its prompt and the response to its script, if any; None if no more may be sent.

    A stream has `event_tokens` tokens per event. A failed request on the way becomes the response.
    """
    sent = await send(render_request(asked))
    if sent is None:
        return None
    rendered = replace(with_response(asked, sent), answered_by=AnsweredBy.RENDER)
    is_failed = rendered.response is None or not rendered.response.is_success or rendered.failure is not None
    prompt = None if is_failed else read_rendered_prompt(render_endpoint(asked.request.path), rendered.response_json)
    if prompt is None:
        return rendered
    x = replace(rendered, rendered_prompt=prompt)
    if x.script is None:
        return x
    request_id = text(value_at(rendered.response_json, "request_id")) or _ID
    x = replace(x, response=None, answered_by=AnsweredBy.DERENDER)
    if x.wants_stream:
        return await _streamed(send, x, request_id, event_tokens)
    sent = await send(whole_request(x, request_id))
    return None if sent is None else with_response(x, sent)


async def _streamed(send: LimitedSend, x: Exchange, request_id: str, event_tokens: int) -> Exchange | None:
    states: dict[int, Json] = {}
    chunks: list[tuple[float, Json]] = []
    elapsed = 0.0
    for event in events(x, event_tokens):
        sent = await send(event_request(x, event, states.get(event.index), request_id))
        if sent is None:
            return None
        if sent.failure is not None or sent.response is None or not sent.response.is_success:
            return with_response(x, sent)
        step = read_derendered_chunk(replace(x, response=sent.response).chat_completion)
        if step is None:
            return with_response(x, sent)
        elapsed += sent.response.chunks[-1].arrival_time if sent.response.chunks else 0.0
        chunk, states[event.index] = step
        chunks.append((elapsed, chunk))
    return replace(x, response=as_event_stream(chunks))


@dataclass(frozen=True, kw_only=True)
class TokenEvent:
    """Ids of choice `index` that a generating server sends in one event; the last event has the `finish` reason."""

    index: int
    ids: tuple[int, ...]
    finish: str | None

    def to_json(self) -> JsonObject:
        """Return the choice of a `generate` response."""
        last = self.ids[-1] if self.ids else None
        reason = last if self.finish == "stop" and last in _WITH_REASON else None
        return {"index": self.index, "token_ids": list(self.ids), "finish_reason": self.finish, "stop_reason": reason}


def render_request(x: Exchange) -> Request:
    """Return the request for the ids of the prompt."""
    return replace(x.request, path=render_endpoint(x.request.path).path)


def whole_request(x: Exchange, request_id: str = _ID) -> Request:
    """Return the request for the client's response to the whole output."""
    ids, finish = x.output.ids or (), _finish_reason(x)
    choices: list[Json] = [TokenEvent(index=index, ids=ids, finish=finish).to_json() for index in range(_choices(x))]
    response: JsonObject = {"request_id": request_id, "choices": choices}
    return _request(x, {"generate_response": response, "prompt_tokens": len(_prompt(x))})


def event_request(x: Exchange, event: TokenEvent, state: Json, request_id: str = _ID) -> Request:
    """Return the request for the client's chunk of one event. `state` comes from the response before, None for the first."""
    chunk: JsonObject = {"request_id": request_id, "choices": [event.to_json()]}
    return _request(x, {"stream": True, "generate_chunk": chunk, "stream_state": state})


def events(x: Exchange, size: int) -> Iterator[TokenEvent]:
    """Yield the output in events of `size` tokens, alternating between the choices."""
    ids = x.output.ids or ()
    for start in range(0, len(ids), size):
        finish = _finish_reason(x) if start + size >= len(ids) else None
        for index in range(_choices(x)):
            yield TokenEvent(index=index, ids=ids[start : start + size], finish=finish)


def split_event_requests(x: Exchange, size: int) -> tuple[JsonObject, tuple[Json, ...]]:
    """Return what the requests of a derendered stream have in common, and the `generate_chunk` of each. Their state is in neither."""
    bodies = [members(loads(event_request(x, event, None).body.decode())) for event in events(x, size)]
    common = {name: value for name, value in bodies[0].items() if name not in _OF_EVENT} if bodies else {}
    return common, tuple(body["generate_chunk"] for body in bodies)


_OF_EVENT = ("generate_chunk", "stream_state")


def read_derendered_chunk(answer: Json) -> tuple[Json, Json] | None:
    """Return the client's chunk and the parser state for the next event; None if the response lacks one."""
    chunk, state = value_at(answer, "chunk"), value_at(answer, "stream_state")
    return (chunk, state) if isinstance(chunk, dict) and isinstance(state, dict) else None


def as_event_stream(chunks: Sequence[tuple[float, Json]]) -> Response:
    """Return chunks and their arrival times as an event stream. The suite adds the framing, but no `[DONE]`."""
    return Response(
        status=200,
        headers={"content-type": _EVENTS},
        chunks=tuple(
            Chunk(arrival_time=when, data=f"data: {dumps(chunk)}\n\n".encode("utf-8", "backslashreplace"))
            for when, chunk in chunks
        ),
    )


def _request(x: Exchange, members: JsonObject) -> Request:
    body: JsonObject = {
        "model": value_at(x.chat_request, "model"),
        **members,
        "chat_request": x.chat_request,
        "prompt_token_ids": list(_prompt(x)),
    }
    return replace(x.request, path=DERENDER_PATH, body=dumps(body).encode("utf-8", "backslashreplace"))


def _prompt(x: Exchange) -> tuple[int, ...]:
    return x.rendered_prompt.ids if x.rendered_prompt is not None else ()


def _finish_reason(x: Exchange) -> str:
    """Return the finish reason of a generating server: `length` at the limit, unless the output ends with a stop token."""
    ids = x.output.ids or ()
    is_ended = bool(ids) and ids[-1] in GENERATION_END_TOKENS and value_at(x.chat_request, "ignore_eos") is not True
    return "length" if not is_ended and x.max_output_tokens is not None and len(ids) >= x.max_output_tokens else "stop"


def _choices(x: Exchange) -> int:
    return max(integer(value_at(x.chat_request, "n")) or 1, 1)
