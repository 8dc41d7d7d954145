"""Detect reasoning in the answer from the text alone: in another model's tags, identical to the reasoning field, or in its manner."""

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


_VERBS = r"(?:answer|respond|reply|produce|output|call|provide|explain|give|write|compute|use|greet|check|find|think|follow|decide|be|say)"
_THOUGHT_FIRST = re.compile(
    r"\A\s*(?:The user|User) (?:is asking|asks|asked|wants|says|said|just said|requests|wrote)\b"
    rf"|\A\s*(?:We|I) (?:need to|should|must|are asked to|have to) {_VERBS}\b"
    r"|\A\s*(?:Need to|Must|Let'?s|Should) (?:answer|respond|reply|produce|output|call|provide)\b"
)
_THOUGHT_LATER = re.compile(
    rf"\b(?:[Tt]he user|User) (?:is asking|asks|asked|wants|says|said|just said|requests|wrote)\b|\b(?:We|we|I) (?:need to|should|must) {_VERBS}\b"
    r"|\bLet'?s (?:answer|respond|reply|produce|output|call|craft|provide)\b|\b(?:Need to|Should|Must) (?:answer|respond|reply|produce|output|call|provide)\b"
)
_FIRST_PART = 400  # characters in which a thought shows a second sign
_LONG_SENTENCE = 40
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def begins_as_thought(content: str) -> bool:
    """Return True if a text begins with a thought about the task, and soon shows a second sign of one."""
    first = _THOUGHT_FIRST.match(content)
    return first is not None and _THOUGHT_LATER.search(content, first.end(), _FIRST_PART) is not None


def find_shared_thought(reasoning: str, content: str) -> str | None:
    """Return a long sentence about the task that reasoning and content have in common, or None."""
    answer = " ".join(remove_code(content).split())
    sentences = (" ".join(one.split()) for one in _SENTENCE_END.split(reasoning))
    return next((one for one in sentences if len(one) >= _LONG_SENTENCE and _THOUGHT_FIRST.match(one) and one in answer), None)
