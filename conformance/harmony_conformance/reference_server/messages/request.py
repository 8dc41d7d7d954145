"""Parse and validate a request of Messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, items, members, text
from harmony_conformance.reference_server.messages.turns import read_messages, read_text
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.errors import ApiError, unsupported, wrong_value
from harmony_conformance.reference_server.requests.fields import AnswerForm, Effort, Tool, ToolChoice, optional_object

_EFFORTS: Mapping[str, Effort] = {
    **{effort.value: effort for effort in Effort},
    **dict.fromkeys(("xhigh", "max"), Effort.HIGH),
}
_DISABLED = "disabled"
_THINKING = frozenset({"enabled", "adaptive", "between_tools", _DISABLED})
_DISPLAYS = frozenset({"summarized", "omitted"})
_LEAST_BUDGET = 1024
_MODES: Mapping[str, ToolChoice] = {"auto": ToolChoice.AUTO, "any": ToolChoice.REQUIRED, "none": ToolChoice.NONE}


@dataclass(frozen=True, kw_only=True)
class MessagesRequest:
    """A validated request: the chat that it means, and the display of its thinking."""

    chat: ChatRequest
    has_thinking: bool  # an answer has thinking blocks
    shows_thinking: bool  # the blocks have the text, not only the signature


def read_request(body: JsonObject, *, is_generated: bool = True) -> MessagesRequest:
    """Parse a JSON body; raise an ApiError (4xx) that names an invalid parameter. Only a generation needs `max_tokens`."""
    fields.validate_model(body)
    fields.refuse_bad_sampling(body)
    fields.whole_number(body, "top_k", 0)
    _validate_metadata(body.get("metadata"))
    if body.get("mcp_servers"):
        raise unsupported("mcp_servers", "the connector of MCP servers is not available; declare a tool instead.")
    limit = fields.whole_number(body, "max_tokens", 1)
    if limit is None and is_generated:
        raise wrong_value("max_tokens", "expected a whole number of at least 1.")
    tools = _tools(body.get("tools"))
    choice, demanded = _tool_choice(body.get("tool_choice"), tools)
    thinking = _thinking(body.get("thinking"), limit)
    config = optional_object(body, "output_config")
    schema = _schema(config.get("format"))
    return MessagesRequest(
        chat=ChatRequest(
            messages=(*_system(body.get("system")), *read_messages(body.get("messages"))),
            tools=tools,
            tool_choice=choice,
            required_tool=demanded,
            calls_in_parallel=not fields.read_boolean(members(body.get("tool_choice")), "disable_parallel_tool_use"),
            effort=_effort(config.get("effort"), thinking),
            form=AnswerForm.TEXT if schema is None else AnswerForm.JSON_SCHEMA,
            schema=schema,
            schema_name="answer",
            limit=limit,
            stop_strings=_stop_sequences(body.get("stop_sequences")),
            is_streamed=fields.read_boolean(body, "stream"),
            usage_in_stream=True,
            shows_token_ids=fields.read_boolean(body, "return_token_ids"),
            script=fields.script(body),
            continues_after_script=fields.continues_after_script(body),
            token_delay=fields.token_delay(body),
            event_tokens=1,
            ends_at_stop=True,
        ),
        has_thinking=thinking.get("type") != _DISABLED,
        shows_thinking=thinking.get("display") != "omitted",
    )


def _validate_metadata(value: Json) -> None:
    user = members(value).get("user_id")
    if not isinstance(value, dict | None) or not isinstance(user, str | None):
        raise wrong_value("metadata", "expected an object with a 'user_id' that is a string.")


def _system(value: Json) -> tuple[ChatMessage, ...]:
    shown = "" if value is None else read_text(value, "system")
    return (ChatMessage(role="system", text=shown),) if shown else ()


def _thinking(value: Json, limit: int | None) -> JsonObject:
    """Return the settings of thinking. The budget is validated and has no effect: gpt-oss has levels of effort instead."""
    if value is None:
        return {}
    kind = text(members(value).get("type"))
    if kind not in _THINKING:
        raise wrong_value("thinking.type", f"expected {', '.join(sorted(_THINKING))}, got {kind!r}.")
    if members(value).get("display") not in (None, *_DISPLAYS):
        raise wrong_value("thinking.display", f"expected {' or '.join(sorted(_DISPLAYS))}.")
    if kind == "enabled":
        budget = fields.whole_number(members(value), "budget_tokens", _LEAST_BUDGET)
        if budget is None or (limit is not None and budget >= limit):
            expected = f"expected a whole number of at least {_LEAST_BUDGET} and below max_tokens."
            raise wrong_value("thinking.budget_tokens", expected)
    return members(value)


def _effort(value: Json, thinking: JsonObject) -> Effort:
    """Return the effort. Disabled thinking is the lowest one, since gpt-oss always reasons."""
    if value is None:
        return Effort.LOW if thinking.get("type") == _DISABLED else Effort.MEDIUM
    if text(value) not in _EFFORTS:
        raise wrong_value("output_config.effort", f"expected one of {', '.join(_EFFORTS)}, got {value!r}.")
    return _EFFORTS[text(value)]


def _schema(form: Json) -> Json:
    if form is None:
        return None
    schema = members(form).get("schema")
    if members(form).get("type") != "json_schema" or not isinstance(schema, dict):
        raise wrong_value("output_config.format", "expected an object of the type json_schema with a member 'schema'.")
    fields.refuse_bad_schema(schema, "output_config.format.schema")
    return schema


def _stop_sequences(value: Json) -> tuple[str, ...]:
    entries = [] if value is None else value
    stops = tuple(stop for stop in items(entries) if isinstance(stop, str) and stop)
    if not isinstance(entries, list) or len(stops) < len(entries):
        raise wrong_value("stop_sequences", "expected a list of strings that are not empty.")
    fields.refuse_long_stops(stops)
    return stops


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is not None and not isinstance(value, list):
        raise wrong_value("tools", "expected a list.")
    tools = tuple(_tool(entry, f"tools[{place}]") for place, entry in enumerate(items(value)))
    fields.refuse_doubled(tools)
    return tools


def _tool(entry: Json, where: str) -> Tool:
    tool = members(entry)
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise unsupported(where, f"the server tool {kind!r} is not available; declare a tool with an input_schema.")
    if not isinstance(tool.get("input_schema"), dict):
        raise wrong_value(f"{where}.input_schema", "expected a JSON schema object.")
    return fields.function_tool({**tool, "parameters": tool["input_schema"]}, where)


def _tool_choice(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None]:
    if value is None:
        return ToolChoice.AUTO, None
    kind = text(members(value).get("type"))
    if kind == "tool":
        return ToolChoice.REQUIRED, fields.chosen_tool(text(members(value).get("name")), tools)
    if kind not in _MODES:
        raise wrong_value("tool_choice.type", f"expected tool or one of {', '.join(_MODES)}, got {kind!r}.")
    if not tools:
        raise ApiError("Invalid value for 'tool_choice': it is only allowed with 'tools'.", param="tool_choice")
    return _MODES[kind], tools[0] if _MODES[kind] is ToolChoice.REQUIRED else None
