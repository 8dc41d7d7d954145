"""Describe the differences between a message and the expected one: fields of its header, its content, its end.

The texts of system and developer messages are split into their declarations, so that a difference has a name.
"""

import json
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.nearest_rendering import shared_length
from harmony_ref.explanation.prompt_reader import PromptMessage, RecipientPosition, quote_shortened
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
"""First words of the lines of a system message that do not come from a request."""
EFFORT_LINE: Final = MappingProxyType({"Reasoning:": Part.EFFORT})
"""First word of the line with the reasoning effort."""
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
    """Return the first difference between a message of the prompt and the expected one, which has all its parts."""
    if actual.content_ids is None:
        words = f"the message marker is missing after {quote_shortened(actual.header)}"
        return Difference(Part.HEADER, Problem.MISSING, words)
    if expected.header_ids != actual.header_ids:
        words = f"the header has another spelling: {quote_shortened(actual.header)} instead of {quote_shortened(expected.header)}"
        return next(header_differences(expected, actual), Difference(Part.HEADER, Problem.OTHER_SPELLING, words))
    if expected.content_ids != actual.content_ids:
        return difference_of_contents(expected.content, actual.content, expected.role)
    if actual.end is None:
        return Difference(Part.END, Problem.MISSING, f"the end marker {expected.end_name} is missing")
    words = f"the message ends in {actual.end_name} where {expected.end_name} was expected"
    return Difference(Part.END, Problem.DIFFERENT, words)


def header_differences(expected: PromptMessage, actual: PromptMessage) -> Iterator[Difference]:
    """Yield the fields in which two headers differ: author, recipient, its position, channel, content type."""
    # The author of a result is the tool's name. Any other author is a role, optionally with a colon and a name.
    roles = {author.partition(":")[0] for author in (expected.author, actual.author)}
    author = Part.ROLE if len(roles) > 1 and roles & _ROLES else Part.NAME
    yield from _difference_of_fields(author, expected.author, actual.author)
    yield from _difference_of_fields(Part.RECIPIENT, expected.recipient, actual.recipient)
    positions = {expected.recipient_position, actual.recipient_position}
    if len(positions) > 1 and RecipientPosition.NONE not in positions:
        words = f"the {actual.recipient_position.replace('recipient', 'recipient is')}"
        yield Difference(Part.RECIPIENT, Problem.MISPLACED, words)
    yield from _difference_of_fields(Part.CHANNEL, expected.channel, actual.channel)
    yield from _difference_of_fields(Part.CONTENT_TYPE, expected.content_type, actual.content_type)


def _difference_of_fields(part: Part, expected: str | None, actual: str | None) -> Iterator[Difference]:
    expected, actual = (field and field.replace("⟦constrain⟧", CONSTRAIN_MARKER) for field in (expected, actual))
    if actual == expected:
        return
    if actual is None:
        yield Difference(part, Problem.MISSING, f"the {part} is missing, {expected!r} was expected")
    elif expected is None:
        yield Difference(part, Problem.EXTRA, f"the {part} is {actual!r} where none was expected")
    else:
        yield Difference(part, Problem.DIFFERENT, f"the {part} is {actual!r} where {expected!r} was expected")


def difference_of_contents(expected: str, actual: str, role: str) -> Difference:
    """Return the first difference between the contents of two messages of a role."""
    split = {"system": _system_parts, "developer": _developer_parts}.get(role)
    if split is None:
        return _difference(expected, actual)
    wanted, present = dict(split(expected)), dict(split(actual))
    for part in dict.fromkeys((*wanted, *present)):
        if wanted.get(part) != present.get(part):
            return _difference_of_part(part, wanted.get(part), present.get(part))
    if expected != actual and expected.split() == actual.split():
        return Difference(Part.SECTIONS, Problem.DIFFERENT, f"blank lines differ: {_excerpts(expected, actual)}")
    if list(wanted) == list(present):
        return _difference(expected, actual)
    words = f"the sections are in another order: {', '.join(present)} instead of {', '.join(wanted)}"
    return Difference(Part.SECTIONS, Problem.MOVED, words)


