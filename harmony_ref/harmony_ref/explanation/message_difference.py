"""The differences between a message and the one expected, in words: fields of its header, its content, its end.

The texts of system and developer messages are taken apart into what they declare, so that a difference has a name.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.nearest_rendering import shared_length
from harmony_ref.explanation.prompt_reader import PromptMessage, RecipientPosition, quoted
from harmony_ref.messages.header import CONSTRAIN_MARKER
from harmony_ref.messages.message_types import Role

_AROUND: Final = 30
FREE_LINES: Final = MappingProxyType(
    {
        "Knowledge cutoff:": Part.CUTOFF,
        "Current date:": Part.DATE,
        "# Valid channels:": Part.CHANNELS,
        "Calls to these tools must go to": Part.FUNCTIONS_NOTE,
    }
)
"""Beginnings of the lines of a system message that no request asks for."""
EFFORT_LINE: Final = MappingProxyType({"Reasoning:": Part.EFFORT})
"""Beginning of the line with the reasoning effort."""
_LINES: Final = FREE_LINES | EFFORT_LINE
_HEADINGS: Final = {
    "# Instructions": Part.INSTRUCTIONS,
    "# Tools": Part.TOOLS,
    "# Response Formats": Part.RESPONSE_FORMATS,
}
_FUNCTION: Final = re.compile(r"^type (\S+) = ", re.MULTILINE)
_PLURAL: Final = frozenset({Part.TOOLS, Part.INSTRUCTIONS, Part.CHANNELS, Part.RESPONSE_FORMATS})
_LINE_PARTS: Final = frozenset({Part.IDENTITY, *_LINES.values()})
_ROLES: Final = frozenset(role.value for role in Role)


def difference_of_messages(expected: PromptMessage, actual: PromptMessage) -> Difference:
    """The first difference between a message of the prompt and the one expected, which is whole."""
    if actual.content_ids is None:
        return Difference(Part.HEADER, Problem.MISSING, f"the message marker is missing after {quoted(actual.header)}")
    if expected.header_ids != actual.header_ids:
        words = f"the header is spelled otherwise: {quoted(actual.header)} for {quoted(expected.header)}"
        spelling = Difference(Part.HEADER, Problem.OTHER_SPELLING, words)
        return next(header_differences(expected, actual), spelling)
    if expected.content_ids != actual.content_ids:
        return difference_of_contents(expected.content, actual.content, expected.role)
    if actual.end is None:
        return Difference(Part.END, Problem.MISSING, f"the end marker {expected.end_name} is missing")
    words = f"the message ends in {actual.end_name} where {expected.end_name} was expected"
    return Difference(Part.END, Problem.DIFFERENT, words)


def header_differences(expected: PromptMessage, actual: PromptMessage) -> Iterator[Difference]:
    """The fields in which two headers differ: author, recipient, its place, channel, content type."""
    # A tool has its name for an author; any other author is a role, and perhaps a name behind a colon.
    roles = {author.partition(":")[0] for author in (expected.author, actual.author)}
    author = Part.ROLE if len(roles) > 1 and roles & _ROLES else Part.NAME
    yield from _difference_of_fields(author, expected.author, actual.author)
    yield from _difference_of_fields(Part.RECIPIENT, expected.recipient, actual.recipient)
    if expected.recipient_position is not actual.recipient_position and RecipientPosition.NONE not in (
        expected.recipient_position,
        actual.recipient_position,
    ):
        words = f"the {actual.recipient_position.replace('recipient', 'recipient stands')}"
        yield Difference(Part.RECIPIENT, Problem.MISPLACED, words)
    yield from _difference_of_fields(Part.CHANNEL, expected.channel, actual.channel)
    yield from _difference_of_fields(Part.CONTENT_TYPE, expected.content_type, actual.content_type)


def _difference_of_fields(part: Part, expected: str | None, actual: str | None) -> Iterator[Difference]:
    wanted, found = (field and field.replace("⟦constrain⟧", CONSTRAIN_MARKER) for field in (expected, actual))
    if found == wanted:
        return
    if found is None:
        yield Difference(part, Problem.MISSING, f"the {part} is missing, {wanted!r} was expected")
    elif wanted is None:
        yield Difference(part, Problem.EXTRA, f"the {part} is {found!r} where none was expected")
    else:
        yield Difference(part, Problem.DIFFERENT, f"the {part} is {found!r} where {wanted!r} was expected")


def difference_of_contents(expected: str, actual: str, role: str) -> Difference:
    """The first difference between the contents of two messages of a role."""
    read = _READERS.get(role)
    if read is None:
        return _difference(expected, actual)
    wanted, found = dict(read(expected)), dict(read(actual))
    for part in dict.fromkeys((*wanted, *found)):
        if wanted.get(part) != found.get(part):
            return _difference_of_part(part, wanted.get(part), found.get(part))
    if expected != actual and expected.split() == actual.split():
        return Difference(Part.SECTIONS, Problem.DIFFERENT, f"blank lines differ: {_excerpts(expected, actual)}")
    if list(wanted) == list(found):
        return _difference(expected, actual)
    words = f"the sections stand in another order: {', '.join(found)} for {', '.join(wanted)}"
    return Difference(Part.SECTIONS, Problem.MOVED, words)


def _difference(expected: str, actual: str) -> Difference:
    at = shared_length(expected, actual)
    ways = (
        (expected == actual, Problem.OTHER_TOKENS, "content has the same text in other tokens"),
        (
            actual.startswith('"') and _canonical(actual) == json.dumps(expected),
            Problem.QUOTED_TWICE,
            "content is quoted once more, as a JSON string",
        ),
        (_is_same_json(expected, actual), Problem.OTHER_SPELLING, "content is the same JSON, spelled otherwise"),
        (expected != "" and not actual, Problem.MISSING, f"content is missing: {_excerpt(expected, 0)}"),
        (
            expected.strip() == actual.strip(),
            Problem.DIFFERENT,
            f"white space around the content differs: {_ends(actual)} for {_ends(expected)}",
        ),
        (at == len(actual), Problem.CUT, f"content ends early, before {_excerpt(expected[at:], 0)}"),
        (at == len(expected), Problem.LONGER, f"content goes on where it should end: {_excerpt(actual[at:], 0)}"),
    )
    differs = (Problem.DIFFERENT, f"content differs from character {at} on: {_excerpts(expected, actual)}")
    problem, words = next(((problem, words) for holds, problem, words in ways if holds), differs)
    return Difference(Part.CONTENT, problem, f"the {words}")


def _difference_of_part(part: Part, expected: str | None, actual: str | None) -> Difference:
    are, differ = ("are", "differ") if part in _PLURAL else ("is", "differs")
    if actual is None:
        return Difference(part, Problem.MISSING, f"the {part} {are} missing: {_excerpt(expected or '', 0)}")
    if expected is None:
        words = f"the {part} {are} there without being asked for: {_excerpt(actual, 0)}"
        return Difference(part, Problem.EXTRA, words)
    if part in _LINE_PARTS:
        words = f"the {part} {are} {actual!r} where {expected!r} was expected"
    else:
        function = _function_around(expected, actual) if part is Part.TOOLS else ""
        words = f"the {part} {differ}{function}: {_excerpts(expected, actual)}"
    return Difference(part, Problem.DIFFERENT, words)


def _excerpt(text: str, at: int) -> str:
    begin = max(0, at - _AROUND)
    before, after = "…" if begin else "", "…" if at + _AROUND < len(text) else ""
    return f"{before}{text[begin : at + _AROUND]!r}{after}"


def _excerpts(expected: str, actual: str) -> str:
    at = shared_length(expected, actual)
    return f"{_excerpt(actual, at)} for {_excerpt(expected, at)}"


def _is_same_json(expected: str, actual: str) -> bool:
    known = _canonical(expected) if expected.lstrip()[:1] in ("{", "[") else None
    return known is not None and known == _canonical(actual)


def _canonical(text: str) -> str | None:
    """JSON with sorted keys, as text because 1, 1.0 and true are equal in Python; None when it is no JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _ends(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        return repr(text)
    before, _, after = text.partition(stripped)
    return f"{before!r} and {after!r}"


def _function_around(expected: str, actual: str) -> str:
    """The function that the first difference of two tools sections is in."""
    blocks = zip(expected.split("\n\n"), actual.split("\n\n"), strict=False)
    block, other = next(((one, two) for one, two in blocks if one != two), ("", ""))
    named = _FUNCTION.search(block) or _FUNCTION.search(other)
    return f" in the function {named[1]}" if named else ""


def _system_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, taken = Part.IDENTITY, list[str]()
    for line in text.split("\n"):
        begun = next((found for begin, found in _LINES.items() if line.startswith(begin)), None)
        begun = Part.TOOLS if line == "# Tools" and part is not Part.TOOLS else begun
        if begun is None or (begun is not Part.CHANNELS and part is Part.TOOLS):
            taken.append(line)
            continue
        yield part, "\n".join(taken).strip("\n")
        part, taken = begun, [line]
    yield part, "\n".join(taken).strip("\n")


def _developer_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, taken = Part.CONTENT, list[str]()
    for line in [*text.split("\n"), None]:
        if line is not None and line not in _HEADINGS:
            taken.append(line)
            continue
        if any(taken):
            yield part, "\n".join(taken).strip("\n")
        if line is not None:
            part, taken = _HEADINGS[line], [line]


_READERS: Final[Mapping[str, Callable[[str], Iterator[tuple[Part, str]]]]] = MappingProxyType(
    {"system": _system_parts, "developer": _developer_parts}
)
