"""Write the texts of system and developer messages in each style. Only the layout differs; nothing is dropped.

In every style, the layout of the tools section is the library's (encoding.rs:756-794). Styles differ in the text of a
function and in the order and spacing of the developer sections.
"""

from collections.abc import Callable, Mapping
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
    """Write the instructions, always followed by a blank line, then the tools, then response formats."""
    instructions = f"# Instructions\n\n{content.instructions}\n\n" if content.instructions else ""
    tools = [_tools_text(content.tools, typescript_hf.function_text)] if content.tools else []
    return instructions + _BLANK_LINE.join([*tools, *_formats(content)])


def ollama_developer_text(content: DeveloperContent) -> str:
    """Write the tools before the instructions, and a blank line before the instructions even if they come first."""
    instructions = f"\n\n# Instructions\n\n{content.instructions}" if content.instructions else ""
    tools, *formats = ["", *_formats(content)]
    if content.tools:
        tools = _tools_text(content.tools, typescript_ollama.function_text)
    return _BLANK_LINE.join([tools + instructions, *formats])


def oss_developer_text(content: DeveloperContent) -> str:
    """Write the library's text, with numbers as its fork writes them."""
    return developer_text(replace(content, tools=_with_plus(content.tools)))


def oss_system_content(content: SystemContent) -> SystemContent:
    """Return the content with numbers as the fork writes them."""
    return replace(content, tools=_with_plus(content.tools))


def template_system_content(content: SystemContent) -> SystemContent:
    """Return the content with the lines that a chat template always writes: its cutoff and its three channels."""
    return replace(content, knowledge_cutoff=_TRAINED_CUTOFF, channel_config=THREE_CHANNELS)


def as_given(content: SystemContent) -> SystemContent:
    """Return the content unchanged."""
    return content


def _formats(content: DeveloperContent) -> list[str]:
    return [response_formats_text(content.response_formats)] if content.response_formats else []


def _tools_text(tools: Tools, function_text: Callable[[ToolDescription], str]) -> str:
    blocks = (_namespace_text(tools[key], function_text) for key in sorted(tools))
    return _BLANK_LINE.join(["# Tools", *blocks])


def _namespace_text(namespace: ToolNamespaceConfig, function_text: Callable[[ToolDescription], str]) -> str:
    if not namespace.tools:
        return tools_text({namespace.name: namespace}).removeprefix("# Tools\n\n")
    # as the library splits lines: a trailing line end does not begin another line
    lines = namespace.description.removesuffix("\n").split("\n") if namespace.description else []
    description = "".join("// " + line.removesuffix("\r") + "\n" for line in lines)
    functions = [function_text(tool) for tool in namespace.tools]
    opened = f"## {namespace.name}\n\n{description}namespace {namespace.name} {{"
    return _BLANK_LINE.join([opened, *functions, f"}} // namespace {namespace.name}"])


class _SpelledNumber(int):
    """A number that is printed as the given text."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, 0)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


def _with_plus(tools: Tools | None) -> Tools | None:
    """Replace `1e16`, as the library prints it, by `1e+16`, as newer versions of its JSON printer do."""
    if tools is None:
        return None
    return {
        key: replace(
            namespace,
            tools=tuple(replace(tool, parameters=_numbers_with_plus(tool.parameters)) for tool in namespace.tools),
        )
        for key, namespace in tools.items()
    }


def _numbers_with_plus(value: Json) -> Json:
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            try:
                digits, letter, exponent = json_text(value).partition("e")
            except MessageError:
                return value
            return value if not letter or exponent.startswith("-") else _SpelledNumber(f"{digits}e+{exponent}")
        case Mapping():
            return {key: _numbers_with_plus(member) for key, member in value.items()}
        case _:
            return [_numbers_with_plus(item) for item in value]
