"""Requests to prompt endpoints and their responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.engines.profiles import PromptEcho, PromptEndpoint
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import PromptTokenCount, RenderedPrompt
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, integer, items, loads, members, text, value_at
from harmony_conformance.prompts.token_injection import SPECIAL_TOKEN
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens, tokens


def build_prompt_request(side: PromptEndpoint, request: Request) -> Request | None:
    """Return the request to a prompt endpoint, None if the response would prove nothing.

    Text does not distinguish a special token from the same characters as ordinary text. A request that quotes a marker is therefore not sent to
    an endpoint that returns text.
    """
    body = _json(request)
    if side.text_path and _quotes_markers(body):
        return None
    if not side.extra:
        return replace(request, path=side.path)
    longer = dumps({**members(body), side.extra: True})
    return replace(request, path=side.path, body=longer.encode("utf-8", "backslashreplace"))


def read_rendered_prompt(side: PromptEndpoint, answer: Json) -> RenderedPrompt | None:
    """Return the prompt in a response, None if it is missing."""
    shown = value_at(answer, *(side.ids_path or side.text_path))
    ids = _ids(shown) if side.ids_path else encode_with_special_tokens(text(shown))
    return RenderedPrompt(source=side.name, ids=tuple(ids)) if ids else None


def read_echoed_prompt(reveals: PromptEcho, x: Exchange) -> RenderedPrompt | None:
    """Return the prompt that a response repeats, None if it is missing or the request quotes markers."""
    if _quotes_markers(x.chat_request):
        return None
    texts = (text(value_at(value, *reveals.text_path)) for value in (x.chat_completion, *x.chunks))
    prompt = next(filter(None, texts), "")
    return RenderedPrompt(source=reveals.name, ids=tuple(encode_with_special_tokens(prompt))) if prompt else None


def _quotes_markers(body: Json) -> bool:
    """Return True if a request contains a marker; member names count, as parameter names are rendered."""
    return SPECIAL_TOKEN.search(dumps(body)) is not None


def read_prompt_count(path: str, answer: Json) -> PromptTokenCount | None:
    """Return the number of prompt tokens in a response of `path`, None if it is missing."""
    count = integer(value_at(answer, "input_tokens"))
    return PromptTokenCount(source=path, tokens=count) if count else None


def _ids(value: Json) -> Sequence[int]:
    ids = [integer(item) if integer(item) is not None else integer(value_at(item, "id")) for item in items(value)]
    valid = [token for token in ids if token is not None]
    are_known = valid and tokens.is_known(min(valid)) and tokens.is_known(max(valid))
    return valid if are_known and len(valid) == len(ids) else ()  # no recording could have others


def _json(request: Request) -> Json:
    try:
        return loads(request.body.decode())
    except (InvalidJsonError, UnicodeDecodeError):
        return None
