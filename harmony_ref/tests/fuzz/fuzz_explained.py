"""Where this package differs from the library: what the difference is, why, and how it is recognised."""

import re
from collections.abc import Callable
from dataclasses import dataclass

PLACE = re.compile(r" at line \d+ column \d+$")
LIST_REFUSED = re.compile(r"invalid type: sequence, expected (struct \w+|internally tagged enum Content)$")
UNREADABLE_NUMBER = re.compile(
    r"invalid (?:message|conversation) JSON: (?:expected value|number out of range) at line 1 column \d+$"
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A known difference.

    Attributes:
        reason: why it is right to differ, or what is wrong here.
        covers: whether these two answers to this input, the library's and ours, differ in this way and no other.
        witness: a property and an input that show it.
    """

    reason: str
    covers: Callable[[object, object, object], bool]
    witness: tuple[str, object]


def error_of(answer):
    return answer["err"] if isinstance(answer, dict) and "err" in answer else ["", ""]


def lacks_the_place(_case, theirs, mine):
    kind, text = error_of(theirs)
    return PLACE.search(text) is not None and error_of(mine) == [kind, PLACE.sub("", text)]


def refuses_a_list(_case, _theirs, mine):
    return LIST_REFUSED.search(error_of(mine)[1]) is not None


def carries_a_number_unwritten(_case, theirs, _mine):
    # The library cannot read the input at all, so whatever else is wrong with it remains unsaid.
    return UNREADABLE_NUMBER.match(error_of(theirs)[1]) is not None


def nested_arrays(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def one_user_message(content):
    return [{"role": "user", "content": content}], "assistant", True


EXPLAINED = {
    "no place in the JSON text": Difference(
        reason="A dict has no lines and columns; the library reads the JSON text that its Python part writes from it.",
        covers=lacks_the_place,
        witness=("a malformed conversation is refused", one_user_message(5)),
    ),
    "a list in place of an object": Difference(
        reason='The library reads ["text", "a"] as {"type": "text", "text": "a"}, as its JSON reader does by default; '
        "no document says so and nobody writes it. Here an object is an object.",
        covers=refuses_a_list,
        witness=("a malformed conversation is refused", one_user_message([["text", "a"]])),
    ),
    "a number that JSON cannot carry where it is not written": Difference(
        reason="The library cannot read a message whose schema holds NaN or 10**400 anywhere. Here a schema is a value, and "
        "the error comes when that number has to be written, as a default.",
        covers=carries_a_number_unwritten,
        witness=("a schema becomes TypeScript", {"type": "string", "default": float("nan")}),
    ),
    "a schema of more than 127 levels": Difference(
        reason="Its reader of JSON text stops at 128 levels. A dict is no text, and is rendered as deep as Python goes.",
        covers=lambda _case, theirs, mine: "recursion limit exceeded" in error_of(theirs)[1] and "ok" in mine,
        witness=("a schema becomes TypeScript", nested_arrays(130)),
    ),
}
"""Differences on purpose."""


def reason_for(case, theirs, mine):
    """The name of the known difference between two answers, or None."""
    return next((name for name, one in EXPLAINED.items() if one.covers(case, theirs, mine)), None)
