"""Harmony that reached a client as text: markers, header words that lost their markers, reasoning shown as the answer.

What a leak is depends on what is known.

* `emitted`: with the emitted ids known, a special token, or header words next to one, that reached a field. The same letters in ordinary tokens are
  content, and have to arrive.
* `markers`, `words`, `reasoning`: with the text alone, a leak has to show structure that nobody writes by chance, or a lone marker in a place where a
  parser leaves one, together with something that speaks for it. What shows less is only suspected.

Every text of an answer is looked at (`harmony_conformance.apis.text_fields`), joined over the deltas of a stream.
No parser puts what it leaks between backticks: what stands there the model wrote.
"""

from harmony_conformance.evidence.leaks.channel_words import GLUED, GLUED_IN_REASONING, LONE
from harmony_conformance.evidence.leaks.markers import MARKER, STRUCTURE, readable, speaks_of_harmony, without_code

__all__ = [
    "GLUED",
    "GLUED_IN_REASONING",
    "LONE",
    "MARKER",
    "STRUCTURE",
    "readable",
    "speaks_of_harmony",
    "without_code",
]
