"""The features of the leaves of a plain exchange: all that the checks read of them.

A check may depend on a leaf only through `find_features`. Either the leaf has a feature that has a letter here, or the exchange has no features
and is judged as any other. Where possible the detectors themselves decide. If a check reads a text in a new way, it needs a line here:
`test_repeats.py` puts the words and patterns of all detectors into each leaf, and fails if an outcome changes and the features do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from harmony_conformance.audit.repeats.outline import Outline
from harmony_conformance.evidence.leaks.broken_characters import REPLACEMENT, is_on_characters, may_be_on_characters
from harmony_conformance.evidence.leaks.calls_in_text import has_sign_of_call
from harmony_conformance.evidence.leaks.channel_words import (
    JOINED_WORDS,
    JOINED_WORDS_IN_REASONING,
    SUSPECTED_WORDS,
    has_words,
    may_hold_words,
)
from harmony_conformance.evidence.leaks.markers import (
    can_mention_harmony,
    fold_case,
    has_any_folded_word,
    has_harmony_mention,
    unescape_markers,
)
from harmony_conformance.evidence.leaks.reasoning_tags import find_shared_thought, has_repeated_reasoning
from harmony_conformance.evidence.leaks.repetition import find_doubled_text
from harmony_conformance.evidence.leaks.role_play import asks_for_talk, find_user_turn, has_speaker, may_ask_for_talk
from harmony_conformance.evidence.leaks.unmarked_thought import begins_as_thought
from harmony_conformance.json_value import loads

_BETWEEN = "\0"
_LONGEST_KEPT = 32_768
"""The longest instruction whose features are kept, in characters."""
_SIGNS = ("<|", "<think", "<reasoning", "<thought", "</think", "</reasoning")
"""Any leak of a marker or a tag has one of these signs."""


def find_features(outline: Outline, leaves: Sequence[str]) -> str | None:
    """Return a letter for each feature that the outcomes depend on. None if the leaves can have a finding, or a feature without a letter."""
    content, thought = _join(outline.content, leaves), _join(outline.thought, leaves)
    asked = [leaves[place] for place in outline.questions]
    instructions = [leaves[place] for place in outline.instructions]
    earlier = [leaves[place] for place in outline.earlier]
    results = [leaves[place] for place in (*outline.results, *outline.answered)]
    given = [leaves[place] for place in outline.given]
    texts = (*instructions, *asked, *earlier, *results, *given, content, thought)
    if not _are_usual(outline, leaves) or not _is_clean(_BETWEEN.join(texts)):
        return None
    if (outline.calls or given) and not _are_usual_calls(outline, leaves, given):
        return None
    found = _request_features(asked, are_questions=True)
    if results:
        found |= _request_features(results)
    for text in instructions:
        found |= _instruction_features(text) if len(text) <= _LONGEST_KEPT else _request_features([text])
    if "h" in found:
        return None
    if outline.has_tools and has_sign_of_call(content):
        return None
    if _is_suspected(content, thought) or any(has_words(text, JOINED_WORDS) for text in earlier):
        return None
    return "".join(sorted(found))


def _request_features(texts: Sequence[str], *, are_questions: bool = False) -> frozenset[str]:
    """Return the letters of the texts of a request: `h` for the format, `t` for a dialogue, `c` for the encoding of texts."""
    together = _BETWEEN.join(texts)
    folded = fold_case(together)
    found = ""
    if can_mention_harmony(folded) and any(map(has_harmony_mention, texts)):
        found += "h"
    if (are_questions and may_ask_for_talk(folded) and any(map(asks_for_talk, texts))) or (
        ":" in together and any(map(has_speaker, texts))
    ):
        found += "t"
    if may_be_on_characters(folded) and any(map(is_on_characters, texts)):
        found += "c"
    return frozenset(found)


@lru_cache(maxsize=256)
def _instruction_features(text: str) -> frozenset[str]:
    """Return the letters of an instruction: many requests have the same one."""
    return _request_features([text])


def _are_usual_calls(outline: Outline, leaves: Sequence[str], given: Sequence[str]) -> bool:
    """Return True if the arguments of all calls are objects, and those of the answer fit their schema and have no signs of a leak."""
    if not all(arguments.startswith("{") for arguments in given):
        return False
    if any(may_hold_words(leaves[place]) for place in outline.call_ids):
        return False
    for call in outline.calls:
        arguments = _join(call.arguments, leaves)
        if not arguments.startswith("{") or "\\u" in arguments or may_hold_words(arguments) or not _is_clean(arguments):
            return False
        try:
            if call.find_violation(loads(arguments)) is not None:
                return False
        except Exception:  # noqa: BLE001 - the check that raises it is judged
            return False
    return True


def _join(pieces: Sequence[int | str], leaves: Sequence[str]) -> str:
    return "".join([piece if isinstance(piece, str) else leaves[piece] for piece in pieces])


def _is_clean(texts: str) -> bool:
    if REPLACEMENT in texts or ("<" in texts and has_any_folded_word(texts, _SIGNS)):
        return False
    return unescape_markers(texts) is texts


def _are_usual(outline: Outline, leaves: Sequence[str]) -> bool:
    """Return True if the counts add up and are below the limit of the request."""
    usage = {name: int(leaves[place]) for name, place in outline.usage.items()}
    if not usage:
        return True
    prompt, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return (
        usage.get("total_tokens", prompt + written) == prompt + written
        and usage.get("reasoning_tokens", 0) <= written
        and usage.get("cached_tokens", 0) <= prompt
        and (outline.limit is None or written < outline.limit)
    )


def _is_suspected(content: str, thought: str) -> bool:
    return (
        has_words(content, JOINED_WORDS, SUSPECTED_WORDS)
        or has_words(thought, JOINED_WORDS_IN_REASONING)
        or find_user_turn(content) is not None
        or find_doubled_text(content) is not None
        or has_repeated_reasoning(thought, content)
        or find_shared_thought(thought, content) is not None
        or (not thought.strip() and begins_as_thought(content))
    )
