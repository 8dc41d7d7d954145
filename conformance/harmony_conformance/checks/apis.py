"""Family `apis`: the same conversation and the same output tokens give the same result over every API of an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import LiteralString

from harmony_conformance.apis.chat_completion import Turn, has_same_calls, has_same_objects
from harmony_conformance.apis.json_equality import equal_json
from harmony_conformance.apis.registry import APIS, RESPONSES
from harmony_conformance.checks.helpers.api_words import end_of, words_of
from harmony_conformance.checks.helpers.call_alignment import differ_by_completion
from harmony_conformance.checks.helpers.fitting_clauses import ARGUMENTS, clause_of_contrast
from harmony_conformance.checks.helpers.value_diff import json_differences, lacks_cut_character, text_difference
from harmony_conformance.evidence.exchange import API_SEPARATOR, Exchange, Series
from harmony_conformance.evidence.series_pairs import STREAM_SUFFIX
from harmony_conformance.json_value import Json, canonical_json, parse_object, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, cited, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.history_conditions import has_allowed_order
from harmony_conformance.judge.rulings import CUT_CHARACTERS, EMPTY_ARGUMENTS
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_conformance.prompts.expected_parts import PromptMessage
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.redactable_text import RedactableText, ReportText, quote
from harmony_ref import Message

_SAME: LiteralString = "the same over both"


@series_only
@condition
def uses_several_apis(series: Series) -> bool:
    """scenarios sent over several APIs of one endpoint"""
    return any(True for _ in _same_steps(series))


@evidence
def has_same_output(series: Series) -> bool:
    """answers over several APIs whose emitted tokens are known to be the same"""
    return any(True for _ in _same_output(series))


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """An answered exchange and its turn, which is not None."""

    x: Exchange
    turn: Turn


def _same_steps(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield pairs of answers to one step: the answer over its first API, and the answer over each other API."""
    first: dict[str, Exchange] = {}
    order = {name: place for place, name in enumerate(APIS)}
    for name, x in sorted(series.exchanges.items(), key=lambda one: order.get(one[1].api, len(order))):
        step, _, api = name.rpartition(API_SEPARATOR)
        is_answer = on.is_conversation.holds(x) and x.turn is not None and x.error is None
        if step and api == x.api and is_answer and first.setdefault(step, x) is not x:
            yield first[step], x


def _same_output(series: Series) -> Iterator[tuple[_Answer, _Answer]]:
    for one, other in _same_steps(series):
        known = one.output.ids, other.output.ids
        is_same = known[0] == known[1] if None not in known else one.script is not None and one.script == other.script
        has_place = all(map(_can_represent_calls, (one, other), (other, one)))
        if is_same and has_place and one.turn is not None and other.turn is not None:
            yield _Answer(x=one, turn=one.turn), _Answer(x=other, turn=other.turn)


def _can_represent_calls(x: Exchange, other: Exchange) -> bool:
    """Return True if the API of `x` can represent the calls of the other answer."""
    calls = other.turn.tool_calls if other.turn is not None else ()
    return x.api_adapter.has_text_arguments or all(parse_object(call.arguments) is not None for call in calls)


def _same_objects(one: _Answer, other: _Answer) -> bool:
    """Return True if one API has objects as arguments and both answers hold the same calls. Such an API returns empty arguments as `{}`."""
    has_texts = one.x.api_adapter.has_text_arguments and other.x.api_adapter.has_text_arguments
    return not has_texts and has_same_objects(one.turn, other.turn)


def _calls(turn: Turn) -> Json:
    return {"tool_calls": [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]}


def _values(first: ReportText, second: ReportText, one: Exchange, other: Exchange) -> RedactableText:
    """Return both values by API: a comparison does not know which of them is right."""
    return RedactableText(f"{one.api_adapter.title}: {{}}, {other.api_adapter.title}: {{}}", first, second)


def _differences(first: Json, second: Json, one: _Answer, other: _Answer) -> Iterator[Finding]:
    template = f"over {other.x.api_adapter.title}, {{}} differs from the one over {one.x.api_adapter.title}"
    for difference in json_differences(first, second) if first != second else ():
        message = RedactableText(template, difference.path)
        both = _values(difference.expected, difference.actual, one.x, other.x)
        finding = mismatch(message, difference.path, _SAME, both, exchange=other.x.id)
        yield cited(finding, ARGUMENTS) if difference.path.endswith(".arguments") else finding


SAME_OUTPUT = (uses_several_apis, has_same_output)


