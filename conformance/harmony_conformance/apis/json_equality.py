"""Equality of JSON texts, such as the arguments of a call: by value, by double, and whether whole numbers became fractions."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation

from harmony_conformance.json_value import InvalidJsonError, Json, parse, refuse_constant


def equal_json(one: str, other: str) -> bool:
    """Return True if two texts are JSON with the same value.

    JSON has one number type: 1 equals 1.0, and 1e2 equals 100. All digits count: 0.1 and 0.10000000000000000001 differ, although their
    floats are equal.
    """
    return _are_equal(one, other, _EXACT)


def equal_as_doubles(one: str, other: str) -> bool:
    """Return True if two texts are JSON with the same value in double precision, where 12345678901234567890 equals 12345678901234567000."""
    return _are_equal(one, other, _DOUBLE_DECODER)


def _are_equal(one: str, other: str, decoder: json.JSONDecoder) -> bool:
    try:
        return _same(parse(one, decoder), parse(other, decoder))
    except InvalidJsonError:
        return False


def has_added_fractions(written: str, shown: str) -> bool:
    """Return True if `shown` has a fraction or an exponent in a number that `written` has as an integer: 1.0 instead of 1.

    Both texts are JSON with equal values. A client with integer types rejects 1.0.
    """
    return _count_integers(written) > _count_integers(shown)


def _count_integers(document: str) -> int:
    def count(value: Json) -> int:
        match value:
            case dict():
                return sum(map(count, value.values()))
            case list():
                return sum(map(count, value))
            case _:
                return int(isinstance(value, int) and not isinstance(value, bool))

    try:
        return count(json.loads(document))
    except (ValueError, RecursionError):
        return 0


def _decimal(spelling: str) -> float | Decimal:
    try:
        return Decimal(spelling)
    except InvalidOperation:  # the exponent is too large
        return float(spelling)


_EXACT = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_decimal)
"""Reads fractions and exponents exactly."""
_DOUBLE_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_int=float)


def _same(one: Json, other: Json) -> bool:
    match one, other:
        case (dict(), dict()):
            return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
        case (list(), list()):
            return len(one) == len(other) and all(map(_same, one, other))
        case _:
            return one == other and isinstance(one, bool) is isinstance(other, bool)