def _difference(expected: str, actual: str) -> Difference:
    at = shared_length(expected, actual)
    descriptions = (
        (expected == actual, Problem.OTHER_TOKENS, "content has the same text in other tokens"),
        (
            actual.startswith('"') and _canonical(actual) == json.dumps(expected),
            Problem.QUOTED,
            "content is quoted as a JSON string",
        ),
        (_is_same_json(expected, actual), Problem.OTHER_SPELLING, "content is the same JSON in another spelling"),
        (expected != "" and not actual, Problem.MISSING, f"content is missing: {_excerpt(expected, 0)}"),
        (
            expected.strip() == actual.strip(),
            Problem.DIFFERENT,
            f"white space around the content differs: {_ends(actual)} instead of {_ends(expected)}",
        ),
        (at == len(actual), Problem.CUT, f"content ends early, before {_excerpt(expected[at:], 0)}"),
        (at == len(expected), Problem.LONGER, f"content continues after its expected end: {_excerpt(actual[at:], 0)}"),
        (True, Problem.DIFFERENT, f"content differs from character {at} on: {_excerpts(expected, actual)}"),
    )
    problem, words = next((problem, words) for applies, problem, words in descriptions if applies)
    return Difference(Part.CONTENT, problem, f"the {words}")


def _difference_of_part(part: Part, expected: str | None, actual: str | None) -> Difference:
    are, differ = ("are", "differ") if part in _PLURAL else ("is", "differs")
    if actual is None:
        return Difference(part, Problem.MISSING, f"the {part} {are} missing: {_excerpt(expected or '', 0)}")
    if expected is None:
        return Difference(part, Problem.EXTRA, f"the {part} {are} not requested: {_excerpt(actual, 0)}")
    if part in _LINE_PARTS:
        words = f"the {part} {are} {actual!r} where {expected!r} was expected"
    else:
        function = _name_differing_function(expected, actual) if part is Part.TOOLS else ""
        words = f"the {part} {differ}{function}: {_excerpts(expected, actual)}"
    return Difference(part, Problem.DIFFERENT, words)


def _excerpt(text: str, at: int) -> str:
    begin = max(0, at - _AROUND)
    before, after = "…" if begin else "", "…" if at + _AROUND < len(text) else ""
    return f"{before}{text[begin : at + _AROUND]!r}{after}"


def _excerpts(expected: str, actual: str) -> str:
    at = shared_length(expected, actual)
    return f"{_excerpt(actual, at)} instead of {_excerpt(expected, at)}"


def _is_same_json(expected: str, actual: str) -> bool:
    canonical = _canonical(expected) if expected.lstrip()[:1] in ("{", "[") else None
    return canonical is not None and canonical == _canonical(actual)


def _canonical(text: str) -> str | None:
    """Return the JSON with sorted keys, as text since 1, 1.0 and true are equal in Python; None for invalid JSON."""
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


def _name_differing_function(expected: str, actual: str) -> str:
    blocks = zip(expected.split("\n\n"), actual.split("\n\n"), strict=False)
    block, other = next(((one, two) for one, two in blocks if one != two), ("", ""))
    match = _FUNCTION.search(block) or _FUNCTION.search(other)
    return f" in the function {match[1]}" if match else ""


def _system_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, lines = Part.IDENTITY, list[str]()
    for line in text.split("\n"):
        next_part = next((named for begin, named in _LINES.items() if line.startswith(begin)), None)
        next_part = Part.TOOLS if line == "# Tools" and part is not Part.TOOLS else next_part
        if next_part is None or (next_part is not Part.CHANNELS and part is Part.TOOLS):
            lines.append(line)
            continue
        yield part, "\n".join(lines).strip("\n")
        part, lines = next_part, [line]
    yield part, "\n".join(lines).strip("\n")


def _developer_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, lines = Part.CONTENT, list[str]()
    for line in [*text.split("\n"), None]:
        if line is not None and line not in _HEADINGS:
            lines.append(line)
            continue
        if any(lines):
            yield part, "\n".join(lines).strip("\n")
        if line is not None:
            part, lines = _HEADINGS[line], [line]
