"""Scopes: the part of an exchange that a log has, and the checks that need no more. The other checks do not apply."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from harmony_conformance.audit.plans.needles import NEEDLE_CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.applicability import ConditionIndex, build_index
from harmony_conformance.judge.check import Check, Comparison, Outcome, Reads
from harmony_conformance.judge.judge import Result, is_comparison
from harmony_conformance.plugins.registry import Plugin, all_checks, loaded_plugins


class Scope(StrEnum):
    """The part of an exchange that a log has."""

    WHOLE = "request and response"
    ANSWER = "the response alone"
    CONVERSATION = "messages and the texts of the answer"
    TOKENS = "token ids and the texts of the answer"
    TEXT = "the texts of the answer"
    BEGINNING = "the beginning of an answer that was stopped"


_TEXT: Mapping[str, frozenset[str]] = {
    "channels": frozenset(
        {
            *("no_marker_leak", "no_channel_words", "no_reasoning_in_content", "no_suspected_leak"),
            "characters_are_whole",
        }
    ),
}
_PROMPT: Mapping[str, frozenset[str]] = {
    "headers": frozenset({"form_is_known", "messages_end_as_they_must"}),
    "hierarchy": frozenset({"identity_is_kept", "current_date_is_sane", "system_message_has_the_trained_form"}),
    "prompt": frozenset({"one_header_form", "calls_and_results_agree_in_form"}),
}
_CLIENT = frozenset(
    {"reasoning_is_sent_back", "messages_are_not_rendered", "results_name_their_calls", "calls_are_answered"}
)
_ANSWER: Mapping[str, frozenset[str]] = {
    **_TEXT,
    "reasoning": frozenset({"reasoning_tokens_agree"}),
    "tool_calls": frozenset({"call_is_complete"}),
    "streaming": frozenset(
        {
            *("call_deltas_can_be_joined", "choices_are_numbered", "one_finish_reason", "one_identity"),
            *("role_comes_first", "ends_with_done", "events_are_chunks", "order_is_kept"),
        }
    ),
    "responses": frozenset(
        {
            *("counted_thought_has_an_item", "ids_are_unique", "items_have_their_members", "status_says_how_it_ended"),
            *("events_are_numbered", "events_follow_the_grammar", "items_stand_in_order", "texts_begin_and_end"),
            *("events_name_their_item", "items_stay_as_announced", "last_event_has_the_items", "texts_are_told_alike"),
        }
    ),
    "usage": frozenset({"adds_up"}),
    "errors": frozenset({"answer_is_well_formed"}),
    "choices": frozenset({"logprobs_spell_the_text", "logprobs_are_logarithms"}),
    "native": frozenset({"arguments_are_objects", "last_line_is_done", "lines_are_objects"}),
}
_CHECKS: Mapping[Scope, Mapping[str, frozenset[str]]] = {
    Scope.ANSWER: _ANSWER,
    Scope.CONVERSATION: {
        **_TEXT,
        "channels": _TEXT["channels"] | {"answer_is_told_once"},
        "client": _CLIENT,
        "reasoning": frozenset({"thought_does_not_loop"}),
    },
    Scope.TOKENS: {**_TEXT, **_PROMPT},
    Scope.TEXT: _TEXT,
    Scope.BEGINNING: {"channels": _TEXT["channels"] - {"characters_are_whole"}},
}
"""The checks of each scope, by family. A new check belongs to none of them until it is added."""
_SCOPES: Mapping[Reads, frozenset[Scope]] = {
    Reads.EXCHANGE: frozenset(),
    Reads.ANSWER: frozenset({Scope.ANSWER}),
    Reads.TEXT: frozenset({Scope.ANSWER, Scope.CONVERSATION, Scope.TOKENS, Scope.TEXT}),
}
"""The scopes that are enough for a check of a plug-in, by what it reads."""


def needs_no_more(scope: Scope, rule: Check | Comparison) -> bool:
    """Return True if the part of an exchange is enough for a check."""
    family, _, name = rule.id.partition(".")
    return scope is Scope.WHOLE or scope in _SCOPES[rule.reads] or name in _CHECKS[scope].get(family, ())


def _is_judged(scope: Scope, rule: Check | Comparison, *, by_needle: bool) -> bool:
    return needs_no_more(scope, rule) and (not by_needle or rule.id in NEEDLE_CHECKS)


def checks_of(scope: Scope, *, by_needle: bool = False) -> ConditionIndex:
    """Return the checks that need no more than this part of an exchange. `by_needle`: only those that the plan `needles` has."""
    return _checks_of(scope, by_needle, loaded_plugins())


@cache
def _checks_of(scope: Scope, by_needle: bool, _: tuple[Plugin, ...]) -> ConditionIndex:
    return build_index(tuple(rule for rule in all_checks() if _is_judged(scope, rule, by_needle=by_needle)))


def left_out(x: Exchange, scope: Scope, *, by_needle: bool = False) -> tuple[Result, ...]:
    """Return the results of the other checks: not applicable, because the log or the plan has no more."""
    return _left_out(x.scenario, x.api, scope, by_needle, loaded_plugins())


@cache
def _left_out(scenario: str, api: str, scope: Scope, by_needle: bool, _: tuple[Plugin, ...]) -> tuple[Result, ...]:
    return tuple(
        Result(rule.id, rule.severity, rule.clause, scenario, api, Outcome.NOT_APPLICABLE, reason=_reason(rule, scope))
        for rule in all_checks()
        if not _is_judged(scope, rule, by_needle=by_needle)
    )


def _reason(rule: Check | Comparison, scope: Scope) -> str:
    if is_comparison(rule):
        return "applies to series of several exchanges"
    return "the plan judges it on a sample only" if needs_no_more(scope, rule) else f"the log has only {scope.value}"
