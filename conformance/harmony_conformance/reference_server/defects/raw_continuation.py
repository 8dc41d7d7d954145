"""Defects of the APIs that continue a prompt which the client rendered, and of what shows their tokens: Completions, TGI's generate and /chat_tokenize."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnRequest, OnStream
from harmony_ref import encode_with_special_tokens, tokens

_SECOND = 2
_Body = Callable[[JsonObject], JsonObject]


def _templated(body: JsonObject) -> JsonObject:
    prompt = body.get("prompt")
    begin, end = "<|start|>user<|message|>", "<|end|><|start|>assistant"
    if isinstance(prompt, str):
        return {**body, "prompt": f"{begin}{prompt}{end}"}
    return {**body, "prompt": [*encode_with_special_tokens(begin), *items(prompt), *encode_with_special_tokens(end)]}


def _without_markers(body: JsonObject) -> JsonObject:
    kept: list[Json] = [
        token for token in items(body.get("prompt")) if not (isinstance(token, int) and tokens.is_special(token))
    ]
    return {**body, "prompt": kept} if kept else body


def _trimmed(choice: JsonObject) -> JsonObject:
    return {**choice, "text": text(choice.get("text")).strip()}


def _one_short(logprobs: JsonObject) -> JsonObject:
    return {**logprobs, "token_logprobs": items(logprobs.get("token_logprobs"))[:-1]}


def _only_ordinary(details: JsonObject) -> JsonObject:
    kept: list[Json] = [token for token in items(details.get("tokens")) if at(token, "special") is not True]
    return {**details, "tokens": kept} if "tokens" in details else details


def _crossed(stream: Iterator[Json]) -> Iterator[Json]:
    """The third token is told before the second."""
    for value in stream:
        if at(value, "token") is not None and number(at(value, "index")) == _SECOND and (after := next(stream, None)):
            yield after
        yield value


def _without_the_end(body: JsonObject) -> JsonObject:
    shown = "tokenize_response"
    return {**body, shown: items(body[shown])[:-2]} if shown in body else body


def _shifted(logprobs: JsonObject) -> JsonObject:
    told = items(logprobs.get("tokens"))
    return {**logprobs, "tokens": [*told[1:], *told[:1]]} if "tokens" in logprobs else logprobs


def _as_chat(body: JsonObject) -> JsonObject:
    return {**body, "object": "chat.completion"} if "choices" in body else body


def _one_more_token(usage: JsonObject) -> JsonObject:
    return {**usage, "completion_tokens": (number(usage.get("completion_tokens")) or 0) + 1}


def _in_choices(change: _Body) -> _Body:
    return lambda body: {**body, "choices": [change(members(choice)) for choice in items(body.get("choices"))]}


def _in_member(name: str, change: _Body) -> _Body:
    return lambda body: {**body, name: change(members(body[name]))} if isinstance(body.get(name), dict) else body


def _without_echo(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if name != "echo"}


def _on_json(api: ApiFamily, ident: str, summary: str, change: _Body) -> Defect:
    return Defect(id=ident, catalogue=(), summary=summary, change=OnJson(change, api))


def _on_request(ident: str, summary: str, change: _Body) -> Defect:
    return Defect(id=ident, catalogue=(), summary=summary, change=OnRequest(change, ApiFamily.COMPLETIONS))


DEFECTS = (
    _on_json(
        ApiFamily.TGI,
        "tgi-markers-left-out",
        "The tokens of the details are without the special ones.",
        _in_member("details", _only_ordinary),
    ),
    _on_json(
        ApiFamily.TGI,
        "tgi-always-eos",
        "The finish reason of the details is `eos_token`, whatever ended the answer.",
        _in_member("details", lambda details: {**details, "finish_reason": "eos_token"}),
    ),
    Defect(
        id="tgi-tokens-crossed",
        catalogue=(),
        summary="The second and the third event of a stream of tokens change places.",
        change=OnStream(_crossed, ApiFamily.TGI),
    ),
    _on_json(
        ApiFamily.TGI,
        "tgi-chat-tokenize-without-the-end",
        "/chat_tokenize leaves out how the prompt ends.",
        _without_the_end,
    ),
    _on_request("completions-templated", "A prompt is put into a message of the user.", _templated),
    _on_request(
        "completions-ids-without-markers",
        "The special tokens of a prompt of ids are dropped.",
        _without_markers,
    ),
    _on_json(
        ApiFamily.COMPLETIONS,
        "completions-text-trimmed",
        "Blanks at both ends of the text are cut off.",
        _in_choices(_trimmed),
    ),
    _on_request("completions-echo-ignored", "`echo` is ignored.", _without_echo),
    _on_json(
        ApiFamily.COMPLETIONS,
        "completions-logprobs-one-short",
        "The last log probability is missing.",
        _in_choices(_in_member("logprobs", _one_short)),
    ),
    _on_json(
        ApiFamily.COMPLETIONS,
        "completions-logprobs-shifted",
        "Each log probability stands beside the token that follows its own.",
        _in_choices(_in_member("logprobs", _shifted)),
    ),
    _on_json(
        ApiFamily.COMPLETIONS,
        "completions-object-of-chat",
        "An answer says that it is a `chat.completion`.",
        _as_chat,
    ),
    _on_json(
        ApiFamily.COMPLETIONS,
        "completions-counted-otherwise",
        "completion_tokens is one more than were written.",
        _in_member("usage", _one_more_token),
    ),
)
"""These defects."""
