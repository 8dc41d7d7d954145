"""The golden exchanges as a proxy sees them, and the same answers told as streams and in Ollama's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from harmony_conformance.apis.registry import APIS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import Json, dumps, integer, items, loads, members, text, value_at
from harmony_conformance.transport.messages import Chunk, Request, Response

_ENVELOPE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-oss-20b"}
STATUS = "responses.status_says_how_it_ended"
_TEXTS = ("reasoning", "reasoning_content", "thinking", "content")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An example, and one of its exchanges as a proxy sees it: what crossed the wire, and nothing else."""

    check: str
    name: str
    outcome: str
    x: Exchange

    @property
    def id(self) -> str:
        return f"{self.check}/{self.name}"


@pytest.fixture(scope="session")
def shown() -> tuple[Shown, ...]:
    """Every exchange of the examples that was answered, and has no failure of the wire."""
    return tuple(
        Shown(
            check=one.check,
            name=one.name,
            outcome=one.outcome.value,
            x=_with_ids(x) if one.check == STATUS else wire(x),
        )
        for one in golden.examples()
        for x in one.series.exchanges.values()
        if x.response is not None and x.failure is None
    )


def wire(x: Exchange) -> Exchange:
    return Exchange(id=x.id, request=x.request, response=x.response, api=x.api)


def _with_ids(x: Exchange) -> Exchange:
    """A response that shows the ids of the tokens which its script has."""
    script = None if x.script is None or x.response is None else [*x.script]
    if script is None or x.response is None:
        return wire(x)
    if x.events is None:
        body = dumps({**members(x.response_json), "token_ids": script}).encode()
    else:
        *events, last = [members(event.value) for event in x.events.events]
        last = {**last, "response": {**members(last["response"]), "token_ids": script}}
        body = b"".join(b"data: " + dumps(event).encode() + b"\n\n" for event in (*events, last))
    return wire(replace(x, response=replace(x.response, chunks=(Chunk(arrival_time=0.1, data=body),))))


def parts_of(told: str, size: int) -> list[str]:
    return [told[place : place + size] for place in range(0, len(told), size)]


def _streamed(x: Exchange, size: int) -> Exchange | None:
    """A whole chat completion as the stream of it, `size` characters a delta; without the ids, which would have to be cut like the text."""
    if x.api != "chat" or x.events is not None or not items(value_at(x.chat_completion, "choices")):
        return None
    events = [dict(_ENVELOPE, choices=[choice]) for choice in _deltas(x.chat_completion, size)]
    if isinstance(value_at(x.chat_completion, "usage"), dict):
        events.append(dict(_ENVELOPE, choices=[], usage=value_at(x.chat_completion, "usage")))
    data = [b"data: " + dumps(event).encode("utf-8", "backslashreplace") + b"\n\n" for event in events]
    body = {**members(x.request.json), "stream": True, "stream_options": {"include_usage": True}}
    return _answered(x, body, "chat", "text/event-stream", [*data, b"data: [DONE]\n\n"])


def _deltas(body: Json, size: int) -> Iterator[Json]:
    for choice in items(value_at(body, "choices")):
        index, message = integer(value_at(choice, "index")) or 0, members(value_at(choice, "message"))

        def delta(said: Json, finish: Json = None, index: int = index) -> Json:
            return {"index": index, "delta": said, "finish_reason": finish}

        yield delta({"role": "assistant", "content": ""})
        for name in _TEXTS:
            yield from (delta({name: part}) for part in parts_of(text(message.get(name)), size))
        for place, call in enumerate(items(message.get("tool_calls"))):
            head = {"name": value_at(call, "function", "name"), "arguments": ""}
            yield delta({"tool_calls": [{**members(call), "index": place, "function": head}]})
            for part in parts_of(text(value_at(call, "function", "arguments")), size):
                yield delta({"tool_calls": [{"index": place, "function": {"arguments": part}}]})
        yield delta({}, value_at(choice, "finish_reason"))


