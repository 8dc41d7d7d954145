"""The first difference of an answer, and its traits: the sentences under which equal faults of other vectors are found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from harmony_conformance.golden.grading.answer import normalized_answer, vector_kind
from harmony_conformance.golden.grading.token_difference import FirstTokens, first_tokens
from harmony_conformance.golden.vectors.agreement import same_json
from harmony_conformance.golden.vectors.vector_file import Vector
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, integers, items, members, pointer, text
from harmony_ref import encode_with_special_tokens

_SHOWN: Final = 160  # characters of a value
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "role": "role",
        "name": "author name",
        "recipient": "recipient",
        "channel": "channel",
        "content_type": "content type",
        "content": "content",
    }
)
"""Members of a message in the order in which they are compared. A wrong header explains a wrong content."""
_FORMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "parse": ("error", "messages", "remainder", "faults"),
        "stream": ("error", "messages", "before", "steps", "end"),
        "typescript": ("error", "typescript"),
    }
)
_DETAIL: Final = re.compile(r": .*| \d+", re.DOTALL)
_ABSENT: Final = "nothing"
_Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class AnswerDifference:
    """The first difference of an answer from the expected one.

    Attributes:
        traits: Sentences that may name the cause, the most specific first.
        where: A JSON pointer into the answer; for tokens also the place in words.
        before: Text before the difference; only of tokens.
        expected: The expected value, as shown.
        actual: The value of the answer, as shown.
    """

    traits: Sequence[str]
    where: str
    expected: str
    actual: str
    before: str = ""


def find_difference(vector: Vector, answer: JsonObject) -> AnswerDifference | None:
    """Return the first difference of an answer, or None. Only members of the answer are compared.

    Raises:
        InvalidAnswerError: The answer is not in the form of its kind.
    """
    kind = vector_kind(vector)
    actual, expected = normalized_answer(kind, answer), normalized_answer(kind, vector.expected or {})
    if ("error" in expected) is not ("error" in actual):
        return _refusal_difference(kind, vector, answer)
    if kind == "render":
        return _error_difference(expected, actual) or _render_difference(expected, actual)
    if kind == "stream":
        expected = _until_end(expected, len(items(actual.get("steps"))))
    for name in _FORMS[kind]:
        if name in expected and name in actual:
            found = _walk(expected[name], actual[name], (name,))
            if found is not None:
                return _value_difference(vector, *found)
    return None


def uncompared_members(vector: Vector, answer: JsonObject) -> frozenset[str]:
    """Return the expected members that the answer does not have. A field of stream steps is `steps/FIELD`."""
    expected = vector.expected or {}
    missing = {name for name in expected if name not in answer and name != "error"}
    if "error" in expected:  # what was read before an error is optional
        missing -= {"messages", "remainder", "faults"}
    step, given = members(expected.get("before")), members(next(iter(items(answer.get("steps"))), None))
    return frozenset(missing | {f"steps/{name}" for name in step if given and name not in given})


def error_text(answer: JsonObject) -> str:
    """Return the text of an answer's error."""
    refusal = answer.get("error")
    return text(refusal) or text(members(refusal).get("text")) or text(members(refusal).get("message"))


def shown_value(value: Json) -> str:
    """Return a value as one line of JSON, cut."""
    line = dumps(value)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _refusal_difference(kind: str, vector: Vector, answer: JsonObject) -> AnswerDifference:
    expected = error_text(vector.expected or {})
    if expected:
        general = "an invalid conversation is rendered" if kind == "render" else "malformed input is accepted"
        reason = expected if kind == "render" else _DETAIL.sub("", expected)
        answered = {name: value for name, value in answer.items() if name in ("messages", "text", "typescript")}
        return AnswerDifference(
            traits=(f"{general}: {reason}", general),
            where="/error",
            expected=f"an error: {expected}",
            actual=shown_value(answered),
        )
    general = "valid messages are refused" if kind in ("render", "typescript") else "well-formed input is refused"
    reason = error_text(answer) or "without a reason"
    return AnswerDifference(
        traits=(f"{general}: {_DETAIL.sub('', reason)}", general),
        where="/error",
        expected="no error",
        actual=f"an error: {reason[:_SHOWN]}",
    )


def _error_difference(expected: JsonObject, actual: JsonObject) -> AnswerDifference | None:
    one, other = members(expected.get("error")), members(actual.get("error"))
    name = next((name for name in other if not same_json(one.get(name), other[name])), None)
    if name is None:
        return None
    return AnswerDifference(
        traits=(f"the {name} of an error differs",),
        where=f"/error/{name}",
        expected=shown_value(one.get(name)),
        actual=shown_value(other[name]),
    )


