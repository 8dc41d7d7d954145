"""Parse and validate a Responses request."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.json_value import Json, JsonObject, items, members, text
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import unsupported, wrong_value
from harmony_conformance.reference_server.requests.fields import (
    AnswerForm,
    Effort,
    RequestOptions,
    Tool,
    ToolChoice,
    optional_object,
)
from harmony_conformance.reference_server.responses.client_tools import CUSTOM, read_tools, tools_of_items
from harmony_conformance.reference_server.responses.input_items import Item, read_items

_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "prompt": (None,),
    "truncation": (None, "disabled", "auto"),
}
_SEALED, _LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_INCLUDED = frozenset(
    {
        _SEALED,
        _LOGPROBS,
        *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
        *("message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs"),
    }
)
"""The values of `include`; all but the first two name parts of tools that this server does not execute."""
_MOST_LIKELY = 20
_SUMMARIES = (None, "auto", "concise", "detailed")


class ReasoningMember(StrEnum):
    """Member of a reasoning item that has its text."""

    CONTENT = "content"
    SUMMARY = "summary"


@dataclass(frozen=True, kw_only=True)
class ResponsesRequest(RequestOptions):
    """Validated request; `items` is the whole input, including that of earlier responses."""

    items: tuple[Item, ...]
    entries: tuple[Json, ...]  # the input as JSON
    new_entries: tuple[Json, ...]  # that of this request alone
    instructions: str | None
    built_in: tuple[str, ...]  # types of the built-in tools
    reasoning_member: ReasoningMember
    encrypts_reasoning: bool  # return `encrypted_content`
    top_logprobs: int | None  # number of most likely tokens per log probability; None: no log probabilities
    most_built_in_calls: int | None  # maximum number of calls of built-in tools; None: unlimited
    truncates: bool  # an input over the context loses its oldest items
    is_stored: bool
    is_background: bool
    conversation: str | None  # id of the conversation that the response continues
    allowed_functions: frozenset[str] | None  # None: any function may be called
    ends_at_stop: bool  # an end-of-turn token ends the generation
    echoed_members: JsonObject  # members of the request that every response repeats


def read_request(body: JsonObject, previous: Sequence[Json], new: Sequence[Json]) -> ResponsesRequest:
    """Parse a JSON body with its `new` input and the `previous` items; raise an ApiError (4xx) that names an invalid parameter."""
    entries = (*previous, *new)
    fields.validate_model(body)
    fields.refuse_unsupported(body, _NEUTRAL)
    fields.refuse_bad_sampling(body)
    tools, built_in = _tools(body, entries)
    choice, demanded = _tool_choice(body.get("tool_choice"), tools)
    form, schema, name = _answer_form(body.get("text"))
    reasoning, included = optional_object(body, "reasoning"), _included(body.get("include"))
    is_stored = fields.read_boolean(body, "store", otherwise=True)
    is_background = fields.read_boolean(body, "background")
    if is_background and not is_stored:
        raise wrong_value("background", "it is only allowed when 'store' is true.")
    likely = fields.whole_number(body, "top_logprobs", 0, _MOST_LIKELY) or 0
    return ResponsesRequest(
        items=read_items(list(entries)),
        entries=entries,
        new_entries=tuple(new),
        instructions=_instructions(body.get("instructions")),
        tools=tools,
        built_in=built_in,
        tool_choice=choice,
        required_tool=demanded,
        calls_in_parallel=fields.read_boolean(body, "parallel_tool_calls", otherwise=True),
        effort=fields.effort(reasoning.get("effort"), "reasoning.effort"),
        form=form,
        schema=schema,
        schema_name=name,
        reasoning_member=_thoughts(reasoning),
        encrypts_reasoning=_SEALED in included,
        top_logprobs=likely if _LOGPROBS in included else None,
        limit=fields.limit(body, "max_output_tokens"),
        is_streamed=fields.read_boolean(body, "stream"),
        most_built_in_calls=fields.whole_number(body, "max_tool_calls", 1),
        truncates=body.get("truncation") == "auto",
        is_stored=is_stored,
        is_background=is_background,
        conversation=conversation_id(body),
        allowed_functions=_allowed_names(body.get("tool_choice")),
        ends_at_stop=not fields.read_boolean(body, "ignore_eos"),
        shows_token_ids=fields.read_boolean(body, "return_token_ids"),
        script=fields.script(body),
        continues_after_script=fields.continues_after_script(body),
        token_delay=fields.token_delay(body),
        echoed_members=_echoed(body),
    )


def conversation_id(body: JsonObject) -> str | None:
    """Return the id of the conversation that a request continues; raise an ApiError if there is a `previous_response_id` too."""
    value = body.get("conversation")
    if value is None:
        return None
    if body.get("previous_response_id") is not None:
        raise wrong_value("conversation", "it is only allowed without 'previous_response_id'.")
    name = value if isinstance(value, str) else members(value).get("id")
    if not isinstance(name, str):
        raise wrong_value("conversation", "expected the id of a conversation.")
    return name


def _instructions(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise wrong_value("instructions", "expected a string.")


def _tools(body: JsonObject, entries: Sequence[Json]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the tools of the client, with those that items of the input add, and the types of the built-in tools."""
    tools, built_in = read_tools(body.get("tools"))
    fields.refuse_doubled(tools)
    added, more = read_tools([*tools_of_items([*entries])], "input.tools")
    by_name = {tool.qualified_name: tool for tool in (*added, *tools)}
    fields.refuse_doubled(declared := tuple(by_name.values()))
    return declared, (*built_in, *more)


