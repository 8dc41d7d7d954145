"""The built-in tools: how they are asked for, shown to the model, and told to the client.

`web_search` is the browser of gpt-oss, `code_interpreter` its Python (Harmony guide, built-in tools). Nothing is
browsed or run here: the turn ends with the call, and the client may hand in what came of it.
"""

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
"""The namespace that each type of tool is to the model."""

_ACTIONS = {"browser.search": "search", "browser.open": "open_page", "browser.find": "find_in_page"}
RECIPIENTS: Final = {action: recipient for recipient, action in _ACTIONS.items()}
"""The recipient of each action of a `web_search_call`."""


def namespace_of(recipient: str) -> str:
    """The first part of a recipient."""
    return recipient.partition(".")[0]


def browsing_action(recipient: str, content: str) -> JsonObject:
    """What the browser is asked to do, as a `web_search_call` tells it: all that the model wrote stands in it."""
    kind = _ACTIONS.get(recipient, "search")
    arguments = _arguments(content)
    if arguments is None:
        return {"type": "search", "query": content}
    needed: dict[str, JsonObject] = {
        "search": {"query": ""},
        "open_page": {"url": text(arguments.get("id"))},
        "find_in_page": {"url": "", "pattern": ""},
    }
    return {"type": kind, **needed[kind], **arguments}


def browsing_arguments(action: JsonObject) -> str:
    """What the model wrote, from the action that told it."""
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
