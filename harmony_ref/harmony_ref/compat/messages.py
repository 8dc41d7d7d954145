"""Conversations as the pydantic models of openai_harmony: mutable, with `with_…` methods that change and return self."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, cast

from pydantic import BaseModel, Field

from harmony_ref.compat.declarations import ChannelConfig, ReasoningEffort, ToolDescription, ToolNamespaceConfig


class Role(str, Enum):  # noqa: UP042 - as in the original: str() of a StrEnum differs
    """The role of a message's author."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"
    TOOL = "tool"

    @classmethod
    def _missing_(cls, value: object) -> "Role":
        raise ValueError(f"Unknown role: {value!r}")


class Author(BaseModel):
    """A role and, for tools, the name that is rendered instead of it."""

    role: Role
    name: str | None = None

    @classmethod
    def new(cls, role: Role, name: str) -> "Author":
        """Return an author with a name."""
        return cls(role=role, name=name)


class Content(BaseModel):
    """One part of a message."""

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        raise NotImplementedError


class TextContent(Content):
    """Text, rendered verbatim."""

    text: str

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {"type": "text", "text": self.text}


class SystemContent(Content):
    """The content of a system message; the line of a member that is None is omitted."""

    model_identity: str | None = "You are ChatGPT, a large language model trained by OpenAI."
    reasoning_effort: ReasoningEffort | None = ReasoningEffort.MEDIUM
    conversation_start_date: str | None = None
    knowledge_cutoff: str | None = "2024-06"
    channel_config: ChannelConfig | None = Field(
        default_factory=lambda: ChannelConfig.require_channels(["analysis", "commentary", "final"])
    )
    tools: dict[str, ToolNamespaceConfig] | None = None

    @classmethod
    def new(cls) -> "SystemContent":
        """Return the default content."""
        return cls()

    def with_model_identity(self, model_identity: str) -> "SystemContent":
        """Set the identity."""
        self.model_identity = model_identity
        return self

    def with_reasoning_effort(self, reasoning_effort: ReasoningEffort) -> "SystemContent":
        """Set the reasoning effort."""
        self.reasoning_effort = reasoning_effort
        return self

    def with_conversation_start_date(self, conversation_start_date: str) -> "SystemContent":
        """Set the current date, as text."""
        self.conversation_start_date = conversation_start_date
        return self

    def with_knowledge_cutoff(self, knowledge_cutoff: str) -> "SystemContent":
        """Set the knowledge cutoff, as text."""
        self.knowledge_cutoff = knowledge_cutoff
        return self

    def with_channel_config(self, channel_config: ChannelConfig) -> "SystemContent":
        """Set the channels."""
        self.channel_config = channel_config
        return self

    def with_required_channels(self, channels: list[str]) -> "SystemContent":
        """Require every message to name one of these channels."""
        self.channel_config = ChannelConfig.require_channels(channels)
        return self

    def with_tools(self, ns_config: ToolNamespaceConfig) -> "SystemContent":
        """Declare this namespace; it replaces one of the same name."""
        self.tools = {} if self.tools is None else self.tools
        self.tools[ns_config.name] = ns_config
        return self

    def with_browser_tool(self) -> "SystemContent":
        """Declare the built-in browser."""
        return self.with_tools(ToolNamespaceConfig.browser())

    def with_python_tool(self) -> "SystemContent":
        """Declare the built-in Python tool."""
        return self.with_tools(ToolNamespaceConfig.python())

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {**self.model_dump(exclude_none=True), "type": "system_content"}

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> "SystemContent":
        """Read the wire form; an absent member gets its default."""
        return cls(**cast("dict[str, Any]", raw))


class DeveloperContent(Content):
    """The content of a developer message: instructions and functions."""

    instructions: str | None = None
    tools: dict[str, ToolNamespaceConfig] | None = None

    @classmethod
    def new(cls) -> "DeveloperContent":
        """Return content without instructions and tools."""
        return cls()

    def with_instructions(self, instructions: str) -> "DeveloperContent":
        """Set the instructions."""
        self.instructions = instructions
        return self

    def with_tools(self, ns_config: ToolNamespaceConfig) -> "DeveloperContent":
        """Declare this namespace; it replaces one of the same name."""
        self.tools = {} if self.tools is None else self.tools
        self.tools[ns_config.name] = ns_config
        return self

    def with_function_tools(self, tools: Sequence[ToolDescription]) -> "DeveloperContent":
        """Declare these functions in the namespace `functions`."""
        return self.with_tools(ToolNamespaceConfig(name="functions", description=None, tools=list(tools)))

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {**self.model_dump(exclude_none=True), "type": "developer_content"}

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> "DeveloperContent":
        """Read the wire form."""
        return cls(**cast("dict[str, Any]", raw))


