"""Detect a thought that is shown as the answer, without any marker, tag or channel word: `The user asks… We need to answer…`.

A thought of gpt-oss begins with the user's request, with what to do, or with the kind of the task. Soon after, it has a second sign: it plans the
answer, it weighs a policy, or a sentence has no subject. Both are required. Prose in the first person and user stories have one of them at most.
Precision and recall are measured by `benchmarks/leaks/thoughts.py`.
"""

from __future__ import annotations

import re

_FIRST_PART = 600
"""Characters in which a thought shows both signs."""

_VERBS = """answer respond reply produce output provide explain give write greet compute call use return classify comply refuse decide determine
    evaluate parse follow describe generate craft figure find check see consider summarize decline think deliver help list translate create"""
_DO = f"(?:{'|'.join(_VERBS.split())})"
_REPLY = "(?:answer|respond|reply|output|produce|comply|refuse|classify|return|craft)"
_ASKS = (
    "asking|asks|asked|wants|wanted|requests|requested|requesting|says|said|wrote|gave|given|gives|needs|provides|provided|sends|sent"
    "|greets|inputs|states"
)
_MESSAGE = "(?:message|query|request|question|prompt|input|instruction|statement|content|text)"
_LET = "(?:Let['\u2019]s|let['\u2019]s|Let me|I['\u2019]ll)"

_OPENING = re.compile(
    r"\s*(?:(?:So|Okay|OK|Ok|Alright|Hmm|Well)[,.]? )?(?:"
    r"(?P<user>(?:The user|the user|User)(?:['\u2019]s)?(?::|\b"
    rf" (?:(?:(?:is|has|just|also|only|now|again|simply) )?(?:{_ASKS})|{_MESSAGE})\b))"
    r"|(?P<we>[Ww]e (?:(?:just|now|only|also|first) )?(?:need|must|should|have|are asked|are given|are to)\b)"
    rf"|(?P<i>I (?:need to|must|should|have to|am asked to) {_DO}\b)"
    rf"|(?P<short>(?:Need to|Must|Should|{_LET}) (?:\w+ )?{_DO}\b(?!:))"
    r"|(?P<task>The (?:prompt|question|input|task|instruction|request|conversation|query|developer|system prompt)(?: (?:is|says|asks|wants|here)\b|:))"
    r")"
)
"""The first words of a thought."""

_BEGIN = r"(?:^|(?<=[.!?:] )|(?<=\n))"
_PLAN = re.compile(
    r"\b(?:[Nn]o policy|policy (?:issue|violation|conflict)s?|disallowed|[Aa]ccording to (?:the )?polic(?:y|ies)|[Pp]er (?:the )?polic(?:y|ies)"
    r"|violat\w+ (?:the )?policy|safe completion)\b"
    rf"|\b[Ww]e (?:should|must|can|could|will|need to|have to|may|might|'ll) (?:\w+ )?{_REPLY}\b"
    rf"|\b{_LET} (?:just )?(?:{_REPLY}|compute|parse|write|think|check|provide|decide|see|examine|analyze|count|do)\b"
    r"|\b(?:presumably|[Ww]e'll (?:answer|respond|output|produce))\b"
    r"|\b(?:[Tt]his|[Tt]hat|[Ii]t)(?:['\u2019]s| is) (?:presumably|likely|probably|(?:just )?an? (?:\w+ )?(?:request|question|statement|query|instruction))\b"
    rf"|{_BEGIN}The (?:content|question|request|query|input|prompt|instruction|message)(?: (?:is|says|asks|seems)\b|:)"
    rf"|{_BEGIN}(?:So|Thus|Then|Therefore|Hence),? (?:the )?(?:answer|output|respond|return|provide|produce|we|classification|result|I)\b"
    rf"|{_BEGIN}(?:Need to|Must|Should (?:be|answer|respond|output|provide|I|we)|Probably|Possibly|Likely|Maybe|Provide|Ensure|Answer:"
    r"|Just (?:answer|output|respond|give|provide)|No (?:extra|explanation|need))\b(?!:)",
    re.MULTILINE,
)
"""A plan of the answer, or a sentence that lacks its subject."""

_USER = re.compile(
    rf"\b(?:[Tt]he user(?:['\u2019]s)?|User) (?:{_ASKS}|is asking|just|is|{_MESSAGE})\b",
)
_WE_DO = re.compile(rf"\s*(?:\w+[,.]? )?[Ww]e (?:\w+ )?(?:need to|must|should|have to|are asked to|are to) {_DO}\b")


def begins_as_thought(content: str) -> bool:
    """Return True if a text begins as a thought of the model, and soon has a second sign of one."""
    text = content[:_FIRST_PART]
    opening = _OPENING.match(text)
    if opening is None:
        return False
    kind = opening.lastgroup
    if kind != "i" and _PLAN.search(text, opening.end()):
        return True
    names_user = kind in ("i", "short", "task") or (kind == "we" and _WE_DO.match(text) is not None)
    return names_user and _USER.search(text, opening.end()) is not None
