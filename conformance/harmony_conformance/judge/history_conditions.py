"""Conditions on the messages of a request. The docstring of each condition completes "applies to …"."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.condition import Condition, UnmetReason, condition
from harmony_conformance.prompts.expected_parts import (
    PartKind,
    PromptPart,
    Retention,
    has_whole_conversation,
    part_kinds,
)
from harmony_conformance.prompts.request_members import has_instructions_after_answer
from harmony_conformance.runtime.caching import cached_view


@cached_view
def _kinds(x: Exchange) -> frozenset[PartKind]:
    return part_kinds(x.chat_request)


def _has(kind: PartKind, description: str) -> Condition[Exchange]:
    return Condition(lambda x: kind in _kinds(x), description, UnmetReason.BEHAVIOUR)


gives_instructions = _has(PartKind.INSTRUCTIONS, "requests with a system or developer message")
has_call_history = _has(PartKind.CALL, "requests with a function call in their history")
has_results = _has(PartKind.RESULT, "requests with a function result in their history")
has_user_message = _has(PartKind.USER, "requests with a user message")
has_earlier_answer = _has(PartKind.FINAL, "requests with an answer of the assistant in their history")
has_preamble_history = _has(PartKind.PREAMBLE, "requests with content next to a function call in their history")


@condition
def has_full_history(x: Exchange) -> bool:
    """requests that contain the whole conversation"""
    return has_whole_conversation(x.chat_request)


@condition
def has_allowed_order(x: Exchange) -> bool:
    """requests whose order of messages the API allows: Anthropic's API refuses instructions directly after an answer"""
    return x.api != MESSAGES.name or not has_instructions_after_answer(x.messages)


@condition
def has_finished_reasoning(x: Exchange) -> bool:
    """requests that resend the reasoning of a turn that ended in a final answer"""
    return any(True for _ in finished_reasoning(x))


def finished_reasoning(x: Exchange) -> Iterator[PromptPart]:
    """Yield the reasoning of finished turns that has to be dropped, or that the official sources treat differently."""
    parts = x.expected_parts
    for index, part in enumerate(parts):
        is_finished = any(later.kind is PartKind.FINAL for later in parts[index:])
        is_droppable = part.retention is Retention.ABSENT or (part.retention is Retention.EITHER and is_finished)
        if is_droppable and part.kind is PartKind.REASONING:
            yield part


@condition
def has_loop_reasoning(x: Exchange) -> bool:
    """requests that resend the reasoning of an open tool loop"""
    return any(part.kind is PartKind.REASONING and part.retention is Retention.PRESENT for part in x.expected_parts)
