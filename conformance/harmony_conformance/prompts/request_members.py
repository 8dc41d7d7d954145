"""Read the function choice, the limits, the reasoning members and the contents of a chat request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harmony_conformance.json_value import Json, integer, items, members, text, value_at

ALLOWED_TOOLS = "allowed_tools"
"""The type, and a member, of a `tool_choice` that restricts calls to some of the offered functions."""


def has_allowed_tools(request: Json) -> bool:
    """Return True if `tool_choice` lists the allowed functions."""
    return value_at(request, "tool_choice", "type") == ALLOWED_TOOLS


def chosen_functions(request: Json) -> frozenset[str]:
    """Return the functions in `tool_choice`, required or allowed. Empty if every function is allowed.

    Reads the formats of Chat Completions and of Responses, which has the names without the object around them.
    """
    choice = value_at(request, "tool_choice")
    listed = [choice, *items(value_at(choice, ALLOWED_TOOLS, "tools")), *items(value_at(choice, "tools"))]
    names = (text(value_at(one, "function", "name")) or text(value_at(one, "name")) for one in listed)
    return frozenset(filter(None, names))


def can_be_called(request: Json, function: str) -> bool:
    """Return True if `tool_choice` allows the function, whether or not the request offers it."""
    return value_at(request, "tool_choice") != "none" and (
        not has_allowed_tools(request) or function in chosen_functions(request)
    )


def is_offered(request: Json, function: str) -> bool:
    """Return True unless `tool_choice` leaves the function out, by a list of allowed ones or by the name of another one."""
    chosen = chosen_functions(request)
    return value_at(request, "tool_choice") != "none" and (not chosen or function in chosen)


def other_tool_names(request: Json) -> frozenset[str]:
    """Return the names under which a model may call the offered tools that are no functions: custom tools, those in namespaces, shells."""
    names: set[str] = set()
    for tool in items(value_at(request, "tools")):
        kind = text(value_at(tool, "type"))
        name = text(value_at(tool, kind, "name"))
        children = [text(value_at(child, "name")) for child in items(value_at(tool, kind, "tools"))]
        if kind not in ("", "function"):
            names |= {
                name or kind,
                *children,
                *(name + mark + one for one in children for mark in (".", "__", "_", "/", "")),
            }
    return frozenset(names)


def stop_strings(request: Json) -> tuple[str, ...]:
    """Return the stop strings of a request (`stop`, one or a list)."""
    stop = value_at(request, "stop")
    return tuple(string for one in (stop if isinstance(stop, list) else [stop]) if (string := text(one)))


def max_output_tokens(request: Json) -> int | None:
    """Return the largest number of output tokens that a request allows. None for no limit, also if negative (llama.cpp's -1)."""
    newer = integer(value_at(request, "max_completion_tokens"))
    limit = newer if newer is not None else integer(value_at(request, "max_tokens"))
    return None if limit is None or limit < 0 else limit


SEALED_REASONING = "sealed_reasoning"
"""Member of an assistant message whose reasoning is sent back without its text: encrypted, or by its signature."""
REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")

INSTRUCTING = frozenset({"system", "developer"})
"""The roles of instructions."""


def has_instructions_after_answer(messages: Sequence[Json]) -> bool:
    """Return True if instructions follow an answer of the assistant. Anthropic's API refuses such requests."""
    roles = [text(value_at(message, "role")) for message in messages]
    return any(one == "assistant" and other in INSTRUCTING for one, other in pairwise(roles))


_READ_ENCRYPTED = frozenset({"ollama"})
"""Engines whose reasoning items have only `summary` and `encrypted_content`, and that read the second. A server may ignore other names."""


def without_unread_reasoning(request: Json, api: str, engine: str) -> Json:
    """Return the request without reasoning items under a name that the engine does not use itself."""
    if api != "responses" or engine not in _READ_ENCRYPTED or not isinstance(value_at(request, "input"), list):
        return request
    kept = [
        item
        for item in items(value_at(request, "input"))
        if value_at(item, "type") != "reasoning" or value_at(item, "encrypted_content")
    ]
    return {**members(request), "input": kept}


"""The members of chat messages that may have the chain of thought, in the order of preference."""


def content_text(value: Json) -> str | None:
    """Return the text of a `content` member, text parts joined. None if it is neither a text nor a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text(value_at(part, "text")) for part in value)
    return None
