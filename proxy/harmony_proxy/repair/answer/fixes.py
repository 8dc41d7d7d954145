"""Repairs of whole answers: pure changes of the JSON value, each for what a finding names. None where there is nothing to be done."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.text.annotations import moved
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect, called, counted, home_of, object_called
from harmony_proxy.repair.text.leak_prefixes import BEGINS_GLUED, CALL_SEAM, MARKER, SEAM
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser, NoDestinationError, ParsedText, TextKind
from harmony_proxy.repair.text.logprobs import spelled_by
from harmony_proxy.repair.text.responses_answer import with_status

_CODE = re.compile(r"```[\s\S]*?```|~~~[\s\S]*?~~~|`[^`\n]+`")
_PRIVATE = 0xE000
_FUNCTIONS = "functions."
_RESIDUE = re.compile(r"(?:\s*(?:commentary|analysis|final|json|code))+\Z")
_WORDS: Mapping[str, str] = {
    "eos_token": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_token": "stop",
    "max_tokens": "length",
    "max_length": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
}
"""Finish reasons of other APIs that mean one of Chat Completions."""
_KNOWN = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


@dataclass(frozen=True, kw_only=True)
class FailingAnswer:
    """A whole answer that fails: the exchange, its value as it is now, and what was found, by choice and place."""

    x: Exchange
    dialect: Dialect
    value: Json
    found: Mapping[str, tuple[Finding, ...]]
    declared: frozenset[str] = field(default_factory=frozenset[str])

    def places(self, choice: int) -> frozenset[str]:
        """Where in a choice something was found."""
        before = f"choice {choice}: " if choice else ""
        return frozenset(
            one.at.removeprefix(before)
            for findings in self.found.values()
            for one in findings
            if one.at.startswith(before) and (choice or not one.at.startswith("choice "))
        )


Mending = Callable[[FailingAnswer], "Json"]


def declared_by(x: Exchange) -> frozenset[str]:
    """The functions that the request declares."""
    return frozenset(text(at(tool, "function", "name")) for tool in x.tools) - {""}


def new_id(body: bytes, choice: int, number: int) -> str:
    """An id for a call that the server did not give one: new in its conversation, and the same for the same request."""
    return "call_" + sha256(b"%d %d " % (choice, number) + body).hexdigest()[:24]


def clean_name(name: str, declared: Collection[str]) -> str | None:
    """The declared function that a name is with what was left of its header, None where it is none."""
    cut = MARKER.split(name)[0].strip()
    for one in (cut, _RESIDUE.sub("", cut)):
        for bare in (one, one.removeprefix(_FUNCTIONS)):
            if bare in declared:
                return bare
    return None


def told_from_ids(answer: FailingAnswer) -> Json:
    """The answer as the emitted ids mean it."""
    meant, x = answer.x.expected_output, answer.x
    part = next((part for part in answer.dialect.parts(answer.value) if part.choice == 0), None)
    if meant is None or part is None or x.script is not None:
        return None
    said = [
        *(ParsedText(kind=TextKind.REASONING, text=one) for one in meant.reasoning),
        *(ParsedText(kind=TextKind.CONTENT, text=one) for one in meant.shown),
    ]
    for call in meant.calls:
        if call.name not in answer.declared:
            return None
        said += [ParsedText(kind=TextKind.CALL, name=call.name), ParsedText(kind=TextKind.CALL, text=call.arguments)]
    texts = {answer.dialect.content, *answer.dialect.reasoning, "tool_calls"}
    bare = {name: one for name, one in part.said.items() if name not in texts}
    kept = next((name for name in answer.dialect.reasoning if name in part.said), answer.dialect.reasoning[0])
    return _put(answer, {0: _Telling(answer, part, bare, kept).told(said, between="\n")}, {0: meant.finish})


def told_from_text(answer: FailingAnswer) -> Json:
    """The answer as its leaked texts mean it, read as the Harmony they are."""
    changed: dict[int, JsonObject] = {}
    for part in answer.dialect.parts(answer.value):
        places = {_first_step(place) for place in answer.places(part.choice)}
        leaking = [name for name, _ in answer.dialect.texts(part) if _is_found(answer.dialect, name, places)]
        if not leaking:
            continue
        leaking.sort(key=lambda name: name == answer.dialect.content)  # what stands in the reasoning was said before
        texts = dict(answer.dialect.texts(part))
        said = [one for name in leaking for one in _read(answer, name, texts[name])]
        bare = {name: one for name, one in part.said.items() if name not in leaking}
        kept = next((name for name in answer.dialect.reasoning if name in part.said), answer.dialect.reasoning[0])
        changed[part.choice] = _Telling(answer, part, bare, kept).told(said, between="")
    return _put(answer, changed, {}) if changed else None


def repetition_removed(answer: FailingAnswer) -> Json:
    """The content without the reasoning that it repeats word for word."""
    changed: dict[int, JsonObject] = {}
    for part in answer.dialect.parts(answer.value):
        content = text(part.said.get(answer.dialect.content))
        thought = next((one for name in answer.dialect.reasoning if (one := text(part.said.get(name)).strip())), "")
        if thought and content.startswith(thought) and answer.places(part.choice):
            changed[part.choice] = {**part.said, answer.dialect.content: content[len(thought) :].lstrip()}
    return _put(answer, changed, {}) if changed else None


def names_cleaned(answer: FailingAnswer) -> Json:
    """The names of called functions without what was left of their headers."""

    def clean(call: JsonObject, where: str, places: Collection[str]) -> JsonObject:
        name = clean_name(text(at(call, "function", "name")), answer.declared)
        if f"{where}/function/name" not in places or name is None:
            return call
        return {**call, "function": {**members(call.get("function")), "name": name}}

    return _with_calls(answer, clean)


def call_ids_cleaned(answer: FailingAnswer) -> Json:
    """The ids of calls without markers."""

    def clean(call: JsonObject, where: str, places: Collection[str]) -> JsonObject:
        identity = MARKER.sub("", text(call.get("id")))
        return {**call, "id": identity} if f"{where}/id" in places and identity else call

    return _with_calls(answer, clean)


def arguments_cut(answer: FailingAnswer) -> Json:
    """Arguments without the markers behind them."""

    def clean(call: JsonObject, where: str, places: Collection[str]) -> JsonObject:
        arguments = at(call, "function", "arguments")
        if f"{where}/function/arguments" not in places or not isinstance(arguments, str):
            return call
        ended = _MARKERS_AT_THE_END.sub("", arguments)
        return {**call, "function": {**members(call.get("function")), "arguments": ended}}

    return _with_calls(answer, clean)


_MARKERS_AT_THE_END = re.compile(rf"(?:\s*(?:{MARKER.pattern.replace('?P<marker>', '?:')}))+\s*\Z")


def markers_cut(answer: FailingAnswer) -> Json:
    """The content without the markers at its end."""
    changed: dict[int, JsonObject] = {}
    for part in answer.dialect.parts(answer.value):
        places = {_first_step(place) for place in answer.places(part.choice)}
        said = dict(part.said)
        for name, told in answer.dialect.texts(part):
            if _is_found(answer.dialect, name, places):
                said[name] = _MARKERS_AT_THE_END.sub("", told)
        if said != part.said:
            changed[part.choice] = said
    return _put(answer, changed, {}) if changed else None


def refusal_told(answer: FailingAnswer) -> Json:
    """The refusal without its header."""
    changed: dict[int, JsonObject] = {}
    for part in answer.dialect.parts(answer.value):
        refusal = part.said.get("refusal")
        if isinstance(refusal, str) and "refusal" in answer.places(part.choice):
            said = _read(answer, answer.dialect.content, refusal)
            told = "".join(one.text for one in said if one.kind is TextKind.CONTENT)
            changed[part.choice] = {**part.said, "refusal": told}
    return _put(answer, changed, {}) if changed else None


def finish_mended(answer: FailingAnswer) -> Json:
    """The finish reason that goes with what the answer holds, where that is certain."""
    finish: dict[int, str] = {}
    for part in answer.dialect.parts(answer.value):
        if "/finish_reason" in answer.places(part.choice):
            mended = finish_of(part.finish, calls=bool(items(part.said.get("tool_calls"))))
            if answer.x.reached_stop and part.finish == "length":
                mended = "tool_calls" if items(part.said.get("tool_calls")) else "stop"
            if answer.x.hit_token_limit:
                mended = "length"
            if mended is not None:
                finish[part.choice] = mended
    return _put(answer, {}, finish) if finish else None


def status_mended(answer: FailingAnswer) -> Json:
    """The status of a response that goes with how the emitted tokens end."""
    if not (answer.x.hit_token_limit or answer.x.reached_stop):
        return None
    return with_status(members(answer.value), is_cut=answer.x.hit_token_limit)


def finish_of(said: str | None, *, calls: bool) -> str | None:
    """The finish reason that is right in the place of one that is wrong, None where nobody can tell."""
    meant = said if said in _KNOWN else _WORDS.get((said or "").lower())
    if meant == "stop" and calls:
        return "tool_calls"
    if meant == "tool_calls" and not calls:
        return "stop"
    return meant


@dataclass(kw_only=False)
class _Telling:
    """One message put together: what stays of it, and the member that takes reasoning."""

    answer: FailingAnswer
    part: ChoiceContent
    bare: JsonObject
    reasoning: str

    def told(self, said: Sequence[ParsedText], *, between: str) -> JsonObject:
        """The message that says this beside what stays of it."""
        dialect = self.answer.dialect
        content = _joined(said, TextKind.CONTENT, between)
        reasoning = _joined(said, TextKind.REASONING, between)
        calls = [*items(self.bare.get("tool_calls")), *self._calls(said)]
        kept_content = text(self.bare.get(dialect.content))
        kept_reasoning = text(self.bare.get(self.reasoning))
        whole_content = (
            content + kept_content
        )  # which did not leak, so that what was found stood in the reasoning, before it
        message = {
            **self.bare,
            dialect.content: None if calls and not whole_content and not dialect.calls_are_whole else whole_content,
        }
        if kept_reasoning or reasoning:
            message[self.reasoning] = "\n".join(one for one in (kept_reasoning, reasoning) if one)
        if calls:
            message["tool_calls"] = calls
        if cited := items(self.bare.get("annotations")):
            kept: list[Json] = [
                one for _, one in moved(cited, text(self.part.said.get(dialect.content)), whole_content)
            ]
            message["annotations"] = kept
        ordered = {name: message[name] for name in self.part.said if name in message}
        return {**ordered, **message}

    def _calls(self, said: Sequence[ParsedText]) -> list[Json]:
        made: list[tuple[str, str]] = []
        for one in said:
            if one.kind is TextKind.CALL and one.name is not None:
                made.append((one.name, ""))
            elif one.kind is TextKind.CALL and made:
                made[-1] = (made[-1][0], made[-1][1] + one.text)
        if self.answer.dialect.calls_are_whole:
            return [object_called(name, arguments) for name, arguments in made]
        body = self.answer.x.request.body
        return [
            called(name, arguments.strip(), index=None, identity=new_id(body, self.part.choice, number))
            for number, (name, arguments) in enumerate(made)
        ]


def _joined(said: Sequence[ParsedText], kind: TextKind, between: str) -> str:
    return between.join(one.text for one in said if one.kind is kind)


def _read(answer: FailingAnswer, member: str, told: str) -> list[ParsedText]:
    """A leaked text read; what stands in code is left alone.

    Raises:
        NoPlace: a message has no place in the answer.
    """
    codes = _CODE.findall(told)
    hidden = told
    if any(MARKER.search(code) for code in codes):
        for place, code in enumerate(codes[:0x1000]):
            hidden = hidden.replace(code, chr(_PRIVATE + place), 1)
    glued = BEGINS_GLUED.match(hidden) is not None and any(one.search(hidden) for one in (SEAM, CALL_SEAM))
    home = home_of(answer.dialect, member)
    first = next((one for one in SEAM.finditer(hidden) if one["channel"] == "final"), None)
    is_thought = (
        home is TextKind.CONTENT and not glued and first is not None and first.start() and not MARKER.search(hidden)
    )
    reader = LeakedTextParser(TextKind.REASONING if is_thought else home, answer.declared, glued=glued)
    said = [*reader.feed(hidden), *reader.close()]
    if hidden == told:
        return said
    return [ParsedText(kind=one.kind, name=one.name, text=_shown(one.text, codes)) for one in said]


def _shown(told: str, codes: Sequence[str]) -> str:
    return "".join(
        codes[ord(letter) - _PRIVATE] if 0 <= ord(letter) - _PRIVATE < len(codes) else letter for letter in told
    )


def _first_step(place: str) -> str:
    return place.lstrip("/").partition("/")[0]


def _is_found(dialect: Dialect, member: str, places: Collection[str]) -> bool:
    """Whether something was found in a member, which the judge knows under its name of Chat Completions."""
    if member == dialect.content:
        return "content" in places
    return member in places or (member == "thinking" and "reasoning" in places)


def _with_calls(answer: FailingAnswer, clean: Callable[[JsonObject, str, Collection[str]], JsonObject]) -> Json:
    changed: dict[int, JsonObject] = {}
    for part in answer.dialect.parts(answer.value):
        places = frozenset(place.lstrip("/") for place in answer.places(part.choice))
        calls = items(part.said.get("tool_calls"))
        cleaned: list[Json] = [clean(members(call), f"tool_calls/{index}", places) for index, call in enumerate(calls)]
        if cleaned != calls:
            changed[part.choice] = {**part.said, "tool_calls": cleaned}
    return _put(answer, changed, {}) if changed else None


def _put(answer: FailingAnswer, changed: Mapping[int, JsonObject], finish: Mapping[int, str | None]) -> Json:
    """The value with these messages and finish reasons; one that has calls now, and ended by itself, says so."""
    ends = {choice: reason for choice, reason in finish.items() if reason is not None}
    for part in answer.dialect.parts(answer.value):
        said = changed.get(part.choice)
        if said is not None and answer.dialect.finishes_with_calls and items(said.get("tool_calls")):
            before = bool(items(part.said.get("tool_calls")))
            if not before and part.finish == "stop":
                ends[part.choice] = "tool_calls"
    value = answer.value
    for part in answer.dialect.parts(value):
        said = changed.get(part.choice)
        now, own = (text(at(one, answer.dialect.content)) for one in (said, part.said))
        if said is not None and now != own and (entries := answer.dialect.entries(value, part.choice)):
            value = answer.dialect.with_entries(value, part.choice, spelled_by(entries, now))
    told = answer.dialect.told(value, {choice: [said] for choice, said in changed.items()}, ends)
    thoughts = (text(said.get(name)) for said in changed.values() for name in answer.dialect.reasoning)
    return counted(told[0], "".join(thoughts)) if told else None


MENDINGS: tuple[Mending, ...] = (
    told_from_ids,
    told_from_text,
    markers_cut,
    repetition_removed,
    refusal_told,
    names_cleaned,
    call_ids_cleaned,
    arguments_cut,
    finish_mended,
    status_mended,
)
"""All changes, in the order in which they are tried."""


__all__ = ["MENDINGS", "FailingAnswer", "NoDestinationError", "clean_name", "declared_by", "finish_of", "new_id"]
