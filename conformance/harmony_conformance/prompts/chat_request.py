"""Read the function choice, the reasoning members and the contents of a chat request."""

from __future__ import annotations

from harmony_conformance.json_value import Json, at, items, text

ALLOWED = "allowed_tools"
"""The type, and a member, of a `tool_choice` that restricts calls to some of the offered functions."""


def allows_some(request: Json) -> bool:
    """Return True if `tool_choice` lists the allowed functions."""
    return at(request, "tool_choice", "type") == ALLOWED


def named(request: Json) -> frozenset[str]:
    """Return the functions in `tool_choice`, required or allowed. Empty if every function is allowed.

    Reads the formats of Chat Completions and of Responses, which has the names without the object around them.
    """
    choice = at(request, "tool_choice")
    listed = [choice, *items(at(choice, ALLOWED, "tools")), *items(at(choice, "tools"))]
    return frozenset(name for one in listed if (name := text(at(one, "function", "name")) or text(at(one, "name"))))


def may_be_called(request: Json, function: str) -> bool:
    """Return True if `tool_choice` allows the function, whether or not the request offers it."""
    return at(request, "tool_choice") != "none" and (not allows_some(request) or function in named(request))


REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")
"""The members of chat messages that may have the chain of thought, in the order of preference."""


def content_text(value: Json) -> str | None:
    """Return the text of a `content` member, text parts joined. None if it is neither a text nor a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text(at(part, "text")) for part in value)
    return None
