"""Read a chat completion, streamed or not, as one `Turn`: the assistant's message as a client gets it.

Source: OpenAI API reference, Chat Completions (the chat completion object, the chat completion chunk object).
Reading never raises, so that one fault does not hide another. A member that is absent or has the wrong type becomes None here;
a check reports the wrong type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harmony_conformance.apis.json_equality import equal_json
from harmony_conformance.json_value import Json, integer, integers, items, members, parse_object, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS, content_text

_REASONING = frozenset(REASONING_FIELDS)
ABORTED = "abort"
"""The finish reason of a request that was aborted on the server (SGLang, vLLM)."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A function call as the client gets it.

    Attributes:
        name: The function's name, empty if missing.
        arguments: The text of the arguments, which may be invalid JSON; empty if missing.
        id: The call's id, or None.
        kind: The member `type` (`function`), or None.
    """

    name: str
    arguments: str
    id: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The token counts of `usage` as reported. A missing count equals None.

    `reasoning_tokens` and `cached_tokens` come from the details of completion and prompt. vLLM's top-level `reasoning_tokens` is read too.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The first choice of a response, with the members of the response that describe it.

    Attributes:
        role: The message's role, or None.
        content: The text for the user. None if `content` is null or missing, which differs from an empty text.
        reasoning: The chain of thought, or None.
        reasoning_field: The member that has the reasoning, one of `REASONING_FIELDS`, or None.
        tool_calls: The function calls, in order.
        finish_reason: The finish reason, or None.
        usage: The token counts, or None.
        prompt_ids: The prompt's token ids, or None if the response does not show them.
        output_ids: The emitted token ids, special tokens included, or None if the response does not show them.
        id: The response's id, or None.
        model: The response's model name, or None.
        refusal: The text of a refusal, or None.
    """

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
    def is_truncated(self) -> bool:
        """True if the finish reason shows that the model did not end the turn: `length` or `abort`."""
        return self.finish_reason in ("length", ABORTED)

    @property
    def has_answer(self) -> bool:
        """True if there is content, a call or a refusal. Reasoning alone does not count."""
        return bool(self.content) or bool(self.tool_calls) or bool(self.refusal)


def has_same_calls(one: Turn, other: Turn) -> bool:
    """Return True if both turns have the same calls in the same order. Arguments are compared as JSON values, ids are ignored."""
    if len(one.tool_calls) != len(other.tool_calls):
        return False
    pairs = zip(one.tool_calls, other.tool_calls, strict=True)
    return all(a.name == b.name and equal_json(a.arguments, b.arguments) for a, b in pairs)


def has_same_objects(one: Turn, other: Turn) -> bool:
    """Return True if both turns have the same calls in the same order, their arguments compared as the objects that they are read as.

    Arguments that a limit cut are read as an empty object: an answer that has objects cannot show them.
    """
    calls = [[(call.name, parse_object(call.arguments) or {}) for call in turn.tool_calls] for turn in (one, other)]
    return calls[0] == calls[1]


def read_usage(value: Json) -> Usage | None:
    """Read the member `usage` of a response or of a stream's last chunk. Return None if it is no object."""
    if not isinstance(value, dict):
        return None
    details = members(value.get("completion_tokens_details"))
    return Usage(
        prompt_tokens=integer(value.get("prompt_tokens")),
        completion_tokens=integer(value.get("completion_tokens")),
        total_tokens=integer(value.get("total_tokens")),
        reasoning_tokens=_first_number(details.get("reasoning_tokens"), value.get("reasoning_tokens")),
        cached_tokens=integer(members(value.get("prompt_tokens_details")).get("cached_tokens")),
    )


def read_completion(body: Json) -> Turn:
    """Read the first choice of a `chat.completion` object.

    Token ids are read from the members of vLLM and SGLang 0.5.23 (`prompt_token_ids`, `token_ids`, `response_token_ids`) and of llama.cpp
    (`__verbose.tokens`).
    """
    completion = members(body)
    choice = members(value_at(body, "choices", 0))
    message = members(choice.get("message"))
    reasoning_field = _reasoning_field(message)
    return Turn(
        role=_optional_text(message.get("role")),
        content=content_text(message.get("content")),
        reasoning=_optional_text(message[reasoning_field]) if reasoning_field else None,
        reasoning_field=reasoning_field,
        tool_calls=tuple([_read_call(call) for call in items(message.get("tool_calls"))]),
        finish_reason=_optional_text(choice.get("finish_reason")),
        usage=read_usage(completion.get("usage")),
        prompt_ids=_first_ids(completion.get("prompt_token_ids"), choice.get("prompt_token_ids")),
        output_ids=_first_ids(
            choice.get("token_ids"), choice.get("response_token_ids"), value_at(completion, "__verbose", "tokens")
        ),
        id=_optional_text(completion.get("id")),
        model=_optional_text(completion.get("model")),
        refusal=_optional_text(message.get("refusal")),
    )


