"""Defects of the visible text: markup of the model that reaches the client, or text that is mistaken for markup."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.reference_server.defects.body_changes import in_choices, in_member
from harmony_conformance.reference_server.defects.event_changes import FINAL, goes_to, is_call, on, showing_raw
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents, OnJson, OnStream, OnWords
from harmony_conformance.reference_server.model.generation import Words
from harmony_conformance.reference_server.model.output_events import DONE, OutputField
from harmony_conformance.reference_server.model.output_parser import Closed, Event, Opened, Text
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.fields import AnswerForm
from harmony_ref import tokens

_MARKER = re.compile(r"<\|(?:start|end|message|channel|constrain|return|call)\|>")


def _escaped(ids: Sequence[int]) -> bytes:
    """Decode with special tokens and escape the text for HTML."""
    return tokens.decode_bytes(ids).replace(b"<", b"&lt;").replace(b">", b"&gt;")


def _as_answer(events: Iterator[Event]) -> Iterator[Event]:
    """Return messages that the model wrote in another role as its answer."""
    for event in events:
        is_foreign = isinstance(event, Opened) and event.header.role != "assistant"
        yield replace(event, header=FINAL) if is_foreign else event


def _name_left(events: Iterator[Event]) -> Iterator[Event]:
    """Insert the name of the channel before the answer."""
    for event in events:
        yield event
        if isinstance(event, Opened) and event.header.channel == "final":
            yield Text(data=b"final", ids=())


def _repeating_reasoning(events: Iterator[Event]) -> Iterator[Event]:
    """Return each reasoning message twice: as reasoning, and then as content."""
    reasoning: list[Event] = []
    for event in events:
        yield event
        if isinstance(event, Opened):
            reasoning = [Opened(header=FINAL, ids=())] if goes_to(event.header) is OutputField.REASONING else []
        elif reasoning and isinstance(event, Text):
            reasoning.append(replace(event, ids=()))
        elif reasoning and isinstance(event, Closed):
            yield from (*reasoning, Closed(cut=event.cut))
            reasoning = []


def _without_markers(message: JsonObject) -> JsonObject:
    content = message.get("content")
    return {**message, "content": _MARKER.sub("", content)} if isinstance(content, str) else message


def _content_repeated(data: Iterator[Json]) -> Iterator[Json]:
    """Send the whole content of a stream once more before the finish reason."""
    deltas: list[str] = []
    for event in data:
        choices = items(members(event).get("choices"))
        if any(members(choice).get("finish_reason") for choice in choices) and deltas:
            repetition: list[Json] = [{"index": 0, "delta": {"content": "".join(deltas)}, "finish_reason": None}]
            yield {**members(event), "choices": repetition}
            deltas = []
        if event != DONE:
            deltas.extend(text(at(choice, "delta", "content")) for choice in choices)
        yield event


def _is_free_text(request: ChatRequest) -> bool:
    return request.form is AnswerForm.TEXT and request.demanded is None


def _run_on(request: ChatRequest, words: Words) -> Words:
    further = "\n\nUser: What is the capital of Italy?\n\nAssistant: Rome."
    return replace(words, content=words.content + further) if _is_free_text(request) else words


def _emoji_broken(request: ChatRequest, words: Words) -> Words:
    return replace(words, content=f"\ufffd\ufffd {words.content}") if _is_free_text(request) else words


DEFECTS = (
    Defect(
        id="own-words-run-on",
        summary="Generation does not stop after the answer: the model continues as the user, in plain text, and answers.",
        change=OnWords(_run_on),
    ),
    Defect(
        id="own-words-broken",
        summary="An emoji in unscripted output is returned as U+FFFD, once for each of its tokens.",
        change=OnWords(_emoji_broken),
    ),
    Defect(
        id="raw-call-escaped",
        summary="A call is returned as content with its markers, `<` and `>` escaped as `&lt;` and `&gt;`.",
        change=OnEvents(showing_raw(on(is_call), _escaped)),
    ),
    Defect(
        id="channel-name-left",
        summary="The channel name of a final message remains before its text: `finalHello!`.",
        change=OnEvents(_name_left),
    ),
    Defect(
        id="spelled-markers-removed",
        summary="Text that looks like a marker is removed from the content, even if the model wrote it for the user.",
        change=OnJson(in_choices(in_member("message", _without_markers))),
    ),
    Defect(
        id="other-roles-shown",
        summary="Messages that the model writes in the role of the user are returned as its answer.",
        change=OnEvents(_as_answer),
    ),
    Defect(
        id="reasoning-repeated",
        summary="The reasoning is returned in its field and again before the content.",
        change=OnEvents(_repeating_reasoning),
    ),
    Defect(
        id="stream-told-again",
        summary="At the end of a stream, one delta repeats the whole content.",
        change=OnStream(_content_repeated),
    ),
)
