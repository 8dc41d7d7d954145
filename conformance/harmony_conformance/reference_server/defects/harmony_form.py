"""Defects of form: the texts are all there, in the prompt or in the stream, and their frame is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.event_changes import FINAL, goes_to
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    OnConversation,
    OnEvents,
    OnJson,
    OnPrompt,
    OnStream,
)
from harmony_conformance.reference_server.model.output_events import OutputField
from harmony_conformance.reference_server.model.output_parser import Closed, Event, Opened, Text
from harmony_ref import DeveloperContent, Message, SystemContent, tokens

_OTHER_IDENTITY = "You are a helpful assistant."
_OWN_INSTRUCTIONS = "Never speak about other providers."


def _without_beginning(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The prompt up to its last complete message."""
    starts = [place for place, token in enumerate(prompt) if token == tokens.START]
    return prompt[: starts[-1]] if starts else prompt


def _first_call_in_another_form(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The recipient of the first past call stands behind the channel; the others keep their place."""
    channel = tuple(tokens.encode_with_special_tokens("<|channel|>commentary"))
    for start, header_end in _headers(prompt):
        header = prompt[start:header_end]
        place = next((i for i in range(2, len(header)) if header[i : i + len(channel)] == channel), None)
        if header[1:2] == tuple(tokens.encode("assistant")) and place is not None and place > len(header[:2]):
            moved = (*header[:2], *channel, *header[2:place], *header[place + len(channel) :])
            return (*prompt[:start], *moved, *prompt[header_end:])
    return prompt


def _headers(prompt: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Where each header begins (its `<|start|>`) and ends (its `<|message|>`)."""
    start: int | None = None
    for place, token in enumerate(prompt):
        if token == tokens.START:
            start = place
        elif token == tokens.MESSAGE and start is not None:
            yield start, place
            start = None


def _other_identity(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    def changed(message: Message) -> Message:
        parts = tuple(
            replace(part, model_identity=_OTHER_IDENTITY) if isinstance(part, SystemContent) else part
            for part in message.content
        )
        return replace(message, content=parts)

    return tuple(map(changed, messages))


def _with_own_instructions(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    def changed(message: Message) -> Message:
        parts = tuple(
            replace(part, instructions=f"{part.instructions}\n\n{_OWN_INSTRUCTIONS}")
            if isinstance(part, DeveloperContent) and part.instructions is not None
            else part
            for part in message.content
        )
        return replace(message, content=parts)

    return tuple(map(changed, messages))


def _tagged(events: Iterator[Event]) -> Iterator[Event]:
    """Each message of the analysis channel as content, between tags."""
    tagging = False
    for event in events:
        if isinstance(event, Opened) and goes_to(event.header) is OutputField.REASONING:
            tagging = True
            yield replace(event, header=FINAL)
            yield Text(data=b"<reasoning>", ids=())
        elif tagging and isinstance(event, Closed):
            tagging = False
            yield Text(data=b"</reasoning>", ids=())
            yield event
        else:
            yield event


def _content_as_object(body: JsonObject) -> JsonObject:
    """The text of each message or delta within an object."""
    changed: list[Json] = []
    for choice in items(body.get("choices")):
        held = dict(members(choice))
        for holder in ("message", "delta"):
            said = members(held.get(holder))
            if isinstance(said.get("content"), str):
                held[holder] = {**said, "content": {"text": said["content"]}}
        changed.append(held)
    return {**body, "choices": changed} if changed else body


def _each_chunk(change: Callable[[JsonObject], JsonObject]) -> Callable[[Iterator[Json]], Iterator[Json]]:
    return lambda stream: (change(data) if isinstance(data, dict) else data for data in stream)


def _whole_object(chunk: JsonObject) -> JsonObject:
    return {**chunk, "object": "chat.completion"}


def _one_prompt_token_less(chunk: JsonObject) -> JsonObject:
    usage = members(chunk.get("usage"))
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return chunk
    return {**chunk, "usage": {**usage, "prompt_tokens": prompt - 1, "total_tokens": prompt - 1 + completion}}


DEFECTS = (
    Defect(
        id="assistant-not-begun",
        catalogue=(),
        summary="The prompt ends with the last message: the beginning of the assistant's is missing.",
        change=OnPrompt(_without_beginning),
    ),
    Defect(
        id="call-forms-mixed",
        catalogue=("V05",),
        summary="Of two past calls in a prompt one has the recipient behind the channel, the other before it.",
        change=OnPrompt(_first_call_in_another_form),
    ),
    Defect(
        id="other-identity",
        catalogue=(),
        summary="The system message begins with another identity than the one the model was trained with.",
        change=OnConversation(_other_identity),
    ),
    Defect(
        id="instructions-added",
        catalogue=(),
        summary="The server adds instructions of its own to those of the request.",
        change=OnConversation(_with_own_instructions),
    ),
    Defect(
        id="reasoning-in-tags",
        catalogue=(),
        summary="Reasoning comes as content, within `<reasoning>` tags.",
        change=OnEvents(_tagged),
    ),
    Defect(
        id="content-as-object",
        catalogue=(),
        summary="The content of an answer is an object that holds the text.",
        change=OnJson(_content_as_object),
    ),
    Defect(
        id="stream-object-of-a-whole",
        catalogue=(),
        summary="The chunks of a stream say that they are a `chat.completion`.",
        change=OnStream(_each_chunk(_whole_object)),
    ),
    Defect(
        id="stream-prompt-count-differs",
        catalogue=("O20",),
        summary="Streamed, the same request reports another number of prompt tokens.",
        change=OnStream(_each_chunk(_one_prompt_token_less)),
    ),
)
