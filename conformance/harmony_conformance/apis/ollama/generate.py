"""Ollama's /api/generate: a conversation of one turn, or, with `raw`, continuation of a prompt that the client renders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from harmony_conformance.apis.adapter_helpers import omit_members, translate_error
from harmony_conformance.apis.api import Api, Framing, UnsupportedByApiError
from harmony_conformance.apis.harmony_prompt import prompt_text
from harmony_conformance.apis.ollama import chat
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

_PATH: Final = "/api/generate"


def _write_request(request: JsonObject) -> JsonObject:
    """Write a chat request of one user message, optionally after one system message."""
    body = chat.write_request(request)
    if items(body.get("tools")):
        raise UnsupportedByApiError("tools")
    if not isinstance(body.get("messages"), list):
        return body
    match [text(value_at(message, "role")) for message in items(body["messages"])]:
        case ["user"] | ["system" | "developer", "user"]:
            *before, prompt = (text(value_at(message, "content")) for message in items(body["messages"]))
        case _:
            raise UnsupportedByApiError("conversations of several messages")
    if not prompt:
        raise UnsupportedByApiError("empty prompts: one only loads the model")
    return {**omit_members(body, {"messages", "tools"}), **({"system": before[0]} if before else {}), "prompt": prompt}


def _read_request(request: Json) -> Json:
    """Read a chat request of one turn. The conversation that a `context` continues is unknown."""
    if not isinstance(request, dict):
        return request
    texts = (("system", text(request.get("system"))), ("user", text(request.get("prompt"))))
    messages: list[Json] = [{"role": role, "content": content} for role, content in texts if content or role == "user"]
    return {**chat.read_settings(request), "messages": messages}


def _read_response(body: Json) -> Json:
    if not isinstance(value_at(body, "response"), str):
        return translate_error(body)
    answer = members(body)
    return chat.build_completion(answer, {**_texts(answer), "role": "assistant"}, chat.read_calls(answer))


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    reader = chat.StreamTranslator()
    for value in values:
        if isinstance(value_at(value, "response"), str):
            line = members(value)
            yield reader.chunk(line, _texts(line), chat.read_calls(line, reader.call_count), "assistant")
        else:
            yield chat.read_other_line(value)


def _texts(body: JsonObject) -> JsonObject:
    return {"content": body["response"], **({"reasoning": body["thinking"]} if "thinking" in body else {})}


def _write_raw_request(request: JsonObject) -> JsonObject:
    """Write a request with a rendered prompt. Ollama neither applies its template nor parses the output."""
    body = chat.write_request(omit_members(request, {"messages", "tools", "reasoning_effort"}))
    return {**body, "prompt": prompt_text(request), "raw": True}


def _read_raw_request(request: Json) -> Json:
    """Return only the settings: a prompt has no messages."""
    if not isinstance(request, dict):
        return request
    return {**chat.read_settings(request), "skip_special_tokens": False}


OLLAMA_GENERATE = Api(
    name="ollama-generate",
    title="Ollama's generate",
    path=_PATH,
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="response: …, done: true",
    framing=Framing.LINES,
    option="ollama",
    has_text_arguments=False,
    counts_reasoning=False,
)

OLLAMA_RAW = Api(
    name="ollama-raw",
    title="Ollama's generate, raw",
    path=_PATH,
    write_request=_write_raw_request,
    read_request=_read_raw_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="response: …, done: true",
    framing=Framing.LINES,
    is_raw=True,
    option="ollama",
)
