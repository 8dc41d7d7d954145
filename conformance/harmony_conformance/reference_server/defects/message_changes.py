"""Functions that build a change of a conversation from a change of one message or of one content part."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from harmony_ref import Content, Message

ConversationChange: TypeAlias = Callable[[tuple[Message, ...]], tuple[Message, ...]]


def each_message(change: Callable[[Message], Message]) -> ConversationChange:
    """Apply `change` to every message."""
    return lambda messages: tuple(map(change, messages))


def each_part(change: Callable[[Content], Content]) -> ConversationChange:
    """Apply `change` to every content part of every message."""
    return each_message(lambda message: replace(message, content=tuple(map(change, message.content))))
