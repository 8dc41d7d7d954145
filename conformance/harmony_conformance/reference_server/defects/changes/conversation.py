"""Functions that build a change of a conversation from a change of one message or of one content part."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from harmony_ref import Content, Message, Role

ConversationChange: TypeAlias = Callable[[tuple[Message, ...]], tuple[Message, ...]]
_Part = TypeVar("_Part", bound=Content)


def each_message(change: Callable[[Message], Message]) -> ConversationChange:
    """Apply `change` to every message."""
    return lambda messages: tuple(map(change, messages))


def by_role(role: Role, change: Callable[[Message], Message]) -> ConversationChange:
    """Apply `change` to the messages of one role."""
    return each_message(lambda message: change(message) if message.author.role is role else message)


def each_call(change: Callable[[Message], Message]) -> ConversationChange:
    """Apply `change` to every past call."""
    return by_role(Role.ASSISTANT, lambda message: message if message.recipient is None else change(message))


def each_part(change: Callable[[Content], Content]) -> ConversationChange:
    """Apply `change` to every content part of every message."""
    return each_message(lambda message: replace(message, content=tuple(map(change, message.content))))


def each_part_of(kind: type[_Part], change: Callable[[_Part], Content]) -> ConversationChange:
    """Apply `change` to every content part of one type."""
    return each_part(lambda part: change(part) if isinstance(part, kind) else part)
