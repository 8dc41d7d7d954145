"""A server in two halves, as vLLM's `launch render`: one shows the ids of a prompt, the other says what a client is given for the ids of an output.

Between the two nothing is generated: the ids of the output are a script's. What the generating server would have told (that it stopped, or was cut) is told
here in its place. A stream is read one event at a time, and the state of the parser travels with the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.engines.profiles import DERENDER, renders_at
from harmony_conformance.engines.prompt_endpoint import shown_prompt
from harmony_conformance.evidence.exchange import AnsweredBy, Exchange
from harmony_conformance.evidence.expected_output import ENDINGS
from harmony_conformance.json_value import Json, JsonObject, at, dumps, number, text
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import tokens

Send = Callable[[Request], Awaitable[SendResult | None]]
"""Sends a request; None where no more may be sent."""
_ID = "chatcmpl-script"
_WITH_REASON = ENDINGS - {tokens.RETURN}  # vLLM gives no reason for the first end-of-sequence token
_EVENTS = "text/event-stream"


def with_response(x: Exchange, sent: SendResult) -> Exchange:
    """The exchange with what came of its request."""
    return replace(x, response=sent.response, failure=sent.failure, retry_waits=(*x.retry_waits, *sent.retry_waits))


async def answer_in_halves(send: Send, asked: Exchange, event_tokens: int) -> Exchange | None:
    """The exchange with the prompt, and with the answer to its script where it has one; None where no more may be sent.

    A stream is asked for `event_tokens` tokens at a time. What goes wrong on the way is the answer.
    """
    sent = await send(render_request(asked))
    if sent is None:
        return None
    shown = replace(with_response(asked, sent), answered_by=AnsweredBy.RENDER)
    refused = shown.response is None or not shown.response.is_success or shown.failure is not None
    prompt = None if refused else shown_prompt(renders_at(asked.request.path), shown.response_json)
    if prompt is None:
        return shown
    x = replace(shown, rendered_prompt=prompt)
    if x.script is None:
        return x
    request_id = text(at(shown.response_json, "request_id")) or _ID
    x = replace(x, response=None, answered_by=AnsweredBy.DERENDER)
    if x.wants_stream:
        return await _streamed(send, x, request_id, event_tokens)
    sent = await send(whole_request(x, request_id))
    return None if sent is None else with_response(x, sent)


async def _streamed(send: Send, x: Exchange, request_id: str, event_tokens: int) -> Exchange | None:
    states: dict[int, Json] = {}
    chunks: list[tuple[float, Json]] = []
    elapsed = 0.0
    for event in events(x, event_tokens):
        sent = await send(event_request(x, event, states.get(event.index), request_id))
        if sent is None:
            return None
        one = replace(x, response=sent.response, failure=sent.failure)
        if sent.failure is not None or sent.response is None or not sent.response.is_success:
            return with_response(x, sent)
        step = given(one.chat_completion)
        if step is None:
            return with_response(x, sent)
        elapsed += sent.response.chunks[-1].at if sent.response.chunks else 0.0
        chunk, states[event.index] = step
        chunks.append((elapsed, chunk))
    return replace(x, response=framed(chunks))


@dataclass(frozen=True, kw_only=True)
class TokenEvent:
    """Ids that a generating server sends together, of choice `index`; `finish` with the last of them."""

    index: int
    ids: tuple[int, ...]
    finish: str | None

    def written(self) -> JsonObject:
        """The choice of a `generate` answer."""
        last = self.ids[-1] if self.ids else None
        reason = last if self.finish == "stop" and last in _WITH_REASON else None
        return {"index": self.index, "token_ids": list(self.ids), "finish_reason": self.finish, "stop_reason": reason}


def render_request(x: Exchange) -> Request:
    """The request that is answered with the ids of the prompt."""
    return replace(x.request, path=renders_at(x.request.path).path)


def whole_request(x: Exchange, request_id: str = _ID) -> Request:
    """The request that is answered with what a client is given for the whole output."""
    choices: list[Json] = [
        TokenEvent(index=index, ids=x.output.ids or (), finish=_finish(x)).written() for index in range(_choices(x))
    ]
    return _request(
        x, {"generate_response": {"request_id": request_id, "choices": choices}, "prompt_tokens": len(_prompt(x))}
    )


def event_request(x: Exchange, event: TokenEvent, state: Json, request_id: str = _ID) -> Request:
    """The request that is answered with what a client is given for one event; `state` is what the answer to the one before holds, None at first."""
    chunk: JsonObject = {"request_id": request_id, "choices": [event.written()]}
    return _request(x, {"stream": True, "generate_chunk": chunk, "stream_state": state})


def events(x: Exchange, size: int) -> Iterator[TokenEvent]:
    """The output in events of `size` tokens, the choices taking turns."""
    ids = x.output.ids or ()
    for start in range(0, len(ids), size):
        finish = _finish(x) if start + size >= len(ids) else None
        for index in range(_choices(x)):
            yield TokenEvent(index=index, ids=ids[start : start + size], finish=finish)


def given(answer: Json) -> tuple[Json, Json] | None:
    """The chunk that a client is given, and the state for the next event; None where the answer holds none."""
    chunk, state = at(answer, "chunk"), at(answer, "stream_state")
    return (chunk, state) if isinstance(chunk, dict) and isinstance(state, dict) else None


def framed(chunks: Sequence[tuple[float, Json]]) -> Response:
    """Chunks and when they came as a stream of events. The framing is ours, and there is no `[DONE]`: nobody sent one."""
    return Response(
        status=200,
        headers={"content-type": _EVENTS},
        chunks=tuple(
            Chunk(at=when, data=f"data: {dumps(chunk)}\n\n".encode("utf-8", "backslashreplace"))
            for when, chunk in chunks
        ),
    )


def _request(x: Exchange, members: JsonObject) -> Request:
    prompt: list[Json] = list(_prompt(x))
    body: JsonObject = {
        "model": at(x.chat_request, "model"),
        **members,
        "chat_request": x.chat_request,
        "prompt_token_ids": prompt,
    }
    return replace(x.request, path=DERENDER, body=dumps(body).encode("utf-8", "backslashreplace"))


def _prompt(x: Exchange) -> tuple[int, ...]:
    return x.rendered_prompt.ids if x.rendered_prompt is not None else ()


def _finish(x: Exchange) -> str:
    """Why a generating server would have stopped: at the limit, else since the model ended, by a token that may have been taken away."""
    ids = x.output.ids or ()
    is_ended = bool(ids) and ids[-1] in ENDINGS and at(x.chat_request, "ignore_eos") is not True
    return "length" if not is_ended and x.limit is not None and len(ids) >= x.limit else "stop"


def _choices(x: Exchange) -> int:
    return max(number(at(x.chat_request, "n")) or 1, 1)
