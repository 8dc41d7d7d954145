"""An innocent answer, and its complete exchange."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import decode, encode, encode_with_special_tokens

TUNING, HELD_OUT = "tuning", "held out"


@dataclass(frozen=True, kw_only=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """A conversation and its answer. `system` and `tools` belong to the request."""

    user: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    tools: tuple[str, ...] = ()
    system: str = ""
    finish: str = "stop"
    stratum: str = ""
    part: str = TUNING
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.stratum}/{self.number}"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of a response.

    `field`: the member for the reasoning, None if hidden; `letters`: characters per delta, 0 without a stream; `by_token`: a delta is a token.
    """

    field: str | None = "reasoning"
    letters: int = 0
    by_token: bool = False
    usage: bool = True
    ids: bool = False


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The members of a message as a server returns them, the ids behind it, and its reported usage."""

    content: str | None = None
    reasoning: str | None = None
    calls: tuple[dict, ...] = ()
    ids: tuple[int, ...] = ()
    finish: str = "stop"
    more: dict = field(default_factory=dict)


def shape_of(case: Case) -> Shape:
    """Return the shape of a case, chosen by its name."""
    rng = random.Random(case.name)
    return Shape(
        field=rng.choice(("reasoning", "reasoning", "reasoning_content", None)),
        letters=rng.choice((0, 0, 0, 1, 7, 40)),
        usage=rng.random() < 0.8,
    )


def emitted(case: Case) -> tuple[int, ...]:
    """Return the ids that a model emits for this answer."""
    special, ids = encode_with_special_tokens, []
    if case.reasoning:
        ids += [
            *special("<|channel|>analysis<|message|>"),
            *encode(case.reasoning),
            *special("<|end|><|start|>assistant"),
        ]
    if case.content and case.calls:
        ids += [
            *special("<|channel|>commentary<|message|>"),
            *encode(case.content),
            *special("<|end|><|start|>assistant"),
        ]
    elif case.content:
        ids += [*special("<|channel|>final<|message|>"), *encode(case.content), *special("<|return|>")]
    for call in case.calls:
        header = f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
        ids += [*special(header), *encode(call.arguments), *special("<|call|>")]
    if case.finish == "length" and ids:
        ids.pop()
    return tuple(ids)


def shown(case: Case) -> Shown:
    """Return the answer of a correct server."""
    return Shown(
        content=case.content or None,
        reasoning=case.reasoning or None,
        calls=tuple(
            {"id": f"call_{place}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for place, call in enumerate(case.calls)
        ),
        ids=emitted(case),
        finish="tool_calls" if case.calls and case.finish == "stop" else case.finish,
    )


def exchange(case: Case, what: Shown, shape: Shape) -> Exchange:
    """Return the exchange with its bytes."""
    asked: dict = {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": case.user}]}
    if case.system:
        asked["messages"].insert(0, {"role": "system", "content": case.system})
    if case.calls or case.tools:
        asked["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
            for name in sorted({*case.tools, *(call.name for call in case.calls)})
        ]
    message: dict = {"role": "assistant", "content": what.content, **what.more}
    if shape.field and what.reasoning is not None:
        message[shape.field] = what.reasoning
    if what.calls:
        message["tool_calls"] = list(what.calls)
    spent = len(what.ids)
    usage = {"prompt_tokens": 80, "completion_tokens": spent, "total_tokens": 80 + spent}
    usage["completion_tokens_details"] = {"reasoning_tokens": len(encode(case.reasoning))}
    head = {"id": "chatcmpl-1", "created": 1, "model": "gpt-oss-20b"}
    if shape.letters or shape.by_token:
        asked["stream"] = True
        data, kind = "".join(_events(head, message, what, shape, usage)), "text/event-stream"
    else:
        choice = {"index": 0, "message": message, "finish_reason": what.finish}
        body = {
            **head,
            "object": "chat.completion",
            "choices": [choice | ({"token_ids": what.ids} if shape.ids else {})],
        }
        data, kind = json.dumps(body | ({"usage": usage} if shape.usage else {})), "application/json"
    return Exchange(
        id=case.name,
        request=Request(path="/v1/chat/completions", body=json.dumps(asked).encode()),
        response=Response(
            status=200,
            headers={"content-type": kind},
            chunks=(Chunk(arrival_time=0.0, data=data.encode("utf-8", "replace")),),
        ),
    )


def _events(head: dict, message: dict, what: Shown, shape: Shape, usage: dict) -> Iterator[str]:
    def event(delta: dict, **more: object) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
        return f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"

    yield event({"role": "assistant"}, **({"token_ids": what.ids} if shape.ids else {}))
    for name in ("reasoning", "reasoning_content", *what.more, "content"):
        text = message.get(name)
        if isinstance(text, str):
            yield from (event({name: piece}) for piece in _pieces(text, shape))
        elif text is not None:
            yield event({name: text})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield event({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in _pieces(function["arguments"], shape):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, finish_reason=what.finish)
    if shape.usage:
        yield f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def _pieces(text: str, shape: Shape) -> Iterator[str]:
    if not shape.by_token:
        yield from (text[start : start + shape.letters] for start in range(0, len(text), shape.letters))
        return
    waiting: list[int] = []  # tokens whose bytes are the beginning of a character
    for token in encode(text):
        waiting.append(token)
        if not (piece := decode(waiting)).endswith("\ufffd"):
            yield piece
            waiting = []
    if waiting:
        yield decode(waiting)


def with_ids(shape: Shape) -> Shape:
    return replace(shape, ids=True)
