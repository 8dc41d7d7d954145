"""Read the messages of a request: their content blocks become the messages that Harmony has."""

from collections.abc import Iterator, Mapping

from harmony_conformance.json_value import Json, JsonObject, dumps, members
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage, PastCall
from harmony_conformance.reference_server.requests.errors import ApiError, wrong_value
from harmony_conformance.reference_server.requests.fields import string
from harmony_conformance.reference_server.responses.encrypted_reasoning import unseal

_IGNORED = frozenset({"redacted_thinking"})  # opaque, and made by another server


def read_messages(value: Json) -> tuple[ChatMessage, ...]:
    """Return the messages, tool results with their function; raise an ApiError (400) that names an invalid field."""
    if not isinstance(value, list) or not value:
        raise wrong_value("messages", "expected a list of at least one message.")
    functions: dict[str, str] = {}
    messages: list[ChatMessage] = []
    for place, entry in enumerate(value):
        read = [*_read_message(entry, f"messages[{place}]", functions)]
        functions.update((call.id, call.name) for message in read for call in message.calls)
        messages += read
    if not messages:
        raise wrong_value("messages", "expected at least one message that is not empty.")
    return tuple(messages)


def _read_message(entry: Json, where: str, functions: Mapping[str, str]) -> Iterator[ChatMessage]:
    if not isinstance(entry, dict):
        raise wrong_value(where, "expected an object.")
    role, content = entry.get("role"), entry.get("content")
    if role not in ("user", "assistant", "system"):
        raise wrong_value(f"{where}.role", f"expected user, assistant or system, got {role!r}.")
    if isinstance(content, str) or role == "system":
        yield ChatMessage(role=str(role), text=read_text(content, f"{where}.content"))
    elif not isinstance(content, list):
        raise wrong_value(f"{where}.content", "expected a text or a list of content blocks.")
    else:
        blocks = ((members(block), f"{where}.content[{place}]") for place, block in enumerate(content))
        yield from _assistant_turn(blocks) if role == "assistant" else _user_turn(blocks, functions)


_Blocks = Iterator[tuple[JsonObject, str]]


def _user_turn(blocks: _Blocks, functions: Mapping[str, str]) -> Iterator[ChatMessage]:
    """Yield the results, and the texts between them as one message."""
    shown: str | None = None
    for block, where in blocks:
        if block.get("type") == "tool_result":
            if shown is not None:
                yield ChatMessage(role="user", text=shown)
                shown = None
            yield _result(block, where, functions)
        else:
            shown = (shown or "") + _text_of(block, where)
    if shown is not None:
        yield ChatMessage(role="user", text=shown)


def _result(block: JsonObject, where: str, functions: Mapping[str, str]) -> ChatMessage:
    call = string(block, "tool_use_id", where)
    if call not in functions:
        raise wrong_value(f"{where}.tool_use_id", f"no earlier tool_use block has the id '{call}'.")
    content = block.get("content")
    shown = "" if content is None else read_text(content, f"{where}.content")
    return ChatMessage(role="tool", text=shown, tool=functions[call])


def _assistant_turn(blocks: _Blocks) -> Iterator[ChatMessage]:
    """Yield the messages of a turn: thinking begins a message, and so does text after a call."""
    thought, shown, calls = "", "", list[PastCall]()

    def message() -> ChatMessage:
        return ChatMessage(role="assistant", text=shown or None, reasoning=thought or None, calls=tuple(calls))

    for block, where in blocks:
        kind = block.get("type")
        is_new = bool(shown or thought or calls) if kind == "thinking" else kind == "text" and bool(calls)
        if is_new:
            yield message()
            thought, shown, calls = "", "", []
        if kind == "thinking":
            thought = string(block, "thinking", where) or unseal(string(block, "signature", where)) or ""
        elif kind == "tool_use":
            calls.append(_call(block, where))
        elif kind not in _IGNORED:
            shown += _text_of(block, where)
    if shown or thought or calls:
        yield message()


def _call(block: JsonObject, where: str) -> PastCall:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise wrong_value(f"{where}.input", "expected an object.")
    return PastCall(id=string(block, "id", where), name=string(block, "name", where), arguments=dumps(arguments))


def read_text(content: Json, where: str) -> str:
    """Return a content of text: a string, or a list of text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_value(where, "expected a text or a list of text blocks.")
    return "".join(_text_of(members(block), f"{where}[{place}]") for place, block in enumerate(content))


def _text_of(block: JsonObject, where: str) -> str:
    kind = block.get("type")
    if kind != "text":
        message = f"Unsupported content at '{where}': this model takes text, not a block of the type {kind!r}."
        raise ApiError(message, param=where, code="unsupported_content")
    return string(block, "text", where)
