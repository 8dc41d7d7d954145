"""Respell the JSON of a call without changing its meaning: spacing, order of keys, escapes.

A template receives the arguments as an object and serializes them again. Text that would lose something is left
unchanged. Examples: text that is not a JSON object, a duplicate key, a number with more digits than the writer
writes, a lone surrogate.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from harmony_ref.json_value import Json


class JsonForm(StrEnum):
    """A spelling of JSON."""

    AS_GIVEN = "as given"
    PYTHON = "as Python's json.dumps without ensure_ascii: a space after comma and colon"
    GO = "as Go's json.Marshal of a map: no spaces, sorted keys, <, > and & escaped"


class _LossyError(ValueError):
    """The value cannot be respelled without a loss."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it was written."""

    text: str


_Value = str | bool | None | _Number | list["_Value"] | dict[str, "_Value"]


def respell_json(text: str, form: JsonForm) -> str:
    """Return the same JSON object in another spelling; the text unchanged if it is not one or would lose something."""
    if form is JsonForm.AS_GIVEN:
        return text
    try:
        value: _Value = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
        )
        if not isinstance(value, dict):
            return text
        return _python(value) if form is JsonForm.PYTHON else _go(value)
    except (ValueError, ArithmeticError, RecursionError):
        return text


def python_json(value: Json) -> str:
    """Write a JSON value as `json.dumps(value, ensure_ascii=False)`, which is `tojson` of transformers."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _without_duplicates(pairs: list[tuple[str, _Value]]) -> dict[str, _Value]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _LossyError
    return members


def _refuse(_constant: str) -> _Value:
    raise _LossyError


def _python(value: _Value) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_python(key)}: {_python(member)}" for key, member in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_python, value)) + "]"
        case _Number(text):
            return _check_same(text, str(int(text)) if text.lstrip("-").isdigit() else repr(float(text)))
        case _:
            return _check_unicode(json.dumps(value, ensure_ascii=False))


def _go(value: _Value) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_go(key)}:{_go(value[key])}" for key in sorted(value, key=str.encode)) + "}"
        case list():
            return "[" + ",".join(map(_go, value)) + "]"
        case _Number(text):
            return _check_same(text, _go_number(text))
        case str():
            escaped = _check_unicode(json.dumps(value, ensure_ascii=False))
            return _GO_ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", escaped)
        case _:
            return json.dumps(value)


def _go_number(text: str) -> str:
    """Write a float64 as encoding/json: without exponent between 1e-6 and 1e21."""
    value = float(text)
    if not math.isfinite(value):
        raise _LossyError
    if value == 0 or _GO_SMALLEST <= abs(value) < _GO_LARGEST:
        whole = format(Decimal(repr(value)), "f")
        return whole.rstrip("0").rstrip(".") if "." in whole else whole
    digits, _, exponent = repr(value).partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    return f"{digits.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0').rjust(1, '0')}"


def _check_same(number: str, respelling: str) -> str:
    if Decimal(number) != Decimal(respelling) or number.startswith("-") != respelling.startswith("-"):
        raise _LossyError
    return respelling


def _check_unicode(text: str) -> str:
    text.encode("utf-8")  # UnicodeEncodeError for a lone surrogate, which can only be written as an escape
    return text


_GO_SMALLEST: Final = 1e-6
_GO_LARGEST: Final = 1e21
_GO_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")
