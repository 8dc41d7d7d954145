"""Declarations of system and developer messages: channels, tools, and response formats.

All classes are frozen and keyword-only. `from_dict` reads and `to_dict` writes the wire form of openai_harmony.
`ResponseFormat` is not part of it: the library has no API for that section of the guide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from harmony_ref.json_value import Json
from harmony_ref.messages import wire_shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """The channels that the system message declares."""

    valid_channels: Sequence[str]
    channel_required: bool

    @classmethod
    def require_channels(cls, channels: Iterable[str]) -> "ChannelConfig":
        """Return a configuration with these channels; each message has to name one."""
        return cls(valid_channels=tuple(channels), channel_required=True)

    @classmethod
    def from_dict(cls, data: Json) -> "ChannelConfig":
        """Read the wire form, or raise ShapeError."""
        fields = wire_shapes.struct(data, "ChannelConfig")
        channels = wire_shapes.sequence(wire_shapes.required(fields, "valid_channels"))
        return cls(
            valid_channels=tuple(map(wire_shapes.string, channels)),
            channel_required=wire_shapes.boolean(wire_shapes.required(fields, "channel_required")),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return {"valid_channels": list(self.valid_channels), "channel_required": self.channel_required}


THREE_CHANNELS: Final = ChannelConfig(valid_channels=("analysis", "commentary", "final"), channel_required=True)
"""The channels that the models know; each message is on one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDescription:
    """A function that the model may call, named without its namespace.

    The description may have several lines or be empty. `parameters` is the JSON schema of the arguments, or None.
    """

    name: str
    description: str
    parameters: Json = None

    @classmethod
    def from_dict(cls, data: Json) -> "ToolDescription":
        """Read the wire form, or raise ShapeError."""
        fields = wire_shapes.struct(data, "ToolDescription")
        return cls(
            name=wire_shapes.string(wire_shapes.required(fields, "name")),
            description=wire_shapes.string(wire_shapes.required(fields, "description")),
            parameters=fields.get("parameters"),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return wire_shapes.without_none(
            {"name": self.name, "description": self.description, "parameters": self.parameters}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolNamespaceConfig:
    """A namespace of tools, such as `functions` or `browser`."""

    name: str
    description: str | None = None
    tools: Sequence[ToolDescription]

    @classmethod
    def browser(cls) -> "ToolNamespaceConfig":
        """Return the built-in browser as in training (openai-harmony 0.0.8, chat.rs:264-300)."""
        from harmony_ref.messages import builtin_tools  # noqa: PLC0415 - long texts, seldom needed

        return cls.from_dict(builtin_tools.BROWSER)

    @classmethod
    def python(cls) -> "ToolNamespaceConfig":
        """Return the built-in Python tool as in training (openai-harmony 0.0.8, chat.rs)."""
        from harmony_ref.messages import builtin_tools  # noqa: PLC0415 - as above

        return cls.from_dict(builtin_tools.PYTHON)

    @classmethod
    def from_dict(cls, data: Json) -> "ToolNamespaceConfig":
        """Read the wire form, or raise ShapeError."""
        fields = wire_shapes.struct(data, "ToolNamespaceConfig")
        return cls(
            name=wire_shapes.string(wire_shapes.required(fields, "name")),
            description=wire_shapes.optional_string(fields.get("description")),
            tools=tuple(map(ToolDescription.from_dict, wire_shapes.sequence(wire_shapes.required(fields, "tools")))),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return the wire form."""
        return wire_shapes.without_none(
            {"name": self.name, "description": self.description, "tools": [tool.to_dict() for tool in self.tools]}
        )


Tools: TypeAlias = Mapping[str, ToolNamespaceConfig]
"""Namespaces by key. They are rendered in the order of their keys, under their names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """A format of the answer: its name, JSON schema and description (Harmony guide, "Structured output")."""

    name: str
    schema: Json
    description: str | None = None

    @classmethod
    def from_dict(cls, data: Json) -> "ResponseFormat":
        """Read the result of `to_dict`, or raise ShapeError."""
        fields = wire_shapes.struct(data, "ResponseFormat")
        return cls(
            name=wire_shapes.string(wire_shapes.required(fields, "name")),
            schema=wire_shapes.required(fields, "schema"),
            description=wire_shapes.optional_string(fields.get("description")),
        )

    def to_dict(self) -> dict[str, Json]:
        """Return `{"name", "description"?, "schema"}` with the schema unchanged."""
        return wire_shapes.without_none({"name": self.name, "description": self.description}) | {"schema": self.schema}
