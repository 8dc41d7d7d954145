"""Input of `render`: a conversation in the form of openai-harmony, or a whole API request."""

from __future__ import annotations

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, CONVERSATION_APIS, RESPONSES
from harmony_conformance.checks.rendering.accepted_renderings import has_predictable_prompt
from harmony_conformance.errors import UsageError
from harmony_conformance.json_value import Json, dumps, items, members, value_at
from harmony_conformance.prompts.conversation import ALLOWED_RETENTIONS, EFFORTS, ConversationOptions, conversation_of
from harmony_conformance.prompts.expected_parts import has_whole_conversation
from harmony_ref import Conversation

HARMONY, AUTO = "harmony", "auto"
FORMS = (AUTO, HARMONY, *(name for name in APIS if name in CONVERSATION_APIS))
"""Forms of the input: those of the APIs that take messages, and that of openai-harmony."""
_ONLY_IN_APIS = ("tool_calls", "tool_call_id", "function_call", "reasoning", "reasoning_content", "thinking")


def detect_form(value: Json) -> str:
    """Return the form of an input. `messages` alone is a conversation, unless a message has a member of Chat Completions."""
    if isinstance(value, dict) and ("input" in value or "instructions" in value):
        return RESPONSES.name
    is_alone = isinstance(value, list) or members(value).keys() <= {"messages"}
    messages = items(value) or items(value_at(value, "messages"))
    has_api_member = any(name in members(message) for message in messages for name in _ONLY_IN_APIS)
    return HARMONY if is_alone and not has_api_member else CHAT_COMPLETIONS.name


def read_conversation(value: Json, form: str, date: str | None) -> Conversation:
    """Return the conversation of an input.

    Args:
        value: The JSON value.
        form: One of `FORMS` except `auto`.
        date: The current date in the system message of an API request, or None to omit it.

    Raises:
        UsageError: The request has no predictable prompt.
        HarmonyError: The conversation is invalid.
    """
    value = {"messages": value} if isinstance(value, list) else value
    if form == HARMONY:
        return Conversation.from_dict(value)
    request = APIS[form].read_request(value)
    if not has_whole_conversation(request):
        raise UsageError(
            "invalid request: expected the whole conversation, got one that continues a stored response or has reasoning without its text"
        )
    effort = value_at(request, "reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise UsageError(f"invalid reasoning effort: expected {', '.join(EFFORTS)}, got {dumps(effort)}")
    if not has_predictable_prompt(request):
        raise UsageError(
            "invalid request: expected messages with texts and function calls, and tools with a schema, got others"
        )
    reading = ConversationOptions(retentions=ALLOWED_RETENTIONS)  # the rule of the history drops what it drops
    return Conversation(messages=conversation_of(request, reading, date=date))
