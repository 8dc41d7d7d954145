"""`encrypted_content`: opaque reasoning that the client stores and sends back.

It is encoded, not encrypted: this server is a reference for tests, which only need the round trip.
"""

import base64
import binascii

_MARK = "harmony-conformance:"


def seal(text: str) -> str:
    """Encode reasoning as an opaque string."""
    return _MARK + base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()


def unseal(content: str) -> str | None:
    """Decode the result of `seal`; return None for any other string."""
    if not content.startswith(_MARK):
        return None
    try:
        return base64.b64decode(content.removeprefix(_MARK), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
