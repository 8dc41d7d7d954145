"""Header words that lost their markers: what a text shows once the special tokens of a completion were skipped."""

from __future__ import annotations

import re

_GLUED = r"assistant(?:final|analysis|commentary)"
_BEGINS_A_TEXT = r"[\[{<#]|[^\W_a-z]|[\U0001f300-\U0001faff]"
GLUED = re.compile(
    rf"{_GLUED}(?={_BEGINS_A_TEXT})"
    rf"|(?<=[\w.!?)\]}}]){_GLUED}(?=[\"'*_\n]|$)"
    rf"|^(?:(?:analysis|commentary)(?=\w)|final(?=[A-Z\d\"'{{\[(]))[\s\S]*?{_GLUED}"
    r"|(?:^|assistant\s?)commentary\s?to=functions\."
    r"|^(?:analysis|commentary)\s?to=[\w.]+\s*(?:json|code)?\s*\{"
    r"|assistant(?:json|code)(?=\{)"
)
"""Channel words glued to the text, as they stand there once the special tokens were skipped."""

GLUED_IN_REASONING = re.compile(rf"{_GLUED}(?={_BEGINS_A_TEXT})")
"""The same in reasoning, where models talk about calls they are about to make."""

LONE = re.compile(
    r"^(?!\w+\s*(?:=|\(|;|:|\.\w))(?:(?:analysis|commentary|final)(?=[A-Z\"'{\[])|assistant(?:final|analysis|commentary)(?=[^\W_]))"
    r"|[.!?]assistantfinal(?!ly|i[sz]|e)(?=[^\W_])"
)
"""A lone channel word that begins the text, or stands glued between two sentences: suspicious, and no proof."""
