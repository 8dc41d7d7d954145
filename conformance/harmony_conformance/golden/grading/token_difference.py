"""The first differing token of two prompts: its place in words, the text around it, and its traits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harmony_conformance.json_value import dumps
from harmony_ref import Role, tokens
from harmony_ref.lenient.token_text import text_of_tokens

_BEFORE: Final = 12  # tokens shown before the difference
_AFTER: Final = 16  # tokens shown from the difference on
_MARKER_TOKENS: Final = 12  # more than a spelled marker has
_HEADING: Final = re.compile(r"^#+ .*$", re.MULTILINE)
_INJECTION: Final = "text of a message becomes a special token: prompt injection"
_SPELLED: Final = "a special token is spelled in ordinary tokens"
_WITH_HEADINGS: Final = ("system", "developer")
_ROLES: Final = frozenset(role.value for role in Role)


@dataclass(frozen=True, kw_only=True)
class FirstTokens:
    """The first differing tokens of two lists.

    Attributes:
        index: Their index.
        place: The part of the prompt, in words.
        traits: Sentences that may name the cause, the most specific first.
    """

    index: int
    place: str
    before: str
    expected: str
    actual: str
    traits: Sequence[str]


def first_tokens(expected: Sequence[int], actual: Sequence[int]) -> FirstTokens:
    """Return the first differing tokens of two different lists."""
    pairs = enumerate(zip(expected, actual, strict=False))
    at = next((index for index, (one, other) in pairs if one != other), min(len(expected), len(actual)))
    place = _place(expected[:at])
    return FirstTokens(
        index=at,
        place=place,
        before=_shown(expected[max(0, at - _BEFORE) : at], cut_before=at > _BEFORE),
        expected=_shown_rest(expected[at:]),
        actual=_shown_rest(actual[at:]),
        traits=_traits(expected, actual, at, place),
    )


def _traits(expected: Sequence[int], actual: Sequence[int], at: int, place: str) -> Sequence[str]:
    if _is_spelled(special=actual[at : at + 1], spelled=expected[at:]):
        return (_INJECTION,)
    if _is_spelled(special=expected[at : at + 1], spelled=actual[at:]):
        return (_SPELLED,)
    if text_of_tokens(expected) == text_of_tokens(actual):
        added = _count_special(actual) - _count_special(expected)
        return (
            _INJECTION if added > 0 else _SPELLED if added < 0 else "the text is right, and split into other tokens",
        )
    one, other = _label(expected[at : at + 1]), _label(actual[at : at + 1])
    return (
        f"{place}: {one} is expected, and {other} is rendered",
        *_line_traits(expected, actual, at),
        f"{place}: {one} is expected",
        f"{place}: {other} is rendered",
    )


def _line_traits(expected: Sequence[int], actual: Sequence[int], at: int) -> Iterator[str]:
    """Yield the first missing line and the first unexpected line of a system or developer message."""
    owner = next((role for role in _WITH_HEADINGS if f" {role} message" in _place(expected[:at])), None)
    if owner is None:
        return
    wanted, given = (_message_at(run, at).splitlines() for run in (expected, actual))
    if (missing := next((line for line in wanted if line not in given), None)) is not None:
        yield f"a {owner} message lacks the line {dumps(missing)}"
    if (unexpected := next((line for line in given if line not in wanted), None)) is not None:
        yield f"a {owner} message has the line {dumps(unexpected)}, which must not be there"


def _message_at(run: Sequence[int], at: int) -> str:
    """Return the text of the message that the token `at` is in, without its header and its stop token."""
    start = max((index for index, token in enumerate(run[:at]) if token == tokens.MESSAGE), default=-1) + 1
    end = next((index for index in range(at, len(run)) if run[index] in tokens.STOP_TOKENS), len(run))
    return text_of_tokens(run[start:end])


def _count_special(run: Sequence[int]) -> int:
    return sum(token >= tokens.FIRST_SPECIAL for token in run)


def _is_spelled(*, special: Sequence[int], spelled: Sequence[int]) -> bool:
    """Return True if ordinary tokens spell a special token."""
    if not special or special[0] < tokens.FIRST_SPECIAL or not spelled or spelled[0] >= tokens.FIRST_SPECIAL:
        return False
    return text_of_tokens(spelled[:_MARKER_TOKENS]).startswith(text_of_tokens(special))


def _place(before: Sequence[int]) -> str:
    """Describe the place after these tokens."""
    if not before or before[-1] in tokens.STOP_TOKENS:
        return "between messages" if before else "at the beginning"
    start = max((index for index, token in enumerate(before) if token == tokens.START), default=-1)
    message = before[start + 1 :]
    if not message:
        return "at the role of a message"
    header, marker, content = _split(message)
    words = re.split(r"[\s:<]", text_of_tokens(header), maxsplit=1)
    role = words[0] if words[0] in _ROLES else "tool"
    owner = f"{'an' if role == 'assistant' else 'a'} {role} message"
    if not marker:
        return f"in the header of {owner}"
    headings = _HEADING.findall(text_of_tokens(content)) if role in _WITH_HEADINGS else []
    return f"in `{headings[-1]}` of {owner}" if headings else f"in the content of {owner}"


def _split(message: Sequence[int]) -> tuple[Sequence[int], bool, Sequence[int]]:
    if tokens.MESSAGE not in message:
        return message, False, ()
    at = list(message).index(tokens.MESSAGE)
    return message[:at], True, message[at + 1 :]


def _label(token: Sequence[int]) -> str:
    if not token:
        return "the end"
    text = text_of_tokens(token)
    return "a number" if text.strip().isdecimal() else dumps(text)


def _shown(run: Sequence[int], *, cut_before: bool) -> str:
    return f"{'…' if cut_before else ''}{dumps(text_of_tokens(run))}"


def _shown_rest(rest: Sequence[int]) -> str:
    """Return the next tokens as text with the id of the first one; the end in words."""
    if not rest:
        return "the end"
    more = "…" if len(rest) > _AFTER else ""
    return f"{dumps(text_of_tokens(rest[:_AFTER]))}{more} (first token {rest[0]})"
