"""What system and developer messages declare, as the pydantic models of openai_harmony."""

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
        """A function of this name."""
        return cls(name=name, description=description, parameters=parameters)


class ReasoningEffort(str, Enum):  # noqa: UP042 - as in the original: str() of a StrEnum differs
    """How much the model is asked to reason."""

    LOW = "Low"
    MEDIUM = "Medium"
    HIGH = "High"


class ChannelConfig(BaseModel):
    """The channels that the system message declares."""

    valid_channels: list[str]
    channel_required: bool

    @classmethod
    def require_channels(cls, channels: list[str]) -> "ChannelConfig":
        """These channels, one of which each message has to name."""
        return cls(valid_channels=channels, channel_required=True)


class ToolNamespaceConfig(BaseModel):
    """A namespace of tools."""

    name: str
    description: str | None = None
    tools: list[ToolDescription]

    @staticmethod
    def browser() -> "ToolNamespaceConfig":
        """The built-in browser; a new object each time."""
        return _namespace(declarations.ToolNamespaceConfig.browser())

    @staticmethod
    def python() -> "ToolNamespaceConfig":
        """The built-in Python tool; a new object each time."""
        return _namespace(declarations.ToolNamespaceConfig.python())


def _namespace(built_in: declarations.ToolNamespaceConfig) -> ToolNamespaceConfig:
    # pydantic keeps the dicts that it is given, and the user may change them
    return ToolNamespaceConfig.model_validate(deepcopy(built_in.to_dict()))
