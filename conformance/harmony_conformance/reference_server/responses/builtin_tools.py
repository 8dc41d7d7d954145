"""Built-in tools: conversion between the types of the API and the namespaces and calls of Harmony.

`web_search` is the browser of gpt-oss, `code_interpreter` its Python (Harmony guide, built-in tools). This server
executes no tool: the turn ends with the call, and the client may send the result.
"""

import re
from collections.abc import Mapping
from typing import Final

from harmony_conformance.json_value import InvalidJsonError, JsonObject, dumps, loads, text
from harmony_ref import ToolNamespaceConfig

PYTHON: Final = "python"

NAMESPACES: Final[Mapping[str, ToolNamespaceConfig]] = {
    "web_search": ToolNamespaceConfig.browser(),
    "web_search_preview": ToolNamespaceConfig.browser(),
    "code_interpreter": ToolNamespaceConfig.python(),
}
"""Harmony namespace of each tool type."""

_ACTIONS = {"browser.search": "search", "browser.open": "open_page", "browser.find": "find_in_page"}
RECIPIENTS: Final = {action: recipient for recipient, action in _ACTIONS.items()}
"""Recipient of each action of a `web_search_call`."""


_DATE = re.compile(r"_20\d{2}_\d{2}_\d{2}$")


def built_in_type(kind: str) -> str | None:
    """Return the type of a built-in tool without its date (`web_search_2025_08_26`); None for any other type."""
    undated = _DATE.sub("", kind)
    return undated if undated in NAMESPACES else None


def namespace_of(recipient: str) -> str:
    """Return the first part of a recipient."""
    return recipient.partition(".")[0]


def browsing_action(recipient: str, content: str) -> JsonObject:
    """Return the action of a `web_search_call`; it contains all arguments of the model."""
    kind = _ACTIONS.get(recipient, "search")
    arguments = _arguments(content)
    if arguments is None:
        return {"type": "search", "query": content}
    required: dict[str, JsonObject] = {
        "search": {"query": ""},
        "open_page": {"url": text(arguments.get("id"))},
        "find_in_page": {"url": "", "pattern": ""},
    }
    return {"type": kind, **required[kind], **arguments}


def browsing_arguments(action: JsonObject) -> str:
    """Return the model's arguments from an action that `browsing_action` built."""
    hidden = {"type"} if action.get("type") == "search" else {"type", "url"}
    arguments: JsonObject = {name: value for name, value in action.items() if name not in hidden}
    if action.get("type") == "open_page" and action.get("url") and "id" not in arguments:
        arguments = {"id": action["url"], **arguments}
    return dumps(arguments)


def _arguments(content: str) -> "JsonObject | None":
    try:
        value = loads(content)
    except InvalidJsonError:
        return None
    return value if isinstance(value, dict) and "type" not in value else None