def find_error(values: Iterable[Json]) -> Json:
    """Return the first error in values of a response: the member `error`, or a value with `object: "error"`. None without an error."""
    for value in values:
        if not isinstance(value, dict):
            continue
        if (error := value.get("error")) is not None:
            return error
        if value.get("object") == "error":
            return value
    return None


def _first_ids(*values: Json) -> tuple[int, ...] | None:
    return next((ids for value in values if (ids := _ids(value))), None)


@dataclass(kw_only=True)
class _PartialCall:
    id: str | None = None
    kind: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


def read_stream(chunks: Iterable[Json]) -> Turn:  # noqa: PLR0912 - members that are absent cost no call
    """Read the first choice of a stream of `chat.completion.chunk` objects and join its deltas as clients do.

    Texts and arguments are concatenated. Role, id, model and a call's name are taken from the first delta that has them, finish reason and
    usage from the last. Token ids are those that vLLM returns for `return_token_ids`.
    """
    role: str | None = None
    finish: str | None = None
    usage: Usage | None = None
    identity: str | None = None
    model: str | None = None
    content: list[str] = []
    reasoning: list[str] = []
    reasoning_field: str | None = None
    calls: dict[int, _PartialCall] = {}
    prompt_ids: tuple[int, ...] | None = None
    output_ids: list[int] = []
    has_ids = False
    refusal: str | None = None
    for value in chunks:
        chunk = value if isinstance(value, dict) else {}
        identity = identity or _optional_text(chunk.get("id"))
        model = model or _optional_text(chunk.get("model"))
        if "usage" in chunk:
            usage = read_usage(chunk["usage"]) or usage
        if "prompt_token_ids" in chunk:
            prompt_ids = prompt_ids or _ids(chunk["prompt_token_ids"])
        for choice in map(members, items(chunk.get("choices"))):
            if choice.get("index") and integer(choice["index"]):
                continue
            if choice.get("finish_reason") is not None:
                finish = _optional_text(choice["finish_reason"]) or finish
            if "token_ids" in choice and (ids := _ids(choice["token_ids"])) is not None:
                output_ids.extend(ids)
                has_ids = True
            # most deltas have one member of many: members that are absent cost no call
            delta = choice.get("delta")
            if not isinstance(delta, dict):
                continue
            if "role" in delta:
                role = role or _optional_text(delta["role"])
            if "refusal" in delta:
                refusal = refusal or _optional_text(delta["refusal"])
            if "content" in delta and (piece := content_text(delta["content"])) is not None:
                content.append(piece)
            if not _REASONING.isdisjoint(delta) and (name := _reasoning_field(delta)) is not None:
                reasoning_field = reasoning_field or name
                reasoning.append(text(delta[name]))
            if "tool_calls" in delta:
                for call in items(delta["tool_calls"]):
                    _join_call(calls, call)
    return Turn(
        role=role,
        content="".join(content) if content else None,
        reasoning="".join(reasoning) if reasoning_field is not None else None,
        reasoning_field=reasoning_field,
        tool_calls=tuple(
            ToolCall(name=call.name, arguments="".join(call.arguments), id=call.id, kind=call.kind)
            for _, call in sorted(calls.items())
        ),
        finish_reason=finish,
        usage=usage,
        prompt_ids=prompt_ids,
        output_ids=tuple(output_ids) if has_ids else None,
        id=identity,
        model=model,
        refusal=refusal,
    )


def _join_call(calls: dict[int, _PartialCall], delta: Json) -> None:
    index = integer(value_at(delta, "index"))
    call = calls.setdefault(len(calls) if index is None else index, _PartialCall())
    call.id = call.id or _optional_text(value_at(delta, "id"))
    call.kind = call.kind or _optional_text(value_at(delta, "type"))
    call.name = call.name or text(value_at(delta, "function", "name"))
    call.arguments.append(text(value_at(delta, "function", "arguments")))


def _read_call(call: Json) -> ToolCall:
    return ToolCall(
        name=text(value_at(call, "function", "name")),
        arguments=text(value_at(call, "function", "arguments")),
        id=_optional_text(value_at(call, "id")),
        kind=_optional_text(value_at(call, "type")),
    )


def _reasoning_field(message: dict[str, Json]) -> str | None:
    """Return the first reasoning field with text, else the first that is an empty text."""
    names = [name for name in REASONING_FIELDS if isinstance(message.get(name), str)]
    return next((name for name in names if message[name]), names[0] if names else None)


def _optional_text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _first_number(*values: Json) -> int | None:
    return next((whole for value in values if (whole := integer(value)) is not None), None)


def _ids(value: Json) -> tuple[int, ...] | None:
    return integers(value) if isinstance(value, list) else None