def _answered(x: Exchange, body: Json, api: str, kind: str, data: list[bytes]) -> Exchange:
    chunks = tuple(Chunk(arrival_time=0.1, data=one) for one in data)
    path = x.request.path if api == "chat" else APIS[api].path
    return Exchange(
        id=x.id,
        request=Request(path=path, body=dumps(body).encode("utf-8", "backslashreplace"), headers=x.request.headers),
        response=Response(status=200, headers={"content-type": kind}, chunks=chunks),
        api=api,
    )


def _as_ollama(x: Exchange, size: int | None, api: str) -> Exchange | None:
    """A whole chat completion in Ollama's words, streamed or not; None where it has no words for it."""
    if x.api != "chat" or x.events is not None or len(items(value_at(x.chat_completion, "choices"))) != 1:
        return None
    message = value_at(x.chat_completion, "choices", 0, "message")
    try:
        asked = APIS["ollama"].write_request({**members(x.request.json), "stream": size is not None})
        calls = [
            {
                "function": {
                    "name": value_at(call, "function", "name"),
                    "arguments": loads(text(value_at(call, "function", "arguments"))),
                }
            }
            for call in items(value_at(message, "tool_calls"))
        ]
    except Exception:  # noqa: BLE001 - what it has no words for
        return None
    if api == "ollama-generate" and (calls or asked.get("tools")):
        return None
    if api == "ollama-generate":
        asked = {**{name: one for name, one in asked.items() if name != "messages"}, "prompt": "Hi"}
    ending = {
        "done": True,
        "done_reason": "stop"
        if value_at(x.chat_completion, "choices", 0, "finish_reason") == "tool_calls"
        else value_at(x.chat_completion, "choices", 0, "finish_reason"),
        "prompt_eval_count": value_at(x.chat_completion, "usage", "prompt_tokens"),
        "eval_count": value_at(x.chat_completion, "usage", "completion_tokens"),
    }
    head = {"model": "gpt-oss:20b", "created_at": "2026-01-31T12:00:00Z"}
    content, thinking = (
        text(value_at(message, "content")),
        next((one for name in _TEXTS[:3] if (one := text(value_at(message, name)))), ""),
    )

    def put(said: Mapping[str, Json]) -> dict[str, Json]:
        if api == "ollama":
            return {"message": {"role": "assistant", "content": "", **said}}
        return {"response": said.get("content", ""), **{name: one for name, one in said.items() if name != "content"}}

    called = {"tool_calls": calls} if calls else {}
    if size is None:
        thought = {"thinking": thinking} if thinking else {}
        body = {**head, **put({"content": content, **thought, **called}), **ending}
        return _answered(x, asked, api, "application/json", [dumps(body).encode()])
    said = [
        *({"thinking": part} for part in parts_of(thinking, size)),
        *({"content": part} for part in parts_of(content, size)),
        *([called] if called else []),
    ]
    lines = [{**head, **put(one), "done": False} for one in said] + [{**head, **put({}), **ending}]
    data = [dumps(line).encode("utf-8", "backslashreplace") + b"\n" for line in lines]
    return _answered(x, asked, api, "application/x-ndjson", data)


def _as_response(x: Exchange, size: int) -> Exchange | None:
    """A whole chat completion as a stream of the Responses API; None where it has no words for it."""
    if x.api != "chat" or x.events is not None or len(items(value_at(x.chat_completion, "choices"))) != 1:
        return None
    try:
        asked = APIS["responses"].write_request({**members(x.request.json), "stream": True})
    except Exception:  # noqa: BLE001 - what it has no words for
        return None
    usage: dict[str, Json] | None = None
    if isinstance(value_at(x.chat_completion, "usage"), dict):
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
        details = value_at(x.chat_completion, "usage", "completion_tokens_details")
        usage = {told: value_at(x.chat_completion, "usage", name) for name, told in names.items()}
        usage |= {"output_tokens_details": details} if isinstance(details, dict) else {}
    is_cut = value_at(x.chat_completion, "choices", 0, "finish_reason") == "length"
    data = list(
        response_stream(_items(value_at(x.chat_completion, "choices", 0, "message")), size, usage, is_cut=is_cut)
    )
    return _answered(x, asked, "responses", "text/event-stream", data)


