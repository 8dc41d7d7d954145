"""An answer that goes on as the user, in plain words, as a model does that was not stopped: a line `User: And Italy?`, and often one that answers it."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import all_folded, all_said, said
from harmony_conformance.evidence.leaks.markers import holds_any, holds_one, without_code
from harmony_conformance.json_value import at, items, strings

_SPEAKERS = ("User", "Human", "USER", "HUMAN")
_TURN = re.compile(r"(?<=\n)[ \t]*(?:#{1,3} ?)?(?:User|Human|USER|HUMAN)[ \t]*:[ \t]*(?P<words>\S[^\n]*)")
_SPEAKER = re.compile(
    r"^[ \t>*#-]*(?:User|Human|Assistant|AI|Bot|ChatGPT|Q|A|Customer|Agent|Interviewer)\b[*\s]*:",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWERS = re.compile(r"^[ \t]*(?:#{1,3} ?)?(?:Assistant|AI|Bot|ChatGPT)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_LEADS_TO_AN_EXAMPLE = (":", "```", "---", "***", "===")
_FEWEST_WORDS = 4
_ASKS_FOR_TALK = re.compile(
    r"\b(?:dialog(?:ue)?s?|conversations?|chats?|chatbots?|transcripts?|scripts?|interviews?|role[- ]?play\w*|plays?|scenes?|skits?|examples?|samples?"
    r"|scenarios?|few-shot|prompts?|logs?|stories|story|templates?|speakers?|turns?|users?|humans?|q ?& ?a|continue|simulate|format)\b",
    re.IGNORECASE,
)
_NEEDED_FOR_TALK = tuple(
    part
    for words in (
        "dialog conversation chat script interview role play scene skit example sample scenario few-shot prompt log stories",
        "story template speaker turn user human q continue simulate format",
    )
    for part in words.split()
)


def goes_on_as_the_user(content: str) -> str | None:
    """The user's turn that an answer goes on with, None where there is none.

    The answer begins as one, not as a talk between two, nothing announces the turn as an example, and it is answered in turn, or is a sentence that ends
    the text.
    """
    if not any(speaker in content for speaker in _SPEAKERS):
        return None
    plain = without_code(content)
    found = _TURN.search(plain)
    if found is None:
        return None
    before, behind = plain[: found.start()].rstrip(), plain[found.end() :]
    if not before or before.endswith(_LEADS_TO_AN_EXAMPLE) or _SPEAKER.search(before):
        return None
    is_answered = _ANSWERS.search(behind) is not None
    is_last = not behind.strip() and len(found["words"].split()) >= _FEWEST_WORDS
    return found.group().strip() if is_answered or is_last else None


def asks_for_talk(x: Exchange) -> bool:
    """Whether the request is about people who talk, or shows how they do."""
    may_ask = holds_one(all_folded(x), _NEEDED_FOR_TALK)
    asked = [
        text
        for message in items(at(x.chat_request, "messages"))
        if may_ask and at(message, "role") == "user"
        for text in strings(at(message, "content"))
    ]
    if any(holds_any(text, _NEEDED_FOR_TALK) and _ASKS_FOR_TALK.search(text) for text in asked):
        return True
    return ":" in all_said(x) and any(":" in text and _SPEAKER.search(text) for text in said(x))
