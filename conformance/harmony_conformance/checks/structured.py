"""Family `structured`: an answer that was requested as JSON is JSON with any weights, and only the answer is constrained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.checks.helpers.malformed_output import lenient_on_malformed_output
from harmony_conformance.engines.teleprompter.script import read_back
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.prompt_evidence import harmony_ids
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, shorten
from harmony_ref import decode, tokens

_FORMS = ("json_object", "json_schema")


@condition
def asks_for_json(x: Exchange) -> bool:
    """requests for JSON (`response_format`)"""
    return value_at(x.chat_request, "response_format", "type") in _FORMS


@condition
def wrote_what_was_asked_for(x: Exchange) -> bool:
    """completions that are JSON if the request asks for it; scripts may be anything"""
    if x.script is not None or x.expected_output is None or not asks_for_json.holds(x):
        return True
    try:
        loads("".join(x.expected_output.finals))
    except InvalidJsonError:
        return x.hit_token_limit
    return True


@condition
def has_schema(x: Exchange) -> bool:
    """requests with a JSON schema for the answer"""
    return isinstance(_schema(x), dict)


@condition
def was_sampled(x: Exchange) -> bool:
    """sampled answers (their script, if any, is in the prompt) without call, refusal or stop string, and not cut by the limit before the content"""
    return _ended_by_itself(x) and (x.script is None or _reads_its_script(x))


@condition
def was_sampled_whole(x: Exchange) -> bool:
    """sampled answers (their script, if any, is in the prompt) without call, refusal or stop string, and not cut by the limit"""
    return was_sampled.holds(x) and x.turn is not None and x.turn.finish_reason == "stop"


def _ended_by_itself(x: Exchange) -> bool:
    turn = x.turn
    return (
        turn is not None
        and (turn.finish_reason == "stop" or (turn.finish_reason == "length" and bool(turn.content)))
        and not turn.tool_calls
        and not turn.refusal
        and not value_at(x.chat_request, "stop")
    )


def _reads_its_script(x: Exchange) -> bool:
    """Return True if the last message has the script, where a teleprompter reads it: its output is sampled, so that a grammar constrains it."""
    content = value_at(next(reversed(items(value_at(x.chat_request, "messages"))), None), "content")
    written = content if isinstance(content, str) else text(value_at(next(reversed(items(content)), None), "text"))
    ids, script = read_back(written), list(x.script or ())
    return any(ids[place : place + len(script)] == script for place in range(len(ids) - len(script) + 1))


@check(MUST, spec="chat#response-format", when=(on.is_conversation, on.is_complete_answer, asks_for_json, was_sampled))
@lenient_on_malformed_output
def answer_is_json(x: Exchange) -> Iterator[Finding]:
    """An answer that was requested as JSON is JSON, whole and nothing else; one that the limit cut is the beginning of JSON.

    A grammar that begins too early leaves an empty answer. One that never begins leaves prose or a Markdown fence, and the client's parser fails (defects
    V22, V23, O07, O08, L06). Any weights show it, since the effect of a grammar does not depend on them. Answers of random weights are often cut by the
    limit: that vLLM 0.11.0 constrains neither of its APIs shows in the beginning of a cut answer.
    """
    content = x.turn.content if x.turn is not None else None
    try:
        value = loads(content or "")
    except InvalidJsonError as problem:
        if x.turn is not None and x.turn.finish_reason == "length" and problem.may_be_truncated:
            return
        message: LiteralString = "the answer is empty"
        if content:
            is_inside = _has_json_inside(content)
            message = "the answer has other text around its JSON" if is_inside else "the answer is not valid JSON"
        actual = RedactableText("{} ({})", shorten(content), problem) if content else "nothing"
        yield mismatch(message, "/content", "JSON", actual)
        return
    if value_at(x.chat_request, "response_format", "type") == "json_object" and not isinstance(value, dict):
        yield variant("a JSON object was requested, and the answer is another value", where="/content")


def _has_json_inside(content: str) -> bool:
    """Return True if the text from the first bracket or quotation mark to the last one is JSON."""
    return any(_is_json(content[content.find(first) : content.rfind(last) + 1]) for first, last in ("{}", "[]", '""'))


def _is_json(content: str) -> bool:
    try:
        loads(content)
    except InvalidJsonError:
        return False
    return True


@check(
    MUST,
    spec="chat#strict-answer",
    when=(on.is_conversation, on.is_complete_answer, asks_for_json, was_sampled_whole, has_schema),
)
def answer_fits_the_schema(x: Exchange) -> Iterator[Finding]:
    """An answer is valid under the schema of its request; without `strict`, a violation is a variant.

    The schemas demand values that no model would choose, so that any weights show it. If such a value comes back, the server enforced the schema (defects
    V23, O08, L06, L07, M15).
    """
    try:
        value = loads(text(x.turn.content) if x.turn is not None and x.turn.content is not None else "")
    except InvalidJsonError:
        return
    violation = first_violation(value, _schema(x))
    if violation is None:
        return
    where, why = violation
    if value_at(x.chat_request, "response_format", "json_schema", "strict") is True:
        yield mismatch("the answer violates the schema", "/content" + where, "a value of the schema", shorten(why))
    else:
        yield variant("the answer violates the schema, which is not strict", where="/content" + where)


def _schema(x: Exchange) -> Json:
    return value_at(x.chat_request, "response_format", "json_schema", "schema")


@evidence
def shows_its_tokens(x: Exchange) -> bool:
    """answers with the ids of their tokens, all of them emitted by the model"""
    return x.turn is not None and bool(harmony_ids(x.turn.output_ids))


@check(MUST, spec="harmony#message-format", when=(on.is_conversation, asks_for_json, on.was_answered, shows_its_tokens))
def only_the_answer_is_constrained(x: Exchange) -> Iterator[Finding]:
    """A schema constrains only the text of the final message: the output still begins with a Harmony header, and may contain reasoning first.

    A grammar that applies from the first token on leaves no room for a header. The model can then neither reason nor name a channel (defects T05, O07).
    Proof is an output that is JSON from the first token to the last.
    """
    ids = harmony_ids(x.turn.output_ids) if x.turn is not None else None
    words = decode([token for token in ids or () if token not in tokens.STOP_TOKENS])
    if ids is None or tokens.MESSAGE in ids or tokens.CHANNEL in ids or not words.lstrip().startswith(("{", "[", '"')):
        return
    message = "the grammar applies from the first token on: there is no header, and no room to reason"
    yield mismatch(message, "output token 0", "<|channel|>…", shorten(format_ids(ids)))


def _answers(series: Series, *, as_json: bool) -> list[Exchange]:
    return [x for x in series.exchanges.values() if _is_whole_answer(x) and asks_for_json.holds(x) is as_json]


def _is_whole_answer(x: Exchange) -> bool:
    is_whole = x.script is None and on.is_complete_answer.holds(x) and was_sampled_whole.holds(x)
    return is_whole and bool(x.turn and x.turn.content)


@series_only
@condition
def has_plain_and_structured(series: Series) -> bool:
    """answers with and without a demand for JSON, where those without have reasoning"""
    plain = _answers(series, as_json=False)
    return bool(_answers(series, as_json=True)) and bool(plain) and all(map(_has_reasoning, plain))


def _has_reasoning(x: Exchange) -> bool:
    turn = x.turn
    reasoning_tokens = turn.usage.reasoning_tokens if turn is not None and turn.usage is not None else None
    return turn is not None and bool((turn.reasoning or "").strip() or reasoning_tokens)


@comparison(SHOULD, spec="raw-cot#output", when=has_plain_and_structured)
def reasoning_stays(series: Series) -> Iterator[Finding]:
    """A model that reasons before a plain answer also reasons before one that has to be JSON.

    Works on a black box. SHOULD, since a model may sometimes not reason; a grammar that prevents it does so every time (defects T05, O07).
    """
    structured = _answers(series, as_json=True)
    if not any(map(_has_reasoning, structured)):
        message = RedactableText("no reasoning in any of {} JSON answers, but in every plain one", len(structured))
        yield mismatch(message, "/reasoning", "reasoning", "none", exchange=structured[0].id)
