"""Conditions on the messages of a request. The docstring of each condition completes "applies to …"."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import condition
from harmony_conformance.prompts.prompt_parser import PartKind, PromptPart, Retention, has_whole_conversation
from harmony_conformance.runtime.caching import cached_view


@cached_view
def _kinds(x: Exchange) -> frozenset[PartKind]:
    return frozenset([part.kind for part in x.expected_parts])


@condition
def gives_instructions(x: Exchange) -> bool:
    """requests with a system or developer message"""
    return PartKind.INSTRUCTIONS in _kinds(x)


@condition
def has_call_history(x: Exchange) -> bool:
    """requests with a function call in their history"""
    return PartKind.CALL in _kinds(x)


@condition
def has_results(x: Exchange) -> bool:
    """requests with a function result in their history"""
    return PartKind.RESULT in _kinds(x)


@condition
def says_all(x: Exchange) -> bool:
    """requests that contain the whole conversation"""
    return has_whole_conversation(x.chat_request)


@condition
def has_user_message(x: Exchange) -> bool:
    """requests with a user message"""
    return PartKind.USER in _kinds(x)


@condition
def has_earlier_answer(x: Exchange) -> bool:
    """requests with an answer of the assistant in their history"""
    return PartKind.FINAL in _kinds(x)


@condition
def has_preamble_history(x: Exchange) -> bool:
    """requests with content next to a function call in their history"""
    return PartKind.PREAMBLE in _kinds(x)


@condition
def has_finished_reasoning(x: Exchange) -> bool:
    """requests that resend the reasoning of a turn that ended in a final answer"""
    return any(True for _ in finished_reasoning(x))


def finished_reasoning(x: Exchange) -> Iterator[PromptPart]:
    """Yield the reasoning of finished turns that has to be dropped, or that the official sources treat differently."""
    parts = x.expected_parts
    for index, part in enumerate(parts):
        is_finished = any(later.kind is PartKind.FINAL for later in parts[index:])
        if part.kind is PartKind.REASONING and (
            part.retention is Retention.ABSENT or (part.retention is Retention.EITHER and is_finished)
        ):
            yield part


@condition
def has_loop_reasoning(x: Exchange) -> bool:
    """requests that resend the reasoning of an open tool loop"""
    return any(part.kind is PartKind.REASONING and part.retention is Retention.PRESENT for part in x.expected_parts)
