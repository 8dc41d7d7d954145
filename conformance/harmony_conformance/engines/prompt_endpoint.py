"""Requests to prompt endpoints and their responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.engines.profiles import PromptEcho, PromptEndpoint
from harmony_conformance.evidence.exchange import Exchange, PromptTokenCount, RenderedPrompt
from harmony_conformance.json_value import InvalidJsonError, Json, at, dumps, items, loads, members, number, text
from harmony_conformance.prompts.token_injection import SPECIAL
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens


def asks_for_prompt(side: PromptEndpoint, request: Request) -> Request | None:
    """Return the request to a prompt endpoint, None if the response would prove nothing.

    Text does not distinguish a special token from the same characters as ordinary text. A request that quotes a marker is therefore not sent to
    an endpoint that returns text.
    """
    body = _json(request)
    if side.text and _quotes_markers(body):
        return None
    if not side.extra:
        return replace(request, path=side.path)
    return replace(request, path=side.path, body=dumps({**members(body), side.extra: True}).encode())


def shown_prompt(side: PromptEndpoint, answer: Json) -> RenderedPrompt | None:
    """Return the prompt in a response, None if it is missing."""
    ids = _ids(at(answer, *side.ids)) if side.ids else encode_with_special_tokens(text(at(answer, *side.text)))
    return RenderedPrompt(source=side.name, ids=tuple(ids)) if ids else None


def revealed_prompt(reveals: PromptEcho, x: Exchange) -> RenderedPrompt | None:
    """Return the prompt that a response repeats, None if it is missing or the request quotes markers."""
    if _quotes_markers(x.chat_request):
        return None
    texts = (text(at(value, *reveals.prompt)) for value in (x.chat_completion, *x.chunks))
    prompt = next(filter(None, texts), "")
    return RenderedPrompt(source=reveals.name, ids=tuple(encode_with_special_tokens(prompt))) if prompt else None


def _quotes_markers(body: Json) -> bool:
    """Return True if a request contains a marker; member names count, as parameter names are rendered."""
    return SPECIAL.search(dumps(body)) is not None


def counted_prompt(path: str, answer: Json) -> PromptTokenCount | None:
    """Return the number of prompt tokens in a response of `path`, None if it is missing."""
    tokens = number(at(answer, "input_tokens"))
    return PromptTokenCount(source=path, tokens=tokens) if tokens else None


def _ids(value: Json) -> Sequence[int]:
    ids = [number(item) if number(item) is not None else number(at(item, "id")) for item in items(value)]
    valid = [token for token in ids if token is not None]
    return valid if len(valid) == len(ids) else ()


def _json(request: Request) -> Json:
    try:
        return loads(request.body.decode())
    except (InvalidJsonError, UnicodeDecodeError):
        return None
