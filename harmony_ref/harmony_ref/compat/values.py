"""Convert between the models of this package and the values of harmony_ref.

A model is mutable and accepts any assigned value. openai_harmony renders the JSON of its `to_json`, read by its core.
A model whose members all have their annotated types is converted directly, member by member, with the same result.
All others go through JSON text, as do those that the reader of JSON refuses, for the original's error.
"""

import json
import marshal
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar, cast

from pydantic import BaseModel

from harmony_ref.compat import wire_reader
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
from harmony_ref.messages.header import Header
from harmony_ref.messages.unchecked_construction import message_of

_Model = TypeVar("_Model", bound=BaseModel)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_UNLIKE_ITS_ANNOTATIONS: Final = (AttributeError, LookupError, TypeError, ValueError)
"""Errors of the direct conversion for models that have to go through JSON."""

_DECLARATIONS: Final[dict[tuple[object, ...], message_types.Content]] = {}
"""Cache of system and developer contents: they are long, and recur in every turn."""

_HEADERS: Final[dict[tuple[str | None, ...], Header]] = {}
"""Cache of headers."""

_CACHE_SIZE: Final = 256
_LONGEST_CACHED: Final = 256
"""In characters; longer headers are not cached."""

_DEPTH_OF_PARTS: Final = 4
"""A part is nested in a list, a message, a list, and a conversation."""

_WITHOUT_REFERENCES: Final = 2
"""Version of marshal's format that writes equal trees as equal bytes."""

_ROLE_VALUES: Final = {id(role): role.value for role in Role}
_ROLES: Final = {role.value: role for role in Role}


class _NotPlainError(ValueError):
    """A model or member whose class is not exactly the annotated one."""


def conversation_values(conversation: Conversation) -> Iterable[message_types.Message]:
    """Convert the messages in their present state.

    Raises:
        ValueError: a value that is not a message in the wire form.
        Exception: any error of `to_json`.
    """
    with suppress(*_UNLIKE_ITS_ANNOTATIONS):
        if type(conversation) is Conversation:
            return [_message(message) for message in conversation.messages]
    return wire_reader.read_conversation(conversation.to_json())


def message_value(message: Message) -> message_types.Message:
    """Convert a message in its present state; raises as `conversation_values`."""
    with suppress(*_UNLIKE_ITS_ANNOTATIONS):
        return _message(message)
    return wire_reader.read_message(message.to_json())


def _message(message: Message) -> message_types.Message:
    if type(message) is not Message:
        raise _NotPlainError
    header = _header(message)
    content = message.content
    if len(content) == 1 and type(content[0]) is TextContent:
        return message_of(header, _check_plain(content[0].text))
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
    # by identity: the lookup of an enumeration's member would take longer than everything else here
    role_value = _ROLE_VALUES.get(id(role))
    if role_value is None or type(author) is not Author:
        raise _NotPlainError
    key = (role_value, author.name, message.channel, message.recipient, message.content_type)
    header = _HEADERS.get(key)
    if header is None:
        name, channel, recipient, content_type = (None if text is None else _check_plain(text) for text in key[1:])
        header = Header(
            author=message_types.Author(role=message_types.Role(role_value), name=name),
            channel=channel,
            recipient=recipient,
            content_type=content_type,
        )
        if sum(len(field) for field in key if field is not None) <= _LONGEST_CACHED:
            _remember(_HEADERS, key, header)
    return header


def _remember(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(cache) >= _CACHE_SIZE:
        cache.clear()
    cache[key] = value


def _check_plain(text: str) -> str:
    """Return the text, unless JSON might differ (a subclass of str) or cannot represent it (a lone surrogate)."""
    if type(text) is not str:
        raise _NotPlainError
    if not text.isascii():
        text.encode("utf-8")
    return text


def _part(part: Content) -> message_types.Content:
    if type(part) is TextContent:
        return message_types.TextContent(text=_check_plain(part.text))
    key = _key(part)
    value = _DECLARATIONS.get(key)
    if value is None:
        value = wire_reader.read_content(json.dumps(part.to_dict()), depth=_DEPTH_OF_PARTS)
        _remember(_DECLARATIONS, key, value)
    return value


def _key(part: Content) -> tuple[object, ...]:
    """Return a key of all members in the wire form of this part."""
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
    if type(tools) is not dict or any(type(namespace) is not ToolNamespaceConfig for namespace in tools.values()):
        raise _NotPlainError
    spaces = tools.items()
    return tuple((key, one.name, one.description, *map(_tool_key, one.tools)) for key, one in spaces)


def _tool_key(tool: ToolDescription) -> tuple[object, ...]:
    if type(tool) is not ToolDescription:
        raise _NotPlainError
    # a schema is a mutable tree: its bytes are a fast key that distinguishes types of numbers as well
    return (tool.name, tool.description, marshal.dumps(tool.parameters, _WITHOUT_REFERENCES))


def message_from_value(value: message_types.Message) -> Message:
    """Return a parsed message as a new model."""
    author = value.author  # the parser only yields contents of text
    return _model(
        Message,
        {
            "author": _model(Author, {"role": _ROLES[author.role.value], "name": author.name}),
            "content": [
                _model(TextContent, {"text": cast("message_types.TextContent", part).text}) for part in value.content
            ],
            "channel": value.channel,
            "recipient": value.recipient,
            "content_type": value.content_type,
        },
    )


def _model(kind: type[_Model], fields: dict[str, object]) -> _Model:
    """Return the model as `model_construct` with all fields does, but faster: without a lookup of the fields."""
    model = kind.__new__(kind)
    assign = object.__setattr__
    assign(model, "__dict__", fields)
    assign(model, "__pydantic_fields_set__", set(fields))
    assign(model, "__pydantic_extra__", None)
    assign(model, "__pydantic_private__", None)
    return model
