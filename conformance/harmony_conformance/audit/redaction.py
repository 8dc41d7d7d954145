"""How much of the traffic a report may quote: everything, nothing, or its shape.

Redacted text keeps markers, punctuation, lengths and the words of the protocol itself, and masks every other letter and digit, so that a leak can be
seen for what it is without showing what leaked. The template of a finding's message is our own and stays; each value in it is masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, StrEnum

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import at, items, text
from harmony_conformance.judge.check import Finding
from harmony_conformance.redactable_text import Location, RedactableText, ReportText
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

_PARTS = """after annotations any arguments body byte cached_tokens call_id calls Calls chat_template_kwargs choice completion_tokens_details connection context
    created created_at default description details done_reason enum eval_count eval_duration exchange field finish_reason Formats generated_text go
    header id in index input input_tokens instructions item items line load_duration logprobs messages meta_info metrics model must name nearest
    normal_text of oneOf output output_ids output_text output_tokens parameters parts prompt prompt_eval_count prompt_eval_duration
    prompt_tokens_details properties reasoning_details reasoning_text reasoning_tokens refusal response Response response_format seed special status
    strict summary system_fingerprint text_offset the these token token_logprobs tokenize_response tokens tool_call_id tools Tools top_logprobs
    total_duration type x"""
LOCATION_WORDS = PROTOCOL_WORDS.union(_PARTS.split())
"""Words of locations: parts of an exchange, and members that the APIs name."""

_CHANNEL = "analysis|commentary|final"
_TEXT = re.compile(
    r"(?P<kept><\|[a-z_]{1,20}\|>|⟦[a-z_]{1,20}⟧"  # markers
    rf"|assistant(?:{_CHANNEL})|\b(?:{_CHANNEL})(?=[A-Z])"  # channel words that lost theirs, glued to the text
    rf"|(?i:\b(?:{'|'.join(sorted(PROTOCOL_WORDS, key=len, reverse=True))})\b)|\\[nrt])"
    r"|[^\W_]"
)
_ERROR = re.compile(r"(?P<kind>\w+): (?P<said>.*)(?P<where> \(\w+, line \d+\))", re.DOTALL)
_LETTER, _DIGIT = "x", "0"
_WORD = re.compile(r"\w+")
_MOST_DIGITS = 5


def redact(value: str) -> str:
    """The shape of a text: letters become x, digits 0; markers and the words of the protocol stay."""
    return _TEXT.sub(lambda found: found["kept"] or _shape(found), value)


def redact_finding(finding: Finding, names: Iterable[str] = ()) -> Finding:
    """Return a finding without what users, models and operators wrote. `names` are masked even if they are words of the protocol."""
    mask = _mask_of(names)
    return replace(
        finding,
        message=_masked(finding.message, mask, counts=True),
        at=_location(finding.at, mask),
        expected=finding.expected and _masked(finding.expected, mask, counts=False),
        actual=finding.actual and _masked(finding.actual, mask, counts=False),
        excerpt=redact(finding.excerpt) if finding.excerpt is not None else None,
    )


def apply_excerpts(finding: Finding, excerpts: Excerpts, names: Iterable[str]) -> Finding:
    """The finding as it may be shown: whole, redacted, or with what is wrong and where alone."""
    if excerpts is Excerpts.FULL:
        return finding
    redacted = redact_finding(finding, names)
    return replace(redacted, expected=None, actual=None, excerpt=None) if excerpts is Excerpts.NONE else redacted


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
        return {call.name for call in x.expected_output.calls} if x.expected_output is not None else set()
    except HarmonyError:  # ids that are no tokens
        return set()


def _mask_of(names: Iterable[str]) -> Callable[[str], str]:
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    if not longest_first:
        return redact
    named = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return lambda value: redact(named.sub(_shape, value))


def _masked(wording: ReportText, mask: Callable[[str], str], *, counts: bool) -> ReportText:
    """Mask the values of a phrase. A count stays in a message; what was expected or found may be a number of the traffic, and none stays."""
    if not isinstance(wording, RedactableText):
        return wording
    return RedactableText(wording.template, *(_masked_value(value, mask, counts=counts) for value in wording.values))


def _masked_value(value: object, mask: Callable[[str], str], *, counts: bool) -> object:
    match value:
        case RedactableText():
            return _masked(value, mask, counts=counts)
        case Enum():
            return value
        case Location():
            return _location(value, mask)
        case int() if counts and abs(value) < 10**_MOST_DIGITS:
            return value
        case _:
            return mask(str(value))


def _location(where: str, mask: Callable[[str], str]) -> Location:
    """A location with each step masked that has another word than those of `LOCATION_WORDS`, or a large number. Only the first step has several words."""
    first, *others = where.split("/")
    begin = first if all(map(_is_known, _WORD.findall(first))) else mask(first)
    return Location("/".join([begin, *(step if _is_known(step) else mask(step) for step in others)]))


def _is_known(word: str) -> bool:
    return word in LOCATION_WORDS or (word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS)


def _shape(found: re.Match[str]) -> str:
    return "".join(_DIGIT if char.isdigit() else _LETTER if char.isalnum() else char for char in found.group())
