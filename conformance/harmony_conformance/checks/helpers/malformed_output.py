"""Malformed output: no source defines what a server makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import FUNCTIONS_PREFIX, called_recipients, is_malformed
from harmony_conformance.json_value import text, value_at
from harmony_conformance.judge.check import Finding, Verdict, ruled
from harmony_conformance.judge.rulings import MALFORMED_OUTPUT
from harmony_conformance.prompts.request_members import can_be_called
from harmony_ref import tokens


def ruled_if_malformed(finding: Finding, x: Exchange) -> Finding:
    """Return a failure with the ruling on malformed output if the model wrote such output.

    Broken output by its row in the golden data counts too, with precedence over another ruling.
    """
    is_broken = _is_broken(x)
    is_excused = finding.verdict is Verdict.FAIL and (is_broken or (not finding.ruling and _wrote_malformed_output(x)))
    return ruled(finding, MALFORMED_OUTPUT) if is_excused else finding


def has_malformed_output(x: Exchange) -> bool:
    """Return True if the model wrote malformed output, or a row of the golden data says so."""
    return _is_broken(x) or _wrote_malformed_output(x)


def _wrote_malformed_output(x: Exchange) -> bool:
    ids = x.output.ids if x.output.ids is not None else _forced_prefix(x)
    return ids is not None and (is_malformed(ids) or _calls_nothing_but_strangers(x, ids))


def _calls_nothing_but_strangers(x: Exchange, ids: Sequence[int]) -> bool:
    """Return True if the output has calls, and the request offers or allows none of them: what becomes of such a call has no source.

    Tools that are no functions have recipients that the request does not show.
    """
    recipients = called_recipients(ids)
    if not recipients or any(text(value_at(tool, "type")) != "function" for tool in x.tools):
        return False
    functions = (text(value_at(tool, "function", "name")) for tool in x.tools)
    allowed = {FUNCTIONS_PREFIX + name for name in functions if can_be_called(x.chat_request, name)}
    return allowed.isdisjoint(recipients)


def _forced_prefix(x: Exchange) -> tuple[int, ...] | None:
    """Return the tokens that the request forces at the start of an answer whose rest is sampled."""
    body = x.request.json
    given = [
        inner for inner in (body, value_at(body, "vllm_xargs")) if value_at(inner, "harmony_script_then") == "model"
    ]
    words = text(value_at(given[0], "harmony_script")).split() if given else []
    return tuple(map(int, words)) if words and all(map(str.isdecimal, words)) else None


def _is_broken(x: Exchange) -> bool:
    """Return True for broken output by its row. A limit behind a whole message leaves that message well-formed."""
    ids = x.output.ids or ()
    is_cut_behind_message = x.hit_token_limit and ids[-1:] == (tokens.END,) and not is_malformed(ids)
    return x.expectation is not None and not x.expectation.is_well_formed and not is_cut_behind_message


def lenient_on_malformed_output(
    body: Callable[[Exchange], Iterator[Finding]],
) -> Callable[[Exchange], Iterator[Finding]]:
    """Give the failures of a check the ruling on malformed output where the model wrote such output."""

    @wraps(body)
    def run(x: Exchange) -> Iterator[Finding]:
        for finding in body(x):
            yield ruled_if_malformed(finding, x)

    return run
