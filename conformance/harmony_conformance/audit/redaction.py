"""Redaction of quoted traffic in reports: everything, nothing, or redacted text.

Redacted text shows markers, punctuation, lengths and protocol words. Every other letter and digit is masked.
So a leak is recognizable, but its content is not. The template of a finding's message is not masked; each of its values is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum, StrEnum

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, items, text, value_at
from harmony_conformance.judge.check import Finding
from harmony_conformance.redactable_text import Location, RedactableText, ReportText
from harmony_ref import HarmonyError


class Excerpts(StrEnum):
    """Values of `--excerpts`: the quotations of traffic that a report may contain."""

    REDACTED = "redacted"
    FULL = "full"
    NONE = "none"


_HARMONY = """analysis commentary final assistant system developer user tool functions to json code browser python container
    start end message channel constrain return call reasoning valid channels none low medium high"""
_API = """stop length tool_calls function_call content_filter function choices delta content role error null true false data
    done chat completion chunk object usage prompt_tokens completion_tokens total_tokens reasoning_content thinking text
    event stream application"""
PROTOCOL_WORDS = frozenset(f"{_HARMONY} {_API}".split())
"""Words of the Harmony format and of the API, which reveal nothing about a user."""

_PARTS = """after annotations any arguments body byte cached_tokens call_id calls Calls chat_template_kwargs choice completion_tokens_details connection context
    created created_at default description details done_reason enum eval_count eval_duration exchange field finish_reason Formats generated_text go
    header id in index input input_tokens instructions item items line load_duration logprobs messages meta_info metrics model must name nearest
    normal_text of oneOf output output_ids output_text output_tokens parameters parts prompt prompt_eval_count prompt_eval_duration
    prompt_tokens_details properties reasoning_details reasoning_text reasoning_tokens refusal response Response response_format seed special status
    strict summary system_fingerprint text_offset the these token token_logprobs tokenize_response tokens tool_call_id tools Tools top_logprobs
    total_duration type x"""
LOCATION_WORDS = PROTOCOL_WORDS.union(_PARTS.split())
"""Words of locations: parts of an exchange, and members of the APIs."""

_CHANNEL = "analysis|commentary|final"
_CHANNELS = re.compile(_CHANNEL)
_TEXT = re.compile(
    r"(?P<visible><\|[a-z_]{1,20}\|>|⟦[a-z_]{1,20}⟧"  # markers
    rf"|assistant(?:{_CHANNEL})|\b(?:{_CHANNEL})(?=[A-Z])"  # channel words without markers, glued to the text
    rf"|(?i:\b(?:{'|'.join(sorted(PROTOCOL_WORDS, key=len, reverse=True))})\b)|\\[nrt])"
    r"|[^\W_]"
)
_ERROR = re.compile(r"(?P<kind>\w+): (?P<message>.*)(?P<where> \(\w+, line \d+\))", re.DOTALL)
_LETTER, _DIGIT = "x", "0"
_MASKS = frozenset((_LETTER, _DIGIT))
_WORD = re.compile(r"\w+")
_MOST_DIGITS = 5


def redact(value: str) -> str:
    """Return the text with letters replaced by x and digits by 0, except in markers and protocol words."""
    return _TEXT.sub(lambda match: match["visible"] or _shape(match), value)


PLAIN_MEMBERS = frozenset({"method", "path", "headers", "status", "at"})
"""Members of a recorded exchange that are not masked."""


def redact_json(value: Json) -> Json:
    """Return a part of a recorded exchange with its texts redacted, except `PLAIN_MEMBERS`."""
    match value:
        case str():
            return redact(value)
        case list():
            return [redact_json(item) for item in value]
        case dict():
            return {name: item if name in PLAIN_MEMBERS else redact_json(item) for name, item in value.items()}
        case _:
            return value


def is_redacted(value: Json) -> bool:
    """Return True if a value can be one of `redact_json`: its texts have masks, markup, protocol words and channel words alone."""
    match value:
        case str():
            masked = _CHANNELS.sub("", _TEXT.sub(lambda match: "" if match["visible"] else match.group(), value))
            return all(char in _MASKS for char in masked if char.isalnum())
        case list():
            return all(map(is_redacted, value))
        case dict():
            return all(name in PLAIN_MEMBERS or is_redacted(item) for name, item in value.items())
        case _:
            return True


def redact_finding(finding: Finding, names: Iterable[str] = ()) -> Finding:
    """Return the finding without text of users, models and operators. `names` are masked even if they are protocol words."""
    mask = _mask_of(names)
    return replace(
        finding,
        message=_mask_values(finding.message, mask, counts=True),
        location=_location(finding.location, mask),
        expected=finding.expected and _mask_values(finding.expected, mask, counts=False),
        actual=finding.actual and _mask_values(finding.actual, mask, counts=False),
        excerpt=redact(finding.excerpt) if finding.excerpt is not None else None,
    )


def apply_excerpts(finding: Finding, excerpts: Excerpts, names: Iterable[str]) -> Finding:
    """Return the finding in full, redacted, or redacted without expected and actual value and excerpt."""
    if excerpts is Excerpts.FULL:
        return finding
    redacted = redact_finding(finding, names)
    return replace(redacted, expected=None, actual=None, excerpt=None) if excerpts is Excerpts.NONE else redacted


def apply_to_reason(reason: str, excerpts: Excerpts) -> str:
    """Return the reason of a result. The message of an internal error may quote the traffic, so it is redacted."""
    error = _ERROR.fullmatch(reason) if excerpts is not Excerpts.FULL else None
    return f"{error['kind']}: {redact(error['message'])}{error['where']}" if error else reason


def function_names(x: Exchange) -> frozenset[str]:
    """Return the names of functions in an exchange, which belong to the application, not to the protocol."""
    declared = {text(value_at(tool, "function", "name")) for tool in x.tools}
    history = {
        text(value_at(call, "function", "name"))
        for message in x.messages
        for call in items(value_at(message, "tool_calls"))
    }
    called = {call.name for call in x.turn.tool_calls} if x.turn is not None else set[str]()
    try:
        expected = {call.name for call in x.expected_output.calls} if x.expected_output is not None else set[str]()
    except HarmonyError:  # unknown token ids
        expected = set[str]()
    return frozenset(name for name in declared | history | called | expected if name)


def _mask_of(names: Iterable[str]) -> Callable[[str], str]:
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    if not longest_first:
        return redact
    any_name = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return lambda value: redact(any_name.sub(_shape, value))


def _mask_values(wording: ReportText, mask: Callable[[str], str], *, counts: bool) -> ReportText:
    """Mask the values of a text. Small integers are shown if `counts`: in a message they are counts, elsewhere traffic."""
    if not isinstance(wording, RedactableText):
        return wording
    return RedactableText(wording.template, *(_mask_value(value, mask, counts=counts) for value in wording.values))


def _mask_value(value: object, mask: Callable[[str], str], *, counts: bool) -> object:
    match value:
        case RedactableText():
            return _mask_values(value, mask, counts=counts)
        case Enum():
            return value
        case Location():
            return _location(value, mask)
        case int() if counts and abs(value) < 10**_MOST_DIGITS:
            return value
        case _:
            return mask(str(value))


def _location(where: str, mask: Callable[[str], str]) -> Location:
    """Mask the steps of a location except `LOCATION_WORDS` and small numbers. Only the first step has several words."""
    first, *others = where.split("/")
    start = first if all(map(_is_known, _WORD.findall(first))) else mask(first)
    return Location("/".join([start, *(step if _is_known(step) else mask(step) for step in others)]))


def _is_known(word: str) -> bool:
    return word in LOCATION_WORDS or (word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS)


def _shape(match: re.Match[str]) -> str:
    return "".join(_DIGIT if char.isdigit() else _LETTER if char.isalnum() else char for char in match.group())
