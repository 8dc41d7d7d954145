"""A chat completion, streamed or not, read as one `Turn`: what the client was told that the model said.

Reading is forgiving, so that one fault does not hide another: a member of the wrong type is left out here and reported by the check whose business
it is. Nothing is invented: what is absent is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harmony_conformance.json_value import Json, at, equal_json, items, members, number, text, whole_numbers
from harmony_conformance.prompts.chat_request import REASONING_FIELDS, content_text

ABORTED = "abort"
"""The finish reason of an answer that SGLang or vLLM was told to end."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A function call as the client got it; `arguments` is the text, as it came."""

    name: str
    arguments: str
    id: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Token counts as reported; None where a count is absent."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One choice of an answer. `reasoning_field` is the member that carried the reasoning; ids are None unless the server gave them."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_field: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] | None = None
    id: str | None = None
    model: str | None = None
    refusal: str | None = None

    @property
    def was_broken_off(self) -> bool:
        """Whether it is said that something else than the model ended it: the limit, or whoever told the server to abort."""
        return self.finish_reason in ("length", ABORTED)

    @property
    def says_something(self) -> bool:
        """Whether a client is given anything to show or to do."""
        return bool(self.content) or bool(self.tool_calls) or bool(self.refusal)


def same_calls(one: Turn, other: Turn) -> bool:
    """Whether two answers hold the same calls, arguments compared as JSON."""
    pairs = list(zip(one.tool_calls, other.tool_calls, strict=False))
    same_length = len(one.tool_calls) == len(other.tool_calls)
    return same_length and all(a.name == b.name and equal_json(a.arguments, b.arguments) for a, b in pairs)


def read_usage(value: Json) -> Usage | None:
    """The `usage` member of an answer or of the last chunk of a stream."""
    if not isinstance(value, dict):
        return None
    told = members(value.get("completion_tokens_details"))
    return Usage(
        prompt_tokens=number(value.get("prompt_tokens")),
        completion_tokens=number(value.get("completion_tokens")),
        total_tokens=number(value.get("total_tokens")),
        reasoning_tokens=_first_number(told.get("reasoning_tokens"), value.get("reasoning_tokens")),
        cached_tokens=number(members(value.get("prompt_tokens_details")).get("cached_tokens")),
    )


def read_completion(body: Json) -> Turn:
    """The first choice of a `chat.completion` object."""
    told = members(body)
    choice = members(at(body, "choices", 0))
    message = members(choice.get("message"))
    reasoning_field = _reasoning_field(message)
    return Turn(
        role=_optional_text(message.get("role")),
        content=content_text(message.get("content")),
        reasoning=_optional_text(message[reasoning_field]) if reasoning_field else None,
        reasoning_field=reasoning_field,
        tool_calls=tuple([_read_call(call) for call in items(message.get("tool_calls"))]),
        finish_reason=_optional_text(choice.get("finish_reason")),
        usage=read_usage(told.get("usage")),
        # as vLLM and SGLang 0.5.23 tell them, and llama.cpp
        prompt_ids=_first_ids(told.get("prompt_token_ids"), choice.get("prompt_token_ids")),
        output_ids=_first_ids(
            choice.get("token_ids"), choice.get("response_token_ids"), members(told.get("__verbose")).get("tokens")
        ),
        id=_optional_text(told.get("id")),
        model=_optional_text(told.get("model")),
        refusal=_optional_text(message.get("refusal")),
    )


def _first_ids(*places: Json) -> tuple[int, ...] | None:
    return next((ids for place in places if place is not None and (ids := _ids(place))), None)


@dataclass(kw_only=True)
class _CallBeingRead:
    id: str | None = None
    kind: str | None = None
    name: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])


def read_stream(chunks: Iterable[Json]) -> Turn:
    """The first choice of a stream of `chat.completion.chunk` objects, deltas joined the way clients join them.

    A call's name is taken from its first delta (clients keep the first); ids of prompt and output are those of `return_token_ids`.
    """
    role: str | None = None
    finish: str | None = None
    usage: Usage | None = None
    name: str | None = None
    model: str | None = None
    content: list[str] = []
    reasoning: list[str] = []
    has_content = False
    reasoning_field: str | None = None
    calls: dict[int, _CallBeingRead] = {}
    prompt_ids: tuple[int, ...] | None = None
    output_ids: list[int] = []
    has_ids = False
    refusal: str | None = None
    for chunk in chunks:
        told = members(chunk)
        name = name or _optional_text(told.get("id"))
        model = model or _optional_text(told.get("model"))
        usage = read_usage(counted) or usage if (counted := told.get("usage")) is not None else usage
        prompt_ids = prompt_ids or _ids(told.get("prompt_token_ids"))
        for choice in map(members, items(told.get("choices"))):
            if number(choice.get("index")):
                continue
            if (reason := choice.get("finish_reason")) is not None:
                finish = _optional_text(reason) or finish
            if (shown := choice.get("token_ids")) is not None and (ids := _ids(shown)) is not None:
                output_ids.extend(ids)
                has_ids = True
            delta = members(choice.get("delta"))
            role = role or _optional_text(delta.get("role"))
            refusal = refusal or _optional_text(delta.get("refusal"))
            if (said := delta.get("content")) is not None and (piece := content_text(said)) is not None:
                content.append(piece)
                has_content = True
            if (named := _reasoning_field(delta)) is not None:
                reasoning_field = reasoning_field or named
                reasoning.append(text(delta[named]))
            for call in items(delta.get("tool_calls")):
                _join_call(calls, call)
    return Turn(
        role=role,
        content="".join(content) if has_content else None,
        reasoning="".join(reasoning) if reasoning_field is not None else None,
        reasoning_field=reasoning_field,
        tool_calls=tuple(
            ToolCall(name="".join(call.name), arguments="".join(call.arguments), id=call.id, kind=call.kind)
            for _, call in sorted(calls.items())
        ),
        finish_reason=finish,
        usage=usage,
        prompt_ids=prompt_ids,
        output_ids=tuple(output_ids) if has_ids else None,
        id=name,
        model=model,
        refusal=refusal,
    )


def _join_call(calls: dict[int, _CallBeingRead], delta: Json) -> None:
    index = number(at(delta, "index"))
    call = calls.setdefault(len(calls) if index is None else index, _CallBeingRead())
    call.id = call.id or _optional_text(at(delta, "id"))
    call.kind = call.kind or _optional_text(at(delta, "type"))
    if not call.name and (name := text(at(delta, "function", "name"))):
        call.name.append(name)
    call.arguments.append(text(at(delta, "function", "arguments")))


def _read_call(call: Json) -> ToolCall:
    return ToolCall(
        name=text(at(call, "function", "name")),
        arguments=text(at(call, "function", "arguments")),
        id=_optional_text(at(call, "id")),
        kind=_optional_text(at(call, "type")),
    )


def _reasoning_field(message: Json) -> str | None:
    """The first field that holds text, else the first that is there."""
    held = members(message)
    there: str | None = None
    for name in REASONING_FIELDS:
        value = held.get(name)
        if isinstance(value, str):
            if value:
                return name
            there = there or name
    return there


def _optional_text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _first_number(*values: Json) -> int | None:
    return next((found for value in values if (found := number(value)) is not None), None)


def _ids(value: Json) -> tuple[int, ...] | None:
    return whole_numbers(value) if isinstance(value, list) else None
