"""Fixes of whole answers: pure functions of the JSON value, each for one kind of finding. They return None if there is nothing to fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256

from harmony_conformance.checks.helpers.api_words import words_of
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.text.annotations import move_annotations
from harmony_proxy.repair.text.api_dialects import (
    ChoiceContent,
    Dialect,
    default_kind,
    object_tool_call,
    tool_call,
    with_reasoning_tokens,
)
from harmony_proxy.repair.text.leak_prefixes import BEGINS_GLUED, CALL_SEAM, MARKER, SEAM
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser, NoDestinationError, ParsedText, TextKind
from harmony_proxy.repair.text.logprobs import entries_for_text
from harmony_proxy.repair.text.responses_answer import with_status

_CODE = re.compile(r"```[\s\S]*?```|~~~[\s\S]*?~~~|`[^`\n]+`")
_PRIVATE = 0xE000
_FUNCTIONS = "functions."
_RESIDUE = re.compile(r"(?:\s*(?:commentary|analysis|final|json|code))+\Z")
_FOREIGN_FINISH_REASONS: Mapping[str, str] = {
    "eos_token": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_token": "stop",
    "max_tokens": "length",
    "max_length": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}
"""Finish reasons of other APIs, with their equivalents in Chat Completions."""
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


@dataclass(frozen=True, kw_only=True)
class FailingAnswer:
    """A failing whole answer: the exchange, its current JSON value, the findings by check, and the declared functions."""

    x: Exchange
    dialect: Dialect
    value: Json
    findings: Mapping[str, tuple[Finding, ...]]
    declared_functions: frozenset[str] = field(default_factory=frozenset[str])

    def places(self, choice: int) -> frozenset[str]:
        """Return the locations of the findings in a choice."""
        prefix = f"choice {choice}: " if choice else ""
        return frozenset(
            one.location.removeprefix(prefix)
            for findings in self.findings.values()
            for one in findings
            if one.location.startswith(prefix) and (choice or not one.location.startswith("choice "))
        )


Fix = Callable[[FailingAnswer], "Json"]


def declared_functions(x: Exchange) -> frozenset[str]:
    """Return the names of the functions that the request declares."""
    return frozenset(text(value_at(tool, "function", "name")) for tool in x.tools) - {""}


def new_id(body: bytes, choice: int, number: int) -> str:
    """Return an id for a call that has none: unique in its conversation, and always the same for the same request."""
    return "call_" + sha256(b"%d %d " % (choice, number) + body).hexdigest()[:24]


def clean_name(name: str, declared: Collection[str]) -> str | None:
    """Return the declared function that remains of a name without header residue; None if there is no such function."""
    cut = MARKER.split(name)[0].strip()
    for one in (cut, _RESIDUE.sub("", cut)):
        for bare in (one, one.removeprefix(_FUNCTIONS)):
            if bare in declared:
                return bare
    return None


def rewrite_from_ids(answer: FailingAnswer) -> Json:
    """Rewrite the answer from its emitted token ids."""
    expected = answer.x.expected_output
    part = next((part for part in answer.dialect.parts(answer.value) if part.choice == 0), None)
    if expected is None or part is None or answer.x.script is not None:
        return None
    parsed = [
        *(ParsedText(kind=TextKind.REASONING, text=one) for one in expected.reasoning),
        *(ParsedText(kind=TextKind.CONTENT, text=one) for one in expected.user_texts),
    ]
    for call in expected.calls:
        if call.name not in answer.declared_functions:
            return None
        parsed += [ParsedText(kind=TextKind.CALL, name=call.name), ParsedText(kind=TextKind.CALL, text=call.arguments)]
    texts = {answer.dialect.content, *answer.dialect.reasoning, "tool_calls"}
    retained = {name: one for name, one in part.message.items() if name not in texts}
    return _replace_messages(
        answer, {0: _build_message(answer, part, retained, parsed, "\n")}, {0: expected.finish_reason}
    )


def _per_message(fix: Callable[[FailingAnswer, ChoiceContent], JsonObject | None]) -> Fix:
    """Apply a fix of one message to the messages of all choices."""

    @wraps(fix)
    def fix_all(answer: FailingAnswer) -> Json:
        parts = answer.dialect.parts(answer.value)
        fixed = {part.choice: message for part in parts if (message := fix(answer, part)) is not None}
        return _replace_messages(answer, fixed, {}) if fixed else None

    return fix_all


def _per_call(fix: Callable[[FailingAnswer, JsonObject, str, Collection[str]], JsonObject]) -> Fix:
    """Apply a fix of one call to all calls. Arguments: the answer, the call, its location, and the locations of findings."""

    @wraps(fix)
    def fix_calls(answer: FailingAnswer, part: ChoiceContent) -> JsonObject | None:
        places = frozenset(place.lstrip("/") for place in answer.places(part.choice))
        calls = items(part.message.get("tool_calls"))
        fixed: list[Json] = [
            fix(answer, members(call), f"tool_calls/{index}", places) for index, call in enumerate(calls)
        ]
        return {**part.message, "tool_calls": fixed} if fixed != calls else None

    return _per_message(fix_calls)


@_per_message
def rewrite_from_text(answer: FailingAnswer, part: ChoiceContent) -> JsonObject | None:
    """Rewrite the answer from its leaking texts, parsed as Harmony."""
    places = {_top_member(place) for place in answer.places(part.choice)}
    leaking = [name for name, _ in answer.dialect.texts(part) if _has_finding(answer.dialect, name, places)]
    if not leaking:
        return None
    leaking.sort(key=lambda name: name == answer.dialect.content)  # the model wrote the reasoning first
    texts = dict(answer.dialect.texts(part))
    parsed = [one for name in leaking for one in _parse(answer, name, texts[name])]
    retained = {name: one for name, one in part.message.items() if name not in leaking}
    return _build_message(answer, part, retained, parsed, "")


@_per_message
def remove_repetition(answer: FailingAnswer, part: ChoiceContent) -> JsonObject | None:
    """Remove the reasoning from the start of the content that repeats it verbatim."""
    content = text(part.message.get(answer.dialect.content))
    reasoning = next((one for name in answer.dialect.reasoning if (one := text(part.message.get(name)).strip())), "")
    is_repeated = reasoning and content.startswith(reasoning) and answer.places(part.choice)
    return {**part.message, answer.dialect.content: content[len(reasoning) :].lstrip()} if is_repeated else None


@_per_call
def clean_names(answer: FailingAnswer, call: JsonObject, location: str, places: Collection[str]) -> JsonObject:
    """Remove header residue from the names of called functions."""
    name = clean_name(text(value_at(call, "function", "name")), answer.declared_functions)
    if f"{location}/function/name" not in places or name is None:
        return call
    return {**call, "function": {**members(call.get("function")), "name": name}}


@_per_call
def clean_call_ids(answer: FailingAnswer, call: JsonObject, location: str, places: Collection[str]) -> JsonObject:
    """Remove markers from the ids of calls."""
    del answer
    identity = MARKER.sub("", text(call.get("id")))
    return {**call, "id": identity} if f"{location}/id" in places and identity else call


@_per_call
def truncate_arguments(answer: FailingAnswer, call: JsonObject, location: str, places: Collection[str]) -> JsonObject:
    """Remove the markers after the arguments of calls."""
    del answer
    arguments = value_at(call, "function", "arguments")
    if f"{location}/function/arguments" not in places or not isinstance(arguments, str):
        return call
    truncated = TRAILING_MARKERS.sub("", arguments)
    return {**call, "function": {**members(call.get("function")), "arguments": truncated}}


TRAILING_MARKERS = re.compile(rf"(?:\s*(?:{MARKER.pattern.replace('?P<marker>', '?:')}))+\s*\Z")


@_per_message
def remove_trailing_markers(answer: FailingAnswer, part: ChoiceContent) -> JsonObject | None:
    """Remove the markers at the end of the content or reasoning."""
    places = {_top_member(place) for place in answer.places(part.choice)}
    message = dict(part.message)
    for name, fragment in answer.dialect.texts(part):
        if _has_finding(answer.dialect, name, places):
            message[name] = TRAILING_MARKERS.sub("", fragment)
    return message if message != part.message else None


@_per_message
def rewrite_refusal(answer: FailingAnswer, part: ChoiceContent) -> JsonObject | None:
    """Remove the header from the refusal."""
    refusal = part.message.get("refusal")
    if not isinstance(refusal, str) or "refusal" not in answer.places(part.choice):
        return None
    parsed = _parse(answer, answer.dialect.content, refusal)
    return {**part.message, "refusal": "".join(one.text for one in parsed if one.kind is TextKind.CONTENT)}


def correct_finish_reason(answer: FailingAnswer) -> Json:
    """Correct the finish reason to match the content of the answer, if that is certain."""
    reasons: dict[int, str] = {}
    for part in answer.dialect.parts(answer.value):
        if words_of(answer.x).end_place in answer.places(part.choice):
            fixed = derive_finish_reason(part.finish, calls=bool(items(part.message.get("tool_calls"))))
            if answer.x.reached_stop and part.finish == "length":
                fixed = "tool_calls" if items(part.message.get("tool_calls")) else "stop"
            if answer.x.hit_token_limit:
                fixed = "length"
            if fixed is not None:
                reasons[part.choice] = fixed
    return _replace_messages(answer, {}, reasons) if reasons else None


def correct_status(answer: FailingAnswer) -> Json:
    """Set the status of a response from the end of its emitted tokens."""
    if not (answer.x.hit_token_limit or answer.x.reached_stop):
        return None
    return with_status(members(answer.value), is_cut=answer.x.hit_token_limit)


def derive_finish_reason(reason: str | None, *, calls: bool) -> str | None:
    """Return the correct finish reason in place of a wrong one; None if it cannot be determined."""
    known = reason if reason in _FINISH_REASONS else _FOREIGN_FINISH_REASONS.get((reason or "").lower())
    if known == "stop" and calls:
        return "tool_calls"
    if known == "tool_calls" and not calls:
        return "stop"
    return known


def _build_message(
    answer: FailingAnswer, part: ChoiceContent, retained: JsonObject, parsed: Sequence[ParsedText], separator: str
) -> JsonObject:
    """Return the retained members of a message with the parsed texts and calls added. `separator` joins texts of one kind."""
    dialect = answer.dialect
    reasoning_member = next((name for name in dialect.reasoning if name in part.message), dialect.reasoning[0])
    new_content, new_reasoning = (
        separator.join(one.text for one in parsed if one.kind is kind)
        for kind in (TextKind.CONTENT, TextKind.REASONING)
    )
    # retained content did not leak: the new content leaked into the reasoning, which comes first
    content = new_content + text(retained.get(dialect.content))
    reasoning = "\n".join(one for one in (text(retained.get(reasoning_member)), new_reasoning) if one)
    calls = [*items(retained.get("tool_calls")), *_build_calls(answer, part.choice, parsed)]
    message = {
        **retained,
        dialect.content: None if calls and not content and not dialect.calls_are_whole else content,
    }
    if reasoning:
        message[reasoning_member] = reasoning
    if calls:
        message["tool_calls"] = calls
    if annotations := items(retained.get("annotations")):
        message["annotations"] = [
            one for _, one in move_annotations(annotations, text(part.message.get(dialect.content)), content)
        ]
    return {**{name: message[name] for name in part.message if name in message}, **message}


def _build_calls(answer: FailingAnswer, choice: int, parsed: Sequence[ParsedText]) -> list[Json]:
    calls: list[tuple[str, str]] = []
    for one in parsed:
        if one.kind is TextKind.CALL and one.name is not None:
            calls.append((one.name, ""))
        elif one.kind is TextKind.CALL and calls:
            calls[-1] = (calls[-1][0], calls[-1][1] + one.text)
    if answer.dialect.calls_are_whole:
        return [object_tool_call(name, arguments) for name, arguments in calls]
    return [
        tool_call(name, arguments.strip(), index=None, identity=new_id(answer.x.request.body, choice, number))
        for number, (name, arguments) in enumerate(calls)
    ]


def _parse(answer: FailingAnswer, member: str, leaked: str) -> list[ParsedText]:
    """Parse a leaked text as Harmony, except for Markdown code that quotes markers.

    Raises:
        NoDestinationError: a message has no place in the answer.
    """
    codes = _CODE.findall(leaked)
    hidden = leaked
    if any(MARKER.search(code) for code in codes):
        for place, code in enumerate(codes[:0x1000]):
            hidden = hidden.replace(code, chr(_PRIVATE + place), 1)
    glued = BEGINS_GLUED.match(hidden) is not None and any(one.search(hidden) for one in (SEAM, CALL_SEAM))
    home = default_kind(answer.dialect, member)
    first = next((one for one in SEAM.finditer(hidden) if one["channel"] == "final"), None)
    is_thought = (
        home is TextKind.CONTENT and not glued and first is not None and first.start() and not MARKER.search(hidden)
    )
    parser = LeakedTextParser(TextKind.REASONING if is_thought else home, answer.declared_functions, glued=glued)
    parsed = [*parser.feed(hidden), *parser.close()]
    if hidden == leaked:
        return parsed
    restored = {_PRIVATE + number: code for number, code in enumerate(codes)}
    return [ParsedText(kind=one.kind, name=one.name, text=one.text.translate(restored)) for one in parsed]


def _top_member(place: str) -> str:
    return place.lstrip("/").partition("/")[0]


def _has_finding(dialect: Dialect, member: str, places: Collection[str]) -> bool:
    """Return True if a member has a finding. Findings use the member names of Chat Completions."""
    if member == dialect.content:
        return "content" in places
    return member in places or (member == "thinking" and "reasoning" in places)


def _replace_messages(
    answer: FailingAnswer, changed: Mapping[int, JsonObject], finish: Mapping[int, str | None]
) -> Json:
    """Return the value with these messages and finish reasons. `stop` becomes `tool_calls` where calls are new."""
    dialect, value = answer.dialect, answer.value
    reasons = {choice: reason for choice, reason in finish.items() if reason is not None}
    for part in dialect.parts(answer.value):
        message = changed.get(part.choice)
        if message is None:
            continue
        has_new_calls = items(message.get("tool_calls")) and not items(part.message.get("tool_calls"))
        if dialect.finishes_with_calls and has_new_calls and part.finish == "stop":
            reasons[part.choice] = "tool_calls"
        content = text(message.get(dialect.content))
        if content != text(part.message.get(dialect.content)) and (entries := dialect.entries(value, part.choice)):
            value = dialect.with_entries(value, part.choice, entries_for_text(entries, content))
    values = dialect.rewrite(value, {choice: [message] for choice, message in changed.items()}, reasons)
    reasoning = (text(message.get(name)) for message in changed.values() for name in dialect.reasoning)
    return with_reasoning_tokens(values[0], "".join(reasoning)) if values else None


__all__ = [
    "TRAILING_MARKERS",
    "FailingAnswer",
    "NoDestinationError",
    "clean_name",
    "declared_functions",
    "derive_finish_reason",
    "new_id",
]