def _tool_choice(value: Json, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None]:
    """Return the mode and a tool that must be called; the functions in `allowed_tools` must be in `tools`."""
    if value is None:
        return ToolChoice.AUTO, None
    if members(value).get("type") == "allowed_tools":
        return _allowed(members(value), tools)
    if isinstance(value, str):
        return fields.tool_choice_word(value, tools)
    return ToolChoice.REQUIRED, _chosen(members(value), tools)


def _chosen(choice: JsonObject, tools: Sequence[Tool]) -> Tool:
    kind = choice.get("type")
    name = choice.get("name") if kind in ("function", CUSTOM) else kind
    if not isinstance(name, str):
        raise wrong_value("tool_choice", 'expected a string or an object like {"type": "function", "name": …}.')
    return fields.chosen_tool(name, [tool for tool in tools if tool.kind == kind])


def _allowed(choice: JsonObject, tools: Sequence[Tool]) -> tuple[ToolChoice, Tool | None]:
    mode, entries = choice.get("mode"), choice.get("tools")
    if mode not in (ToolChoice.AUTO, ToolChoice.REQUIRED):
        raise wrong_value("tool_choice.mode", "expected 'auto' or 'required'.")
    if not isinstance(entries, list) or not entries:
        raise wrong_value("tool_choice.tools", "expected a list of functions.")
    chosen = [_tool_choice(entry, tools)[1] for entry in entries]
    return ToolChoice(str(mode)), chosen[0] if mode == ToolChoice.REQUIRED else None


def _allowed_names(choice: Json) -> frozenset[str] | None:
    if members(choice).get("type") != "allowed_tools":
        return None
    entries = map(members, items(members(choice).get("tools")))
    return frozenset(text(entry.get("name")) or text(entry.get("type")) for entry in entries)


def _answer_form(value: Json) -> tuple[AnswerForm, Json, str]:
    definition = members(members(value).get("format"))
    kind = definition.get("type", "text")
    if not isinstance(kind, str) or kind not in set(AnswerForm):
        raise wrong_value("text.format.type", f"expected one of 'text', 'json_object', 'json_schema', got {kind!r}.")
    if kind != AnswerForm.JSON_SCHEMA:
        return AnswerForm(kind), None, "answer"
    schema = definition.get("schema")
    if not isinstance(schema, dict):
        raise wrong_value("text.format.schema", "expected a JSON schema object.")
    fields.refuse_bad_schema(schema, "text.format.schema")
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        raise wrong_value("text.format.name", "expected a name.")
    return AnswerForm.JSON_SCHEMA, schema, name


def _thoughts(reasoning: JsonObject) -> ReasoningMember:
    summary = reasoning.get("summary")
    if summary not in _SUMMARIES:
        raise wrong_value("reasoning.summary", f"expected one of 'auto', 'concise', 'detailed', got {summary!r}.")
    return ReasoningMember.CONTENT if summary is None else ReasoningMember.SUMMARY


def _included(value: Json) -> list[Json]:
    if value is not None and not isinstance(value, list):
        raise wrong_value("include", "expected a list.")
    for entry in items(value):
        if entry not in _INCLUDED:
            raise unsupported("include", f"expected {' or '.join(sorted(_INCLUDED))}, got {entry!r}.")
    return items(value)


_DEFAULTS: JsonObject = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""Members of the request that a response repeats, with their defaults."""


def _echoed(body: JsonObject) -> JsonObject:
    repeated = {name: default if body.get(name) is None else body[name] for name, default in _DEFAULTS.items()}
    reasoning = members(body.get("reasoning"))
    form = members(body.get("text")).get("format")
    conversation = conversation_id(body)
    return {
        **repeated,
        "reasoning": {"effort": reasoning.get("effort") or Effort.MEDIUM.value, "summary": reasoning.get("summary")},
        "text": {"format": {"type": "text"} if form is None else form},
        "conversation": None if conversation is None else {"id": conversation},
    }
