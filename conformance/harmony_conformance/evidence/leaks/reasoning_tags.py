"""Reasoning that is shown as the answer, seen in the text alone: another model's wrapper around it, or the same text in both fields."""

from __future__ import annotations

import re

from harmony_conformance.evidence.leaks.markers import without_code

WRAPPED = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>(?P<thought>[\s\S]*?)</\1>(?P<rest>[\s\S]*)\Z")
"""A text that begins with a thought in tags: no parser of ours writes them, and a server that does shows the thought."""

OPENED = re.compile(r"<(?:think|thinking|reasoning)>|</(?:think|thinking|reasoning)>")
"""One such tag: suspicious."""

TAGGED = re.compile(
    r"\b(?:tags?|xml|html|markup|elements?|wrap(?:ped)?|enclos\w+|delimit\w+)\b|</?(?:think|thinking|reasoning|thought|answer)\b",
    re.IGNORECASE,
)
"""A request that speaks of tags may get some."""

ASKS_TO_THINK_ALOUD = re.compile(
    r"\b(?:show|include|share|print|reveal|repeat|quote|write (?:out|down)|tell me|display|give)\b[^.?!\n]{0,40}"
    r"\b(?:reasoning|thoughts?|thinking|chain of thought|analysis|steps|work|working)\b"
    r"|\bthink(?:ing)? (?:out loud|aloud)\b|\bstep[ -]by[ -]step\b",
    re.IGNORECASE,
)
"""A request for the thought itself: then its text belongs to the answer."""

_SPEAKS_OF_THE_TASK = re.compile(
    r"\b(?:the )?user(?:'s)? (?:is )?(?:asks?|asking|asked|wants?|says?|said|needs?|requests?|wrote|query|question|gave|provided)\b"
    r"|\b(?:we|i) (?:need|should|must|have|can|could|will|are asked|may)\b(?: to)? "
    r"(?:answer|respond|reply|provide|produce|explain|give|write|compute|call|use|output|say|greet|check|find|think|return|be|just|mention)\b"
    r"|\b(?:let'?s|let me) (?:answer|respond|think|craft|produce|write|compute|check|see|do|provide|call)\b"
    r"|\A(?:we|need|must|let's|user|simple|just|probably|provide)\b",
    re.IGNORECASE,
)
_LONG_ENOUGH = 24


def repeated(reasoning: str, content: str) -> bool:
    """Whether the content holds the whole reasoning, word for word, and something beside it, and the reasoning speaks of the task.

    A thought that is a draft of the answer stands in it rightly; one that says what the user wants does not.
    """
    words = reasoning.split()
    thought = " ".join(words)
    if not _LONG_ENOUGH <= len(thought) < len(content) or any(word not in content for word in words):
        return False
    told = " ".join(without_code(content).split())
    return thought in told and len(told) > len(thought) and _SPEAKS_OF_THE_TASK.search(thought) is not None
