"""Between the models of this package and the values of harmony_ref.

A model is mutable and may hold anything that was assigned to it. What openai_harmony renders is what `to_json` makes of
it at that moment, read by its core. Models that hold just what their annotations say are taken over member by member,
with the same result; all others go through JSON text, and so do those that its reader refuses, for the error.
"""

import json
import marshal
from collections.abc import Iterable
from typing import Final, TypeVar

from pydantic import BaseModel

from harmony_ref.compat import wire_text
from harmony_ref.compat.declarations import ChannelConfig, ReasoningEffort, ToolDescription, ToolNamespaceConfig
from harmony_ref.compat.messages import (
    Author,
    Content,
    Conversation,
    DeveloperContent,
    Message,
    Role,
    SystemContent,
    TextContent,
)
from harmony_ref.messages import message_types
from harmony_ref.messages.construction import message_of
from harmony_ref.messages.header import Header

_Model = TypeVar("_Model", bound=BaseModel)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_UNLIKE_ITS_ANNOTATIONS: Final = (AttributeError, LookupError, TypeError, ValueError)
"""What is raised on the direct way for models that only the way through JSON can answer for."""

_DECLARATIONS: Final[dict[tuple[object, ...], message_types.Content]] = {}
"""System and developer contents that were met before: they are long, and come again with every turn."""

_HEADERS: Final[dict[tuple[str | None, ...], Header]] = {}
"""Headers that were met before."""

_REMEMBERED: Final = 256
_REMEMBERED_LENGTH: Final = 256
"""Characters; longer headers are not kept."""

_DEPTH_OF_PARTS: Final = 4
"""A part stands inside a list, a message, a list, and a conversation."""

_WITHOUT_REFERENCES: Final = 2
"""The version of marshal's format in which equal trees have equal bytes."""

_ROLE_VALUES: Final = {id(role): role.value for role in Role}
_ROLES: Final = {role.value: role for role in Role}


class _NotPlainError(ValueError):
    """A model, or a member of it, that is not just of the annotated class."""


def conversation_values(conversation: Conversation) -> Iterable[message_types.Message]:
    """The messages, as they are at this moment.

    Raises:
        ValueError: a value that is no message in the wire form.
        Exception: whatever `to_json` raises.
    """
    try:
        if type(conversation) is Conversation:
            return [_message(message) for message in conversation.messages]
    except _UNLIKE_ITS_ANNOTATIONS:
        pass
    return wire_text.read_conversation(conversation.to_json())


def message_value(message: Message) -> message_types.Message:
    """The message, as it is at this moment; raises as `conversation_values`."""
    try:
        return _message(message)
    except _UNLIKE_ITS_ANNOTATIONS:
        pass
    return wire_text.read_message(message.to_json())


def _message(message: Message) -> message_types.Message:
    if type(message) is not Message:
        raise _NotPlainError
    header = _header(message)
    content = message.content
    if len(content) == 1 and type(content[0]) is TextContent:
        return message_of(header, _plain(content[0].text))
    return message_types.Message(
        author=header.author,
        content=[_part(part) for part in content],
        channel=header.channel,
        recipient=header.recipient,
        content_type=header.content_type,
    )


def _header(message: Message) -> Header:
    author = message.author
    role = author.role
    # by identity: to look up a member of an enumeration takes longer than all the rest
    role_value = _ROLE_VALUES.get(id(role))
    if role_value is None or type(author) is not Author:
        raise _NotPlainError
    key = (role_value, author.name, message.channel, message.recipient, message.content_type)
    header = _HEADERS.get(key)
    if header is None:
        header = _new_header(*key)
        if sum(len(field) for field in key if field is not None) <= _REMEMBERED_LENGTH:
            _remember(_HEADERS, key, header)
    return header


def _new_header(
    role: str, name: str | None, channel: str | None, recipient: str | None, content_type: str | None
) -> Header:
    return Header(
        author=message_types.Author(role=message_types.Role(role), name=_optional_text(name)),
        channel=_optional_text(channel),
        recipient=_optional_text(recipient),
        content_type=_optional_text(content_type),
    )


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value


def _optional_text(text: str | None) -> str | None:
    return None if text is None else _plain(text)


def _plain(text: str) -> str:
    """The text; JSON would write another for a subclass of str, and has none for half of a surrogate pair."""
    if type(text) is not str:
        raise _NotPlainError
    if not text.isascii():
        text.encode("utf-8")
    return text


def _part(part: Content) -> message_types.Content:
    if type(part) is TextContent:
        return message_types.TextContent(text=_plain(part.text))
    key = _key(part)
    value = _DECLARATIONS.get(key)
    if value is None:
        value = wire_text.read_content(json.dumps(part.to_dict()), depth=_DEPTH_OF_PARTS)
        _remember(_DECLARATIONS, key, value)
    return value


def _key(part: Content) -> tuple[object, ...]:
    """All that the wire form of this part is made of."""
    if type(part) is SystemContent:
        effort = part.reasoning_effort
        if effort is not None and type(effort) is not ReasoningEffort:
            raise _NotPlainError
        return (
            SystemContent,
            part.model_identity,
            effort,
            part.conversation_start_date,
            part.knowledge_cutoff,
            _channels_key(part.channel_config),
            _tools_key(part.tools),
        )
    if type(part) is DeveloperContent:
        return (DeveloperContent, part.instructions, _tools_key(part.tools))
    raise _NotPlainError


def _channels_key(config: ChannelConfig | None) -> tuple[object, ...] | None:
    if config is None:
        return None
    if type(config) is not ChannelConfig or type(config.channel_required) is not bool:
        raise _NotPlainError
    return (config.channel_required, *config.valid_channels)


def _tools_key(tools: dict[str, ToolNamespaceConfig] | None) -> tuple[object, ...] | None:
    if tools is None:
        return None
    if type(tools) is not dict:
        raise _NotPlainError
    return tuple((key, _namespace_key(namespace)) for key, namespace in tools.items())


def _namespace_key(namespace: ToolNamespaceConfig) -> tuple[object, ...]:
    if type(namespace) is not ToolNamespaceConfig:
        raise _NotPlainError
    return (namespace.name, namespace.description, *map(_tool_key, namespace.tools))


def _tool_key(tool: ToolDescription) -> tuple[object, ...]:
    if type(tool) is not ToolDescription:
        raise _NotPlainError
    # a schema is a mutable tree: its bytes tell any two apart, types of numbers included, and are made in no time
    return (tool.name, tool.description, marshal.dumps(tool.parameters, _WITHOUT_REFERENCES))


def message_from_value(value: message_types.Message) -> Message:
    """A parsed message as a new model."""
    author = value.author
    return _model(
        Message,
        {
            "author": _model(Author, {"role": _ROLES[author.role.value], "name": author.name}),
            "content": [_model(TextContent, {"text": _text(part)}) for part in value.content],
            "channel": value.channel,
            "recipient": value.recipient,
            "content_type": value.content_type,
        },
    )


def _text(part: message_types.Content) -> str:
    assert isinstance(part, message_types.TextContent), "the parser finds text only"
    return part.text


def _model(kind: type[_Model], fields: dict[str, object]) -> _Model:
    """As `model_construct` with all fields, but without asking which fields there are."""
    model = kind.__new__(kind)
    assign = object.__setattr__
    assign(model, "__dict__", fields)
    assign(model, "__pydantic_fields_set__", set(fields))
    assign(model, "__pydantic_extra__", None)
    assign(model, "__pydantic_private__", None)
    return model
