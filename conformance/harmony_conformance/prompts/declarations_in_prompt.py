"""Read the function declarations of a prompt: `namespace functions { … type NAME = (_: {…}) => any; … }`. The TypeScript is not validated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harmony_conformance.json_value import Json, dumps, items, loads, text, value_at
from harmony_conformance.prompts.expected_parts import PromptMessage
from harmony_conformance.runtime.caching import bounded_cache
from harmony_ref import HarmonyError, ToolDescription, ToolNamespaceConfig, tools_text

_NAMESPACE = "namespace functions {"
_DECLARED = re.compile(r"^[ \t]*type (?P<name>.+?) = ", re.MULTILINE)
_END = "=> any;"
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_$]")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A declared function: its name, the comment before it, and the text of its type."""

    name: str
    comment: str
    type: str

    def has_parameter(self, name: str) -> bool:
        """Return True if its type has a member of this name."""
        return re.search(rf"(?<![\w.$-]){re.escape(name)}[\"']?\??\s*:", self.type) is not None


def declared_functions(messages: Iterable[PromptMessage]) -> Mapping[str, Declaration]:
    """Return the functions that system and developer messages declare, by name."""
    return parse_declarations("\n".join(one.content for one in messages if one.role in ("developer", "system")))


def official_tools_text(tools: Sequence[Json]) -> str:
    """Return the section `# Tools` as the official library renders it. Empty without tools, or if it cannot render them."""
    try:
        key = dumps(list(tools))
    except RecursionError:
        return _official_spelling(tools)
    # too large a number becomes `Infinity`, which is not JSON
    return _official_spelling(tools) if "Infinity" in key else _cached_spelling(key)


@bounded_cache(max_length=4096)
def _cached_spelling(key: str) -> str:
    return _official_spelling(items(loads(key)))


def _official_spelling(tools: Sequence[Json]) -> str:
    functions = tuple(
        ToolDescription(
            name=text(value_at(tool, "function", "name")),
            description=text(value_at(tool, "function", "description")),
            parameters=value_at(tool, "function", "parameters"),
        )
        for tool in tools
        if text(value_at(tool, "function", "name"))
    )
    try:
        return tools_text({"functions": ToolNamespaceConfig(name="functions", tools=functions)}) if functions else ""
    except HarmonyError:
        return ""


@bounded_cache(max_length=4096)
def parse_declarations(content: str) -> Mapping[str, Declaration]:
    """Return the functions that a text declares, by name."""
    _, _, declared = content.partition(_NAMESPACE)
    by_name: dict[str, Declaration] = {}
    position = 0
    while (match := _DECLARED.search(declared, position)) is not None:
        end = declared.find(_END, match.end())
        stop = len(declared) if end < 0 else end
        name, comment = match["name"], declared[position : match.start()]
        by_name[name] = Declaration(name=name, comment=comment, type=declared[match.end() : stop])
        position = stop + len(_END)
    return MappingProxyType(by_name)


def declares_functions(content: str) -> bool:
    """Return True if a text opens the namespace of functions."""
    return _NAMESPACE in content


def has_line(content: str, line: str) -> bool:
    """Return True if a text contains a line of a description at word boundaries."""
    return re.search(rf"(?<!\w){re.escape(line)}(?!\w)", content) is not None


def as_identifier(name: str) -> str:
    """Return a function's name as a TypeScript identifier, which some servers require in declarations."""
    return _NOT_IN_IDENTIFIERS.sub("_", name)


def is_same_function(declared: str | None, shown: str | None) -> bool:
    """Return True if a name in a prompt equals the declared name or its identifier."""
    return declared == shown or (declared is not None and shown is not None and as_identifier(declared) == shown)
