"""JSON text as openai-harmony 0.0.8 reads and prints it.

The library receives a schema as JSON text and prints its defaults again, both with serde_json:

- The reader rounds twice (`float_roundtrip` is off): a float of 16 or 17 digits may be off by one unit in the last
  place.
- The printer writes `1e16` and `0.00001` where Python writes `1e+16` and `1e-05`.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json

_U64: Final = 2**64
_I64_MIN: Final = -(2**63)
_LARGEST_POWER: Final = 308
_POINT_LIMIT: Final = 16
_SMALLEST_POINT: Final = -5
_POWERS: Final = tuple(float(f"1e{power}") for power in range(_LARGEST_POWER + 1))
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')


def json_text(value: Json) -> str:
    """Return compact JSON, members in their order, characters beyond ASCII unescaped.

    Raises:
        MessageError: a number that JSON cannot express (NaN, infinities) or that the library refuses (10**400).
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        is_integer = _I64_MIN <= value < _U64
        return str(value) if is_integer else _float_text(math.copysign(_from_digits(str(abs(value)), 0), value))
    if isinstance(value, float):
        return _float_text(_read_float(value))
    if isinstance(value, str):
        return _string_text(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_string_text(key)}:{json_text(member)}" for key, member in value.items()) + "}"
    return "[" + ",".join(map(json_text, value)) + "]"


def _string_text(value: str) -> str:
    return f'"{_ESCAPED.sub(_escape, value)}"'


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"


def _read_float(value: float) -> float:
    if not math.isfinite(value):
        raise MessageError(subject="message", problem="expected value")
    mantissa, _, power = json.dumps(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return math.copysign(_from_digits(whole + fraction, int(power or 0) - len(fraction)), value)


def _from_digits(digits: str, power: int) -> float:
    """Return the digits as an integer, times ten to a power, in the reader's own steps."""
    count = len(digits)
    while int(digits[:count]) >= _U64:
        count -= 1
    power += len(digits) - count
    value = float(int(digits[:count]))
    while power < -_LARGEST_POWER and value:
        value /= _POWERS[_LARGEST_POWER]
        power += _LARGEST_POWER
    if power < -_LARGEST_POWER:
        return value
    if power < 0:
        return value / _POWERS[-power]
    value = value * _POWERS[power] if power <= _LARGEST_POWER else math.inf
    if math.isinf(value):
        raise MessageError(subject="message", problem="number out of range")
    return value


def _float_text(value: float) -> str:
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    _, parts, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    digits = "".join(map(str, parts))
    power = int(exponent)
    point = len(digits) + power
    if power >= 0 and point <= _POINT_LIMIT:
        return f"{sign}{digits}{'0' * power}.0"
    if 0 < point <= _POINT_LIMIT:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _SMALLEST_POINT < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1}"
