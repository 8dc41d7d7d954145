"""Ollama's /api/generate: a prompt that becomes a conversation of one turn, or, `raw`, one that the client rendered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from harmony_conformance.apis.api import Api, Framing, UnsupportedByApiError
from harmony_conformance.apis.harmony_prompt import prompt_text
from harmony_conformance.apis.ollama import chat
from harmony_conformance.apis.request_fields import failure, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

_PATH: Final = "/api/generate"


def _spell(request: JsonObject) -> JsonObject:
    """A chat request of one user message, with one for the system before it at most."""
    spelled = chat.spell(request)
    if items(spelled.get("tools")):
        raise UnsupportedByApiError("tools")
    if not isinstance(spelled.get("messages"), list):
        return spelled
    match [text(at(message, "role")) for message in items(spelled["messages"])]:
        case ["user"] | ["system" | "developer", "user"]:
            *before, asked = (text(at(message, "content")) for message in items(spelled["messages"]))
        case _:
            raise UnsupportedByApiError("conversations of several messages")
    if not asked:
        raise UnsupportedByApiError("empty prompts: one only loads the model")
    system: JsonObject = {"system": before[0]} if before else {}
    return {**without(spelled, {"messages", "tools"}), **system, "prompt": asked}


def _asked(request: Json) -> Json:
    """The chat request of one turn that it means; what goes on from a `context` is not known."""
    if not isinstance(request, dict):
        return request
    said = (("system", text(request.get("system"))), ("user", text(request.get("prompt"))))
    messages: list[Json] = [{"role": role, "content": content} for role, content in said if content or role == "user"]
    return {**chat.asked_settings(request), "messages": messages}


def _whole(body: Json) -> Json:
    if not isinstance(at(body, "response"), str):
        return failure(body)
    held = members(body)
    return chat.completion(held, {**_told(held), "role": "assistant"}, chat.calls_of(held))


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    reader = chat.Lines()
    for value in values:
        if isinstance(at(value, "response"), str):
            line = members(value)
            yield reader.chunk(line, _told(line), chat.calls_of(line, reader.called), "assistant")
        else:
            yield chat.unread(value)


def _told(body: JsonObject) -> JsonObject:
    """What an answer says in texts."""
    thinking: JsonObject = {"reasoning": body["thinking"]} if "thinking" in body else {}
    return {"content": body["response"], **thinking}


def _spell_raw(request: JsonObject) -> JsonObject:
    """The conversation as the text of its prompt, which is neither rendered nor parsed."""
    spelled = chat.spell(without(request, {"messages", "tools", "reasoning_effort"}))
    return {**spelled, "prompt": prompt_text(request), "raw": True}


def _asked_raw(request: Json) -> Json:
    """The settings alone: the prompt is not made of messages."""
    if not isinstance(request, dict):
        return request
    return {**chat.asked_settings(request), "skip_special_tokens": False}


OLLAMA_GENERATE = Api(
    name="ollama-generate",
    title="Ollama's generate",
    path=_PATH,
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="response: …, done: true",
    framing=Framing.LINES,
    option="ollama",
    arguments_are_texts=False,
    counts_reasoning=False,
)

OLLAMA_RAW = Api(
    name="ollama-raw",
    title="Ollama's generate, raw",
    path=_PATH,
    write_request=_spell_raw,
    read_request=_asked_raw,
    read_response=_whole,
    read_events=_chunks,
    answer_member="response: …, done: true",
    framing=Framing.LINES,
    is_raw=True,
    option="ollama",
)
