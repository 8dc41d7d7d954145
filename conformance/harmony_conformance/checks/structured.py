"""Family `structured`: an answer that was asked for as JSON is that JSON, whatever the model would have said, and only the answer is bound to it."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.engines.teleprompter.script import read_back
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import InvalidJsonError, Json, at, items, loads, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import (
    MUST,
    SHOULD,
    Finding,
    check,
    comparison,
    condition,
    evidence,
    series_only,
    variant,
)
from harmony_conformance.prompts.prompt_parser import show
from harmony_conformance.redactable_text import RedactableText, shorten
from harmony_ref import decode, tokens

_FORMS = ("json_object", "json_schema")


@condition
def asks_for_json(x: Exchange) -> bool:
    """requests for JSON (`response_format`)"""
    return at(x.chat_request, "response_format", "type") in _FORMS


@condition
def has_schema(x: Exchange) -> bool:
    """requests with a JSON schema for the answer"""
    return isinstance(_schema(x), dict)


@condition
def speaks_for_itself(x: Exchange) -> bool:
    """answers that no script wrote that the prompt does not have, and that no call, stop string or refusal ended, nor the limit before they began"""
    return _ended_by_itself(x) and (x.script is None or _reads_its_script(x))


@condition
def answers_by_itself(x: Exchange) -> bool:
    """answers that no script wrote that the prompt does not have, and that neither a limit, nor a call, nor a stop string, nor a refusal ended"""
    return speaks_for_itself.holds(x) and x.turn is not None and x.turn.finish_reason == "stop"


def _ended_by_itself(x: Exchange) -> bool:
    turn = x.turn
    return (
        turn is not None
        and (turn.finish_reason == "stop" or (turn.finish_reason == "length" and bool(turn.content)))
        and not turn.tool_calls
        and not turn.refusal
        and not at(x.chat_request, "stop")
    )


def _reads_its_script(x: Exchange) -> bool:
    """Whether the script stands in the last message, where a teleprompter reads it: what it says was sampled, and a grammar would have held it."""
    content = at(next(reversed(items(at(x.chat_request, "messages"))), None), "content")
    written = content if isinstance(content, str) else text(at(next(reversed(items(content)), None), "text"))
    read, script = read_back(written), list(x.script or ())
    return any(read[place : place + len(script)] == script for place in range(len(read) - len(script) + 1))


@check(MUST, spec="chat#response-format", when=(on.is_conversation, on.ended_well, asks_for_json, speaks_for_itself))
def answer_is_json(x: Exchange) -> Iterator[Finding]:
    """An answer that was asked for as JSON is JSON, whole and nothing else; one that the limit cut is the beginning of such.

    A grammar that begins too early leaves nothing to say, one that never begins leaves prose or a Markdown fence, and the client's parser fails (defects
    V22, V23, O07, O08, L06). Any weights will do to see it: what a grammar forces does not depend on them. Weights that are none seldom end by themselves:
    vLLM 0.11.0 binds neither of its APIs, and what shows it is how a cut answer begins.
    """
    said = x.turn.content if x.turn is not None else None
    try:
        value = loads(said or "")
    except InvalidJsonError as problem:
        if x.turn is not None and x.turn.finish_reason == "length" and problem.may_go_on:
            return
        yield Finding(
            message="the answer is no JSON" if said else "the answer is empty",
            at="/content",
            expected="JSON",
            actual=RedactableText("{} ({})", shorten(said), problem) if said else "nothing",
        )
        return
    if at(x.chat_request, "response_format", "type") == "json_object" and not isinstance(value, dict):
        yield variant("JSON was asked for as an object and is another value", where="/content")


@check(
    MUST,
    spec="chat#strict-answer",
    when=(on.is_conversation, on.ended_well, asks_for_json, answers_by_itself, has_schema),
)
def answer_fits_the_schema(x: Exchange) -> Iterator[Finding]:
    """An answer is what the schema that it was asked to follow describes; without `strict` that is a matter of degree.

    Values that no model would choose show it with any weights: one that is named by the schema and comes back was forced, another was not (defects V23,
    O08, L06, L07, M15).
    """
    said = text(x.turn.content) if x.turn is not None and x.turn.content is not None else ""
    try:
        value = loads(said)
    except InvalidJsonError:
        return
    broken = first_violation(value, _schema(x))
    if broken is None:
        return
    where, why = broken
    if at(x.chat_request, "response_format", "json_schema", "strict") is True:
        yield Finding(
            message="the answer is not what the schema describes",
            at="/content" + where,
            expected="a value of the schema",
            actual=shorten(why),
        )
    else:
        yield variant("the answer is not what a schema that is not strict describes", where="/content" + where)


def _schema(x: Exchange) -> Json:
    return at(x.chat_request, "response_format", "json_schema", "schema")


@evidence
def shows_its_tokens(x: Exchange) -> bool:
    """answers with the ids of their tokens, all of them emitted by the model"""
    return x.turn is not None and bool(x.turn.output_ids)


@check(MUST, spec="harmony#message-format", when=(on.is_conversation, asks_for_json, on.was_answered, shows_its_tokens))
def only_the_answer_is_constrained(x: Exchange) -> Iterator[Finding]:
    """A schema binds the text of the final message: what is emitted still begins with a header of Harmony, and may reason first.

    A grammar that holds from the first token on leaves no room for a header: the model can not think, nor say on which channel it speaks (defects T05,
    O07). Proved where the ids are JSON from the first to the last.
    """
    ids = x.turn.output_ids if x.turn is not None else None
    words = decode([token for token in ids or () if token not in tokens.STOP_TOKENS])
    if ids is None or tokens.MESSAGE in ids or tokens.CHANNEL in ids or not _begins_json(words):
        return
    yield Finding(
        message="the grammar held from the first token on: there is no header, and no room to reason",
        at="output token 0",
        expected="<|channel|>…",
        actual=shorten(show(ids)),
    )


def _begins_json(words: str) -> bool:
    return words.lstrip()[:1] in tuple('{["')


def _structured(series: Series) -> tuple[Exchange, ...]:
    return tuple(x for x in series.exchanges.values() if _is_whole_answer(x) and asks_for_json.holds(x))


def _plain(series: Series) -> tuple[Exchange, ...]:
    return tuple(x for x in series.exchanges.values() if _is_whole_answer(x) and not asks_for_json.holds(x))


def _is_whole_answer(x: Exchange) -> bool:
    return (
        x.script is None and on.ended_well.holds(x) and answers_by_itself.holds(x) and bool(x.turn and x.turn.content)
    )


@series_only
@condition
def has_plain_and_structured(series: Series) -> bool:
    """answers with and without a demand for JSON, of which those without have reasoning"""
    plain = _plain(series)
    return bool(_structured(series)) and bool(plain) and all(map(_reasons, plain))


def _reasons(x: Exchange) -> bool:
    turn = x.turn
    counted = turn.usage.reasoning_tokens if turn is not None and turn.usage is not None else None
    return turn is not None and bool((turn.reasoning or "").strip() or counted)


@comparison(SHOULD, spec="raw-cot#output", when=has_plain_and_structured)
def reasoning_stays(series: Series) -> Iterator[Finding]:
    """A model that reasons before a plain answer reasons before one that has to be JSON as well.

    Works on a black box. A model may do without once, hence no MUST; a grammar that forbids it does so every time (defects T05, O07).
    """
    structured = _structured(series)
    if not any(map(_reasons, structured)):
        yield Finding(
            message=RedactableText(
                "none of {} answers in JSON has reasoning, and every plain one has", len(structured)
            ),
            at="/reasoning",
            expected="reasoning",
            actual="none",
            exchange=structured[0].id,
        )
