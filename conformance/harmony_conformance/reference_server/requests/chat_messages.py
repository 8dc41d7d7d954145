"""The `messages` of a Chat Completions request, read once and refused where they are wrong."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.requests.errors import ApiError, wrong_value

INSTRUCTING = frozenset({"system", "developer"})
"""The roles whose text instructs the model."""

_REASONING_NAMES = ("reasoning", "reasoning_content", "thinking")
_PART_TYPES = {"assistant": {"text": "text", "refusal": "refusal"}}
_PLAIN_PARTS = {"text": "text"}


@dataclass(frozen=True, kw_only=True)
class PastCall:
    """A call in the history; `arguments` is the text as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One message.

    Attributes:
        text: the content, None where there is none.
        reasoning: the chain of thought that the client sent back.
        tool: the function whose result this is; only in messages of the role tool.
    """

    role: str
    text: str | None
    reasoning: str | None = None
    calls: tuple[PastCall, ...] = ()
    tool: str | None = None


def read_messages(value: Json) -> tuple[ChatMessage, ...]:
    """The messages in order, each tool result under the name of the function that was called.

    Raises:
        ApiError: a 400 that names the message and the field.
    """
    if not isinstance(value, list):
        raise wrong_value("messages", "a list of messages is needed.")
    if not value:
        raise wrong_value("messages", "at least one message is needed.")
    called: dict[str, str] = {}
    messages: list[ChatMessage] = []
    for position, entry in enumerate(value):
        message = _message(entry, f"messages[{position}]", called)
        called.update((call.id, call.name) for call in message.calls)
        messages.append(message)
    return tuple(messages)


def _message(entry: Json, where: str, called: dict[str, str]) -> ChatMessage:
    if not isinstance(entry, dict):
        raise wrong_value(where, "an object is needed.")
    match entry.get("role"):
        case "assistant":
            return _assistant(entry, where)
        case "tool":
            return ChatMessage(
                role="tool", text=_needed_text(entry, "tool", where), tool=_tool_name(entry, where, called)
            )
        case ("user" | "system" | "developer") as role:
            return ChatMessage(role=role, text=_needed_text(entry, role, where))
        case role:
            raise wrong_value(f"{where}.role", f"{role!r} is none of system, developer, user, assistant, tool.")


def _assistant(entry: JsonObject, where: str) -> ChatMessage:
    return ChatMessage(
        role="assistant",
        text=_text(entry.get("content"), "assistant", f"{where}.content"),
        reasoning=_reasoning(entry, where),
        calls=_calls(entry.get("tool_calls"), f"{where}.tool_calls"),
    )


def _needed_text(entry: JsonObject, role: str, where: str) -> str:
    text = _text(entry.get("content"), role, f"{where}.content")
    if text is None:
        raise wrong_value(f"{where}.content", "a text or a list of text parts is needed.")
    return text


def _text(content: Json, role: str, where: str) -> str | None:
    match content:
        case None | str():
            return content
        case list():
            return "".join(_part(part, role, f"{where}[{position}]") for position, part in enumerate(content))
        case _:
            raise wrong_value(where, "a text or a list of text parts is needed.")


def _part(part: Json, role: str, where: str) -> str:
    if not isinstance(part, dict):
        raise wrong_value(where, "a content part is an object.")
    kinds = _PART_TYPES.get(role, _PLAIN_PARTS)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise wrong_value(f"{where}.type", f"{kind!r} is not offered for the role {role}; {', '.join(kinds)} is.")
    text = part.get(kinds[kind])
    if not isinstance(text, str):
        raise wrong_value(f"{where}.{kinds[kind]}", "a string is needed.")
    return text


def _reasoning(entry: JsonObject, where: str) -> str | None:
    for name in _REASONING_NAMES:
        value = entry.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise wrong_value(f"{where}.{name}", "a string is needed.")
        if value:
            return value
    return None


def _calls(value: Json, where: str) -> tuple[PastCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_value(where, "a list is needed.")
    return tuple(_call(entry, f"{where}[{position}]") for position, entry in enumerate(value))


def _call(entry: Json, where: str) -> PastCall:
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(function, dict):
        raise wrong_value(where, "an object with 'id' and 'function' is needed.")
    fields = {
        f"{where}.id": entry.get("id"),
        **{f"{where}.function.{key}": function.get(key) for key in ("name", "arguments")},
    }
    texts: list[str] = []
    for place, text in fields.items():
        if not isinstance(text, str):
            raise wrong_value(place, "a string is needed.")
        texts.append(text)
    return PastCall(id=texts[0], name=texts[1], arguments=texts[2])


def _tool_name(entry: JsonObject, where: str, called: dict[str, str]) -> str:
    call = entry.get("tool_call_id")
    if not isinstance(call, str) or not call:
        raise wrong_value(f"{where}.tool_call_id", "the id of the call that this answers is needed.")
    if call not in called:
        raise ApiError(
            f"Invalid value for '{where}.tool_call_id': no earlier message calls a tool under the id '{call}'.",
            param=f"{where}.tool_call_id",
            code="invalid_value",
        )
    return called[call]
