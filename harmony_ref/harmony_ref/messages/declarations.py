"""What a system or developer message declares: channels, tools, and the forms an answer may take.

All classes are frozen and keyword-only. `from_dict` reads and `to_dict` writes the wire form of openai_harmony;
`ResponseFormat` has none there: the library has no API for that section of the guide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from harmony_ref.json_value import Json
from harmony_ref.messages import wire_form


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """The channels that the system message declares."""

    valid_channels: Sequence[str]
    channel_required: bool

    @classmethod
    def require_channels(cls, channels: Iterable[str]) -> "ChannelConfig":
        """These channels, one of which each message has to name."""
        return cls(valid_channels=tuple(channels), channel_required=True)

    @classmethod
    def from_dict(cls, data: Json) -> "ChannelConfig":
        """Read the wire form; ShapeError when it is something else."""
        fields = wire_form.struct(data, "ChannelConfig")
        return cls(
            valid_channels=tuple(
                wire_form.string(channel)
                for channel in wire_form.sequence(wire_form.required(fields, "valid_channels"))
            ),
            channel_required=wire_form.boolean(wire_form.required(fields, "channel_required")),
        )

    def to_dict(self) -> dict[str, Json]:
        """The wire form."""
        return {"valid_channels": list(self.valid_channels), "channel_required": self.channel_required}


THREE_CHANNELS: Final = ChannelConfig(valid_channels=("analysis", "commentary", "final"), channel_required=True)
"""The channels that the models know, each message on one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDescription:
    """One function that the model may call.

    Attributes:
        name: without its namespace.
        description: may have several lines; empty for none.
        parameters: JSON schema of the arguments; None for a function without any.
    """

    name: str
    description: str
    parameters: Json = None

    @classmethod
    def from_dict(cls, data: Json) -> "ToolDescription":
        """Read the wire form; ShapeError when it is something else."""
        fields = wire_form.struct(data, "ToolDescription")
        return cls(
            name=wire_form.string(wire_form.required(fields, "name")),
            description=wire_form.string(wire_form.required(fields, "description")),
            parameters=fields.get("parameters"),
        )

    def to_dict(self) -> dict[str, Json]:
        """The wire form."""
        return wire_form.without_none(
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
        """The built-in browser, in the words the models were trained on (openai-harmony 0.0.8, chat.rs:264-300)."""
        from harmony_ref.messages import builtin_tools  # noqa: PLC0415 - long texts, seldom needed

        return cls.from_dict(builtin_tools.BROWSER)

    @classmethod
    def python(cls) -> "ToolNamespaceConfig":
        """The built-in Python tool, in the words the models were trained on (openai-harmony 0.0.8, chat.rs)."""
        from harmony_ref.messages import builtin_tools  # noqa: PLC0415 - as above

        return cls.from_dict(builtin_tools.PYTHON)

    @classmethod
    def from_dict(cls, data: Json) -> "ToolNamespaceConfig":
        """Read the wire form; ShapeError when it is something else."""
        fields = wire_form.struct(data, "ToolNamespaceConfig")
        return cls(
            name=wire_form.string(wire_form.required(fields, "name")),
            description=wire_form.optional_string(fields.get("description")),
            tools=tuple(
                ToolDescription.from_dict(tool) for tool in wire_form.sequence(wire_form.required(fields, "tools"))
            ),
        )

    def to_dict(self) -> dict[str, Json]:
        """The wire form."""
        return wire_form.without_none(
            {"name": self.name, "description": self.description, "tools": [tool.to_dict() for tool in self.tools]}
        )


Tools: TypeAlias = Mapping[str, ToolNamespaceConfig]
"""Namespaces by key; they are rendered in the order of their keys, under their names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """A form that the answer may take (Harmony guide, "Structured output").

    Attributes:
        name: what the format is called.
        schema: JSON schema of the answer.
        description: may have several lines; None for none.
    """

    name: str
    schema: Json
    description: str | None = None

    @classmethod
    def from_dict(cls, data: Json) -> "ResponseFormat":
        """Read what `to_dict` writes; ShapeError when it is something else."""
        fields = wire_form.struct(data, "ResponseFormat")
        return cls(
            name=wire_form.string(wire_form.required(fields, "name")),
            schema=wire_form.required(fields, "schema"),
            description=wire_form.optional_string(fields.get("description")),
        )

    def to_dict(self) -> dict[str, Json]:
        """`{"name", "description"?, "schema"}`, the schema as it is."""
        described: dict[str, Json] = {} if self.description is None else {"description": self.description}
        return {"name": self.name, **described, "schema": self.schema}
