"""Parse and validate the `input` of a Responses request.

The server accepts all items that it returns. Reasoning is read from `content` (the raw chain of thought, as gpt-oss
servers return it), else `encrypted_content`, else `summary`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, text
from harmony_conformance.reference_server.requests.errors import ApiError, wrong_value
from harmony_conformance.reference_server.requests.fields import FUNCTIONS, string, text_part
from harmony_conformance.reference_server.responses.builtin_tools import PYTHON, RECIPIENTS, browsing_arguments
from harmony_conformance.reference_server.responses.client_tools import (
    APPLY_PATCH,
    LOCAL_SHELL,
    SHELL,
    TOOL_SEARCH,
    arguments_of,
)
from harmony_conformance.reference_server.responses.encrypted_reasoning import unseal

_TEXT_PARTS = {
    "assistant": {"output_text": "text", "refusal": "refusal"},
    "user": {"input_text": "text"},
    "system": {"input_text": "text"},
    "developer": {"input_text": "text"},
}
_PHASES = (None, "commentary", "final_answer")


@dataclass(frozen=True, kw_only=True)
class MessageItem:
    """A message; `phase` of an assistant message is `commentary`, `final_answer` or None."""

    role: str
    text: str
    phase: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReasoningItem:
    """A chain of thought that the client sent back."""

    text: str


@dataclass(frozen=True, kw_only=True)
class CallItem:
    """A call of a tool of the client; `arguments` is the model's text, of a function as the client sent it."""

    name: str
    arguments: str
    namespace: str = FUNCTIONS


@dataclass(frozen=True, kw_only=True)
class ResultItem:
    """The result of a call, which has the name and the namespace of the tool."""

    call: CallItem
    text: str


@dataclass(frozen=True, kw_only=True)
class BuiltInItem:
    """A call of a built-in tool; `content` is the model's message to it, `logs` its result."""

    recipient: str
    content: str
    logs: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolsItem:
    """An item that only adds tools."""


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | ResultItem | BuiltInItem | ToolsItem

_CALLS: Mapping[str, str] = {
    "function_call": "",
    "custom_tool_call": "",
    "local_shell_call": LOCAL_SHELL,
    "shell_call": SHELL,
    "apply_patch_call": APPLY_PATCH,
    "tool_search_call": TOOL_SEARCH,
}
"""The items of calls, each with the name of its tool if the item has none."""
_RESULTS = frozenset({f"{call}_output" for call in _CALLS} | {"tool_search_output"})


def to_item_list(value: Json) -> list[Json]:
    """Return the input as a list of items; a string becomes one user message; raise an ApiError for another type."""
    match value:
        case str():
            return [{"type": "message", "role": "user", "content": value}]
        case list():
            return value
        case _:
            raise wrong_value("input", "expected a string or a list of items.")


def read_items(entries: list[Json]) -> tuple[Item, ...]:
    """Return the items, results with their function; raise an ApiError (400) that names an invalid member."""
    if not entries:
        raise wrong_value("input", "expected at least one item.")
    calls: dict[str, CallItem] = {}
    parsed: list[Item] = []
    for position, entry in enumerate(entries):
        where = f"input[{position}]"
        if not isinstance(entry, dict):
            raise wrong_value(where, "expected an object.")
        item = _item(entry, where, calls)
        if isinstance(item, CallItem):
            calls |= {text(entry.get(name)): item for name in ("id", "call_id") if entry.get(name)}
        parsed.append(item)
    return tuple(parsed)


def _item(entry: JsonObject, where: str, calls: Mapping[str, CallItem]) -> Item:
    match entry.get("type", "message"):
        case str() as kind if kind in _CALLS:
            return _call(entry, kind, where)
        case str() as kind if kind in _RESULTS:
            return _result(entry, where, calls)
        case "additional_tools":
            return ToolsItem()
        case "message":
            return _message(entry, where)
        case "reasoning":
            return ReasoningItem(text=_reasoning(entry, where))
        case "code_interpreter_call":
            outputs = items(entry.get("outputs"))
            logs = "".join(text(members(output).get("logs")) for output in outputs) if outputs else None
            return BuiltInItem(recipient=PYTHON, content=string(entry, "code", where), logs=logs)
        case "web_search_call":
            return _browser(entry, where)
        case kind:
            raise wrong_value(f"{where}.type", f"unsupported item type {kind!r}.")


