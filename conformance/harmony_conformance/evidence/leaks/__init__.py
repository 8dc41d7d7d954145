"""Detect Harmony markup that reached a client as text: markers, header words without markers, reasoning in the answer.

The definition of a leak depends on the evidence.

* `by_token_ids`: If the emitted ids are known, a leak is a special token, or header words next to one, in a field.
  The same letters in ordinary tokens are content and must arrive.
* `by_text`: From the text alone, a leak needs markup structure, or a single marker in a typical place with further evidence.
  Anything less is only suspected.

All texts of a response are searched (`harmony_conformance.apis.text_fields`), with the deltas of a stream joined.
Text between backticks is never a leak: the model wrote it, since no parser adds backticks.
"""

from harmony_conformance.evidence.leaks.channel_words import JOINED_WORDS, JOINED_WORDS_IN_REASONING, SUSPECTED_WORDS
from harmony_conformance.evidence.leaks.markers import (
    MARKER,
    STRUCTURE,
    has_harmony_mention,
    remove_code,
    unescape_markers,
)

__all__ = [
    "JOINED_WORDS",
    "JOINED_WORDS_IN_REASONING",
    "MARKER",
    "STRUCTURE",
    "SUSPECTED_WORDS",
    "has_harmony_mention",
    "remove_code",
    "unescape_markers",
]
