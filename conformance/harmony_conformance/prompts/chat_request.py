"""Which functions a Chat Completions request lets the model call: what its `tool_choice` names, or allows."""

from __future__ import annotations

from harmony_conformance.json_value import Json, at, items, text

ALLOWED = "allowed_tools"
"""The member, and the type, of a `tool_choice` that lists the functions that may be called, of all that are offered."""


def allows_some(request: Json) -> bool:
    """Whether a request lists the functions that may be called."""
    return at(request, "tool_choice", "type") == ALLOWED


def named(request: Json) -> frozenset[str]:
    """The functions that `tool_choice` names: the one to call, or those that are allowed; none where any will do.

    Responses writes both without the object around them.
    """
    choice = at(request, "tool_choice")
    listed = [choice, *items(at(choice, ALLOWED, "tools")), *items(at(choice, "tools"))]
    return frozenset(name for one in listed if (name := text(at(one, "function", "name")) or text(at(one, "name"))))


def may_be_called(request: Json, function: str) -> bool:
    """Whether `tool_choice` leaves a function to the model; one that the request does not offer is another matter."""
    return at(request, "tool_choice") != "none" and (not allows_some(request) or function in named(request))


REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")
"""The names under which chat messages carry the chain of thought, in the order they are looked for."""


def content_text(value: Json) -> str | None:
    """The text of a `content` member: a string, or the text parts of a list joined; None where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text(at(part, "text")) for part in value)
    return None
