"""Answers without content and calls: the part of the output that the client should have got."""

from __future__ import annotations

import re

from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import ExpectedOutput, OutputTokenCounts
from harmony_conformance.evidence.leaks.by_token_ids import parse_completion
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.condition import condition
from harmony_conformance.prompts.request_members import can_be_called
from harmony_ref import decode


def calls_forbidden_function(x: Exchange) -> bool:
    """Return True if the model called a function that the request offers and does not allow."""
    calls = x.expected_output.calls if x.expected_output is not None else ()
    return any(not can_be_called(x.chat_request, call.name) for call in calls)


def wrote_only_forbidden_calls(x: Exchange, written: OutputTokenCounts) -> bool:
    """Return True if all that the model wrote for others are calls, and the request does not allow them."""
    is_forbidden = calls_forbidden_function(x) or not on.offered_tools.holds(x)
    return bool(written.call_tokens) and not written.user_tokens and is_forbidden


def shows_all_as_reasoning(x: Exchange) -> bool:
    """Return True if the known ids are broken, so that their channels are unclear, and all of their text is shown as reasoning."""
    ids, turn = x.output.ids, x.turn
    if ids is None or turn is None or x.expected_output is not None:
        return False
    return parse_completion(ids).is_all_in(turn.reasoning or "")


def may_be_cut(x: Exchange) -> bool:
    """Return True if all allowed tokens were spent, and nothing shows that the model ended its turn with the last of them.

    Known ids are trusted more than the end that the answer claims.
    """
    usage = x.turn.usage if x.turn is not None else None
    spent = usage.completion_tokens if usage is not None else None
    limit = x.max_output_tokens
    is_spent = limit is not None and spent is not None and spent >= limit
    return x.hit_token_limit or (x.output.ids is None and is_spent)


def goes_beyond_limit(x: Exchange, written: str, shown: str) -> bool:
    """Return True if a text continues as the script does behind the token limit."""
    more = shown.removeprefix(written).strip()
    is_longer = bool(written) and shown.startswith(written) and bool(more)
    return is_longer and x.hit_token_limit and more in decode(x.script or ())


def has_refusal(x: Exchange) -> bool:
    """Return True if an answer has a refusal."""
    return any(field.where == "refusal" for answer in x.answers for field in answer.fields)


def foreign_arguments(x: Exchange) -> tuple[str, ...]:
    """Return the arguments of calls that are no function calls, such as those of MCP tools in a Response."""
    fields = (field for answer in x.answers for field in answer.fields if field.kind is not FieldKind.NAME)  # a key
    return tuple(field.text for field in fields if _FOREIGN_ARGUMENTS.fullmatch(field.where))


def has_typed_call(x: Exchange) -> bool:
    """Return True if an answer has a call of a custom tool, a shell, a patch or a search for tools. A request to approve a call of an MCP tool counts."""
    fields = (field for answer in x.answers for field in answer.fields)
    return any(_TYPE_OF_ITEM.fullmatch(field.where) and field.text in _TYPED_CALLS for field in fields)


_TYPE_OF_ITEM = re.compile(r"output/\d+/type")
_TYPED_CALLS = frozenset(
    {
        *("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"),
        "mcp_approval_request",
    }
)
_FOREIGN_ARGUMENTS = re.compile(r"output/\d+/arguments")


def owes_nothing(output: ExpectedOutput | None) -> bool:
    """Return True if the model is known to have written neither a text for the user nor a call."""
    return output is not None and not "".join(output.user_texts).strip() and not output.calls


@condition
def stopped_by_itself(x: Exchange) -> bool:
    """answers with finish reason stop that spent less than their limit, contain no refusal, and call no tool of the API itself"""
    types = (field for answer in x.answers for field in answer.fields if _TYPE_OF_ITEM.fullmatch(field.where))
    return (
        x.turn is not None
        and x.turn.finish_reason == "stop"
        and not may_be_cut(x)
        and not has_refusal(x)
        and not any(field.text.endswith("_call") or field.text in _TYPED_CALLS for field in types)
    )


@condition
def no_stop_string_ended_it(x: Exchange) -> bool:
    """requests without stop strings, or answers that are known to contain none: servers look for them in the reasoning too"""
    return not x.stop_strings or (x.output.ids is not None and not x.has_stop_string)


@condition
def has_only_allowed_calls(x: Exchange) -> bool:
    """completions whose calls, if any, are of an offered and allowed function"""
    written = x.expected_output
    has_allowed_calls = on.offered_tools.holds(x) and not calls_forbidden_function(x)
    return written is not None and (not written.calls or has_allowed_calls)
