"""Detect reasoning in the answer from the text alone: in another model's tags, or identical to the reasoning field."""

from __future__ import annotations

import re

from harmony_conformance.evidence.leaks.markers import remove_code

TAGGED_REASONING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>(?P<thought>[\s\S]*?)</\1>(?P<rest>[\s\S]*)\Z")
"""A text that begins with reasoning in tags, which Harmony does not use."""

SINGLE_TAG = re.compile(r"<(?:think|thinking|reasoning)>|</(?:think|thinking|reasoning)>")
"""A single tag of this kind, which is only suspicious."""

TAG_MENTION = re.compile(
    r"\b(?:tags?|xml|html|markup|elements?|wrap(?:ped)?|enclos\w+|delimit\w+)\b|</?(?:think|thinking|reasoning|thought|answer)\b",
    re.IGNORECASE,
)
"""A request that mentions tags, so that the answer may rightly have some."""

REASONING_REQUEST = re.compile(
    r"\b(?:show|include|share|print|reveal|repeat|quote|write (?:out|down)|tell me|display|give)\b[^.?!\n]{0,40}"
    r"\b(?:reasoning|thoughts?|thinking|chain of thought|analysis|steps|work|working)\b"
    r"|\bthink(?:ing)? (?:out loud|aloud)\b|\bstep[ -]by[ -]step\b",
    re.IGNORECASE,
)
"""A request for the reasoning itself, whose text then belongs to the answer."""

ABOUT_THE_TASK = re.compile(
    r"\b(?:the )?user(?:'s)? (?:is )?(?:asks?|asking|asked|wants?|says?|said|needs?|requests?|wrote|query|question|gave|provided)\b"
    r"|\b(?:we|i) (?:need|should|must|have|can|could|will|are asked|may)\b(?: to)? "
    r"(?:answer|respond|reply|provide|produce|explain|give|write|compute|call|use|output|say|greet|check|find|think|return|be|just|mention)\b"
    r"|\b(?:let'?s|let me) (?:answer|respond|think|craft|produce|write|compute|check|see|do|provide|call)\b"
    r"|\A(?:we|need|must|let's|user|simple|just|probably|provide)\b",
    re.IGNORECASE,
)
_LEAST_LENGTH = 24


def has_repeated_reasoning(reasoning: str, content: str) -> bool:
    """Return True if the content contains the whole reasoning and more, and the reasoning is about the task.

    Reasoning that is a draft of the answer may be repeated. Reasoning about the user's request may not.
    """
    words = reasoning.split()
    thought = " ".join(words)
    if not _LEAST_LENGTH <= len(thought) < len(content) or any(word not in content for word in words):
        return False
    answer = " ".join(remove_code(content).split())
    return thought in answer and len(answer) > len(thought) and ABOUT_THE_TASK.search(thought) is not None


_ANSWERING = r"(?:answer|respond|reply|produce|output|provide|explain|give|write|greet|compute|call|use)"
_ABOUT_THE_USER = re.compile(
    r"\b(?:The user|the user|User) (?:is asking|asks|asked|wants|requests|says|said|just said|wrote)\b"
)
_ABOUT_THE_ANSWER = re.compile(
    rf"\b(?:We|we|I) (?:need to|should|must|have to|are asked to) {_ANSWERING}\b"
    r"|\b(?:Need to|Must|Should|Let'?s|Let me) (?:answer|respond|reply|produce|output|craft|provide)\b"
)
_LONG_SENTENCE = 40
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def find_shared_thought(reasoning: str, content: str) -> str | None:
    """Return a long sentence about the task that reasoning and content have in common, or None."""
    if len(content) < _LONG_SENTENCE:
        return None
    answer: str | None = None  # most reasoning has no such sentence
    for part in _SENTENCE_END.split(reasoning):
        if len(part) < _LONG_SENTENCE:
            continue
        sentence = " ".join(part.split())
        is_thought = _ABOUT_THE_USER.match(sentence) is not None or _ABOUT_THE_ANSWER.match(sentence) is not None
        if is_thought and len(sentence) >= _LONG_SENTENCE:
            answer = " ".join(remove_code(content).split()) if answer is None else answer
            if sentence in answer:
                return sentence
    return None
