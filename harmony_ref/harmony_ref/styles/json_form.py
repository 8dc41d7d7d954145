"""How the JSON of a call is spelled: spacing, order of keys, escapes. What it says stays.

A template is given the arguments as an object and writes them anew. That is a matter of form only while nothing is
lost, so text that another writer would change in meaning is left as it is: text that is no JSON object, a key that
comes twice, a number with more digits than the writer keeps, a lone surrogate.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harmony_ref.json_value import Json


class JsonForm(StrEnum):
    """A spelling of JSON."""

    AS_GIVEN = "as given"
    PYTHON = "as Python's json.dumps without ensure_ascii: a space after comma and colon"
    GO = "as Go's json.Marshal of a map: no spaces, sorted keys, <, > and & escaped"


class _LossyError(ValueError):
    """The value cannot be written again without a loss."""


class _Number:
    """A number as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_Value = str | bool | None | _Number | list["_Value"] | dict[str, "_Value"]


def respelled(text: str, form: JsonForm) -> str:
    """The same JSON object in another spelling; the text itself when it is none, or would lose something."""
    if form is JsonForm.AS_GIVEN:
        return text
    try:
        return _WRITERS[form](_read(text))
    except (ValueError, ArithmeticError, RecursionError):
        return text


def python_json(value: Json) -> str:
    """A JSON value as `json.dumps(value, ensure_ascii=False)` writes it, which is `tojson` of transformers."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _read(text: str) -> dict[str, _Value]:
    value: _Value = json.loads(
        text, object_pairs_hook=_without_doubles, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
    )
    if not isinstance(value, dict):
        raise _LossyError
    return value


def _without_doubles(pairs: list[tuple[str, _Value]]) -> dict[str, _Value]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _LossyError
    return found


def _refuse(_constant: str) -> _Value:
    raise _LossyError


def _python(value: _Value) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_python(key)}: {_python(member)}" for key, member in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_python, value)) + "]"
        case _Number():
            return _same(value, _python_number(value.text))
        case _:
            return _unicode(json.dumps(value, ensure_ascii=False))


def _python_number(text: str) -> str:
    return str(int(text)) if text.lstrip("-").isdigit() else repr(float(text))


def _go(value: _Value) -> str:
    match value:
        case dict():
            keys = sorted(value, key=lambda key: key.encode())
            return "{" + ",".join(f"{_go(key)}:{_go(value[key])}" for key in keys) + "}"
        case list():
            return "[" + ",".join(map(_go, value)) + "]"
        case _Number():
            return _same(value, _go_number(value.text))
        case str():
            escaped = _unicode(json.dumps(value, ensure_ascii=False))
            return _GO_ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", escaped)
        case _:
            return json.dumps(value)


def _go_number(text: str) -> str:
    """encoding/json writes a float64 without exponent between 1e-6 and 1e21."""
    value = float(text)
    if not math.isfinite(value):
        raise _LossyError
    if value == 0 or _GO_SMALLEST <= abs(value) < _GO_LARGEST:
        whole = format(Decimal(repr(value)), "f")
        return whole.rstrip("0").rstrip(".") if "." in whole else whole
    digits, _, exponent = repr(value).partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    return f"{digits.removesuffix('.0')}e{sign}{exponent.lstrip('+-').lstrip('0').rjust(1, '0')}"


def _same(number: _Number, written: str) -> str:
    if Decimal(number.text) != Decimal(written) or number.text.startswith("-") != written.startswith("-"):
        raise _LossyError
    return written


def _unicode(text: str) -> str:
    text.encode("utf-8")  # a lone surrogate, from an escape, has no other spelling
    return text


_GO_SMALLEST: Final = 1e-6
_GO_LARGEST: Final = 1e21
_GO_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")
_WRITERS: Final[Mapping[JsonForm, Callable[[dict[str, _Value]], str]]] = MappingProxyType(
    {JsonForm.PYTHON: _python, JsonForm.GO: _go}
)
