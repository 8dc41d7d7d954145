"""The texts of system and developer messages in each style: layout only, every instruction and tool stays.

The layout of the tools section is the library's (encoding.rs:756-794) in every style; what differs is how one function
is written, and how the sections of a developer message follow each other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Self

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json
from harmony_ref.messages.declarations import THREE_CHANNELS, ToolDescription, ToolNamespaceConfig, Tools
from harmony_ref.messages.json_numbers import json_text
from harmony_ref.messages.message_types import DeveloperContent, SystemContent
from harmony_ref.rendering.render import developer_text, response_formats_text, tools_text
from harmony_ref.styles import typescript_hf, typescript_ollama

_BLANK_LINE: Final = "\n\n"
_TRAINED_CUTOFF: Final = "2024-06"


def hf_developer_text(content: DeveloperContent) -> str:
    """Instructions, always followed by a blank line; then the tools; then response formats."""
    instructions = f"# Instructions\n\n{content.instructions}\n\n" if content.instructions else ""
    return instructions + _BLANK_LINE.join(_declared(content, typescript_hf.function_text))


def ollama_developer_text(content: DeveloperContent) -> str:
    """The tools before the instructions, and a blank line before the instructions even when they come first."""
    instructions = f"\n\n# Instructions\n\n{content.instructions}" if content.instructions else ""
    tools, *formats = ["", *_formats(content)]
    if content.tools:
        tools = _tools_text(content.tools, typescript_ollama.function_text)
    return _BLANK_LINE.join([tools + instructions, *formats])


def oss_developer_text(content: DeveloperContent) -> str:
    """As the library, with the numbers that its fork writes in another way."""
    return developer_text(replace(content, tools=_with_plus(content.tools)))


def oss_system_content(content: SystemContent) -> SystemContent:
    """As given, with the numbers that the fork writes in another way."""
    return replace(content, tools=_with_plus(content.tools))


def template_system_content(content: SystemContent) -> SystemContent:
    """With the lines that a chat template always writes: its cutoff and its three channels."""
    return replace(content, knowledge_cutoff=_TRAINED_CUTOFF, channel_config=THREE_CHANNELS)


def as_given(content: SystemContent) -> SystemContent:
    """The content itself."""
    return content


def _declared(content: DeveloperContent, function_text: Callable[[ToolDescription], str]) -> list[str]:
    tools = [_tools_text(content.tools, function_text)] if content.tools else []
    return [*tools, *_formats(content)]


def _formats(content: DeveloperContent) -> list[str]:
    return [response_formats_text(content.response_formats)] if content.response_formats else []


def _tools_text(tools: Tools, function_text: Callable[[ToolDescription], str]) -> str:
    blocks = (_namespace_text(tools[key], function_text) for key in sorted(tools))
    return _BLANK_LINE.join(["# Tools", *blocks])


def _namespace_text(namespace: ToolNamespaceConfig, function_text: Callable[[ToolDescription], str]) -> str:
    if not namespace.tools:
        return tools_text({namespace.name: namespace}).removeprefix("# Tools\n\n")
    description = "".join(f"// {line}\n" for line in _lines(namespace.description or ""))
    functions = [function_text(tool) for tool in namespace.tools]
    opened = f"## {namespace.name}\n\n{description}namespace {namespace.name} {{"
    return _BLANK_LINE.join([opened, *functions, f"}} // namespace {namespace.name}"])


def _lines(text: str) -> list[str]:
    """As the library counts lines: a last line end begins no other line."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


class _Spelled(int):
    """A number that is printed as it is spelled."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, 0)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


def _with_plus(tools: Tools | None) -> Tools | None:
    """The tools with `1e+16` where the library prints `1e16`, as newer versions of its JSON printer do."""
    if tools is None:
        return None
    return {key: replace(namespace, tools=tuple(_tool_with_plus(namespace.tools))) for key, namespace in tools.items()}


def _tool_with_plus(tools: Iterable[ToolDescription]) -> Iterable[ToolDescription]:
    return (replace(tool, parameters=_numbers_with_plus(tool.parameters)) for tool in tools)


def _numbers_with_plus(value: Json) -> Json:
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return _number_with_plus(value)
        case Mapping():
            return {key: _numbers_with_plus(member) for key, member in value.items()}
        case _:
            return [_numbers_with_plus(item) for item in value]


def _number_with_plus(value: float) -> Json:
    try:
        digits, letter, exponent = json_text(value).partition("e")
    except MessageError:
        return value
    return value if not letter or exponent.startswith("-") else _Spelled(f"{digits}e+{exponent}")
