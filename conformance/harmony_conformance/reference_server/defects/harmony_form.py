"""Defects of form: all texts are present in the prompt or in the response, but their structure is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.event_changes import FINAL, goes_to
from harmony_conformance.reference_server.defects.message_changes import each_part
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
from harmony_ref import Content, DeveloperContent, SystemContent, tokens

_OTHER_IDENTITY = "You are a helpful assistant."
_ADDED_INSTRUCTIONS = "Never speak about other providers."


def _without_generation_prompt(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Cut the prompt after its last complete message."""
    starts = [place for place, token in enumerate(prompt) if token == tokens.START]
    return prompt[: starts[-1]] if starts else prompt


def _first_call_in_another_form(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Move the recipient of the first past call behind the channel; other calls are unchanged."""
    channel = tuple(tokens.encode_with_special_tokens("<|channel|>commentary"))
    for start, header_end in _headers(prompt):
        header = prompt[start:header_end]
        place = next((i for i in range(2, len(header)) if header[i : i + len(channel)] == channel), None)
        if header[1:2] == tuple(tokens.encode("assistant")) and place is not None and place > len(header[:2]):
            moved = (*header[:2], *channel, *header[2:place], *header[place + len(channel) :])
            return (*prompt[:start], *moved, *prompt[header_end:])
    return prompt


def _headers(prompt: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield the positions of `<|start|>` and `<|message|>` of each header."""
    start: int | None = None
    for place, token in enumerate(prompt):
        if token == tokens.START:
            start = place
        elif token == tokens.MESSAGE and start is not None:
            yield start, place
            start = None


def _other_identity(part: Content) -> Content:
    return replace(part, model_identity=_OTHER_IDENTITY) if isinstance(part, SystemContent) else part


def _with_added_instructions(part: Content) -> Content:
    if not isinstance(part, DeveloperContent) or part.instructions is None:
        return part
    return replace(part, instructions=f"{part.instructions}\n\n{_ADDED_INSTRUCTIONS}")


def _tagged(events: Iterator[Event]) -> Iterator[Event]:
    """Return each message of the analysis channel as content between tags."""
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
    """Wrap the content of each message and of each delta in an object."""
    choices: list[Json] = []
    for entry in items(body.get("choices")):
        choice = dict(members(entry))
        for name in ("message", "delta"):
            part = members(choice.get(name))
            if isinstance(part.get("content"), str):
                choice[name] = {**part, "content": {"text": part["content"]}}
        choices.append(choice)
    return {**body, "choices": choices} if choices else body


def _each_chunk(change: Callable[[JsonObject], JsonObject]) -> Callable[[Iterator[Json]], Iterator[Json]]:
    return lambda stream: (change(data) if isinstance(data, dict) else data for data in stream)


def _one_prompt_token_less(chunk: JsonObject) -> JsonObject:
    usage = members(chunk.get("usage"))
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return chunk
    return {**chunk, "usage": {**usage, "prompt_tokens": prompt - 1, "total_tokens": prompt - 1 + completion}}


DEFECTS = (
    Defect(
        id="assistant-not-begun",
        summary="The prompt ends after the last message: the header `<|start|>assistant` for the answer is missing.",
        change=OnPrompt(_without_generation_prompt),
    ),
    Defect(
        id="call-forms-mixed",
        catalogue=("V05",),
        summary="In one prompt, the first past call has its recipient after the channel, later calls before it.",
        change=OnPrompt(_first_call_in_another_form),
    ),
    Defect(
        id="other-identity",
        summary="The identity in the system message differs from the one in the model's training.",
        change=OnConversation(each_part(_other_identity)),
    ),
    Defect(
        id="instructions-added",
        summary="The server adds instructions to those of the request.",
        change=OnConversation(each_part(_with_added_instructions)),
    ),
    Defect(
        id="reasoning-in-tags",
        summary="Reasoning is returned as content, within `<reasoning>` tags.",
        change=OnEvents(_tagged),
    ),
    Defect(
        id="content-as-object",
        summary="The content of a message is an object that contains the text.",
        change=OnJson(_content_as_object),
    ),
    Defect(
        id="stream-object-of-a-whole",
        summary="The `object` of the chunks of a stream is `chat.completion`.",
        change=OnStream(_each_chunk(lambda chunk: {**chunk, "object": "chat.completion"})),
    ),
    Defect(
        id="stream-prompt-count-differs",
        catalogue=("O20",),
        summary="The same request reports a different number of prompt tokens when it is streamed.",
        change=OnStream(_each_chunk(_one_prompt_token_less)),
    ),
)
