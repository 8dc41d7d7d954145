"""Prompts that a side endpoint shows: how to ask, and what the answer says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.engines.profiles import Reveals, Side
from harmony_conformance.evidence.exchange import Counted, Exchange, Rendered
from harmony_conformance.json_value import Json, NotJson, at, dumps, items, loads, members, number, text
from harmony_conformance.prompts.token_injection import SPECIAL
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens


def asks_for_prompt(side: Side, request: Request) -> Request | None:
    """The request to the side endpoint, None where its answer would prove nothing.

    A text can not show whether a marker was fed as a special token or as ordinary text, so it is not asked for where the request itself quotes one.
    """
    body = _json(request)
    if side.text and _quotes_markers(body):
        return None
    if not side.extra:
        return replace(request, path=side.path)
    return replace(request, path=side.path, body=dumps({**members(body), side.extra: True}).encode())


def shown_prompt(side: Side, answer: Json) -> Rendered | None:
    """The prompt in an answer, None where there is none."""
    ids = _ids(at(answer, *side.ids)) if side.ids else encode_with_special_tokens(text(at(answer, *side.text)))
    return Rendered(source=side.name, ids=tuple(ids)) if ids else None


def revealed_prompt(reveals: Reveals, x: Exchange) -> Rendered | None:
    """The prompt that an answer holds, None where it holds none, or where its text would prove nothing: where the request quotes markers."""
    if _quotes_markers(x.asked):
        return None
    held = (text(at(value, *reveals.prompt)) for value in (x.body, *x.chunks))
    said = next((one for one in held if one), "")
    return Rendered(source=reveals.name, ids=tuple(encode_with_special_tokens(said))) if said else None


def _quotes_markers(body: Json) -> bool:
    """Whether a marker stands anywhere in a request, names of members included: those of parameters are rendered."""
    return SPECIAL.search(dumps(body)) is not None


def counted_prompt(path: str, answer: Json) -> Counted | None:
    """The number of tokens in an answer of `path`, None where there is none."""
    tokens = number(at(answer, "input_tokens"))
    return Counted(source=path, tokens=tokens) if tokens else None


def _ids(value: Json) -> Sequence[int]:
    listed = [number(item) if number(item) is not None else number(at(item, "id")) for item in items(value)]
    known = [token for token in listed if token is not None]
    return known if len(known) == len(listed) else ()


def _json(request: Request) -> Json:
    try:
        return loads(request.body.decode())
    except (NotJson, UnicodeDecodeError):
        return None