_CONTENT_TYPES: Final[Mapping[str, type[Content]]] = {
    "text": TextContent,
    "system_content": SystemContent,
    "developer_content": DeveloperContent,
}


class Message(BaseModel):
    """One message: its header's fields and the parts of its content."""

    author: Author
    content: list[Content] = Field(default_factory=list[Content])
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None

    @classmethod
    def from_author_and_content(cls, author: Author, content: str | Content) -> "Message":
        """Return a message with one part."""
        return cls(author=author, content=[_part(content)])

    @classmethod
    def from_role_and_content(cls, role: Role, content: str | Content) -> "Message":
        """Return a message with one part, of an author without a name."""
        return cls.from_author_and_content(Author(role=role), content)

    @classmethod
    def from_role_and_contents(cls, role: Role, contents: Sequence[Content]) -> "Message":
        """Return a message with these parts, of an author without a name."""
        return cls(author=Author(role=role), content=list(contents))

    def adding_content(self, content: str | Content) -> "Message":
        """Append a part."""
        self.content.append(_part(content))
        return self

    def with_channel(self, channel: str) -> "Message":
        """Set the channel."""
        self.channel = channel
        return self

    def with_recipient(self, recipient: str) -> "Message":
        """Set the recipient."""
        self.recipient = recipient
        return self

    def with_content_type(self, content_type: str) -> "Message":
        """Set the content type."""
        self.content_type = content_type
        return self

    def to_dict(self) -> dict[str, object]:
        """Return the wire form; `name` is present even if it is None."""
        optional = {"channel": self.channel, "recipient": self.recipient, "content_type": self.content_type}
        return {
            **self.author.model_dump(),
            "content": [part.to_dict() for part in self.content],
            **{field: value for field, value in optional.items() if value is not None},
        }

    def to_json(self) -> str:
        """Return the wire form as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Message":
        """Read the wire form.

        Raises:
            KeyError: role or content is absent.
            ValueError: an unknown role or content type, or a member of the wrong type.
        """
        author = Author(role=Role(data["role"]), name=cast("str | None", data.get("name")))
        raw = data["content"]
        parts = [{"type": "text", "text": raw}] if isinstance(raw, str) else cast("Iterable[dict[str, object]]", raw)
        message = cls(author=author, content=[_part_from_dict(part) for part in parts])
        # by assignment, which pydantic does not validate
        message.channel = cast("str | None", data.get("channel"))
        message.recipient = cast("str | None", data.get("recipient"))
        message.content_type = cast("str | None", data.get("content_type"))
        return message


class Conversation(BaseModel):
    """Messages in order."""

    messages: list[Message] = Field(default_factory=list[Message])

    @classmethod
    def from_messages(cls, messages: Sequence[Message]) -> "Conversation":
        """Return a conversation of these messages: the list is copied, the messages are not."""
        return cls(messages=list(messages))

    def __iter__(self) -> Iterator[Message]:  # type: ignore[override]
        return iter(self.messages)

    def to_dict(self) -> dict[str, object]:
        """Return the wire form."""
        return {"messages": [message.to_dict() for message in self.messages]}

    def to_json(self) -> str:
        """Return the wire form as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, payload: str) -> "Conversation":
        """Read the wire form."""
        return cls(messages=[Message.from_dict(message) for message in json.loads(payload)["messages"]])


def _part(content: str | Content) -> Content:
    return TextContent(text=content) if isinstance(content, str) else content


def _part_from_dict(raw: Mapping[str, object]) -> Content:
    kind = raw.get("type")
    content_type = _CONTENT_TYPES.get(kind) if isinstance(kind, str) else None
    if content_type is None:
        raise ValueError(f"Unknown content variant: {raw}")
    return content_type(**cast("dict[str, Any]", raw))
