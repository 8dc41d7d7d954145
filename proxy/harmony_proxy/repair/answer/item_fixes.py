"""Fixes of calls of tools that are no functions: items of Responses (a patch, a command, an MCP tool) and blocks of Messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harmony_conformance.json_value import Json, items, members, text, value_at
from harmony_proxy.repair.answer.fixes import TRAILING_MARKERS, FailingAnswer, clean_name
from harmony_proxy.repair.text.leak_prefixes import MARKER

_LISTS = {"output": "output", "blocks": "content"}
"""The member of an answer that has the items or blocks of a location."""
_IDS = frozenset({"id", "call_id"})
_PLACE = re.compile(r"(output|blocks)/\d+/.+")


def clean_items(answer: FailingAnswer) -> Json:
    """Remove header residue from the names of these tools, and the markers after what the model wrote for them."""
    value = answer.value
    for place in filter(_PLACE.fullmatch, sorted(answer.places(0))):
        first, *rest = place.split("/")
        value = _changed(value, [_LISTS[first], *rest], answer)
    return value if value != answer.value else None


def _changed(value: Json, path: Sequence[str], answer: FailingAnswer, member: str = "") -> Json:
    """Return a value whose text at this path is cleaned."""
    if not path:
        return _cleaned(value, member, answer) if isinstance(value, str) else value
    name, *rest = path
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        place = int(name)
        return [*value[:place], _changed(value[place], rest, answer, member), *value[place + 1 :]]
    if isinstance(value, dict) and name in value:
        return {**value, name: _changed(value[name], rest, answer, name)}
    return value


def _cleaned(shown: str, member: str, answer: FailingAnswer) -> str:
    if member == "name":
        return clean_name(shown, frozenset(_tool_names(answer))) or shown
    return (MARKER if member in _IDS else TRAILING_MARKERS).sub("", shown) or shown


def _tool_names(answer: FailingAnswer) -> Iterator[str]:
    """Yield the names of all tools that the request declares, or that an MCP server lists in the request or the answer."""
    request = answer.x.request.json
    listed = (*items(value_at(request, "input")), *items(value_at(answer.value, "output")))
    lists = [value_at(item, "tools") for item in listed if value_at(item, "type") == "mcp_list_tools"]
    for tool in (one for tools in (value_at(request, "tools"), *lists) for one in items(tools)):
        yield text(members(tool).get("name"))
        yield from (text(value_at(one, "name")) for one in items(value_at(tool, "tools")))
