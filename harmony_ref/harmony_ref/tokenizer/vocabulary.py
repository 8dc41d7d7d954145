"""The packaged vocabulary: 199,998 byte strings and their ranks, read on first use and never fetched.

The file is `o200k_base.tiktoken`, gzipped. Its content is checked against the digest that tiktoken and
openai-harmony 0.0.8 both require. No other module of the package reads a file.
"""

import hashlib
import pkgutil
import zlib
from binascii import a2b_base64
from functools import cache
from typing import Final

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Digest of the unpacked file (openai-harmony 0.0.8, src/tiktoken_ext/public_encodings.rs)."""

SIZE = 199_998
"""Number of ordinary tokens; their ids are 0 to SIZE - 1."""

_GZIP: Final = zlib.MAX_WBITS | 16
"""Selects gzip's frame in zlib; the module `gzip` would only add the time to import it."""


class VocabularyError(ImportError):
    """The packaged vocabulary is not the published one: its SHA-256 digest is `actual` instead of `expected`."""

    def __init__(self, *, expected: str, actual: str) -> None:
        super().__init__(
            f"The packaged o200k_base vocabulary is damaged: its SHA-256 is {actual}, expected {expected}. "
            "Install the package again."
        )
        self.expected = expected
        self.actual = actual


def read_vocabulary_file() -> bytes:
    """Return the vocabulary file as published: one line `base64(token) rank` per token.

    Raises:
        VocabularyError: the installed file is damaged.
    """
    packed = pkgutil.get_data("harmony_ref", "data/o200k_base.tiktoken.gz")
    assert packed is not None, "a package from files or an archive has data"
    try:
        data = zlib.decompress(packed, _GZIP)
    except zlib.error as error:
        raise VocabularyError(expected=SHA256, actual=f"unknown ({error})") from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != SHA256:
        raise VocabularyError(expected=SHA256, actual=actual)
    return data


@cache
def ranks() -> dict[bytes, int]:
    """Return the id of each ordinary token by its bytes. The result is shared; do not change it."""
    # In the file with this digest, the rank is the line number; parsing the ranks would take longer than the rest.
    tokens = read_vocabulary_file().split()[::2]
    return dict(zip(map(a2b_base64, tokens), range(SIZE), strict=True))