@comparison(MUST, spec="harmony#final", when=SAME_OUTPUT)
def same_content(series: Series) -> Iterator[Finding]:
    """The same tokens give the same content over every API; other white space between messages is a variant.

    Each API of a server has its own parser: users of one API never see what the parser of another loses or leaks.
    """
    for one, other in _same_output(series):
        texts = (one.turn.content or "", other.turn.content or "")
        if texts[0] != texts[1] and "".join(texts[0].split()) == "".join(texts[1].split()):
            joined = variant("messages are joined differently than over the other API", where="content")
            yield replace(joined, exchange=other.x.id)
            continue
        is_cut = STREAM_SUFFIX in one.x.step and any(map(lacks_cut_character, texts, reversed(texts)))
        for finding in _differences({"content": texts[0]}, {"content": texts[1]}, one, other):
            yield ruled(finding, CUT_CHARACTERS) if is_cut else finding


@comparison(MUST, spec="raw-cot#output", when=SAME_OUTPUT)
def same_reasoning(series: Series) -> Iterator[Finding]:
    """The same tokens give the same reasoning over every API, whatever the field is called there (defect V39)."""
    for one, other in _same_output(series):
        thoughts = (one.turn.reasoning or "", other.turn.reasoning or "")
        lengths = [len("".join(thought.split())) for thought in thoughts]
        if "".join(thoughts[0].split()) != "".join(thoughts[1].split()):
            lacking = one if lengths[0] < lengths[1] else other
            for finding in _differences({"reasoning": thoughts[0]}, {"reasoning": thoughts[1]}, one, other):
                is_cut = STREAM_SUFFIX in one.x.step and any(map(lacks_cut_character, thoughts, reversed(thoughts)))
                fitting = cited(finding, _clause_of_reasoning(lacking.x))
                yield ruled(fitting, CUT_CHARACTERS) if is_cut else fitting


def _clause_of_reasoning(x: Exchange) -> str:
    """Return the clause on the reasoning of an answer from the reference of its API."""
    own = f"{x.api}#reasoning"
    return own if own in CLAUSES else "raw-cot#chat-output"


@comparison(MUST, spec="harmony#receiving-calls", when=SAME_OUTPUT)
def same_calls_are_returned(series: Series) -> Iterator[Finding]:
    """The same tokens give the same calls over every API: names and arguments, in order, arguments compared as JSON (defects V11, V35)."""
    for one, other in _same_output(series):
        if not has_same_calls(one.turn, other.turn) and not _same_objects(one, other):
            is_ruled = RESPONSES.name in (one.x.api, other.x.api) and _differ_by_completion(one.turn, other.turn)
            for finding in _differences(_calls(one.turn), _calls(other.turn), one, other):
                yield ruled(finding, EMPTY_ARGUMENTS) if is_ruled else finding


def _differ_by_completion(one: Turn, other: Turn) -> bool:
    """Return True if the arguments of calls are empty in one turn and an empty object in the other, and nothing else differs."""
    pairs = list(zip(one.tool_calls, other.tool_calls, strict=False))
    arguments = [(a.arguments, b.arguments) for a, b in pairs]
    are_alike = (equal_json(a, b) or differ_by_completion(a, b) for a, b in arguments)
    return len(one.tool_calls) == len(other.tool_calls) and all(a.name == b.name for a, b in pairs) and all(are_alike)


@comparison(MUST, spec="chat#finish-reason", when=SAME_OUTPUT)
def same_end(series: Series) -> Iterator[Finding]:
    """Every API reports an answer that the limit cut as cut, and one that the model ended as ended."""
    for one, other in _same_output(series):
        cut = (one.turn.finish_reason == "length", other.turn.finish_reason == "length")
        if cut[0] != cut[1]:
            expected, actual = ("cut", "ended") if cut[0] else ("ended", "cut")
            message = f"the same tokens are reported as {actual}, over {one.x.api_adapter.title} as {expected}"
            both = _values(end_of(one.x), end_of(other.x), one.x, other.x)
            yield mismatch(message, words_of(other.x).end_place, _SAME, both, exchange=other.x.id)


@evidence
def counts_the_same_output(series: Series) -> bool:
    """answers over several APIs that report usage, and whose emitted tokens are known to be the same"""
    return any(None not in (_completion_tokens(one), _completion_tokens(other)) for one, other in _same_output(series))


@comparison(SHOULD, spec="chat#usage", when=(*SAME_OUTPUT, counts_the_same_output))
def same_usage(series: Series) -> Iterator[Finding]:
    """The same emitted tokens have the same number in the usage of every API (defect V26)."""
    for one, other in _same_output(series):
        counts = (_completion_tokens(one), _completion_tokens(other))
        if None not in counts and counts[0] != counts[1]:
            message = f"the same tokens have another count than over {one.x.api_adapter.title}"
            both = _values(quote(counts[0]), quote(counts[1]), one.x, other.x)
            yield mismatch(message, "/usage/completion_tokens", _SAME, both, exchange=other.x.id)


