"""Requests to /api/generate: a prompt that becomes a conversation, or, `raw`, one that the client rendered."""

from collections.abc import Sequence

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.ollama.request import bad
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage
from harmony_conformance.reference_server.requests.conversation import developer
from harmony_ref import HarmonyError, Message, Role, parse, tokens

_FRAME = (tokens.RETURN, tokens.ENDOFTEXT)


def prompt_text(body: JsonObject) -> str:
    """The prompt; empty where there is none.

    Raises:
        ApiError: a 400.
    """
    for name in ("suffix", "images", "template"):
        if body.get(name):
            raise bad(f"this model does not take a {name}" if name != "images" else "this model does not take images")
    return _text(body, "prompt")


def refuse_beside_raw(body: JsonObject) -> None:
    """A prompt that is rendered already has no place for these."""
    if any(body.get(name) for name in ("system", "template", "context")):
        raise bad("raw mode does not support template, system, or context")


def messages_of(body: JsonObject, prompt: str) -> tuple[ChatMessage, ...]:
    """The conversation that a prompt and a system message are."""
    system = _text(body, "system")
    instructing = (ChatMessage(role="system", text=system),) if system else ()
    return (*instructing, ChatMessage(role="user", text=prompt))


def context_of(body: JsonObject) -> tuple[int, ...]:
    """The token ids that an earlier answer gave as `context`.

    Raises:
        ApiError: a 400.
    """
    value = body.get("context")
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [None]
    ids = tuple(token for token in listed if isinstance(token, int) and not isinstance(token, bool))
    if len(ids) != len(listed) or not all(tokens.is_known(token) for token in ids):
        raise bad("context: token ids of the vocabulary are needed")
    return ids


def going_on(context: Sequence[int], body: JsonObject, prompt: str) -> tuple[Message, ...] | None:
    """The conversation of a context with the new prompt behind it, None where the context is no whole conversation.

    The token that ended the last answer is that of a message here (Harmony guide, chat conversation format).
    """
    ids = [tokens.END if token in _FRAME else token for token in context]
    try:
        messages = parse(ids)
    except HarmonyError:
        return None
    return (*messages, *new_turn(body, prompt))


def new_turn(body: JsonObject, prompt: str) -> tuple[Message, ...]:
    """What stands behind the context."""
    return (*developer(_text(body, "system") or None, ()), Message(author=Role.USER, content=prompt))


def _text(body: JsonObject, name: str) -> str:
    value: Json = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad(f"{name}: a string is needed")
    return value or ""
