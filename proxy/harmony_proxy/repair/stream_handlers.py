"""Select the handler of a streamed answer by its API and the actions of the policy."""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.apis.registry import MESSAGES, RESPONSES
from harmony_conformance.checks.responses.views import STATUS_BY_FINAL_EVENT
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, items, text, value_at
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.repair_table import REPAIRS
from harmony_proxy.repair.chat.chat_stream import ChatStream
from harmony_proxy.repair.chat.messages_stream import MESSAGES_DIALECT, MessagesStream
from harmony_proxy.repair.request_facts import RequestFacts
from harmony_proxy.repair.responses.responses_stream import STATUS_CHECK, ResponsesStream
from harmony_proxy.repair.stream_parts.repair_accounting import FINISH_CHECK
from harmony_proxy.repair.stream_parts.rewriter import StreamRewriter
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge
from harmony_proxy.repair.text.api_dialects import DIALECTS


def create_rewriter(  # noqa: PLR0913 - the settings of a stream
    x: Exchange,
    facts: RequestFacts,
    actions: Mapping[str, Action],
    asking: StreamJudge,
    notes: ActionNotes,
    *,
    keeps_bytes: bool,
    reasoning_field: str | None,
) -> StreamRewriter | None:
    """Return the handler that reads and rewrites the answer; None if it is only blocked, or not examined. `actions`: without the observed checks."""
    if x.response is None or not x.response.is_success:
        return None
    repairs = actions.keys() & REPAIRS.keys()
    if x.api == RESPONSES.name and repairs:
        return ResponsesStream(
            facts,
            asking,
            notes,
            body=x.request.body,
            repairs_status=actions.get(STATUS_CHECK) is Action.REPAIR,
            keeps_bytes=keeps_bytes,
        )
    is_messages = x.api == MESSAGES.name
    dialect = MESSAGES_DIALECT if is_messages else DIALECTS.get(x.api)
    if dialect is None or not (repairs or reasoning_field is not None):
        return None
    stream = MessagesStream if is_messages else ChatStream
    return stream(
        dialect,
        facts,
        asking,
        notes,
        body=x.request.body,
        reasoning_field=None if is_messages else reasoning_field,
        repairs_finish=actions.get(FINISH_CHECK) is Action.REPAIR,
        keeps_bytes=keeps_bytes,
    )


def is_final_event(value: Json) -> bool:
    """Return True if this event completes the answer, for APIs whose answers are only blocked."""
    is_last = value_at(value, "generated_text") is not None or value_at(value, "done") is True
    has_reason = any(value_at(choice, "finish_reason") is not None for choice in items(value_at(value, "choices")))
    has_reason = has_reason or value_at(value, "delta", "stop_reason") is not None  # of Messages
    return is_last or has_reason or text(value_at(value, "type")) in STATUS_BY_FINAL_EVENT