def _render_difference(expected: JsonObject, actual: JsonObject) -> AnswerDifference | None:
    """Compare tokens, and texts only where there are no tokens, or where they contradict the tokens."""
    if "tokens" in actual:
        one, other = integers(items(expected.get("tokens"))), integers(items(actual["tokens"]))
        if one is not None and other is not None and one != other:
            return _token_difference(first_tokens(one, other))
    if "text" in actual and "text" in expected and actual["text"] != expected["text"]:
        if "tokens" in actual:
            trait = "the text differs from the text of the tokens"
            values = (shown_value(expected["text"]), shown_value(actual["text"]))
            return AnswerDifference(traits=(trait,), where="/text", expected=values[0], actual=values[1])
        wanted, given = (encode_with_special_tokens(text(value)) for value in (expected["text"], actual["text"]))
        return _token_difference(first_tokens(wanted, given))
    return None


def _token_difference(found: FirstTokens) -> AnswerDifference:
    return AnswerDifference(
        traits=found.traits,
        where=f"token {found.index}, {found.place}",
        before=found.before,
        expected=found.expected,
        actual=found.actual,
    )


def _until_end(expected: JsonObject, answered: int) -> JsonObject:
    """Return an expected stream up to the last answered step, if an error came before: a parser may stop there."""
    steps = items(expected.get("steps"))
    failed = next((index for index, step in enumerate(steps) if "error" in members(step)), None)
    if failed is None or answered <= failed or answered >= len(steps):
        return expected
    return {name: value for name, value in {**expected, "steps": steps[:answered]}.items() if name != "end"}


def _walk(expected: Json, actual: Json, path: _Path) -> tuple[_Path, Json, Json] | None:
    """Return the path of the first difference and both values. Objects of streams are compared in the members of the answer."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        is_message = path[0] in ("messages", "remainder", "faults")
        names = {**dict.fromkeys(_FIELDS), **dict.fromkeys(expected), **dict.fromkeys(actual)}
        for name in names:
            compared = name in expected or name in actual if is_message else name in actual
            if compared and name != "data":
                found = _walk(expected.get(name), actual.get(name), (*path, name))
                if found is not None:
                    return found
        if "data" in actual:  # it repeats the other fields
            return _walk(expected.get("data"), actual["data"], (*path, "data"))
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            found = _walk(one, other, (*path, index))
            if found is not None:
                return found
        return None if len(expected) == len(actual) else ((*path, "length"), len(expected), len(actual))
    return None if same_json(expected, actual) else (path, expected, actual)


def _value_difference(vector: Vector, path: _Path, expected: Json, actual: Json) -> AnswerDifference:
    if path[-1] == "length":
        name = str(path[:-1][-1])
        change = "fewer" if (integer(actual) or 0) < (integer(expected) or 0) else "more"
        sides = (f"{expected} {name}", f"{actual} {name}")
        traits = (f"{change} {name} than expected",)
        return AnswerDifference(traits=traits, where=pointer(*path[:-1]), expected=sides[0], actual=sides[1])
    return AnswerDifference(
        traits=_value_traits(vector, path, expected, actual),
        where=pointer(*path),
        expected=_ABSENT if expected is None else shown_value(expected),
        actual=_ABSENT if actual is None else shown_value(actual),
    )


def _value_traits(vector: Vector, path: _Path, expected: Json, actual: Json) -> Sequence[str]:
    name = str(path[-1])
    if path[0] == "typescript":
        return (*(f"a type differs: {flag}" for flag in vector.flags), f"a type differs: {vector.id.split('/')[1]}")
    if path[0] == "error":
        return (f"the {name} of an error differs",)
    if path[0] not in ("messages", "before", "steps", "end"):
        return (f"the member {path[0]} differs",)
    if name == "delta":
        return (f"a delta differs: {_text_change(text(expected), text(actual))}", "a delta differs")
    if name not in _FIELDS:
        return (f"the field {name} of a stream differs",)
    word = _FIELDS[name]
    if actual is None:
        return (f"the {word} of a message is lost",)
    if expected is None:
        return (f"a message has a {word} that the input does not have",)
    if name == "content":
        change = _text_change(text(expected), text(actual))
        return (f"the content of a message differs: {change}", "the content of a message differs")
    change = f"{shown_value(expected)} is read as {shown_value(actual)}"
    return (f"the {word} of a message differs: {change}", f"the {word} of a message differs")


def _text_change(expected: str, actual: str) -> str:
    if not actual:
        return "it is empty"
    if "<|" in actual and "<|" not in expected:
        return "it contains markers"
    if "\ufffd" in actual and "\ufffd" not in expected:
        return "characters are broken"
    if "".join(expected.split()) == "".join(actual.split()):
        return "white space is changed"
    if expected.startswith(actual):
        return "text is cut off"
    return "text is added" if actual.startswith(expected) else "other text"
