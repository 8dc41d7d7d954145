"""Failures of tiktoken as an error of this package.

A Rust panic arrives as `pyo3_runtime.PanicException`. It is not an Exception, so `except Exception` misses it and it
ends a server instead of one request; and its class cannot be imported. A failure that tiktoken itself detects is a
bare ValueError.
"""

from typing import Final

from harmony_ref.errors import HarmonyError

_PANIC: Final = ("pyo3_runtime", "PanicException")
_DETECTED: Final = "Regex error"


class EncodingError(HarmonyError):
    """A text beyond the limits of `harmony_ref.tokenizer.long_pieces`, or a failure of tiktoken; `reason` says which."""

    def __init__(self, reason: str, *, text: str | None = None) -> None:
        super().__init__(f"tiktoken cannot encode or decode this: {reason}" if text is None else text)
        self.reason = reason


def raise_encoding_error(error: BaseException) -> None:
    """Raise EncodingError if the error is a failure of tiktoken; return for any other error."""
    kind = type(error)
    panicked = (kind.__module__, kind.__qualname__) == _PANIC
    if panicked or (kind is ValueError and str(error).startswith(_DETECTED)):
        raise EncodingError(str(error)) from None
