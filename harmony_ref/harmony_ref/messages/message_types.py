"""Conversations as values, with the names of openai_harmony.

All classes are frozen and keyword-only; `dataclasses.replace` and the `with_…` methods return changed copies.
`from_dict` reads and `to_dict` writes the JSON that openai_harmony exchanges with its Rust core ("wire form"):

    {"role", "name"?, "recipient"?, "content", "channel"?, "content_type"?}

`content` is a string, or a list of `{"type": "text", "text"}`, `{"type": "system_content", …}` and
`{"type": "developer_content", …}`. Members equal to None are not written. Unknown members are ignored when read.
An array of members instead of an object is refused, although the library's reader accepts it by accident.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json
from harmony_ref.messages import wire_shapes
from harmony_ref.messages.declarations import (
    THREE_CHANNELS,
    ChannelConfig,
    ResponseFormat,
    ToolDescription,
    ToolNamespaceConfig,
    Tools,
)
from harmony_ref.messages.wire_shapes import ShapeError


class Role(StrEnum):
    """The role of an author (Harmony guide, "Roles")."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"
    TOOL = "tool"


class ReasoningEffort(StrEnum):
    """The requested amount of reasoning, with the values of the wire form."""

    LOW = "Low"
    MEDIUM = "Medium"
    HIGH = "High"


