"""Parse and validate a Chat Completions request."""

from collections.abc import Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage, read_messages
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_conformance.reference_server.requests.fields import AnswerForm, RequestOptions, Tool, ToolChoice
from harmony_ref import ToolNamespaceConfig

_NEUTRAL: dict[str, tuple[Json, ...]] = {"logit_bias": (None, {})}
_MOST_CHOICES = 128
_MOST_LIKELY = 20


@dataclass(frozen=True, kw_only=True)
class ChatRequest(RequestOptions):
    """Validated request; `event_tokens` is the number of tokens per stream event."""

    messages: tuple[ChatMessage, ...]
    choice_count: int = 1  # `n`
    stop_strings: tuple[str, ...] = ()
    seed: Json = None
    logprobs: bool = False
    top_logprobs: int = 0
    usage_in_stream: bool
    event_tokens: int
    ends_at_stop: bool  # an end-of-turn token ends the generation
    built_in: tuple[ToolNamespaceConfig, ...] = ()
    allowed_functions: frozenset[str] | None = None  # None: any function may be called


def read_request(body: JsonObject) -> ChatRequest:
    """Parse a JSON body; raise an ApiError (4xx) that names an invalid parameter."""
    fields.validate_model(body)
    fields.refuse_unsupported(body, _NEUTRAL)
    fields.refuse_bad_sampling(body)
    tools = _tools(body.get("tools"))
    allowed = _allowed(body.get("tool_choice"), tools)
    choice, demanded = _tool_choice(body.get("tool_choice"), tools) if allowed is None else allowed[:2]
    streamed = fields.read_boolean(body, "stream")
    form, schema, schema_name = _answer_form(body.get("response_format"))
    return ChatRequest(
        messages=read_messages(body.get("messages")),
        tools=tools,
        tool_choice=choice,
        required_tool=demanded,
        calls_in_parallel=fields.read_boolean(body, "parallel_tool_calls", otherwise=True),
        effort=fields.effort(body.get("reasoning_effort"), "reasoning_effort"),
        form=form,
        schema=schema,
        schema_name=schema_name,
        limit=fields.limit(body, "max_tokens", "max_completion_tokens"),
        choice_count=fields.whole_number(body, "n", 1, _MOST_CHOICES) or 1,
        stop_strings=fields.stop_strings(body.get("stop")),
        seed=body.get("seed"),
        logprobs=fields.read_boolean(body, "logprobs"),
        top_logprobs=_top_logprobs(body),
        is_streamed=streamed,
        usage_in_stream=fields.usage_in_stream(body.get("stream_options"), streamed=streamed),
        shows_token_ids=fields.read_boolean(body, "return_token_ids"),
        script=fields.script(body),
        continues_after_script=fields.continues_after_script(body),
        token_delay=fields.token_delay(body),
        event_tokens=fields.event_tokens(body),
        ends_at_stop=not fields.read_boolean(body, "ignore_eos"),
        built_in=_built_in(body.get("chat_template_kwargs")),
        allowed_functions=None if allowed is None else allowed[2],
    )


def _top_logprobs(body: JsonObject) -> int:
    count = fields.whole_number(body, "top_logprobs", 0, _MOST_LIKELY) or 0
    if count and body.get("logprobs") is not True:
        raise wrong_value("top_logprobs", "it is only allowed when 'logprobs' is true.")
    return count


def _answer_form(value: Json) -> tuple[AnswerForm, Json, str]:
    """Return the response format, its schema, and the name of the schema."""
    if value is None:
        return AnswerForm.TEXT, None, "answer"
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in set(AnswerForm):
        raise wrong_value("response_format", "expected an object with the type text, json_object or json_schema.")
    if kind != AnswerForm.JSON_SCHEMA:
        return AnswerForm(kind), None, "answer"
    definition = members(value.get("json_schema"))
    schema, name = definition.get("schema"), definition.get("name")
    if not isinstance(schema, dict):
        raise wrong_value("response_format.json_schema", "expected an object with a member 'schema'.")
    fields.refuse_bad_schema(schema, "response_format.json_schema.schema")
    return AnswerForm.JSON_SCHEMA, schema, name if isinstance(name, str) and name else "answer"


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_value("tools", "expected a list.")
    tools: list[Tool] = []
    for position, entry in enumerate(value):
        if members(entry).get("type") != "function":
            raise wrong_value(f"tools[{position}]", "expected an object of type 'function'.")
        tools.append(fields.function_tool(members(entry).get("function"), f"tools[{position}].function"))
    fields.refuse_doubled(tools)
    return tuple(tools)


def _tool_choice(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None]:
    if value is None:
        return ToolChoice.AUTO, None
    if isinstance(value, str):
        return fields.tool_choice_word(value, tools)
    return ToolChoice.REQUIRED, fields.chosen_tool(_name(value, "tool_choice"), tools)


def _allowed(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None, frozenset[str]] | None:
    """Return mode, tool that must be called, and allowed names of an `allowed_tools` choice; None for another type."""
    if members(value).get("type") != "allowed_tools":
        return None
    where, choice = "tool_choice.allowed_tools", members(value).get("allowed_tools")
    mode, entries = members(choice).get("mode"), members(choice).get("tools")
    if mode not in (ToolChoice.AUTO, ToolChoice.REQUIRED):
        raise wrong_value(f"{where}.mode", "expected 'auto' or 'required'.")
    if not isinstance(entries, list) or not entries:
        raise wrong_value(f"{where}.tools", "expected a list of functions.")
    chosen = [fields.chosen_tool(_name(entry, f"{where}.tools[{index}]"), tools) for index, entry in enumerate(entries)]
    demanded = chosen[0] if mode == ToolChoice.REQUIRED else None
    return ToolChoice(str(mode)), demanded, frozenset(tool.name for tool in chosen)


def _name(entry: Json, where: str) -> str:
    function = members(entry).get("function") if members(entry).get("type") == "function" else None
    name = members(function).get("name")
    if not isinstance(name, str):
        raise wrong_value(where, 'expected an object like {"type": "function", "function": {"name": …}}.')
    return name


_BUILT_IN = {"browser": ToolNamespaceConfig.browser(), "python": ToolNamespaceConfig.python()}


def _built_in(value: Json) -> tuple[ToolNamespaceConfig, ...]:
    """Return the tools in `builtin_tools`, the variable of the published chat template."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong_value("chat_template_kwargs", "expected an object.")
    names = value.get("builtin_tools") or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _BUILT_IN for name in names):
        raise wrong_value("chat_template_kwargs.builtin_tools", "expected a list of 'browser' and 'python'.")
    return tuple(_BUILT_IN[str(name)] for name in names)
