r"""The shell of a record: its text without the leaves. Leaves are the texts, names, times and counts that differ from record to record.

A shell has all of the record but its leaves, character by character. Two records with one shell differ in the leaves alone. In place of a leaf it has
a placeholder, which begins with a character that no valid JSON text has. Texts of white space remain in the shell.

A record may have JSON in a string, such as the text of a stream. There a quotation mark is `\"`. Some events of a stream differ in
a piece of text alone. The shell then has two events: one for all but the last, and the last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from harmony_conformance.json_value import scan_string

LONGEST = 1_000_000
"""The longest record with a shell, in bytes."""
MOST_LEAVES = 200
_MARK = "\x01"
PLACEHOLDER = re.compile(_MARK + r"(t|n|q\\?)([0-9]+);")
r"""A placeholder: `t` for the inside of a string, `q` for the same with the quotation mark before it (`q\` for `\"`), `n` for a number.

The number is the index of the leaf. Equal names, such as ids, are one leaf, and so are equal times.
"""
_BETWEEN = "\x7f"
"""A character between joined pieces, so that no escape consists of two of them."""
_FARTHEST = 2000
"""The most characters between two pieces of a stream."""

_PIECE = re.compile(
    r"""
    "delta(?P<escape>\\?)":[ ]?\{(?P=escape)"(?:
        content|reasoning|reasoning_content
        |tool_calls(?P=escape)":[ ]?\[\{(?P=escape)"index(?P=escape)":[ ]?\d{1,3},[ ]?
            (?P=escape)"function(?P=escape)":[ ]?\{(?P=escape)"arguments
    )(?P=escape)":[ ]?(?P=escape)"
    """,
    re.VERBOSE | re.ASCII,
)
"""The beginning of an event, up to its text. Python searches fast for the letters with which a pattern begins."""
_LEAF = re.compile(
    r"""
    "(?=[acdimprstu])(?:
        (?:content|reasoning|reasoning_content|arguments)(?P<text>\\?)":[ ]?(?P=text)"
        |(?:id|tool_call_id|user|model|provider|time|timestamp|created_at|started)(?P<escape>\\?)":[ ]?(?P=escape)"
            (?P<name>[\w:.+@/\ -]{1,100})(?=(?P=escape)")
        |(?:created|time|timestamp|created_at|started)\\?":[ ]?(?P<time>[1-9]\d{9}(?:\d{3}){0,3})(?=[,}])
        |(?:prompt_tokens|completion_tokens|total_tokens|reasoning_tokens|cached_tokens)\\?":[ ]?(?P<count>[1-9]\d{0,8})(?=[,}])
        |(?:temperature|top_p|seed)\\?":[ ]?(?P<setting>(?:0|[1-9]\d{0,14})(?:\.\d{1,18})?)(?=[,}])
    )""",
    re.VERBOSE | re.ASCII,
)
"""The member whose value is a leaf, up to a text, and with a name or a number."""
_SHARED = frozenset({"name", "time"})
"""Kinds of leaves whose equal values share one index."""
_ID = re.compile(r'"id(?P<escape>\\?)":[ ]?(?P<quote>(?P=escape)")(?P<id>[\w:.+-]{1,100})(?P=escape)"', re.ASCII)
_ESCAPED_STRING = re.compile(r'(?:[^"\\]++|\\\\(?:\\["\\]|[^"\\])|\\u[0-9a-fA-F]{4})*+')
"""The inside of a JSON string within a JSON string."""
_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


class Shell(NamedTuple):
    """A record without its leaves, and the leaves by their indexes: texts, or the digits of numbers."""

    text: str
    leaves: list[str]


class _NoShellError(ValueError):
    """The record is not made as expected."""


def read_shell(record: bytes) -> Shell | None:
    """Return the shell of a record. None if it has a form that is not known to be safe; it need not be JSON at all."""
    if len(record) > LONGEST:
        return None
    leaves: list[str] = []
    try:
        line = record.decode("utf-8")
        if _MARK in line:
            return None
        indexes: dict[str, int] = {}
        shell = _take_leaves(_join_events(line, indexes, leaves), indexes, leaves)
    except ValueError:
        return None
    texts = "".join(leaves)
    return None if not texts.isascii() and _HALF_OF_A_PAIR.search(texts) is not None else Shell(shell, leaves)


def _join_events(line: str, indexes: dict[str, int], leaves: list[str]) -> str:
    """Return the record with the events of its stream joined, and without their texts and their id."""
    parts: list[str] = []
    place, search = 0, _PIECE.search
    while (found := search(line, place)) is not None:
        escape, begin = found["escape"], found.end()
        text, written, end = _joined_text(line, found)
        if text.strip():
            parts += line[place : begin - 1 - len(escape)], f"{_MARK}q{escape}{len(leaves)};"
            leaves.append(text)
        else:
            parts += line[place:begin], written
        place = end
        if len(leaves) > MOST_LEAVES:
            raise _NoShellError
    if not parts:
        return line
    parts.append(line[place:])
    joined = "".join(parts)
    last = _ID.match(joined, max(joined.rfind('"id'), 0))
    if last is None:
        return joined
    index = indexes.setdefault(last["id"], len(leaves))
    if index == len(leaves):
        leaves.append(last["id"])
    placeholder = f"{_MARK}q{last['escape']}{index};"
    begin = last.start("quote") - last.start()
    return joined.replace(last[0], f'{last[0][:begin]}{placeholder}{last["escape"]}"')


def _joined_text(line: str, found: re.Match[str]) -> tuple[str, str, int]:
    """Return the text of an event, how it is written, and the place after it.

    If further events differ in the text alone, the text is that of all events but the last one. The place is then before the last one.
    """
    begin, escape, marker = found.end(), found["escape"], found[0]
    text, end = _string(line, begin, escape)
    following = line.find(marker, end, end + _FARTHEST) if text else -1
    if following < 0:
        return text, line[begin:end], end
    between = line[end:following] + marker
    quote, length = between[: 1 + len(escape)], len(between)
    find, starts, place = line.find, line.startswith, begin
    pieces: list[str] = []
    while True:
        stop = find(quote, place)
        if not starts(between, stop):
            stop = _string(line, place, escape)[1]  # the quotation mark was escaped, or this is the last event
            if not starts(between, stop):
                break
        pieces.append(line[place:stop])
        place = stop + length
    joined = _unescape(_BETWEEN.join(pieces), escape)
    whole = joined.replace(_BETWEEN, "")
    if len(joined) - len(whole) != len(pieces) - 1:
        raise _NoShellError
    return whole, "".join(pieces), place - length


def _take_leaves(line: str, indexes: dict[str, int], leaves: list[str]) -> str:
    """Return the record without its leaves, which are added to those of its stream. `indexes` has those of names and times."""
    parts: list[str] = []
    place, search = 0, _LEAF.search
    while (found := search(line, place)) is not None:
        kind, begin = found.lastgroup, found.end()
        assert kind is not None  # each alternative has a name
        if kind == "text":
            text, end = _string(line, begin, found["text"])
            if text.strip():
                parts += line[place:begin], f"{_MARK}t{len(leaves)};"
                leaves.append(text)
            else:
                parts.append(line[place:end])
        else:
            leaf, end = found[kind], begin
            index = len(leaves)
            if kind in _SHARED:
                index = indexes.setdefault(leaf, index)
            if index == len(leaves):
                leaves.append(leaf)
            parts += line[place : begin - len(leaf)], f"{_MARK}{'t' if kind == 'name' else 'n'}{index};"
        place = end
        if len(leaves) > MOST_LEAVES:
            raise _NoShellError
    parts.append(line[place:])
    return "".join(parts)


def _string(line: str, begin: int, escape: str) -> tuple[str, int]:
    """Return the text of the string whose inside begins at a place, and the place of the quotation mark (with its escape) that ends it."""
    if not escape:
        text, end = scan_string(line, begin)
        return text, end - 1
    found = _ESCAPED_STRING.match(line, begin)
    end = begin if found is None else found.end()
    if not line.startswith('\\"', end):
        raise _NoShellError
    return _unescape(line[begin:end], escape), end


def _unescape(written: str, escape: str) -> str:
    """Return the text that is written as the inside of a JSON string, or of one within a JSON string."""
    for _ in range(2 if escape else 1):
        text, end = scan_string(f'{written}"', 0)
        if end != len(written) + 1:
            raise _NoShellError
        written = text
    return written
