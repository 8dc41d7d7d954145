"""Between the models of this package and the values of harmony_ref.

A model is mutable and may hold anything that was assigned to it. What openai_harmony renders is what `to_json` makes of
it at that moment, read by its core. Models that hold just what their annotations say are taken over member by member,
with the same result; all others go through JSON text, and so do those that its reader refuses, for the error.
"""

import json
from collections.abc import Sequence
from typing import Final, TypeVar

from pydantic import BaseModel

from harmony_ref import messages
from harmony_ref.compat.messages import (
    Author,
    Conversation,
    Message,
    Role,
    TextContent,
)

_Model = TypeVar("_Model", bound=BaseModel)
_ROLES: Final = {role.value: role for role in Role}


def conversation_values(conversation: Conversation) -> Sequence[messages.Message]:
    """TODO."""
    return messages.Conversation.from_dict(json.loads(conversation.to_json())).messages


def message_value(message: Message) -> messages.Message:
    """TODO."""
    return messages.Message.from_dict(json.loads(message.to_json()))


def message_from_value(value: messages.Message) -> Message:
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


def _text(part: messages.Content) -> str:
    assert isinstance(part, messages.TextContent), "the parser finds text only"
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
