"""An exchange with a server in two halves: the prompt from one, and what the other makes of the script, in as many requests as that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from harmony_conformance import derender
from harmony_conformance.client import Sent
from harmony_conformance.engines import renders_at
from harmony_conformance.exchange import AnsweredBy, Exchange
from harmony_conformance.json_value import Json
from harmony_conformance.side import shown_prompt
from harmony_conformance.wire import Request, Response

Send = Callable[[Request], Awaitable[Sent | None]]
"""Sends a request; None where no more may be sent."""


def answered(x: Exchange, sent: Sent) -> Exchange:
    """The exchange with what came of its request."""
    return replace(x, response=sent.response, failure=sent.failure, waited=(*x.waited, *sent.waited))


async def answer_in_halves(send: Send, asked: Exchange, event_tokens: int) -> Exchange | None:
    """The exchange with the prompt, and with the answer to its script where it has one; None where no more may be sent.

    A stream is asked for `event_tokens` tokens at a time. What goes wrong on the way is the answer.
    """
    sent = await send(derender.render_request(asked))
    if sent is None:
        return None
    shown = replace(answered(asked, sent), answered_by=AnsweredBy.RENDER)
    refused = shown.response is None or not shown.response.is_success or shown.failure is not None
    prompt = None if refused else shown_prompt(renders_at(asked.request.path), shown.told)
    if prompt is None:
        return shown
    x = replace(shown, rendered=prompt)
    if x.script is None:
        return x
    request_id = derender.request_id(shown.told)
    x = replace(x, response=None, answered_by=AnsweredBy.DERENDER)
    if x.wants_stream:
        return await _streamed(send, x, request_id, event_tokens)
    sent = await send(derender.whole_request(x, request_id))
    return None if sent is None else answered(x, sent)


async def _streamed(send: Send, x: Exchange, request_id: str, event_tokens: int) -> Exchange | None:
    states: dict[int, Json] = {}
    chunks: list[tuple[float, Json]] = []
    elapsed = 0.0
    for event in derender.events(x, event_tokens):
        sent = await send(derender.event_request(x, event, states.get(event.index), request_id))
        if sent is None:
            return None
        one = replace(x, response=sent.response, failure=sent.failure)
        given = derender.given(one.body) if sent.failure is None and _is_success(sent.response) else None
        if given is None:
            return answered(x, sent)
        elapsed += sent.response.chunks[-1].at if sent.response is not None and sent.response.chunks else 0.0
        chunk, states[event.index] = given
        chunks.append((elapsed, chunk))
    return replace(x, response=derender.framed(chunks))


def _is_success(response: Response | None) -> bool:
    return response is not None and response.is_success
