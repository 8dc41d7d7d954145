"""Detect calls that reach the client as text: headers without markers, functions called by their Harmony name, the wrapper of parallel calls.

Only declared functions count, and only calls that end the text. Code blocks and quotations are the model's own text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import is_about_harmony, is_in_request
from harmony_conformance.evidence.leaks.by_text import Leak, Strength, excerpt_around
from harmony_conformance.evidence.leaks.markers import remove_code, unescape_markers
from harmony_conformance.json_value import Json, items, strings, text, value_at
from harmony_conformance.redactable_text import Location, RedactableText

WRAPPER = "multi_tool_use.parallel"
"""The name that older models were trained to call for several calls at once. gpt-oss has no such tool."""

_BEGINS = r"(?:^|(?<=[.!?:)\u2026]))[ \t]*"
_HEADER = re.compile(
    rf"{_BEGINS}(?:assistant[ \t]*)?(?:(?:commentary|analysis)[ \t]*)?to=(?P<name>[\w.-]{{1,200}}?)"
    r"(?P<glued>(?:commentary|analysis)?(?:json|code)?)[ \t]*(?P<type>(?:(?:commentary|analysis)[ \t]*)?(?:json|code)?)\s{0,4}(?=\{)",
    re.MULTILINE,
)
_FUNCTION = re.compile(
    r"^[ \t]*(?P<name>functions\.[\w.-]{1,200}|multi_tool_use\.parallel)[ \t]*\(?\s{0,4}(?=\{)", re.MULTILINE
)
_BARE_WRAPPER = re.compile(r"\A\s*(?=\{\s*\"tool_uses\")")
_ASKS_FOR_TEXT = re.compile(
    r"\b(?:show|print|write|display|document|explain|describe|quote|repeat|example|format|syntax|looks? like|literally|raw|prompt)\b"
    r"[^.?!\n]{0,80}\b(?:call(?:s|ed|ing)?|functions?|tools?|invocations?)\b"
    r"|\b(?:call|functions?|tools?|invocations?)\b[^.?!\n]{0,80}\b(?:look like|format|syntax|literally|as (?:plain )?text)\b",
    re.IGNORECASE,
)
_SIGNS = ("to=", "functions.", WRAPPER, '"tool_uses"')


def written_calls(x: Exchange) -> Iterator[Leak]:
    """Yield the calls of declared functions that the content ends with. A header is proof, a function's name alone is suspicious."""
    declared = frozenset(text(value_at(tool, "function", "name")) for tool in x.tools) - {""}
    for field in (field for answer in x.answers for field in answer.fields if declared):
        if field.kind is not FieldKind.CONTENT or not has_sign_of_call(field.text):
            continue
        plain = remove_code(unescape_markers(field.text))
        for pattern in (_HEADER, _FUNCTION, _BARE_WRAPPER):
            call = pattern.search(plain)
            if call is None or not _is_last_call(plain[call.end() :], call.groupdict(), declared):
                continue
            strength = Strength.PROVEN if pattern is _HEADER else Strength.SUSPECTED
            yield Leak(
                where=field.where,
                message=RedactableText("{} contains a call as text", Location(field.where)),
                excerpt=excerpt_around(plain, plain[call.start() : call.end() + 1].strip()),
                strength=Strength.QUOTED if _is_requested(x, call.group().strip() or '"tool_uses"') else strength,
            )
            break


def has_sign_of_call(text: str) -> bool:
    """Return False if a text has no call. This is much faster than the patterns."""
    return any(sign in text for sign in _SIGNS)


def _is_last_call(rest: str, header: Mapping[str, str], declared: frozenset[str]) -> bool:
    """Return True if a text is the arguments of a declared function, and nothing follows but the closing bracket or another call."""
    try:
        arguments, end = json.JSONDecoder().raw_decode(rest)
    except (ValueError, RecursionError):
        return False
    after = rest[end:].lstrip(" \t\r\n)]")
    name, glued = header.get("name", WRAPPER), header.get("glued", "")
    if not (name.startswith("functions.") or name == WRAPPER or glued or header.get("type")):
        return False  # `to=` and a name alone occur in headers of mail and in commands
    is_last = not after or _HEADER.match(after) is not None or _FUNCTION.match(after) is not None
    return is_last and any(_is_declared(one, arguments, declared) for one in (name, name + glued))


def _is_declared(name: str, arguments: Json, declared: frozenset[str]) -> bool:
    used = (
        [name]
        if name != WRAPPER
        else [text(value_at(one, "recipient_name")) for one in items(value_at(arguments, "tool_uses"))]
    )
    return bool(used) and declared.issuperset(one.removeprefix("functions.") for one in used)


def _is_requested(x: Exchange, opening: str) -> bool:
    """Return True if the request contains the text, is about the format, or asks to show a call."""
    user_texts = (
        one
        for message in x.messages
        if value_at(message, "role") == "user"
        for one in strings(value_at(message, "content"))
    )
    return is_about_harmony(x) or is_in_request(x, opening) or any(map(_ASKS_FOR_TEXT.search, user_texts))
