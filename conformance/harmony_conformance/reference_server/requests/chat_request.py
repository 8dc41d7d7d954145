"""A Chat Completions request, read once and refused where it is wrong; behind this border its values are trusted."""

from collections.abc import Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage, read_messages
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_conformance.reference_server.requests.fields import AnswerForm, RequestOptions, Tool, ToolChoice
from harmony_ref import ToolNamespaceConfig

_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "logit_bias": (None, {}),
}


@dataclass(frozen=True, kw_only=True)
class ChatRequest(RequestOptions):
    """All that the server reads of a request.

    Attributes:
        choices: how many answers are wanted.
        stops: strings before which the answer ends.
        seed: what makes the sampling repeatable, None where the client does not want it.
        logprobs: whether the content's tokens come with their log probabilities, and those of the `top_logprobs` most likely.
        event_tokens: how many tokens go in one event of a stream.
        ends_at_stop: whether a token that ends the turn ends the generation.
        allowed: the functions that may be called, of all that are offered; None where all may.
    """

    messages: tuple[ChatMessage, ...]
    choices: int = 1
    stops: tuple[str, ...] = ()
    seed: Json = None
    logprobs: bool = False
    top_logprobs: int = 0
    usage_in_stream: bool
    event_tokens: int
    ends_at_stop: bool
    built_in: tuple[ToolNamespaceConfig, ...] = ()
    allowed: frozenset[str] | None = None


def read_request(body: JsonObject) -> ChatRequest:
    """The request in a JSON body.

    Raises:
        ApiError: a 4xx that names the parameter.
    """
    fields.named_model(body)
    fields.refuse_unsupported(body, _NEUTRAL)
    fields.refuse_bad_sampling(body)
    tools = _tools(body.get("tools"))
    allowed = _allowed(body.get("tool_choice"), tools)
    choice, demanded = _tool_choice(body.get("tool_choice"), tools) if allowed is None else allowed[:2]
    streamed = fields.switch(body, "stream")
    form, schema = _answer_form(body.get("response_format"))
    return ChatRequest(
        messages=read_messages(body.get("messages")),
        tools=tools,
        choice=choice,
        demanded=demanded,
        calls_in_parallel=fields.switch(body, "parallel_tool_calls", otherwise=True),
        effort=fields.effort(body.get("reasoning_effort"), "reasoning_effort"),
        form=form,
        schema=schema,
        schema_name=_schema_name(body.get("response_format")),
        limit=fields.limit(body, "max_tokens", "max_completion_tokens"),
        choices=_choices(body.get("n")),
        stops=_stops(body.get("stop")),
        seed=body.get("seed"),
        logprobs=fields.switch(body, "logprobs"),
        top_logprobs=_top_logprobs(body.get("top_logprobs"), wanted=body.get("logprobs") is True),
        streamed=streamed,
        usage_in_stream=fields.usage_in_stream(body.get("stream_options"), streamed=streamed),
        shows_token_ids=fields.switch(body, "return_token_ids"),
        script=fields.script(body),
        goes_on=fields.goes_on(body),
        token_delay=fields.token_delay(body),
        event_tokens=fields.event_tokens(body),
        ends_at_stop=not fields.switch(body, "ignore_eos"),
        built_in=_built_in(body.get("chat_template_kwargs")),
        allowed=None if allowed is None else allowed[2],
    )


_MOST_CHOICES = 128
_MOST_STOPS = 4
_MOST_LIKELY = 20


def _choices(value: Json) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CHOICES:
        raise wrong_value("n", f"a whole number from 1 to {_MOST_CHOICES} is needed.")
    return value


def _stops(value: Json) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    stops = tuple(stop for stop in listed if isinstance(stop, str))
    if len(stops) < len(listed) or len(stops) > _MOST_STOPS:
        raise wrong_value("stop", f"a text, or a list of up to {_MOST_STOPS} of them, is needed.")
    return tuple(filter(None, stops))


def _top_logprobs(value: Json, *, wanted: bool) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_LIKELY:
        raise wrong_value("top_logprobs", f"a whole number from 0 to {_MOST_LIKELY} is needed.")
    if value and not wanted:
        raise wrong_value("top_logprobs", "it is only allowed when 'logprobs' is true.")
    return value


def _answer_form(value: Json) -> tuple[AnswerForm, Json]:
    if value is None:
        return AnswerForm.TEXT, None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in set(AnswerForm):
        raise wrong_value("response_format", "an object is needed whose type is text, json_object or json_schema.")
    if kind != AnswerForm.JSON_SCHEMA:
        return AnswerForm(kind), None
    described = value.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise wrong_value("response_format.json_schema", "an object with a member 'schema' is needed.")
    fields.refuse_bad_schema(schema, "response_format.json_schema.schema")
    return AnswerForm.JSON_SCHEMA, schema


def _schema_name(value: Json) -> str:
    name = members(members(value).get("json_schema")).get("name")
    return name if isinstance(name, str) and name else "answer"


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_value("tools", "a list is needed.")
    tools = tuple(_tool(entry, f"tools[{position}]") for position, entry in enumerate(value))
    fields.refuse_doubled(tools)
    return tools


def _tool(entry: Json, where: str) -> Tool:
    if not isinstance(entry, dict) or entry.get("type") != "function":
        raise wrong_value(where, "an object of type 'function' is needed.")
    return fields.function_tool(entry.get("function"), f"{where}.function")


def _tool_choice(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None]:
    if value is None:
        return ToolChoice.AUTO, None
    if isinstance(value, str):
        return fields.tool_choice_word(value, tools)
    return ToolChoice.REQUIRED, fields.chosen_tool(_named(value, "tool_choice"), tools)


def _allowed(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None, frozenset[str]] | None:
    """A `tool_choice` that lists the functions that may be called: what is wanted, a tool that has to be called, their names; None for any other."""
    if members(value).get("type") != "allowed_tools":
        return None
    where, listed = "tool_choice.allowed_tools", members(value).get("allowed_tools")
    mode, entries = members(listed).get("mode"), members(listed).get("tools")
    if mode not in (ToolChoice.AUTO, ToolChoice.REQUIRED):
        raise wrong_value(f"{where}.mode", "'auto' or 'required' is needed.")
    if not isinstance(entries, list) or not entries:
        raise wrong_value(f"{where}.tools", "a list of functions is needed.")
    chosen = [
        fields.chosen_tool(_named(entry, f"{where}.tools[{place}]"), tools) for place, entry in enumerate(entries)
    ]
    demanded = chosen[0] if mode == ToolChoice.REQUIRED else None
    return ToolChoice(str(mode)), demanded, frozenset(tool.name for tool in chosen)


def _named(entry: Json, where: str) -> str:
    function = members(entry).get("function") if members(entry).get("type") == "function" else None
    name = members(function).get("name")
    if not isinstance(name, str):
        raise wrong_value(where, 'an object is needed like {"type": "function", "function": {"name": …}}.')
    return name


_BUILT_IN = {"browser": ToolNamespaceConfig.browser(), "python": ToolNamespaceConfig.python()}


def _built_in(value: Json) -> tuple[ToolNamespaceConfig, ...]:
    """The built-in tools that the variables of the chat template ask for, as servers take them that render the published one."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong_value("chat_template_kwargs", "an object is needed.")
    names = value.get("builtin_tools") or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _BUILT_IN for name in names):
        raise wrong_value("chat_template_kwargs.builtin_tools", "a list of 'browser' and 'python' is needed.")
    return tuple(_BUILT_IN[str(name)] for name in names)
