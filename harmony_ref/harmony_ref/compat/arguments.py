"""Arguments as the bindings of openai_harmony take them: unsigned integers of 32 bits, true booleans, roles.

The exceptions and their texts are those of PyO3, which the bindings are made with.
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
    """The id, as an int.

    Raises:
        TypeError: it is no integer.
        OverflowError: it is negative or has more than 32 bits.
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
    """The ids, all of them checked; raises as `token_id`."""
    ids = list(tokens)
    try:
        array("I", ids)
    except (TypeError, OverflowError):
        return [token_id(token, argument="tokens") for token in ids]
    return ids


def strictness(strict: object) -> bool:
    """The value, None being the default.

    Raises:
        TypeError: it is no boolean.
    """
    if strict is None:
        return True
    if isinstance(strict, bool):
        return strict
    raise TypeError(f"argument 'strict': '{type(strict).__name__}' object cannot be converted to 'PyBool'")


def role_value(role: Enum) -> message_types.Role:
    """The role of this value, whatever enumeration it is from.

    Raises:
        ValueError: there is no such role.
    """
    value = str(role.value)
    try:
        return message_types.Role(value)
    except ValueError:
        raise ValueError(f"unknown role: {value}") from None
