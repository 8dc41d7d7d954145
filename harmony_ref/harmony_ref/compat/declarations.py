"""Declarations of system and developer messages, as the pydantic models of openai_harmony."""

from copy import deepcopy
from enum import Enum

from pydantic import BaseModel

from harmony_ref.messages import declarations


class ToolDescription(BaseModel):
    """One function; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[object, object] | None = None

    @classmethod
    def new(cls, name: str, description: str, parameters: dict[object, object] | None = None) -> "ToolDescription":
        """Return a function of this name."""
        return cls(name=name, description=description, parameters=parameters)


class ReasoningEffort(str, Enum):  # noqa: UP042 - as in the original: str() of a StrEnum differs
    """Amount of reasoning requested from the model."""

    LOW = "Low"
    MEDIUM = "Medium"
    HIGH = "High"


class ChannelConfig(BaseModel):
    """The channels declared by a system message."""

    valid_channels: list[str]
    channel_required: bool

    @classmethod
    def require_channels(cls, channels: list[str]) -> "ChannelConfig":
        """Require every message to name one of these channels."""
        return cls(valid_channels=channels, channel_required=True)


class ToolNamespaceConfig(BaseModel):
    """A namespace of tools."""

    name: str
    description: str | None = None
    tools: list[ToolDescription]

    @staticmethod
    def browser() -> "ToolNamespaceConfig":
        """Return the built-in browser, a new object on each call."""
        # copied because pydantic does not copy dicts, and the user may change them
        return ToolNamespaceConfig.model_validate(deepcopy(declarations.ToolNamespaceConfig.browser().to_dict()))

    @staticmethod
    def python() -> "ToolNamespaceConfig":
        """Return the built-in Python tool, a new object on each call."""
        return ToolNamespaceConfig.model_validate(deepcopy(declarations.ToolNamespaceConfig.python().to_dict()))
