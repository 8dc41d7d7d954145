"""Defects of the visible text: markup of the model that reaches the client, or text that is mistaken for markup."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import in_choices, in_member
from harmony_conformance.reference_server.defects.changes.events import (
    FINAL,
    by_header,
    is_call,
    is_reasoning,
    showing_raw,
)
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents, OnJson, OnStream, OnUnscriptedOutput
from harmony_conformance.reference_server.model.generation import UnscriptedOutput
from harmony_conformance.reference_server.model.output_deltas import DONE
from harmony_conformance.reference_server.model.output_parser import MessageEnd, MessageStart, OutputEvent, TextBytes
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.fields import AnswerForm
from harmony_ref import tokens

_MARKER = re.compile(r"<\|(?:start|end|message|channel|constrain|return|call)\|>")


def _escaped(ids: Sequence[int]) -> bytes:
    """Decode with special tokens and escape the text for HTML."""
    return tokens.decode_bytes(ids).replace(b"<", b"&lt;").replace(b">", b"&gt;")


def _as_answer(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Return messages that the model wrote in another role as its answer."""
    for event in events:
        yield (
            replace(event, header=FINAL)
            if isinstance(event, MessageStart) and event.header.role != "assistant"
            else event
        )


def _name_left(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Insert the name of the channel before the answer."""
    for event in events:
        yield event
        if isinstance(event, MessageStart) and event.header.channel == "final":
            yield TextBytes(data=b"final", ids=())


def _repeating_reasoning(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Return each reasoning message twice: as reasoning, and then as content."""
    reasoning: list[OutputEvent] = []
    for event in events:
        yield event
        if isinstance(event, MessageStart):
            reasoning = [MessageStart(header=FINAL, ids=())] if is_reasoning(event.header) else []
        elif reasoning and isinstance(event, TextBytes):
            reasoning.append(replace(event, ids=()))
        elif reasoning and isinstance(event, MessageEnd):
            yield from (*reasoning, MessageEnd(hit_token_limit=event.hit_token_limit))
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
            deltas.extend(text(value_at(choice, "delta", "content")) for choice in choices)
        yield event


def _with_free_text(change: Callable[[str], str]) -> OnUnscriptedOutput:
    """Change the content of unscripted answers that follow no schema."""

    def changed(request: ChatRequest, words: UnscriptedOutput) -> UnscriptedOutput:
        is_free = request.form is AnswerForm.TEXT and request.required_tool is None
        return replace(words, content=change(words.content)) if is_free else words

    return OnUnscriptedOutput(changed)


def _call_in_words(request: ChatRequest, words: UnscriptedOutput) -> UnscriptedOutput:
    """Write a call of the first function, if one is declared and none is required, as text of the answer."""
    if not request.tools or request.required_tool is not None or request.form is not AnswerForm.TEXT:
        return words
    return replace(words, content=f'to=functions.{request.tools[0].name} json{{"city":"Paris"}}')


def _looping_thought(request: ChatRequest, words: UnscriptedOutput) -> UnscriptedOutput:
    """Repeat a sentence in the thought until the token limit."""
    is_free = request.form is AnswerForm.TEXT and request.required_tool is None and not request.continues_after_script
    thought = "<|channel|>analysis<|message|>" + "Wait, let me check the question once more. " * _LOOPS
    return (
        replace(words, prefix_tokens=tuple(tokens.encode_with_special_tokens(thought)), content="")
        if is_free
        else words
    )


_LOOPS = 400
_FURTHER_TURNS = "\n\nUser: What is the capital of Italy?\n\nAssistant: Rome."

DEFECTS = (
    Defect(
        "own-words-run-on",
        "Generation does not stop after the answer: the model continues as the user, in plain text, and answers.",
        _with_free_text(lambda answer: answer + _FURTHER_TURNS),
    ),
    Defect(
        "own-words-broken",
        "An emoji in unscripted output is returned as U+FFFD, once for each of its tokens.",
        _with_free_text("\ufffd\ufffd {}".format),
    ),
    Defect(
        "own-words-call",
        "A call in unscripted output is returned as content, its header without markers.",
        OnUnscriptedOutput(_call_in_words),
    ),
    Defect(
        "own-words-loop",
        "The thought of unscripted output repeats one sentence until the token limit.",
        OnUnscriptedOutput(_looping_thought),
    ),
    Defect(
        "raw-call-escaped",
        "A call is returned as content with its markers, `<` and `>` escaped as `&lt;` and `&gt;`.",
        OnEvents(showing_raw(by_header(is_call), _escaped)),
    ),
    Defect(
        "channel-name-left",
        "The channel name of a final message remains before its text: `finalHello!`.",
        OnEvents(_name_left),
    ),
    Defect(
        "spelled-markers-removed",
        "Text that looks like a marker is removed from the content, even if the model wrote it for the user.",
        OnJson(in_choices(in_member("message", _without_markers))),
    ),
    Defect(
        "other-roles-shown",
        "Messages that the model writes in the role of the user are returned as its answer.",
        OnEvents(_as_answer),
    ),
    Defect(
        "reasoning-repeated",
        "The reasoning is returned in its field and again before the content.",
        OnEvents(_repeating_reasoning),
    ),
    Defect(
        "stream-told-again", "At the end of a stream, one delta repeats the whole content.", OnStream(_content_repeated)
    ),
)