@dataclass(frozen=True, kw_only=True, slots=True)
class Author:
    """A role, and for tools the name that replaces it in a header."""

    role: Role
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextContent:
    """Text, rendered unchanged."""

    text: str

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemContent:
    """The content of a system message. The defaults are those of openai_harmony's Python class.

    None omits a line. In the wire form an absent member means None, not the default.
    """

    model_identity: str | None = "You are ChatGPT, a large language model trained by OpenAI."
    reasoning_effort: ReasoningEffort | None = ReasoningEffort.MEDIUM
    conversation_start_date: str | None = None
    knowledge_cutoff: str | None = "2024-06"
    channel_config: ChannelConfig | None = THREE_CHANNELS
    tools: Tools | None = None

    def with_tools(self, namespace: ToolNamespaceConfig) -> "SystemContent":
        """Return a copy that also declares this namespace, keyed by its name."""
        return replace(self, tools={**(self.tools or {}), namespace.name: namespace})

    @classmethod
    def from_dict(cls, data: Json) -> "SystemContent":
        """Read the wire form, or raise ShapeError."""
        fields = wire_shapes.struct(data, "SystemContent")
        effort = fields.get("reasoning_effort")
        channels = fields.get("channel_config")
        return cls(
            model_identity=wire_shapes.optional_string(fields.get("model_identity")),
            reasoning_effort=None if effort is None else wire_shapes.variant(ReasoningEffort, effort),
            conversation_start_date=wire_shapes.optional_string(fields.get("conversation_start_date")),
            knowledge_cutoff=wire_shapes.optional_string(fields.get("knowledge_cutoff")),
            channel_config=None if channels is None else ChannelConfig.from_dict(channels),
            tools=_tools_from_dict(fields.get("tools")),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return wire_shapes.without_none(
            {
                "type": "system_content",
                "model_identity": self.model_identity,
                "reasoning_effort": None if self.reasoning_effort is None else self.reasoning_effort.value,
                "conversation_start_date": self.conversation_start_date,
                "knowledge_cutoff": self.knowledge_cutoff,
                "channel_config": None if self.channel_config is None else self.channel_config.to_dict(),
                "tools": _tools_to_dict(self.tools),
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DeveloperContent:
    """The content of a developer message: instructions (the "system prompt" of other formats), functions, formats.

    Response formats are defined by the guide; openai_harmony ignores their member in the wire form.
    """

    instructions: str | None = None
    tools: Tools | None = None
    response_formats: Sequence[ResponseFormat] = ()

    def with_tools(self, namespace: ToolNamespaceConfig) -> "DeveloperContent":
        """Return a copy that also declares this namespace, keyed by its name."""
        return replace(self, tools={**(self.tools or {}), namespace.name: namespace})

    def with_function_tools(self, tools: Iterable[ToolDescription]) -> "DeveloperContent":
        """Return a copy that declares these functions in the namespace `functions`."""
        return self.with_tools(ToolNamespaceConfig(name="functions", tools=tuple(tools)))

    def with_response_format(self, response_format: ResponseFormat) -> "DeveloperContent":
        """Return a copy that also declares this format."""
        return replace(self, response_formats=(*self.response_formats, response_format))

    @classmethod
    def from_dict(cls, data: Json) -> "DeveloperContent":
        """Read the wire form, or raise ShapeError."""
        fields = wire_shapes.struct(data, "DeveloperContent")
        return cls(
            instructions=wire_shapes.optional_string(fields.get("instructions")),
            tools=_tools_from_dict(fields.get("tools")),
            response_formats=tuple(
                map(ResponseFormat.from_dict, wire_shapes.sequence(fields.get("response_formats") or []))
            ),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return wire_shapes.without_none(
            {
                "type": "developer_content",
                "instructions": self.instructions,
                "tools": _tools_to_dict(self.tools),
                "response_formats": [form.to_dict() for form in self.response_formats] or None,
            }
        )


Content: TypeAlias = TextContent | SystemContent | DeveloperContent


@dataclass(frozen=True, kw_only=True, init=False, slots=True)
class Message:
    """One message: its header's fields and its content.

    The constructor accepts an author or a role, and a string, one part or several:
    `Message(author=Role.USER, content="Hi")`.
    """

    author: Author
    content: tuple[Content, ...]
    channel: str | None
    recipient: str | None
    content_type: str | None

    def __init__(
        self,
        *,
        author: Author | Role,
        content: str | Content | Iterable[Content] = (),
        channel: str | None = None,
        recipient: str | None = None,
        content_type: str | None = None,
    ) -> None:
        assign = object.__setattr__
        assign(self, "author", Author(role=author) if isinstance(author, Role) else author)
        if isinstance(content, str):
            content = (TextContent(text=content),)
        elif isinstance(content, TextContent | SystemContent | DeveloperContent):
            content = (content,)
        assign(self, "content", tuple(content))
        assign(self, "channel", channel)
        assign(self, "recipient", recipient)
        assign(self, "content_type", content_type)

    @classmethod
    def from_dict(cls, data: Json) -> "Message":
        """Read the wire form, or raise MessageError with the library's text, without line and column."""
        try:
            return _message_from_dict(data)
        except ShapeError as error:
            raise MessageError(subject="message", problem=error.problem) from None

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form; a single text part is a plain string."""
        match self.content:
            case (TextContent(text=text),):
                content: Json = text
            case parts:
                content = [part.to_dict() for part in parts]
        return wire_shapes.without_none(
            {
                "role": self.author.role.value,
                "name": self.author.name,
                "recipient": self.recipient,
                "content": content,
                "channel": self.channel,
                "content_type": self.content_type,
            }
        )


@dataclass(frozen=True, kw_only=True, init=False, slots=True)
class Conversation:
    """Messages in order."""

    messages: tuple[Message, ...]

    def __init__(self, *, messages: Iterable[Message] = ()) -> None:
        object.__setattr__(self, "messages", tuple(messages))

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @classmethod
    def from_dict(cls, data: Json) -> "Conversation":
        """Read `{"messages": […]}`, or raise MessageError with the library's text, without line and column."""
        try:
            fields = wire_shapes.struct(data, "Conversation")
            raw = wire_shapes.sequence(wire_shapes.required(fields, "messages"))
            return cls(messages=[_message_from_dict(message) for message in raw])
        except (ShapeError, MessageError) as error:
            raise MessageError(subject="conversation", problem=error.problem) from None

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return {"messages": [message.to_dict() for message in self.messages]}


def _text_from_dict(data: Json) -> TextContent:
    fields = wire_shapes.tagged_content(data)
    return TextContent(text=wire_shapes.string(wire_shapes.required(fields, "text")))


_CONTENT_READERS: Mapping[str, Callable[[Json], Content]] = {
    "text": _text_from_dict,
    "system_content": SystemContent.from_dict,
    "developer_content": DeveloperContent.from_dict,
}


def _content_from_dict(data: Json) -> Content:
    fields = wire_shapes.tagged_content(data)
    return _CONTENT_READERS[wire_shapes.tag(wire_shapes.required(fields, "type"), _CONTENT_READERS)](data)


def _message_from_dict(data: Json) -> Message:
    fields = wire_shapes.struct(data, "Message")
    raw = wire_shapes.required(fields, "content")
    if not isinstance(raw, str | list | tuple):
        raise ShapeError(f"invalid type: {wire_shapes.describe(raw)}, expected string or list of content")
    role = wire_shapes.variant(Role, wire_shapes.required(fields, "role"))
    return Message(
        author=Author(role=role, name=wire_shapes.optional_string(fields.get("name"))),
        content=raw if isinstance(raw, str) else [_content_from_dict(part) for part in wire_shapes.sequence(raw)],
        channel=wire_shapes.optional_string(fields.get("channel")),
        recipient=wire_shapes.optional_string(fields.get("recipient")),
        content_type=wire_shapes.optional_string(fields.get("content_type")),
    )


def _tools_from_dict(data: Json) -> Tools | None:
    if data is None:
        return None
    return {key: ToolNamespaceConfig.from_dict(value) for key, value in wire_shapes.mapping(data).items()}


def _tools_to_dict(tools: Tools | None) -> Json:
    return None if tools is None else {key: namespace.to_dict() for key, namespace in tools.items()}
