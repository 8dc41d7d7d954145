"""Defects of the APIs that continue a rendered prompt: Completions and TGI's /generate; and of TGI's /chat_tokenize."""

from collections.abc import Iterator
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    drop_members,
    in_choices,
    in_member,
    on_json,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnStream
from harmony_ref import encode_with_special_tokens, tokens

_SECOND = 2


def _templated(body: JsonObject) -> JsonObject:
    prompt = body.get("prompt")
    begin, end = "<|start|>user<|message|>", "<|end|><|start|>assistant"
    if isinstance(prompt, str):
        return {**body, "prompt": f"{begin}{prompt}{end}"}
    return {**body, "prompt": [*encode_with_special_tokens(begin), *items(prompt), *encode_with_special_tokens(end)]}


def _without_markers(body: JsonObject) -> JsonObject:
    ids: list[Json] = [
        token for token in items(body.get("prompt")) if not (isinstance(token, int) and tokens.is_special(token))
    ]
    return {**body, "prompt": ids} if ids else body


def _trimmed(choice: JsonObject) -> JsonObject:
    return {**choice, "text": text(choice.get("text")).strip()}


def _one_short(logprobs: JsonObject) -> JsonObject:
    return {**logprobs, "token_logprobs": items(logprobs.get("token_logprobs"))[:-1]}


def _only_ordinary(details: JsonObject) -> JsonObject:
    ordinary: list[Json] = [token for token in items(details.get("tokens")) if value_at(token, "special") is not True]
    return {**details, "tokens": ordinary} if "tokens" in details else details


def _swapped(stream: Iterator[Json]) -> Iterator[Json]:
    """Send the third token before the second."""
    for value in stream:
        if (
            value_at(value, "token") is not None
            and integer(value_at(value, "index")) == _SECOND
            and (after := next(stream, None))
        ):
            yield after
        yield value


def _without_the_end(body: JsonObject) -> JsonObject:
    name = "tokenize_response"
    return {**body, name: items(body[name])[:-2]} if name in body else body


def _shifted(logprobs: JsonObject) -> JsonObject:
    texts = items(logprobs.get("tokens"))
    return {**logprobs, "tokens": [*texts[1:], *texts[:1]]} if "tokens" in logprobs else logprobs


def _one_more_token(usage: JsonObject) -> JsonObject:
    return {**usage, "completion_tokens": (integer(usage.get("completion_tokens")) or 0) + 1}


_tgi_json = partial(on_json, ApiFamily.TGI)
_completions_json = partial(on_json, ApiFamily.COMPLETIONS)
_completions_request = partial(on_request, ApiFamily.COMPLETIONS)

DEFECTS = (
    _tgi_json(
        "tgi-markers-left-out", "The tokens of `details` lack the special tokens.", in_member("details", _only_ordinary)
    ),
    _tgi_json(
        "tgi-always-eos",
        "The finish reason in `details` is always `eos_token`.",
        in_member("details", lambda details: {**details, "finish_reason": "eos_token"}),
    ),
    Defect(
        "tgi-tokens-crossed",
        "The second and the third event of a stream of tokens are swapped.",
        OnStream(_swapped, ApiFamily.TGI),
    ),
    _tgi_json(
        "tgi-chat-tokenize-without-the-end", "/chat_tokenize omits the last two tokens of the prompt.", _without_the_end
    ),
    _completions_request(
        "completions-templated", "The chat template is applied to a prompt, as to a user message.", _templated
    ),
    _completions_request(
        "completions-ids-without-markers", "The special tokens of a prompt given as ids are dropped.", _without_markers
    ),
    _completions_json(
        "completions-text-trimmed", "Leading and trailing white space of the text is removed.", in_choices(_trimmed)
    ),
    _completions_request("completions-echo-ignored", "`echo` is ignored.", drop_members("echo")),
    _completions_json(
        "completions-logprobs-one-short",
        "The last log probability is missing.",
        in_choices(in_member("logprobs", _one_short)),
    ),
    _completions_json(
        "completions-logprobs-shifted",
        "Each log probability is assigned to the next token.",
        in_choices(in_member("logprobs", _shifted)),
    ),
    _completions_json(
        "completions-object-of-chat",
        "The `object` of a response is `chat.completion`.",
        lambda body: {**body, "object": "chat.completion"} if "choices" in body else body,
    ),
    _completions_json(
        "completions-counted-otherwise", "`completion_tokens` is one too high.", in_member("usage", _one_more_token)
    ),
)
