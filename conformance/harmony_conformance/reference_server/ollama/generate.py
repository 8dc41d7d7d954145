"""Requests to /api/generate: a prompt that becomes a conversation, or a `raw` prompt that the client rendered."""

from collections.abc import Sequence

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.ollama.request import bad_request
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage
from harmony_conformance.reference_server.requests.conversation import developer_message
from harmony_ref import HarmonyError, Message, Role, parse, tokens

_FRAME = (tokens.RETURN, tokens.ENDOFTEXT)


def prompt_text(body: JsonObject) -> str:
    """Return the prompt; empty if absent; raise an ApiError (400) if it is invalid."""
    for name in ("suffix", "images", "template"):
        if body.get(name):
            raise bad_request(
                f"this model does not take a {name}" if name != "images" else "this model does not take images"
            )
    return _text(body, "prompt")


def refuse_beside_raw(body: JsonObject) -> None:
    """Reject the members that a raw prompt cannot have."""
    if any(body.get(name) for name in ("system", "template", "context")):
        raise bad_request("raw mode does not support template, system, or context")


def build_messages(body: JsonObject, prompt: str) -> tuple[ChatMessage, ...]:
    """Return the conversation of a prompt and an optional system message."""
    system, user = _text(body, "system"), ChatMessage(role="user", text=prompt)
    return (ChatMessage(role="system", text=system), user) if system else (user,)


def read_context(body: JsonObject) -> tuple[int, ...]:
    """Return the token ids that an earlier answer returned as `context`; raise an ApiError (400) if it is invalid."""
    value = body.get("context")
    if value is None:
        return ()
    values = value if isinstance(value, list) else [None]
    ids = tuple(token for token in values if isinstance(token, int) and not isinstance(token, bool))
    if len(ids) != len(values) or not all(tokens.is_known(token) for token in ids):
        raise bad_request("context: expected token ids of the vocabulary")
    return ids


def continued_messages(context: Sequence[int], body: JsonObject, prompt: str) -> tuple[Message, ...] | None:
    """Return the conversation of a context, followed by the prompt; None if the context is not a whole conversation.

    The token that ended the last answer becomes `<|end|>` (Harmony guide, chat conversation format).
    """
    ids = [tokens.END if token in _FRAME else token for token in context]
    try:
        messages = parse(ids)
    except HarmonyError:
        return None
    return (*messages, *new_turn(body, prompt))


def new_turn(body: JsonObject, prompt: str) -> tuple[Message, ...]:
    """Return the messages that follow the context."""
    return (*developer_message(_text(body, "system") or None, ()), Message(author=Role.USER, content=prompt))


def _text(body: JsonObject, name: str) -> str:
    value: Json = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: expected a string")
    return value or ""