def _message(entry: JsonObject, where: str) -> MessageItem:
    role = entry.get("role")
    if not isinstance(role, str) or role not in _TEXT_PARTS:
        raise wrong_value(f"{where}.role", f"expected one of {', '.join(_TEXT_PARTS)}, got {role!r}.")
    phase = entry.get("phase")
    if phase not in _PHASES:
        raise wrong_value(f"{where}.phase", f"expected one of 'commentary', 'final_answer', got {phase!r}.")
    content = _text(entry.get("content"), f"{where}.content", _TEXT_PARTS[role])
    return MessageItem(role=role, text=content, phase=text(phase) or None)


def _text(value: Json, where: str, kinds: Mapping[str, str]) -> str:
    match value:
        case str():
            return value
        case list():
            return "".join(text_part(part, f"{where}[{index}]", kinds) for index, part in enumerate(value))
        case _:
            raise wrong_value(where, "expected a string or a list of parts.")


def _reasoning(entry: JsonObject, where: str) -> str:
    if entry.get("content"):
        return _text(entry["content"], f"{where}.content", {"reasoning_text": "text"})
    sealed = entry.get("encrypted_content")
    if isinstance(sealed, str) and sealed:
        reasoning = unseal(sealed)
        if reasoning is None:
            raise ApiError(
                f"Invalid value for '{where}.encrypted_content': expected a value from this server.",
                param=f"{where}.encrypted_content",
                code="invalid_encrypted_content",
            )
        return reasoning
    if entry.get("summary"):
        return _text(entry["summary"], f"{where}.summary", {"summary_text": "text"})
    return ""


def _call(entry: JsonObject, kind: str, where: str) -> CallItem:
    if kind not in ("tool_search_call", "local_shell_call"):
        string(entry, "call_id", where)
    for member in _TEXTS_OF_CALL.get(kind, ()):
        string(entry, member, where)
    name = _CALLS[kind] or string(entry, "name", where)
    arguments = text(entry.get("arguments")) if kind == "function_call" else arguments_of(entry)
    return CallItem(name=name, arguments=arguments, namespace=text(entry.get("namespace")) or FUNCTIONS)


_TEXTS_OF_CALL: Mapping[str, tuple[str, ...]] = {
    "function_call": ("name", "arguments"),
    "custom_tool_call": ("name", "input"),
}


def _result(entry: JsonObject, where: str, calls: Mapping[str, CallItem]) -> ResultItem:
    name = next((name for name in ("call_id", "id") if text(entry.get(name)) in calls), "call_id")
    if (call := text(entry.get(name))) not in calls:
        raise wrong_value(f"{where}.call_id", f"no earlier call has the id '{call}'.")
    return ResultItem(call=calls[call], text=_result_text(entry, where))


def _result_text(entry: JsonObject, where: str) -> str:
    match entry.get("type"):
        case "tool_search_output":
            return dumps(entry.get("tools"))
        case "shell_call_output":
            return dumps(entry.get("output"))
        case "apply_patch_call_output":
            return text(entry.get("output")) or string(entry, "status", where)
        case _:
            return _text(entry.get("output"), f"{where}.output", {"input_text": "text"})


def _browser(entry: JsonObject, where: str) -> BuiltInItem:
    action = members(entry.get("action"))
    kind = text(action.get("type"))
    if kind not in RECIPIENTS:
        raise wrong_value(
            f"{where}.action.type", f"expected one of {', '.join(RECIPIENTS)}, got {action.get('type')!r}."
        )
    return BuiltInItem(recipient=RECIPIENTS[kind], content=browsing_arguments(action))