@evidence
def shows_prompts(series: Series) -> bool:
    """requests over several APIs whose prompt tokens the server shows or counts"""
    return any(None not in (a.prompt.count, b.prompt.count) for a, b in _same_steps(series))


@comparison(SHOULD, spec="harmony#roles", when=(uses_several_apis, shows_prompts))
def same_prompt(series: Series) -> Iterator[Finding]:
    """The same conversation gives the same prompt over every API.

    A server has a renderer for each API, and the model should get the same prompt from each of them (defect V18). If the prompts are shown, their
    messages are compared, and a difference in form alone is a variant. Calls with equal JSON are one too, if one of the APIs holds objects.
    Otherwise their numbers of tokens are compared, unless the conversation ends with an answer, which only some APIs continue.
    """
    for one, other in _same_steps(series):
        if _harmony_messages(one) != _harmony_messages(other) or any(map(_has_a_part_of_its_own, (one, other))):
            continue  # one of the APIs cannot express a part of the conversation
        shown, counts = (one.prompt.ids, other.prompt.ids), (one.prompt.count, other.prompt.count)
        if None not in shown:
            has_texts = one.api_adapter.has_text_arguments and other.api_adapter.has_text_arguments
            first, second = (list(_contents(x, has_texts=has_texts)) for x in (one, other))
            if first != second:
                longest = max(len(first), len(second))
                place = next(i for i in range(longest) if first[i : i + 1] != second[i : i + 1])
                message = f"the prompt differs from the one over {one.api_adapter.title}"
                ours, theirs = ([*_messages(x)[place:], None][0] for x in (one, other))
                both = _values(*_contrasted(ours, theirs), one, other)
                finding = mismatch(message, f"prompt message {place}", _SAME, both, exchange=other.id)
                yield cited(finding, clause_of_contrast(ours, theirs, one.chat_request))
            elif shown[0] != shown[1]:
                form = variant(f"the prompt has another form than over {one.api_adapter.title}", where="prompt")
                yield replace(form, exchange=other.id)
        elif not _is_continued(one) and None not in counts and counts[0] != counts[1]:
            message = f"the prompt has another number of tokens than over {one.api_adapter.title}"
            both = _values(quote(counts[0]), quote(counts[1]), one, other)
            yield mismatch(message, "/usage/prompt_tokens", _SAME, both, exchange=other.id)


def _has_a_part_of_its_own(x: Exchange) -> bool:
    """Return True for what a server may ignore or refuse over this API.

    It may ignore variables of a chat template, and reasoning under another name than in the answers. It may refuse an order that the API does not allow.
    """
    if not has_allowed_order.holds(x):
        return True
    own = x.turn.reasoning_field if x.turn is not None and x.turn.reasoning else None
    names = {name for message in x.messages for name in REASONING_FIELDS if value_at(message, name)}
    return value_at(x.chat_request, "chat_template_kwargs") is not None or (own is not None and names - {own} != set())


def _is_continued(x: Exchange) -> bool:
    """Return True if the request ends with an answer. Messages continues it, and Chat Completions begins another one."""
    return bool(x.messages) and value_at(x.messages[-1], "role") == "assistant"


def _harmony_messages(x: Exchange) -> tuple[Message, ...]:
    return conversation_of(x.chat_request, ConversationOptions(), date=None)


def _contents(x: Exchange, *, has_texts: bool) -> Iterator[tuple[str | None, ...]]:
    """Yield role, function, channel and content of each message of the prompt, without empty answers: a server may leave these out.

    White space in the developer message is form: it joins instructions, and `hierarchy.instructions_reach_the_model` looks at each of them.

    `has_texts`: The arguments of calls are texts in the request. Otherwise they have no spelling there, and are yielded as canonical JSON.
    """
    for message in _messages(x):
        is_call = message.role == "assistant" and message.recipient is not None
        called = parse_object(message.content) if is_call and not has_texts else None
        content = message.content if called is None else canonical_json(called)
        content = "".join(content.split()) if message.role == "developer" else content
        yield message.role, message.function, message.channel, content


def _messages(x: Exchange) -> list[PromptMessage]:
    """Return the messages of the prompt without empty answers."""
    return [one for one in x.prompt_messages if one.content or one.role != "assistant" or one.recipient is not None]


def _contrasted(one: PromptMessage | None, other: PromptMessage | None) -> tuple[ReportText, ReportText]:
    """Return two messages of prompts: the differing part of their contents if their headers are the same, else each with its header."""
    if one is not None and other is not None and one.header == other.header:
        return text_difference(one.content, other.content)
    return quote(one) if one is not None else "no message", quote(other) if other is not None else "no message"


def _completion_tokens(one: _Answer) -> int | None:
    return one.turn.usage.completion_tokens if one.turn.usage is not None else None
