"""The context window: a prompt that exceeds it is refused, or loses its oldest items if the request has `truncation: auto`."""

from dataclasses import replace
from itertools import takewhile

from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.pipeline.prompt_run import render_prompt
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.responses.conversation import conversation, is_instruction
from harmony_conformance.reference_server.responses.input_items import Item, MessageItem
from harmony_conformance.reference_server.responses.request import ResponsesRequest

CONTEXT = 131_072
"""Maximum number of tokens of a prompt: the context window of gpt-oss."""


def prompt_in_context(request: ResponsesRequest, changes: Changes, *, date: str) -> tuple[int, ...]:
    """Return the prompt of a request; raise an ApiError (400) if it exceeds the context.

    With `truncation: auto`, items are dropped from the beginning of the conversation until it fits. Instructions and the last message remain.
    """
    prompt = render_prompt(conversation(request, date=date), changes)
    while len(prompt) > CONTEXT:
        kept = _without_oldest(request.items) if request.truncates else request.items
        if kept == request.items:
            raise ApiError(
                f"Your input exceeds the context window of this model: {len(prompt)} tokens, at most {CONTEXT}.",
                param="input",
                code="context_length_exceeded",
            )
        request = replace(request, items=kept)
        prompt = render_prompt(conversation(request, date=date), changes)
    return prompt


def _without_oldest(entries: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items from the second message on, after the instructions; all items if there is no second message."""
    first = len(tuple(takewhile(is_instruction, entries)))
    later = (place for place, item in enumerate(entries) if place > first and isinstance(item, MessageItem))
    start = next(later, None)
    return entries if start is None else (*entries[:first], *entries[start:])
