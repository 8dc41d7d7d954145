"""Prompts that a side endpoint shows: how to ask, and what the answer says."""

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
    """The request to the side endpoint, None where its answer would prove nothing.

    A text can not show whether a marker was fed as a special token or as ordinary text, so it is not asked for where the request itself quotes one.
    """
    body = _json(request)
    if side.text and _quotes_markers(body):
        return None
    if not side.extra:
        return replace(request, path=side.path)
    return replace(request, path=side.path, body=dumps({**members(body), side.extra: True}).encode())


def shown_prompt(side: PromptEndpoint, answer: Json) -> RenderedPrompt | None:
    """The prompt in an answer, None where there is none."""
    ids = _ids(at(answer, *side.ids)) if side.ids else encode_with_special_tokens(text(at(answer, *side.text)))
    return RenderedPrompt(source=side.name, ids=tuple(ids)) if ids else None


def revealed_prompt(reveals: PromptEcho, x: Exchange) -> RenderedPrompt | None:
    """The prompt that an answer holds, None where it holds none, or where its text would prove nothing: where the request quotes markers."""
    if _quotes_markers(x.chat_request):
        return None
    held = (text(at(value, *reveals.prompt)) for value in (x.chat_completion, *x.chunks))
    said = next((one for one in held if one), "")
    return RenderedPrompt(source=reveals.name, ids=tuple(encode_with_special_tokens(said))) if said else None


def _quotes_markers(body: Json) -> bool:
    """Whether a marker stands anywhere in a request, names of members included: those of parameters are rendered."""
    return SPECIAL.search(dumps(body)) is not None


def counted_prompt(path: str, answer: Json) -> PromptTokenCount | None:
    """The number of tokens in an answer of `path`, None where there is none."""
    tokens = number(at(answer, "input_tokens"))
    return PromptTokenCount(source=path, tokens=tokens) if tokens else None


def _ids(value: Json) -> Sequence[int]:
    listed = [number(item) if number(item) is not None else number(at(item, "id")) for item in items(value)]
    known = [token for token in listed if token is not None]
    return known if len(known) == len(listed) else ()


def _json(request: Request) -> Json:
    try:
        return loads(request.body.decode())
    except (InvalidJsonError, UnicodeDecodeError):
        return None
