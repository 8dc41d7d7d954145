"""`encrypted_content`: reasoning that the client keeps for the server without reading it.

Nothing is secret here: the server is a reference for tests. What matters is that it comes back as it went.
"""

import base64
import binascii

_MARK = "harmony-conformance:"


def sealed(text: str) -> str:
    """The text, not to be read by clients."""
    return _MARK + base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()


def unsealed(content: str) -> str | None:
    """The text in what `sealed` made, None for anything else."""
    if not content.startswith(_MARK):
        return None
    try:
        return base64.b64decode(content.removeprefix(_MARK), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
