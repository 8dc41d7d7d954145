"""Repair, withhold or pass a whole answer. A repair is judged before it is sent, and dropped if a further check fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harmony_conformance.apis.registry import refine_api
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, JsonObject, dumps
from harmony_conformance.judge.check import Finding
from harmony_proxy.capture.build_exchange import is_unreadable
from harmony_proxy.policy.policy import Action
from harmony_proxy.policy.repair_interface import Actions, Caller, RepairedAnswer, call_here, caller_for
from harmony_proxy.repair.answer.check_verdicts import failures_of_results, find_failures, run_checks
from harmony_proxy.repair.answer.fixes import FailingAnswer, declared_functions
from harmony_proxy.repair.answer.other_clients import find_other_leaks, with_json
from harmony_proxy.repair.answer.repair_table import FIXES, NO_REPAIR, REPAIRS
from harmony_proxy.repair.answer.strict_leaks import as_answer
from harmony_proxy.repair.text.api_dialects import Dialect
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError
from harmony_proxy.repair.text.other_readings import TooManyReadingsError, read_json
from harmony_proxy.repair.text.responses_answer import ANSWER_DIALECTS


def examine_answer(
    x: Exchange,
    actions: Mapping[str, Action],
    *,
    fallback: Action,
    reasoning_field: str | None = None,
    call_apart: Caller = call_here,
) -> RepairedAnswer:
    """Return the result of `repair_answer`; for a very large exchange by `call_apart`."""
    call = caller_for(x, call_apart)
    return call(repair_answer, x, actions, fallback=fallback, reasoning_field=reasoning_field)


def repair_answer(
    x: Exchange, actions: Mapping[str, Action], *, fallback: Action, reasoning_field: str | None = None
) -> RepairedAnswer:
    """Judge a whole answer by the checks that are repaired or blocked, and act on it.

    If `actions.blocked` of the result names a check, the answer is withheld and `body` has no meaning.
    `reasoning_field`: the client's name for the reasoning.
    """
    x = replace(x, api=refine_api(x.api, x.request.json))
    answer, leak_actions = as_answer(x, actions)
    if any(field.text.strip() for one in answer.answers for field in one.fields):
        x, actions = answer, leak_actions
    checks = [check for check, action in actions.items() if action is not Action.OBSERVE]
    results = run_checks(x, checks)
    findings = dict(failures_of_results(results))
    strict = {check for check in checks if actions[check] is Action.BLOCK}
    findings |= {check: one for check, one in find_failures(x, strict, strict).items() if check not in findings}
    fixed, reasons = x, dict[str, str]()
    to_repair = {check for check in findings if actions[check] is Action.REPAIR}
    if to_repair:
        fixed, reasons = _apply_fixes(x, {check: findings[check] for check in to_repair})
    still_failing = find_failures(fixed, findings, strict) if fixed is not x else findings
    repaired = {check: len(findings[check]) for check in findings if check not in still_failing and check in to_repair}
    left = {check: reasons.get(check, NO_REPAIR) for check in still_failing if check in to_repair}
    blocking = [check for check in checks if actions[check] is Action.BLOCK or fallback is Action.BLOCK]
    blocked = {check for check in blocking if check in still_failing} or find_other_leaks(fixed, blocking)
    body = _with_reasoning_field(fixed, reasoning_field) if reasoning_field is not None else None
    if body is None and fixed is not x and fixed.response is not None:
        body = fixed.response.body
    return RepairedAnswer(
        body=body,
        actions=Actions(repair_counts=repaired, blocked_checks=tuple(sorted(blocked)), unrepaired_reasons=left),
        results=results,
        unread_reason=_unread_reason(x) if body is None else "",
    )


def _unread_reason(x: Exchange) -> str:
    """Return the reason why a client may read another answer than the checks, or an empty text."""
    if is_unreadable(x):
        return "the answer is not JSON"
    try:
        has_duplicates = read_json(x.response.body if x.response is not None else b"").has_duplicates
    except InvalidJsonError:  # an error in plain text
        has_duplicates = False
    except TooManyReadingsError:
        has_duplicates = True
    return "the answer has duplicate JSON members" if has_duplicates else ""


def _apply_fixes(x: Exchange, findings: Mapping[str, tuple[Finding, ...]]) -> tuple[Exchange, dict[str, str]]:
    """Return the exchange with all possible repairs, and the reasons for the checks that still fail."""
    reasons: dict[str, str] = {}
    dialect = ANSWER_DIALECTS.get(x.api)
    if dialect is None or x.response_json is None:
        return x, dict.fromkeys(findings, f"answers of the API {x.api} are not repaired")
    failing_before = frozenset(find_failures(x))
    current, remaining = x, dict(findings)
    for _ in findings:
        repairable = {check: one for check, one in remaining.items() if check in REPAIRS}
        step = _step(current, dialect, repairable, failing_before, reasons)
        if step is None:
            break
        current, remaining = step, dict(find_failures(step, findings))
    return current, reasons


def _step(
    x: Exchange,
    dialect: Dialect,
    findings: Mapping[str, tuple[Finding, ...]],
    failing_before: frozenset[str],
    reasons: dict[str, str],
) -> Exchange | None:
    """Return the exchange after the first fix that reduces the failing checks and adds none."""
    answer = FailingAnswer(
        x=x, dialect=dialect, value=x.response_json, findings=findings, declared_functions=declared_functions(x)
    )
    failing = frozenset(find_failures(x))
    for fix in FIXES:
        if not any(fix in REPAIRS[check].fixes for check in findings):
            continue
        try:
            value = fix(answer)
        except NoDestinationError as problem:
            reasons.update(dict.fromkeys(findings, f"the model wrote {problem}"))
            continue
        if value is None or value == x.response_json:
            continue
        changed = with_json(x, value)
        failing_after = frozenset(find_failures(changed))
        if failing_after <= failing_before and not findings.keys() <= failing_after and failing_after < failing:
            return changed
    return None


def _with_reasoning_field(x: Exchange, name: str) -> bytes | None:
    dialect = ANSWER_DIALECTS.get(x.api)
    if dialect is None or x.response_json is None or len(dialect.reasoning) == 1:
        return None
    messages = {part.choice: [rename_reasoning(part.message, dialect, name)] for part in dialect.parts(x.response_json)}
    values = dialect.rewrite(x.response_json, messages, {})
    return None if not values or values[0] == x.response_json else dumps(values[0]).encode("utf-8", "backslashreplace")


def rename_reasoning(message: JsonObject, dialect: Dialect, name: str) -> JsonObject:
    """Return a message or delta with its reasoning under the name `name`; unchanged if it has a member of that name."""
    if dialect.calls_are_whole or name in message:
        return message
    own = next((one for one in dialect.reasoning if one in message), None)
    return {name if one == own else one: value for one, value in message.items()} if own is not None else message
