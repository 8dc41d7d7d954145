"""Parse and validate the `messages` of a Chat Completions request."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_conformance.reference_server.requests.fields import string, text_part

INSTRUCTING = frozenset({"system", "developer"})
"""Roles whose text is instructions for the model."""

_REASONING_NAMES = ("reasoning", "reasoning_content", "thinking")
_PART_TYPES = {"assistant": {"text": "text", "refusal": "refusal"}}
_PLAIN_PARTS = {"text": "text"}


@dataclass(frozen=True, kw_only=True)
class PastCall:
    """A call in the history; `arguments` is the text that the client sent, unchanged."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One message; `tool` is the name of the function that returned a result."""

    role: str
    text: str | None
    reasoning: str | None = None
    calls: tuple[PastCall, ...] = ()
    tool: str | None = None


def read_messages(value: Json) -> tuple[ChatMessage, ...]:
    """Return the messages, tool results with their function; raise an ApiError (400) that names an invalid field."""
    if not isinstance(value, list):
        raise wrong_value("messages", "expected a list of messages.")
    if not value:
        raise wrong_value("messages", "expected at least one message.")
    functions: dict[str, str] = {}
    messages: list[ChatMessage] = []
    for position, entry in enumerate(value):
        message = _message(entry, f"messages[{position}]", functions)
        functions.update((call.id, call.name) for call in message.calls)
        messages.append(message)
    return tuple(messages)


def _message(entry: Json, where: str, functions: dict[str, str]) -> ChatMessage:
    if not isinstance(entry, dict):
        raise wrong_value(where, "expected an object.")
    match entry.get("role"):
        case "assistant":
            return ChatMessage(
                role="assistant",
                text=_text(entry.get("content"), "assistant", f"{where}.content"),
                reasoning=_reasoning(entry, where),
                calls=_calls(entry.get("tool_calls"), f"{where}.tool_calls"),
            )
        case "tool":
            text = _required_text(entry, "tool", where)
            return ChatMessage(role="tool", text=text, tool=_tool_name(entry, where, functions))
        case ("user" | "system" | "developer") as role:
            return ChatMessage(role=role, text=_required_text(entry, role, where))
        case role:
            raise wrong_value(f"{where}.role", f"expected system, developer, user, assistant or tool, got {role!r}.")


def _required_text(entry: JsonObject, role: str, where: str) -> str:
    text = _text(entry.get("content"), role, f"{where}.content")
    if text is None:
        raise wrong_value(f"{where}.content", "expected a text or a list of text parts.")
    return text


def _text(content: Json, role: str, where: str) -> str | None:
    match content:
        case None | str():
            return content
        case list():
            kinds, condition = _PART_TYPES.get(role, _PLAIN_PARTS), f" for the role {role}"
            parts = (text_part(part, f"{where}[{index}]", kinds, condition) for index, part in enumerate(content))
            return "".join(parts)
        case _:
            raise wrong_value(where, "expected a text or a list of text parts.")


def _reasoning(entry: JsonObject, where: str) -> str | None:
    for name in _REASONING_NAMES:
        if entry.get(name) is not None and (value := string(entry, name, where)):
            return value
    return None


def _calls(value: Json, where: str) -> tuple[PastCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_value(where, "expected a list.")
    return tuple(_call(entry, f"{where}[{position}]") for position, entry in enumerate(value))


def _call(entry: Json, where: str) -> PastCall:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(function, dict):
        raise wrong_value(where, "expected an object with 'id' and 'function'.")
    return PastCall(
        id=string(entry, "id", where),
        name=string(function, "name", f"{where}.function"),
        arguments=string(function, "arguments", f"{where}.function"),
    )


def _tool_name(entry: JsonObject, where: str, functions: dict[str, str]) -> str:
    call = entry.get("tool_call_id")
    if not isinstance(call, str) or not call:
        raise wrong_value(f"{where}.tool_call_id", "expected the id of a tool call.")
    if call not in functions:
        raise wrong_value(f"{where}.tool_call_id", f"no earlier tool call has the id '{call}'.")
    return functions[call]
