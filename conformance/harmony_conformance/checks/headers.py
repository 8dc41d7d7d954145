"""Family `headers`: headers in the prompt have the form that the model was trained on; broken headers in the output cost the client nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import LiteralString

from harmony_conformance.apis.chat_completion import ToolCall, Turn
from harmony_conformance.apis.json_equality import equal_json, has_added_fractions
from harmony_conformance.apis.text_fields import turn_fields
from harmony_conformance.checks.helpers.added_end import with_added_end
from harmony_conformance.checks.helpers.empty_answers import foreign_arguments
from harmony_conformance.checks.helpers.fitting_clauses import (
    ANALYSIS,
    ARGUMENTS,
    CALLS,
    FINAL,
    PREAMBLES,
    REASONING,
    clause_of_forbidden_call,
    clause_of_text,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import FunctionCall, contains_call
from harmony_conformance.json_value import pointer
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, Verdict, check, cited, mismatch, variant
from harmony_conformance.redactable_text import RedactableText, quote, shorten

_TYPE = r"(?: ?⟦constrain⟧(?:json|code)| (?:json|code))?"
_FORMS = {
    "system": re.compile(r"system"),
    "developer": re.compile(r"developer"),
    "user": re.compile(r"user(?::\S+)?"),
    "assistant": re.compile(
        rf"assistant(?: to=[^\s⟦]+⟦channel⟧(?:analysis|commentary|final)|⟦channel⟧(?:analysis|commentary|final)(?: to=[^\s⟦]+)?){_TYPE}"
    ),
    "tool": re.compile(
        rf"(?!tool\b)[^\s⟦]+(?: to=assistant⟦channel⟧(?:commentary|analysis)|⟦channel⟧(?:commentary|analysis)(?: to=assistant)?|(?: to=assistant)?){_TYPE}"
    ),
}
_EXPECTED_FORMS: dict[str, LiteralString] = {
    "assistant": "assistant⟦channel⟧analysis|commentary|final, with the recipient before or after the channel",
    "tool": "functions.NAME to=assistant⟦channel⟧commentary",
}


@check(MUST, spec="harmony#message-format", when=(on.is_conversation, on.prompt_is_known))
def form_is_known(x: Exchange) -> Iterator[Finding]:
    """Each header of the prompt has a role; of an assistant or tool also a channel, and at most one recipient, in known order.

    The model imitates a header that it was never trained on, and writes a broken one (defects V05, V17).
    """
    for index, message in enumerate(x.prompt_messages):
        if not _FORMS[message.role].fullmatch(message.header):
            problem = RedactableText("a header of the prompt has no known form ({})", message.role)
            expected = _EXPECTED_FORMS.get(message.role) or quote(message.role)
            yield mismatch(problem, f"prompt message {index}", expected, shorten(message.header) or "nothing")


@check(MUST, spec="harmony#stop-tokens", when=(on.is_conversation, on.prompt_is_known))
def messages_end_as_they_must(x: Exchange) -> Iterator[Finding]:
    """A call of the assistant ends in `<|call|>`, every other message in `<|end|>`; `<|return|>` has no place in a prompt.

    The guide: `<|return|>` is a decode-time stop token only; prior messages in prompts end with `<|end|>`.
    """
    for index, message in enumerate(x.prompt_messages):
        is_call = message.role == "assistant" and message.recipient is not None
        expected: LiteralString = "⟦call⟧" if is_call else "⟦end⟧"
        if message.end_name == "⟦end⟧" and is_call:
            yield variant("a call is closed by <|end|>", where=f"prompt message {index}")
        elif message.end is not None and message.end_name != expected:
            problem = "a message of the prompt ends in the wrong token"
            actual = RedactableText("{} after {}", message.end_name, shorten(str(message)))
            yield mismatch(problem, f"prompt message {index}", quote(expected), actual)


@check(SHOULD, spec="harmony#final", when=(on.is_conversation, on.is_complete_answer, on.has_row_for_broken_output))
def broken_output_loses_nothing(x: Exchange) -> Iterator[Finding]:
    """Broken output costs the client nothing that must arrive by its row in the golden data: reasoning, answer, calls.

    Models double a channel, forget a marker, or name a recipient twice. Parsers then raise, or end in a state that they do not flush. The answer next to
    the broken header is lost, or a readable call (defects V01, V06, S01, S04, P12). A text without a defined place may arrive as content,
    as reasoning, or as the arguments of a call of any tool.
    """
    turn, row = x.turn, x.expectation
    if turn is None or row is None:
        return
    content, reasoning = turn.content or "", turn.reasoning or ""
    arguments = (*(call.arguments for call in turn.tool_calls), *foreign_arguments(x))
    if row.required_output.reasoning and turn.reasoning is None:
        yield variant("the reasoning is hidden", where="reasoning")
    places = (
        ("reasoning", row.required_output.reasoning if turn.reasoning is not None else (), (reasoning,), REASONING),
        ("content", row.required_output.finals, (content,), FINAL),
        ("content", row.required_output.preambles, (content, reasoning), PREAMBLES),
        ("any field", row.required_texts, (content, reasoning, *arguments), ""),
    )
    for where, texts, fields_for_it, clause in places:
        for wanted in (text.rstrip("\ufffd").strip() for text in texts):
            arrived = [wanted in field or equal_json(field, wanted) for field in fields_for_it]
            if not any(arrived):
                message = RedactableText("a text of the broken output is not in {}", where)
                actual = shorten(" | ".join(filter(None, fields_for_it))) or "nothing"
                finding = mismatch(message, where, shorten(wanted), actual)
                yield cited(finding, clause or clause_of_text(x, wanted))
            elif where == "content" and not arrived[0]:
                yield variant("the preamble is shown as reasoning, not as content", where="content")
    for finding in _lost_calls(row.required_output.calls, turn):
        if finding.verdict is Verdict.FAIL or x.api_adapter.has_text_arguments:
            yield finding


def _lost_calls(expected: Sequence[FunctionCall], turn: Turn) -> Iterator[Finding]:
    """Yield a failure for each call that did not arrive in its order, and a variant for one with rewritten arguments, equal as JSON."""
    left = list(turn.tool_calls)
    for call in expected:
        place = next((place for place, actual in enumerate(left) if _is_call(actual, call)), None)
        if place is None:
            arrived = ", ".join(f"{actual.name}({shorten(actual.arguments)})" for actual in turn.tool_calls)
            message = "a call of the broken output is lost, or arrived as another"
            wanted = RedactableText("{}({})", call.name, shorten(call.arguments))
            finding = mismatch(message, "tool_calls", wanted, quote(arrived) or "no call")
            yield cited(finding, CALLS)
            continue
        if left[place].arguments != call.arguments:
            yield variant("the arguments were rewritten: equal as JSON, another text", where="tool_calls")
        left = left[place + 1 :]


def _is_call(actual: ToolCall, call: FunctionCall) -> bool:
    same = equal_json(actual.arguments, call.arguments) and not has_added_fractions(call.arguments, actual.arguments)
    return actual.name == call.name and (actual.arguments == call.arguments or same)


INVENTED_CALL: LiteralString = "a call arrived that the model did not make"
WRITTEN_CALL: LiteralString = "a part of the output arrived as a call that the answer must not contain"
_ANOTHER_NAME: LiteralString = "a call arrived under another name"
_CHANGED_ARGUMENTS: LiteralString = "a call arrived with arguments that the model did not write"
_CLAUSES_OF_CALLS = {INVENTED_CALL: CALLS, _ANOTHER_NAME: CALLS, _CHANGED_ARGUMENTS: ARGUMENTS}


@check(
    MUST, spec="harmony#message-format", when=(on.is_conversation, on.is_complete_answer, on.has_row_for_broken_output)
)
def broken_output_leaks_nothing(x: Exchange) -> Iterator[Finding]:
    """No part of a broken header becomes text, private reasoning does not become the answer, and no call is invented.

    A parser in a wrong state shows header words, the chain of thought, or a tool named after both (defects V04, V07, O01, S04, P12).
    The official library returns some such texts as they are, to callers that know the tokens; the users of a server do not.
    """
    turn, row = x.turn, x.expectation
    if turn is None or row is None:
        return
    for field in turn_fields(turn):
        for never in row.forbidden_texts:
            if never in field.text:
                message = with_added_end(x, RedactableText("{!r} must not reach a client", shorten(never)), field.text)
                yield Finding(message=message, location=field.where, excerpt=shorten(field.text))
    shown = "\n".join((*row.required_output.finals, *row.required_output.preambles, *row.required_texts))
    for thought in row.required_output.reasoning:
        if thought.strip() and thought in (turn.content or "") and thought not in shown:
            problem = "the content contains text of the analysis channel"
            yield Finding(message=problem, location="content", excerpt=shorten(turn.content or ""), clause=ANALYSIS)
    allowed = (*row.required_output.calls, *row.optional_calls)
    for index, actual in enumerate(turn.tool_calls):
        if any(_is_call(actual, call) for call in allowed):
            continue
        message = _unexpected_call(x, actual, allowed)
        if message == WRITTEN_CALL and row.is_well_formed:
            continue  # a call that the request does not allow: the family `tool_calls` reports it
        yield Finding(
            message=message,
            location=pointer("tool_calls", index),
            expected=quote(" or ".join(f"{call.name}({shorten(call.arguments)})" for call in allowed)) or "no call",
            actual=RedactableText("{}({})", shorten(actual.name), shorten(actual.arguments)),
            clause=_CLAUSES_OF_CALLS.get(message) or clause_of_forbidden_call(x, actual.name),
        )


def _unexpected_call(x: Exchange, actual: ToolCall, allowed: Sequence[FunctionCall]) -> LiteralString:
    if any(_is_call(actual, replace(call, name=actual.name)) for call in allowed if call.name != actual.name):
        return _ANOTHER_NAME
    if contains_call(x.output.ids or (), actual.name, actual.arguments):
        return WRITTEN_CALL
    if any(call.name == actual.name for call in allowed):
        return _CHANGED_ARGUMENTS
    return INVENTED_CALL
