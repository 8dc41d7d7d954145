"""Defects of form: all texts are present in the prompt or in the response, but their structure is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.defects.changes.body import in_answer, in_list
from harmony_conformance.reference_server.defects.changes.conversation import each_part_of
from harmony_conformance.reference_server.defects.changes.events import FINAL, is_reasoning
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    OnConversation,
    OnEvents,
    OnJson,
    OnPrompt,
    OnStream,
)
from harmony_conformance.reference_server.model.output_parser import MessageEnd, MessageStart, OutputEvent, TextBytes
from harmony_ref import DeveloperContent, SystemContent, tokens

_OTHER_IDENTITY = "You are a helpful assistant."
_ADDED_INSTRUCTIONS = "\n\nNever speak about other providers."


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


def _with_added_instructions(part: DeveloperContent) -> DeveloperContent:
    return part if part.instructions is None else replace(part, instructions=part.instructions + _ADDED_INSTRUCTIONS)


def _tagged(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Return each message of the analysis channel as content between tags."""
    tagging = False
    for event in events:
        if isinstance(event, MessageStart) and is_reasoning(event.header):
            tagging = True
            yield replace(event, header=FINAL)
            yield TextBytes(data=b"<reasoning>", ids=())
        elif tagging and isinstance(event, MessageEnd):
            tagging = False
            yield TextBytes(data=b"</reasoning>", ids=())
            yield event
        else:
            yield event


def _content_as_object(part: JsonObject) -> JsonObject:
    return {**part, "content": {"text": part["content"]}} if isinstance(part.get("content"), str) else part


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
        "assistant-not-begun",
        "The prompt ends after the last message: the header `<|start|>assistant` for the answer is missing.",
        OnPrompt(_without_generation_prompt),
    ),
    Defect(
        "call-forms-mixed",
        "In one prompt, the first past call has its recipient after the channel, later calls before it.",
        OnPrompt(_first_call_in_another_form),
        ("V05",),
    ),
    Defect(
        "other-identity",
        "The identity in the system message differs from the one in the model's training.",
        OnConversation(each_part_of(SystemContent, lambda part: replace(part, model_identity=_OTHER_IDENTITY))),
    ),
    Defect(
        "instructions-added",
        "The server adds instructions to those of the request.",
        OnConversation(each_part_of(DeveloperContent, _with_added_instructions)),
    ),
    Defect("reasoning-in-tags", "Reasoning is returned as content, within `<reasoning>` tags.", OnEvents(_tagged)),
    Defect(
        "content-as-object",
        "The content of a message is an object that contains the text.",
        OnJson(in_list("choices", in_answer(_content_as_object))),
    ),
    Defect(
        "stream-object-of-a-whole",
        "The `object` of the chunks of a stream is `chat.completion`.",
        OnStream(_each_chunk(lambda chunk: {**chunk, "object": "chat.completion"})),
    ),
    Defect(
        "stream-prompt-count-differs",
        "The same request reports a different number of prompt tokens when it is streamed.",
        OnStream(_each_chunk(_one_prompt_token_less)),
        ("O20",),
    ),
)