def _items(message: Json) -> Iterator[tuple[str, str, Json]]:
    """The items of a message: the type, the text, and a call."""
    for name in _TEXTS:
        if text(value_at(message, name)):
            yield "message" if name == "content" else "reasoning", text(value_at(message, name)), None
    for call in items(value_at(message, "tool_calls")):
        yield "function_call", text(value_at(call, "function", "arguments")), call


def response_stream(
    told: Iterable[tuple[str, str, Json]], size: int, usage: Json, *, is_cut: bool = False
) -> Iterator[bytes]:
    """The events of a response, as vLLM frames them."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-oss-20b", "output": []}
    head |= {"incomplete_details": None, "usage": None, "status": "in_progress"}
    status = "incomplete" if is_cut else "completed"
    details = {"reason": "max_output_tokens"} if is_cut else None
    events, output = [{"type": f"response.{kind}", "response": head} for kind in ("created", "in_progress")], []
    for index, (kind, said, call) in enumerate(told):
        item, about = _item(kind, index, call), {"item_id": f"{kind}_{index}", "output_index": index}
        part = {"type": "reasoning_text", "text": ""} if kind == "reasoning" else {"type": "output_text", "text": ""}
        part |= {} if kind == "reasoning" else {"annotations": [], "logprobs": []}
        stem = {"reasoning": "reasoning_text", "message": "output_text"}.get(kind, "function_call_arguments")
        place = {**about, "content_index": 0} if call is None else about
        done = {**part, "text": said}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if call is None:
            events.append({"type": "response.content_part.added", **place, "part": part})
        events += [{"type": f"response.{stem}.delta", **place, "delta": one} for one in parts_of(said, size)]
        if call is None:
            events.append({"type": f"response.{stem}.done", **place, "text": said})
            events.append({"type": "response.content_part.done", **place, "part": done})
            item = {**item, "content": [done], "status": status}
        else:
            events.append({"type": f"response.{stem}.done", **place, "name": item["name"], "arguments": said})
            item = {**item, "arguments": said, "status": status}
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    last = {**head, "output": output, "usage": usage, "status": status, "incomplete_details": details}
    events.append({"type": f"response.{status}", "response": last})
    for number_, event in enumerate(events):
        kind = text(event["type"]).encode()
        body = dumps({**event, "sequence_number": number_}).encode("utf-8", "backslashreplace")
        yield b"event: " + kind + b"\ndata: " + body + b"\n\n"


def _item(kind: str, index: int, call: Json) -> dict[str, Json]:
    more: dict[str, Json] = {"content": [], "role": "assistant"}
    if kind == "reasoning":
        more = {"content": [], "summary": []}
    elif kind == "function_call":
        more = {"call_id": value_at(call, "id"), "name": value_at(call, "function", "name"), "arguments": ""}
    return {"id": f"{kind}_{index}", "type": kind, "status": "in_progress", **more}


Telling = Callable[[Exchange], "Exchange | None"]


@pytest.fixture(scope="session")
def tellings() -> Mapping[str, Telling]:
    """The ways in which a whole chat completion can be told, by name."""
    return {
        "letters": lambda x: _streamed(x, 1),
        "pieces": lambda x: _streamed(x, 5),
        "at once": lambda x: _streamed(x, 10**6),
        "ollama": lambda x: _as_ollama(x, None, "ollama"),
        "ollama, pieces": lambda x: _as_ollama(x, 4, "ollama"),
        "response": lambda x: _as_response(x, 5),
        "response, letters": lambda x: _as_response(x, 1),
        "generate": lambda x: _as_ollama(x, None, "ollama-generate"),
        "generate, letters": lambda x: _as_ollama(x, 1, "ollama-generate"),
    }


@pytest.fixture(scope="session")
def with_body() -> Callable[[Exchange, bytes], Exchange]:
    """The exchange with another answer."""

    def put(x: Exchange, data: bytes) -> Exchange:
        assert x.response is not None
        return replace(x, response=replace(x.response, chunks=(Chunk(arrival_time=0.1, data=data),)))

    return put


@pytest.fixture(scope="session")
def told_as_response() -> Callable[..., list[bytes]]:
    """The events of a response that says something: items of type, text and call."""
    return lambda told, size=10**6, usage=None, **more: list(response_stream(told, size, usage, **more))
