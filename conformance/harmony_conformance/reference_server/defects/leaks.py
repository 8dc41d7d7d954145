"""Defects of what is shown: markup of the model's that reaches the client, and text of the model's that is taken for markup."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members, text
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
    """The text with its special tokens, as a page in HTML would hold it."""
    return tokens.decode_bytes(ids).replace(b"<", b"&lt;").replace(b">", b"&gt;")


def _as_answer(events: Iterator[Event]) -> Iterator[Event]:
    """What the model wrote in another role's name is shown as its answer."""
    for event in events:
        if isinstance(event, Opened) and event.header.role != "assistant":
            yield replace(event, header=FINAL)
        else:
            yield event


def _name_left(events: Iterator[Event]) -> Iterator[Event]:
    """The name of the channel stays in front of the answer."""
    for event in events:
        yield event
        if isinstance(event, Opened) and event.header.channel == "final":
            yield Text(data=b"final", ids=())


def _repeating_reasoning(events: Iterator[Event]) -> Iterator[Event]:
    """Each thought is told twice: as reasoning, and then as content."""
    thought: list[Event] = []
    for event in events:
        yield event
        if isinstance(event, Opened):
            thought = [Opened(header=FINAL, ids=())] if goes_to(event.header) is OutputField.REASONING else []
        elif thought and isinstance(event, Text):
            thought.append(replace(event, ids=()))
        elif thought and isinstance(event, Closed):
            yield from (*thought, Closed(cut=event.cut))
            thought = []


def _of_message(change: Callable[[str], str]) -> Callable[[JsonObject], JsonObject]:
    """Answers in one piece with their content changed."""

    def choice(value: Json) -> Json:
        message = members(members(value).get("message"))
        content = message.get("content")
        changed = {**message, "content": change(content)} if isinstance(content, str) else message
        return {**members(value), "message": changed} if message else value

    return lambda body: {**body, "choices": [choice(entry) for entry in items(body.get("choices"))]}


def _told_again(data: Iterator[Json]) -> Iterator[Json]:
    """A stream that tells its whole content once more before it ends."""
    told: list[str] = []
    for event in data:
        choices = items(members(event).get("choices"))
        if any(members(choice).get("finish_reason") for choice in choices) and told:
            again: list[Json] = [{"index": 0, "delta": {"content": "".join(told)}, "finish_reason": None}]
            yield {**members(event), "choices": again}
            told = []
        if event != DONE:
            told.extend(text(members(members(choice).get("delta")).get("content")) for choice in choices)
        yield event


def _greets(request: ChatRequest) -> bool:
    """Whether the model has the word, and says what it likes."""
    return request.form is AnswerForm.TEXT and request.demanded is None


def _run_on(request: ChatRequest, words: Words) -> Words:
    further = "\n\nUser: What is the capital of Italy?\n\nAssistant: Rome."
    return replace(words, content=words.content + further) if _greets(request) else words


def _emoji_broken(request: ChatRequest, words: Words) -> Words:
    return replace(words, content=f"\ufffd\ufffd {words.content}") if _greets(request) else words


DEFECTS = (
    Defect(
        id="own-words-run-on",
        catalogue=(),
        summary="The model is not stopped where its answer ends: it goes on as the user, in plain words, and answers that.",
        change=OnWords(_run_on),
    ),
    Defect(
        id="own-words-broken",
        catalogue=(),
        summary="An emoji in the model's own words comes out as U+FFFD, once for each of its tokens.",
        change=OnWords(_emoji_broken),
    ),
    Defect(
        id="raw-call-escaped",
        catalogue=(),
        summary="A call comes back as content with its markers, `<` and `>` written as a web page needs them.",
        change=OnEvents(showing_raw(on(is_call), _escaped)),
    ),
    Defect(
        id="channel-name-left",
        catalogue=(),
        summary="Of a final message's header the name of the channel stays in front of the text: `finalHello!`.",
        change=OnEvents(_name_left),
    ),
    Defect(
        id="spelled-markers-removed",
        catalogue=(),
        summary="Whatever looks like a marker is taken out of the content, also where the model spelled it for the user.",
        change=OnJson(_of_message(lambda content: _MARKER.sub("", content))),
    ),
    Defect(
        id="other-roles-shown",
        catalogue=(),
        summary="What the model went on to write in the user's name is shown as its answer.",
        change=OnEvents(_as_answer),
    ),
    Defect(
        id="reasoning-repeated",
        catalogue=(),
        summary="The reasoning stands in its own field and once more in front of the content.",
        change=OnEvents(_repeating_reasoning),
    ),
    Defect(
        id="stream-told-again",
        catalogue=(),
        summary="A stream ends with its whole content once more, in one delta.",
        change=OnStream(_told_again),
    ),
)
