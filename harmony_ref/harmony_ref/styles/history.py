"""Which reasoning of earlier turns a prompt keeps: an axis of its own, because the official sources disagree.

The guide: "if the responses by the assistant ended in a message to the `final` channel" earlier reasoning is dropped,
"the exception for this is tool/function calling". The library drops it only before the first `final`, and only while
the assistant's last message is `final`; the Hugging Face template drops it before the last one; Ollama's template
before the last message of the user. In every one of them the reasoning of an open tool loop is kept, and what led to
the one answer before a new question is dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harmony_ref.messages.message_types import Message, Role
from harmony_ref.rendering.render import ANALYSIS, FINAL, without_dropped_analysis


class History(StrEnum):
    """A way to leave out reasoning."""

    AS_0_0_8 = "as_0_0_8"
    """openai-harmony 0.0.8: before the first `final`, when the assistant's last message is on `final`."""
    BEFORE_LAST_FINAL = "before_last_final"
    """The guide's rule for each finished turn, and the Hugging Face template: before the assistant's last `final`."""
    BEFORE_LAST_USER = "before_last_user"
    """Ollama's template: the assistant's reasoning before the last message of the user. Calls stay."""


def kept_indices(messages: Sequence[Message], history: History) -> list[int]:
    """The indices of the messages that are rendered, in order."""
    return _KEEPERS[history](messages)


def _as_0_0_8(messages: Sequence[Message]) -> list[int]:
    # The same message may come twice in a conversation; copies are told apart.
    copies = [replace(message) for message in messages]
    kept = {id(message) for message in without_dropped_analysis(copies)}
    return [index for index, message in enumerate(copies) if id(message) in kept]


def _before_last_final(messages: Sequence[Message]) -> list[int]:
    last = _last(messages, lambda message: message.author.role is Role.ASSISTANT and message.channel == FINAL)
    return [index for index, message in enumerate(messages) if index >= last or message.channel != ANALYSIS]


def _before_last_user(messages: Sequence[Message]) -> list[int]:
    last = _last(messages, lambda message: message.author.role is Role.USER)
    return [index for index, message in enumerate(messages) if index >= last or not _is_reasoning(message)]


def _is_reasoning(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.channel == ANALYSIS and message.recipient is None


def _last(messages: Sequence[Message], wanted: Callable[[Message], bool]) -> int:
    return next((index for index in range(len(messages) - 1, -1, -1) if wanted(messages[index])), 0)


_KEEPERS: Final[Mapping[History, Callable[[Sequence[Message]], list[int]]]] = MappingProxyType(
    {
        History.AS_0_0_8: _as_0_0_8,
        History.BEFORE_LAST_FINAL: _before_last_final,
        History.BEFORE_LAST_USER: _before_last_user,
    }
)
