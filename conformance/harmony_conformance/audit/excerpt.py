"""How much of the traffic a report may quote: everything, nothing, or its shape.

Redacted text keeps markers, punctuation, lengths and the words of the protocol itself, and masks every other letter and digit, so that a leak can be
seen for what it is without showing what leaked. Our own words in a finding stay: those that stand so in the source of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from harmony_conformance.audit.own_words import Whose, parts
from harmony_conformance.check import Finding
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import at, items, text
from harmony_ref import HarmonyError


class Excerpts(StrEnum):
    """What of the traffic may stand in a report."""

    REDACTED = "redacted"
    FULL = "full"
    NONE = "none"


_HARMONY = """analysis commentary final assistant system developer user tool functions to json code browser python container
    start end message channel constrain return call reasoning valid channels none low medium high"""
_API = """stop length tool_calls function_call content_filter function choices delta content role error null true false data
    done chat completion chunk object usage prompt_tokens completion_tokens total_tokens reasoning_content thinking text
    event stream application"""
PROTOCOL_WORDS = frozenset(f"{_HARMONY} {_API}".split())
"""Words of the format and of the API, which tell nothing about a user."""

_CHANNEL = "analysis|commentary|final"
_TEXT = re.compile(
    r"(?P<kept><\|[a-z_]{1,20}\|>|⟦[a-z_]{1,20}⟧"  # markers
    rf"|assistant(?:{_CHANNEL})|\b(?:{_CHANNEL})(?=[A-Z])"  # channel words that lost theirs, glued to the text
    rf"|(?i:\b(?:{'|'.join(sorted(PROTOCOL_WORDS, key=len, reverse=True))})\b)|\\[nrt])"
    r"|[^\W_]"
)
_ERROR = re.compile(r"(?P<kind>\w+): (?P<said>.*)(?P<where> \(\w+, line \d+\))", re.DOTALL)
_LETTER, _DIGIT = "x", "0"


def redact(value: str) -> str:
    """The shape of a text: letters become x, digits 0; markers and the words of the protocol stay."""
    return _TEXT.sub(_masked, value)


def redact_finding(finding: Finding, names: Iterable[str] = ()) -> Finding:
    """A finding without what users, models and operators wrote. `names` are texts of the traffic that its message may hold."""
    return replace(
        finding,
        message=_message(finding.message, names),
        at=_message(finding.at, names),
        expected=_value(finding.expected, names),
        actual=_value(finding.actual, names),
        excerpt=redact(finding.excerpt) if finding.excerpt is not None else None,
    )


def strip_finding(finding: Finding, names: Iterable[str] = ()) -> Finding:
    """A finding that says what is wrong and where, and quotes nothing."""
    return replace(redact_finding(finding, names), expected=None, actual=None, excerpt=None)


def apply_excerpts(finding: Finding, excerpts: Excerpts, names: Iterable[str]) -> Finding:
    """The finding as it may be shown."""
    match excerpts:
        case Excerpts.FULL:
            return finding
        case Excerpts.NONE:
            return strip_finding(finding, names)
        case Excerpts.REDACTED:
            return redact_finding(finding, names)


def apply_to_reason(reason: str, excerpts: Excerpts) -> str:
    """A result's reason as it may be shown: what an error of ours says may quote the traffic."""
    error = _ERROR.fullmatch(reason) if excerpts is not Excerpts.FULL else None
    return f"{error['kind']}: {redact(error['said'])}{error['where']}" if error else reason


def names_in(x: Exchange) -> frozenset[str]:
    """The names of functions that an exchange mentions: they are the application's, not the protocol's."""
    declared = {text(at(tool, "function", "name")) for tool in x.tools}
    history = {
        text(at(call, "function", "name")) for message in x.messages for call in items(at(message, "tool_calls"))
    }
    called = {call.name for call in x.turn.tool_calls} if x.turn is not None else set[str]()
    return frozenset(name for name in declared | history | called | _meant(x) if name)


def _meant(x: Exchange) -> set[str]:
    try:
        return {call.name for call in x.meant.calls} if x.meant is not None else set()
    except HarmonyError:  # ids that are no tokens
        return set()


def _message(message: str, names: Iterable[str]) -> str:
    return "".join(
        redact(_unnamed(part.text, names)) if part.whose is Whose.VALUE else part.text for part in parts(message)
    )


def _unnamed(value: str, names: Iterable[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", _mask(name), value)
    return value


def _value(value: str | None, names: Iterable[str]) -> str | None:
    """What was expected or found: mostly of the traffic, so no number stays."""
    if value is None:
        return None
    return "".join(
        part.text if part.whose is Whose.OURS else redact(_unnamed(part.text, names)) for part in parts(value)
    )


def _masked(found: re.Match[str]) -> str:
    return found["kept"] or _mask(found.group())


def _mask(value: str) -> str:
    return "".join(_DIGIT if char.isdigit() else _LETTER if char.isalnum() else char for char in value)
