"""The functions of a prompt as it declares them: `namespace functions { … type NAME = (_: {…}) => any; … }`, read without judging the TypeScript."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harmony_conformance.json_value import Json, at, dumps, items, loads, text
from harmony_conformance.prompts.prompt_parser import PromptMessage
from harmony_conformance.runtime.caching import bounded_cache
from harmony_ref import HarmonyError, ToolDescription, ToolNamespaceConfig, tools_text

_NAMESPACE = "namespace functions {"
_DECLARED = re.compile(r"^[ \t]*type (?P<name>.+?) = ", re.MULTILINE)
_END = "=> any;"
_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_$]")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One declared function: what stands above it, and its type."""

    name: str
    comment: str
    type: str

    def has_parameter(self, name: str) -> bool:
        """Whether its type has a member of this name."""
        return re.search(rf"(?<![\w.$-]){re.escape(name)}[\"']?\??\s*:", self.type) is not None


def declarations(messages: Iterable[PromptMessage]) -> Mapping[str, Declaration]:
    """The functions that the system and developer messages declare, by name."""
    return declarations_in(
        "\n".join(message.content for message in messages if message.role in ("developer", "system"))
    )


def official_spelling(tools: Sequence[Json]) -> str:
    """The section `# Tools` as the official library writes it; empty where it cannot write these tools, or there are none."""
    try:
        told = dumps(list(tools))
    except RecursionError:
        return _official_spelling(tools)
    # as "Infinity" a number is written that is beyond all measure
    return _official_spelling(tools) if "Infinity" in told else _official_spelling_of(told)


@bounded_cache(most=256, longest=4096)
def _official_spelling_of(told: str) -> str:
    return _official_spelling(items(loads(told)))


def _official_spelling(tools: Sequence[Json]) -> str:
    functions = tuple(
        ToolDescription(
            name=text(at(tool, "function", "name")),
            description=text(at(tool, "function", "description")),
            parameters=at(tool, "function", "parameters"),
        )
        for tool in tools
        if text(at(tool, "function", "name"))
    )
    try:
        return tools_text({"functions": ToolNamespaceConfig(name="functions", tools=functions)}) if functions else ""
    except HarmonyError:
        return ""


@bounded_cache(most=256, longest=4096)
def declarations_in(held: str) -> Mapping[str, Declaration]:
    """The functions that a text declares, by name."""
    _, _, declared = held.partition(_NAMESPACE)
    found: dict[str, Declaration] = {}
    position = 0
    while (match := _DECLARED.search(declared, position)) is not None:
        end = declared.find(_END, match.end())
        stop = len(declared) if end < 0 else end
        found[match["name"]] = Declaration(
            name=match["name"],
            comment=declared[position : match.start()],
            type=declared[match.end() : stop],
        )
        position = stop + len(_END)
    return MappingProxyType(found)


def declares_functions(held: str) -> bool:
    """Whether a text opens the namespace of functions."""
    return _NAMESPACE in held


def tells(held: str, line: str) -> bool:
    """Whether a text holds a line of a description, and not only as a part of longer words."""
    return re.search(rf"(?<!\w){re.escape(line)}(?!\w)", held) is not None


def as_identifier(name: str) -> str:
    """The name as a TypeScript identifier, as servers write it that allow no other in a declaration."""
    return _NOT_IN_IDENTIFIERS.sub("_", name)


def is_same_function(declared: str | None, shown: str | None) -> bool:
    """Whether a name in a prompt stands for a declared one: the same, or its identifier."""
    return declared == shown or (declared is not None and shown is not None and as_identifier(declared) == shown)
