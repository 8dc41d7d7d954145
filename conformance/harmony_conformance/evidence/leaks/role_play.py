"""Detect an answer that continues with a user's turn in plain text (`User: And Italy?`), as if generation was not stopped."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import folded_request_texts, joined_request_texts, request_texts
from harmony_conformance.evidence.leaks.markers import has_any_folded_word, has_any_word, remove_code
from harmony_conformance.json_value import strings, value_at

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
_NEEDED_FOR_TALK = (
    *("dialog", "conversation", "chat", "script", "interview", "role", "play", "scene", "skit", "example", "sample"),
    *("scenario", "few-shot", "prompt", "log", "stories", "story", "template", "speaker", "turn", "user", "human"),
    *("q&", "q &", "continue", "simulate", "format"),
)


def find_user_turn(content: str) -> str | None:
    """Return the first user's turn in an answer, or None.

    The answer must not begin as a dialogue, and the text before the turn must not announce an example.
    The turn must be answered in the same text, or be a sentence at its end.
    """
    if not any(speaker in content for speaker in _SPEAKERS):
        return None
    plain = remove_code(content)
    turn = _TURN.search(plain)
    if turn is None:
        return None
    before, after = plain[: turn.start()].rstrip(), plain[turn.end() :]
    if not before or before.endswith(_LEADS_TO_AN_EXAMPLE) or _SPEAKER.search(before):
        return None
    is_answered = _ANSWERS.search(after) is not None
    is_last = not after.strip() and len(turn["words"].split()) >= _FEWEST_WORDS
    return turn.group().strip() if is_answered or is_last else None


def is_dialogue_requested(x: Exchange) -> bool:
    """Return True if the request mentions a dialogue or contains one."""
    if may_ask_for_talk(folded_request_texts(x)):
        user_texts = (
            text
            for message in x.messages
            if value_at(message, "role") == "user"
            for text in strings(value_at(message, "content"))
        )
        if any(map(asks_for_talk, user_texts)):
            return True
    return ":" in joined_request_texts(x) and any(map(has_speaker, request_texts(x)))


def may_ask_for_talk(folded_text: str) -> bool:
    """Return False if a text in folded case does not mention a dialogue."""
    return has_any_folded_word(folded_text, _NEEDED_FOR_TALK)


def asks_for_talk(text: str) -> bool:
    """Return True if a user's text mentions a dialogue."""
    return has_any_word(text, _NEEDED_FOR_TALK) and _ASKS_FOR_TALK.search(text) is not None


def has_speaker(text: str) -> bool:
    """Return True if a text of a request has a line with the name of its speaker."""
    return ":" in text and _SPEAKER.search(text) is not None
