"""The tools that a request of the Responses API offers, and the items of their calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

CALL_BY_KIND: Mapping[str, str] = {
    "function": "function_call",
    "custom": "custom_tool_call",
    "local_shell": "local_shell_call",
    "shell": "shell_call",
    "apply_patch": "apply_patch_call",
    "tool_search": "tool_search_call",
}
"""The type of a call's item by the type of the tool, for tools that the client executes."""

_FUNCTIONS = "functions"
_WORDS: Mapping[str, str] = {
    "local_shell": r"shell|exec|container",
    "shell": r"shell|exec|container",
    "apply_patch": r"patch",
    "tool_search": r"search",
    "web_search": r"search|browser",
    "file_search": r"search",
    "code_interpreter": r"python",
    "image_generation": r"image",
    "computer": r"computer",
}
"""The words by which a prompt may declare a tool without a name, by the beginning of its type."""


@dataclass(frozen=True, kw_only=True)
class OfferedTool:
    """A tool of a request.

    Attributes:
        kind: The type, such as `custom`; for a tool in a namespace its own type.
        name: The name, or the type if the tool has no name.
        namespace: The namespace, or an empty text.
        where: The JSON pointer of the tool in the request.
        definition: The tool itself.
    """

    kind: str
    name: str
    namespace: str
    where: str
    definition: JsonObject

    @property
    def title(self) -> str:
        """The name with the namespace, for messages."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def call(self) -> str:
        """The type of the items of its calls; empty for tools that the server executes."""
        return CALL_BY_KIND.get(self.kind, "")

    @property
    def recipients(self) -> frozenset[str]:
        """The recipients by which a model may call it, depending on how the server declares it."""
        if self.namespace in ("", _FUNCTIONS):
            return frozenset({f"{_FUNCTIONS}.{self.name}"})
        flat = (f"{_FUNCTIONS}.{self.namespace}{mark}{self.name}" for mark in (".", "__", "_"))
        return frozenset({f"{self.namespace}.{self.name}", *flat})

    def is_declared_in(self, declarations: str) -> bool:
        """Return True if a text of a prompt declares the tool, under its name or a word for its type."""
        words = next((words for kind, words in _WORDS.items() if self.kind.startswith(kind)), None)
        name = text(self.definition.get("server_label")) if self.kind == "mcp" else self.name
        pattern = words if words is not None else rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
        return re.search(pattern, declarations) is not None

    def is_called_by(self, item: Json) -> bool:
        """Return True if an item is a call of this tool, under its type, its name and its namespace."""
        if value_at(item, "type") != self.call:
            return False
        if self.kind not in ("function", "custom"):
            return True
        given = text(value_at(item, "namespace"))
        is_same_space = given == self.namespace or {given, self.namespace} == {"", _FUNCTIONS}
        return value_at(item, "name") == self.name and is_same_space

    def is_meant_by(self, item: Json) -> bool:
        """Return True if an item is a call that must be one of this tool, by its name in some spelling."""
        if text(value_at(item, "type")) not in CALL_BY_KIND.values():
            return False
        written = _letters(text(value_at(item, "namespace")) + text(value_at(item, "name"))) or _letters(
            text(value_at(item, "type")).removesuffix("_call")
        )
        names = (self.name, self.namespace + self.name, self.name * 2, _FUNCTIONS + self.name)
        return written in {*map(_letters, names), _letters(_FUNCTIONS + self.namespace + self.name)}


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def offered_tools(x: Exchange) -> tuple[OfferedTool, ...]:
    """Return the tools of a request, those in namespaces one by one, with those that items of the input add."""
    tools = [*_tools(value_at(x.request.json, "tools"), "/tools")]
    for place, entry in enumerate(items(value_at(x.request.json, "input"))):
        if value_at(entry, "type") in ("additional_tools", "tool_search_output"):
            tools += _tools(value_at(entry, "tools"), f"/input/{place}/tools")
    return tuple(tools)


def _tools(value: Json, where: str) -> Iterator[OfferedTool]:
    for place, tool in enumerate(items(value)):
        kind = text(value_at(tool, "type"))
        at, name = f"{where}/{place}", text(value_at(tool, "name"))
        if kind != "namespace":
            yield OfferedTool(kind=kind, name=name or kind, namespace="", where=at, definition=members(tool))
        for index, child in enumerate(items(value_at(tool, "tools")) if kind == "namespace" else ()):
            yield OfferedTool(
                kind=text(value_at(child, "type")),
                name=text(value_at(child, "name")),
                namespace=name,
                where=f"{at}/tools/{index}",
                definition=members(child),
            )


def declarations(x: Exchange) -> str:
    """Return the text of the system and developer messages of the prompt."""
    return "\n".join(one.content for one in x.prompt_messages if one.role in ("system", "developer"))
