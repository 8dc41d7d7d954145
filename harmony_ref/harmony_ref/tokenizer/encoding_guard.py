"""What tiktoken cannot do, as an error of this package.

A Rust panic arrives as `pyo3_runtime.PanicException`. It is no Exception, so that `except Exception` lets it pass and a
server ends where a request should have failed; and its class cannot be imported. Where tiktoken foresees the same
failure it raises a bare ValueError.
"""

from typing import Final

from harmony_ref.errors import HarmonyError

_PANIC: Final = ("pyo3_runtime", "PanicException")
_FORESEEN: Final = "Regex error"


class EncodingError(HarmonyError):
    """tiktoken gave up. No text is known that makes it do so; white space that did is encoded apart.

    Attributes:
        reason: what tiktoken said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"tiktoken cannot encode or decode this: {reason}")
        self.reason = reason


def raise_if_given_up(error: BaseException) -> None:
    """Do nothing, unless the error says that tiktoken gave up.

    Raises:
        EncodingError: it does.
    """
    kind = type(error)
    panicked = (kind.__module__, kind.__qualname__) == _PANIC
    if panicked or (kind is ValueError and str(error).startswith(_FORESEEN)):
        raise EncodingError(str(error)) from None
