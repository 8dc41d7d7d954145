"""The `input` of a Responses request, read once and refused where it is wrong.

What this server returns it takes back, item by item. Reasoning is read from where its own items have it: `content`
(the raw chain of thought, as gpt-oss servers return it), else `encrypted_content`, else `summary`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harmony_conformance.json_value import Json, JsonObject, items, members, text
from harmony_conformance.reference_server.requests.errors import ApiError, wrong_value
from harmony_conformance.reference_server.responses.builtin_tools import PYTHON, RECIPIENTS, browsing_arguments
from harmony_conformance.reference_server.responses.encrypted_reasoning import unsealed

_TEXT_PARTS = {
    "assistant": {"output_text": "text", "refusal": "refusal"},
    "user": {"input_text": "text"},
    "system": {"input_text": "text"},
    "developer": {"input_text": "text"},
}
_PHASES = (None, "commentary", "final_answer")


@dataclass(frozen=True, kw_only=True)
class MessageItem:
    """A message; `phase` is what the client says of an assistant's: `commentary`, `final_answer` or nothing."""

    role: str
    text: str
    phase: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReasoningItem:
    """A chain of thought that is sent back."""

    text: str


@dataclass(frozen=True, kw_only=True)
class CallItem:
    """A call of a function; `arguments` is the text as the client sent it."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ResultItem:
    """The result of a function, under the name that was called."""

    tool: str
    text: str


@dataclass(frozen=True, kw_only=True)
class BuiltInItem:
    """A call of a built-in tool; `content` is what the model wrote to it, `logs` what it answered."""

    recipient: str
    content: str
    logs: str | None = None


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | ResultItem | BuiltInItem


def listed(value: Json) -> list[Json]:
    """The input as a list of items; a text is one user message.

    Raises:
        ApiError: it is neither.
    """
    match value:
        case str():
            return [{"type": "message", "role": "user", "content": value}]
        case list():
            return value
        case _:
            raise wrong_value("input", "a text or a list of items is needed.")


def read_items(entries: list[Json]) -> tuple[Item, ...]:
    """The items in order, each result under the name of the function that was called.

    Raises:
        ApiError: a 400 that names the item and the member.
    """
    if not entries:
        raise wrong_value("input", "at least one item is needed.")
    called: dict[str, str] = {}
    read: list[Item] = []
    for position, entry in enumerate(entries):
        where = f"input[{position}]"
        if not isinstance(entry, dict):
            raise wrong_value(where, "an object is needed.")
        item = _item(entry, where, called)
        if isinstance(item, CallItem):
            called[_string(entry, "call_id", where)] = item.name
        read.append(item)
    return tuple(read)


def _item(entry: JsonObject, where: str, called: Mapping[str, str]) -> Item:
    match entry.get("type", "message"):
        case "message":
            return _message(entry, where)
        case "reasoning":
            return ReasoningItem(text=_reasoning(entry, where))
        case "function_call":
            return CallItem(name=_string(entry, "name", where), arguments=_string(entry, "arguments", where))
        case "function_call_output":
            return _result(entry, where, called)
        case "code_interpreter_call":
            return _python(entry, where)
        case "web_search_call":
            return _browser(entry, where)
        case kind:
            raise wrong_value(f"{where}.type", f"{kind!r} is no item that this server takes.")


def _message(entry: JsonObject, where: str) -> MessageItem:
    role = entry.get("role")
    if not isinstance(role, str) or role not in _TEXT_PARTS:
        raise wrong_value(f"{where}.role", f"{role!r} is none of {', '.join(_TEXT_PARTS)}.")
    phase = entry.get("phase")
    if phase not in _PHASES:
        raise wrong_value(f"{where}.phase", f"{phase!r} is none of 'commentary', 'final_answer'.")
    content = _text(entry.get("content"), f"{where}.content", _TEXT_PARTS[role])
    return MessageItem(role=role, text=content, phase=text(phase) or None)


def _text(value: Json, where: str, kinds: Mapping[str, str]) -> str:
    match value:
        case str():
            return value
        case list():
            return "".join(_part(part, f"{where}[{place}]", kinds) for place, part in enumerate(value))
        case _:
            raise wrong_value(where, "a text or a list of parts is needed.")


def _part(part: Json, where: str, kinds: Mapping[str, str]) -> str:
    if not isinstance(part, dict):
        raise wrong_value(where, "a part is an object.")
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise wrong_value(f"{where}.type", f"{kind!r} is not offered here; {', '.join(kinds)} is.")
    return _string(part, kinds[kind], where)


def _reasoning(entry: JsonObject, where: str) -> str:
    if entry.get("content"):
        return _text(entry["content"], f"{where}.content", {"reasoning_text": "text"})
    sealed = entry.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        opened = unsealed(sealed)
        if opened is None:
            raise ApiError(
                f"Invalid value for '{where}.encrypted_content': it was not made by this server.",
                param=f"{where}.encrypted_content",
                code="invalid_encrypted_content",
            )
        return opened
    if entry.get("summary"):
        return _text(entry["summary"], f"{where}.summary", {"summary_text": "text"})
    return ""


def _result(entry: JsonObject, where: str, called: Mapping[str, str]) -> ResultItem:
    call = _string(entry, "call_id", where)
    if call not in called:
        raise ApiError(
            f"Invalid value for '{where}.call_id': no earlier item calls a function under the id '{call}'.",
            param=f"{where}.call_id",
            code="invalid_value",
        )
    return ResultItem(tool=called[call], text=_text(entry.get("output"), f"{where}.output", {"input_text": "text"}))


def _python(entry: JsonObject, where: str) -> BuiltInItem:
    outputs = items(entry.get("outputs"))
    logs = "".join(text(members(output).get("logs")) for output in outputs)
    return BuiltInItem(recipient=PYTHON, content=_string(entry, "code", where), logs=logs if outputs else None)


def _browser(entry: JsonObject, where: str) -> BuiltInItem:
    action = members(entry.get("action"))
    kind = text(action.get("type"))
    if kind not in RECIPIENTS:
        raise wrong_value(f"{where}.action.type", f"{action.get('type')!r} is none of {', '.join(RECIPIENTS)}.")
    return BuiltInItem(recipient=RECIPIENTS[kind], content=browsing_arguments(action))


def _string(entry: JsonObject, name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise wrong_value(f"{where}.{name}", "a string is needed.")
    return value
