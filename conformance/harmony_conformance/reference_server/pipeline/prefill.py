"""A last assistant message that begins the answer, in APIs where the model continues it."""

from collections.abc import Sequence

from harmony_conformance.reference_server.model.plain_text import encode_raw_prompt
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage
from harmony_ref import encode


def split_prefill(messages: Sequence[ChatMessage]) -> tuple[tuple[ChatMessage, ...], tuple[int, ...]]:
    """Return the messages without a last assistant message, and the tokens of that message, which begin the answer."""
    *finished, last = messages
    if last.role != "assistant" or last.calls or not (last.text or last.reasoning):
        return tuple(messages), ()
    thought = f"<|channel|>analysis<|message|>{{}}{'<|end|><|start|>assistant' if last.text else ''}"
    opening = [
        *(_encode_in(thought, last.reasoning) if last.reasoning else ()),
        *(_encode_in("<|channel|>final<|message|>{}", last.text) if last.text else ()),
    ]
    return tuple(finished), tuple(opening)


def _encode_in(frame: str, text: str) -> tuple[int, ...]:
    before, after = frame.split("{}")
    return (*encode_raw_prompt(before), *encode(text), *encode_raw_prompt(after))
