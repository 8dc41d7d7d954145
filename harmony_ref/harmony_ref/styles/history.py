"""Select the reasoning of earlier turns that a prompt retains. Independent of style: the official sources disagree.

- Guide: earlier reasoning is dropped "if the responses by the assistant ended in a message to the `final` channel".
  Also: "the exception for this is tool/function calling".
- Library: drops it before the first `final`, if the assistant's last message is `final`.
- Hugging Face template: drops it before the last `final`.
- Ollama's template: drops it before the last message of the user.

All of them retain the reasoning of an open tool loop, and drop the reasoning of a single answer before a new question.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum

from harmony_ref.messages.message_types import Message, Role
from harmony_ref.rendering.render import ANALYSIS, FINAL, without_dropped_analysis


class History(StrEnum):
    """A rule that drops reasoning."""

    AS_0_0_8 = "as_0_0_8"
    """openai-harmony 0.0.8: before the first `final`, if the assistant's last message is on `final`."""
    BEFORE_LAST_FINAL = "before_last_final"
    """The guide's rule for each finished turn, and the Hugging Face template: before the assistant's last `final`."""
    BEFORE_LAST_USER = "before_last_user"
    """Ollama's template: the assistant's reasoning before the last message of the user. Calls remain."""


def kept_indices(messages: Sequence[Message], history: History) -> list[int]:
    """Return the indices of the messages that are rendered, in order."""
    match history:
        case History.AS_0_0_8:
            # The same message may come twice in a conversation; only copies of it can be distinguished.
            copies = [replace(message) for message in messages]
            retained = {id(message) for message in without_dropped_analysis(copies)}
            return [index for index, message in enumerate(copies) if id(message) in retained]
        case History.BEFORE_LAST_FINAL:
            last = _last(messages, lambda message: message.author.role is Role.ASSISTANT and message.channel == FINAL)
            return [index for index, message in enumerate(messages) if index >= last or message.channel != ANALYSIS]
        case History.BEFORE_LAST_USER:
            last = _last(messages, lambda message: message.author.role is Role.USER)
            return [index for index, message in enumerate(messages) if index >= last or not _is_reasoning(message)]


def _is_reasoning(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.channel == ANALYSIS and message.recipient is None


def _last(messages: Sequence[Message], is_match: Callable[[Message], bool]) -> int:
    return next((index for index in range(len(messages) - 1, -1, -1) if is_match(messages[index])), 0)
