"""Naive leak detection for comparison: the patterns of the first two rows of the catalogue's list of checks, word for word."""

from __future__ import annotations

import re

from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.evidence.exchange import Exchange

_MARKER = re.compile(r"<\|(start|end|message|channel|constrain|call|return)\|>")
_GLUED = re.compile(r"^(analysis|commentary)(?=[A-Z\s])|assistant(final|analysis|commentary)|to=functions\.")


def alarms(x: Exchange) -> bool:
    """Return True for a marker in content, reasoning, names or arguments, or a channel word in the content."""
    fields = [field for answer in x.answers for field in answer.fields]
    return any(_MARKER.search(field.text) for field in fields) or any(
        _GLUED.search(field.text) for field in fields if field.kind is FieldKind.CONTENT
    )
