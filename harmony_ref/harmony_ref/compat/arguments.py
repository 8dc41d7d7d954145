"""Check arguments as the bindings of openai_harmony do: unsigned integers of 32 bits, booleans, roles.

The exceptions and their texts are those of PyO3, on which the bindings are built.
"""

import operator
from array import array
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from harmony_ref.messages import message_types

LARGEST_ID: Final = 2**32 - 1
_LONG: Final = 2**63


def token_id(token: object, *, argument: str = "token") -> int:
    """Return the id as an int.

    Raises:
        TypeError: the token is not an integer.
        OverflowError: the token is negative or has more than 32 bits.
    """
    try:
        number = operator.index(token)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"argument '{argument}': {error}") from None
    if 0 <= number <= LARGEST_ID:
        return number
    if -_LONG <= number < _LONG:
        raise OverflowError("out of range integral type conversion attempted")
    raise OverflowError("Python int too large to convert to C long")


def token_ids(tokens: Iterable[int]) -> Sequence[int]:
    """Check all ids and return them; raises as `token_id`."""
    ids = list(tokens)
    try:
        array("I", ids)
    except (TypeError, OverflowError):
        return [token_id(token, argument="tokens") for token in ids]
    return ids


def strictness(strict: object) -> bool:
    """Return the value, or the default True for None.

    Raises:
        TypeError: the value is not a boolean.
    """
    if strict is None or isinstance(strict, bool):
        return strict is not False
    raise TypeError(f"argument 'strict': '{type(strict).__name__}' object cannot be converted to 'PyBool'")


def role_value(role: Enum) -> message_types.Role:
    """Return the role with the value of any enumeration's member; ValueError for an unknown role."""
    value = str(role.value)
    try:
        return message_types.Role(value)
    except ValueError:
        raise ValueError(f"unknown role: {value}") from None
