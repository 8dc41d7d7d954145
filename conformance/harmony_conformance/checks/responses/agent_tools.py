"""Tools of the types that agents send: they reach the model or are refused, and their calls are items of their type under their name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.responses import views
from harmony_conformance.checks.responses.offered_tools import CALL_BY_KIND, OfferedTool, declarations, offered_tools
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import (
    Json,
    JsonObject,
    dumps,
    items,
    members,
    parse_object,
    pointer,
    strings,
    text,
    value_at,
)
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.prompts.expected_parts import has_whole_conversation
from harmony_conformance.prompts.request_members import can_be_called
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_ref import Message, decode, text_of

_ORDINARY = ("", "function")


def _typed_tools(x: Exchange) -> list[OfferedTool]:
    """Return the tools that are no plain functions; none if `tool_choice` forbids calls."""
    if value_at(x.request.json, "tool_choice") == "none":
        return []
    return list(filter(_is_typed, offered_tools(x)))


def _is_typed(tool: OfferedTool) -> bool:
    """Return True for a tool that is no plain function."""
    return tool.kind not in _ORDINARY or bool(tool.namespace)


@condition
def offers_typed_tools(x: Exchange) -> bool:
    """requests with tools that are no plain functions, and with a response"""
    return x.response is not None and on.was_sent.holds(x) and bool(_typed_tools(x))


@evidence
def shows_treatment(x: Exchange) -> bool:
    """requests of a new conversation with a 4xx status, and answers whose prompt is known"""
    begins = has_whole_conversation(x.chat_request) and not any(value_at(one, "role") == "tool" for one in x.messages)
    is_refused = on.was_refused.holds(x) and not on.is_server_error(x)
    return (is_refused and begins) or (x.turn is not None and x.prompt.ids is not None)


@check(MUST, spec="responses#tools", when=(views.is_responses, offers_typed_tools, shows_treatment))
def offered_tools_are_rendered_or_refused(x: Exchange) -> Iterator[Finding]:
    """A tool of any type is declared to the model, or the request is refused with an error that names it.

    A server that skips a tool answers as if nothing was wrong, and the agent never edits a file (llama.cpp#23041, codex#36942).
    """
    tools = _typed_tools(x)
    if on.was_refused.holds(x):
        reason = (
            dumps(x.error)
            if x.error is not None
            else (x.response.body.decode("utf-8", "replace") if x.response else "")
        )
        is_named = "tool" in reason or any(tool.kind in reason for tool in tools)
        if not is_named and not _calls_a_tool(x):  # with a call, the output may be the reason
            message = "a request with a tool is refused, and the error does not name the tool"
            yield mismatch(message, "body", RedactableText("an error about {}", tools[0].kind), shorten(reason))
        return
    declared = declarations(x)
    for tool in tools:
        if not tool.is_declared_in(declared):
            message = RedactableText("the tool {} of the type {} is not declared in the prompt", tool.title, tool.kind)
            yield mismatch(message, tool.where, "its declaration, or a 4xx status", "no declaration")


def _calls_a_tool(x: Exchange) -> bool:
    return x.script is not None and "to=" in decode(x.script)


def _counted_pairs(series: Series) -> Iterator[tuple[Exchange, int]]:
    """Yield answers to requests with typed tools, each with the prompt tokens of the same request without tools."""
    answered = [x for x in series.exchanges.values() if views.is_responses.holds(x) and prompt_count(x) is not None]
    for bare in answered:
        count = prompt_count(bare)
        for x in answered if count is not None and "tools" not in members(bare.request.json) else ():
            if offers_typed_tools.holds(x) and _input(x) == _input(bare):
                yield x, count or 0


def _input(x: Exchange) -> JsonObject:
    return {name: value_at(x.request.json, name) for name in ("input", "instructions", "previous_response_id")}


@series_only
@evidence
def has_counted_tools(series: Series) -> bool:
    """the same request with and without a tool of another type than function, both prompts counted"""
    return any(True for _ in _counted_pairs(series))


@comparison(MUST, spec="responses#tools", when=has_counted_tools)
def offered_tools_cost_tokens(series: Series) -> Iterator[Finding]:
    """A tool of any type makes the prompt longer: an answer with the prompt of a request without tools has skipped it.

    Works on a black box.
    """
    for x, without in _counted_pairs(series):
        if (count := prompt_count(x)) is not None and count <= without:
            kinds = ", ".join(dict.fromkeys(tool.kind for tool in _typed_tools(x)))
            message = RedactableText("a request with a tool of the type {} has a prompt as short as without it", kinds)
            expected = RedactableText("more than {}", without)
            yield mismatch(message, "/usage/input_tokens", expected, quote(count), exchange=x.id)


@condition
def called_an_offered_tool(x: Exchange) -> bool:
    """answers with a call that has the name of an offered tool in some spelling"""
    return any(tool.is_meant_by(item) for item in views.output(x) for tool in offered_tools(x))


_ANSWERED = (views.is_responses, on.is_complete_answer, views.has_response_object)


@check(MUST, spec="responses#tool-types", when=(*_ANSWERED, called_an_offered_tool))
def calls_keep_their_type_and_name(x: Exchange) -> Iterator[Finding]:
    """A call is an item of the type, the name and the namespace of the offered tool.

    Clients find the handler by all three. A call of `js` in `mcp__x` that returns as `mcp__x.js` is an unsupported call (ollama#18284, vllm#46737).
    """
    tools = [tool for tool in offered_tools(x) if tool.call]
    for place, item in enumerate(views.output(x)):
        meant = [tool for tool in tools if tool.is_meant_by(item)]
        is_plain = value_at(item, "type") == "function_call" and not value_at(item, "namespace")
        if not meant or any(tool.is_called_by(item) for tool in tools) or _is_invented(x, item):
            continue
        if is_plain and not any(map(_is_typed, meant)):
            continue  # another check is about the names of plain functions
        is_typed = any(value_at(item, "type") == tool.call for tool in meant)
        message = RedactableText(
            "a call of {} has another name or namespace" if is_typed else "a call of {} is an item of another type",
            meant[0].title,
        )
        yield mismatch(message, pointer("output", place), _identity(meant[0]), quote(_shown(members(item))))


def _is_invented(x: Exchange, item: Json) -> bool:
    """Return True if the model itself wrote the name of a call, and the prompt is not known to declare it.

    A recipient in a namespace counts only if the prompt is known: a gateway declares such a tool under another name.
    """
    name = text(value_at(item, "name"))
    written = {message.recipient for message in views.output_messages(x)} & {f"functions.{name}", name}
    recipient = next(iter(written), None)
    if recipient is None or _declares(x, recipient):
        return False
    is_offered = any(recipient == f"functions.{tool.name}" for tool in offered_tools(x))
    return not is_offered and (recipient != name or bool(declarations(x)))


def _identity(tool: OfferedTool) -> RedactableText:
    if tool.kind not in ("function", "custom"):
        return RedactableText("{}", tool.call)
    return RedactableText("{}, name {}, namespace {}", tool.call, tool.name, tool.namespace or "none")


def _shown(item: JsonObject) -> str:
    name, namespace = text(item.get("name")), text(item.get("namespace"))
    return f"{text(item.get('type'))}, name {name or 'none'}, namespace {namespace or 'none'}"


def _written_calls(x: Exchange) -> list[tuple[OfferedTool, Message]]:
    """Return the complete calls of typed tools in the model's output, if the prompt is not known to omit the tool."""
    if not x.reached_stop or x.script_not_played:
        return []
    shown = [tool for tool in _typed_tools(x) if tool.call and can_be_called(x.chat_request, tool.name)]
    found: list[tuple[OfferedTool, Message]] = []
    for message in views.output_messages(x):
        tool = next((tool for tool in shown if (message.recipient or "") in tool.recipients), None)
        if tool is not None and _is_declared_recipient(x, message.recipient or ""):
            found.append((tool, message))
    return found


def _is_declared_recipient(x: Exchange, recipient: str) -> bool:
    """Return True if the prompt declares a recipient under exactly this name, or is unknown and the recipient is a plain function."""
    if x.prompt.ids is None:
        return recipient.startswith("functions.") and "__" not in recipient
    return _declares(x, recipient)


def _declares(x: Exchange, recipient: str) -> bool:
    """Return True if the prompt is known and declares a recipient."""
    namespace, _, name = recipient.partition(".")
    space = declarations(x).partition(f"namespace {namespace} {{")[2].partition(f"}} // namespace {namespace}")[0]
    return f"type {name} = " in space


@condition
def wrote_a_typed_call(x: Exchange) -> bool:
    """answers whose output tokens are known to call a tool as the prompt declares it"""
    return bool(_written_calls(x))


@check(MUST, spec="responses#tool-types", when=(*_ANSWERED, wrote_a_typed_call))
def calls_of_tools_are_items(x: Exchange) -> Iterator[Finding]:
    """A call that the model wrote to a custom tool, a shell or a tool in a namespace is an item of the output.

    Without the item the agent's turn ends, and nothing was done.
    """
    shown = [item for item in views.output(x) if text(value_at(item, "type")).endswith("_call")]
    for tool, message in _written_calls(x):
        item = next((item for item in shown if tool.is_called_by(item) or tool.is_meant_by(item)), None)
        if item is not None:
            shown.remove(item)
            continue
        problem = RedactableText("a call of {} is not an item of the output", tool.title)
        types = ", ".join(text(value_at(one, "type")) for one in views.output(x)) or "no item"
        yield Finding(
            message=problem,
            location="/output",
            expected=quote(tool.call),
            actual=quote(types),
            excerpt=shorten(text_of(message)),
        )


def _custom_calls(x: Exchange) -> Iterator[tuple[str, str, str]]:
    """Yield each custom call: the place of its item, the input there, and the model's message.

    A call under another name or namespace is reported as such, and has an input too.
    """
    written = [(tool, text_of(message)) for tool, message in _written_calls(x) if tool.kind == "custom"]
    for place, item in enumerate(views.output(x)):
        if value_at(item, "type") != CALL_BY_KIND["custom"]:
            continue
        found = next((one for one in written if one[0].is_called_by(item) or one[0].is_meant_by(item)), None)
        if found is not None:
            written.remove(found)
            yield pointer("output", place, "input"), text(value_at(item, "input")), found[1]


@condition
def returned_a_custom_call(x: Exchange) -> bool:
    """answers with an item of a custom tool's call, whose output tokens are known"""
    return any(True for _ in _custom_calls(x))


@check(MUST, spec="responses#custom-input", when=(*_ANSWERED, returned_a_custom_call))
def custom_input_is_the_text(x: Exchange) -> Iterator[Finding]:
    """The `input` of a custom tool's call is the text that the model wrote for it, without any JSON around it.

    The client applies the input as it is: a patch in a JSON object, or with escaped line ends, does not apply.
    """
    for where, shown, body in _custom_calls(x):
        wrapped = parse_object(body) or {}
        member, inner = next(iter(wrapped.items())) if len(wrapped) == 1 else ("", "")
        inner = text(inner)
        if shown.strip() == (inner or body).strip():
            continue
        is_same = shown.strip() == body.strip() or (wrapped and parse_object(shown) == wrapped)
        if is_same and not _is_declared_parameter(x, member):
            yield variant("the input of a custom tool is the JSON that the model wrote", where=where)
            continue
        expected, actual = text_difference(inner or body, shown)
        yield mismatch("the input of a custom tool is not the text that the model wrote", where, expected, actual)


def _is_declared_parameter(x: Exchange, name: str) -> bool:
    """Return True if the prompt is known and declares a parameter of that name."""
    return re.search(rf"^{re.escape(name)}\??: ", declarations(x), re.MULTILINE) is not None


_TYPED_ITEMS = frozenset(
    f"{call}{end}"
    for call in ("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call")
    for end in ("", "_output")
) | {"mcp_call"}
_WORD = re.compile(r"[A-Za-z0-9]{2,}")


def _typed_items(x: Exchange) -> Iterator[tuple[str, JsonObject]]:
    """Yield the calls and results of typed tools in the input, each with its place."""
    for place, entry in enumerate(items(value_at(x.request.json, "input"))):
        if text(value_at(entry, "type")) in _TYPED_ITEMS or value_at(entry, "namespace"):
            yield pointer("input", place), members(entry)


@condition
def sends_typed_items_back(x: Exchange) -> bool:
    """answered requests whose input has calls or results of tools that are no plain functions"""
    return x.turn is not None and any(True for _ in _typed_items(x))


@check(MUST, spec="responses#messages", when=(views.is_responses, sends_typed_items_back, on.prompt_is_known))
def sent_back_calls_reach_the_model(x: Exchange) -> Iterator[Finding]:
    """Calls of custom tools, shells, patches and MCP tools that the client sends back, and their results, are in the prompt.

    Without them the model repeats the call, or believes that nothing was done.
    """
    prompt = "\n".join(message.content for message in x.prompt_messages)
    for where, entry in _typed_items(x):
        written = _written(entry)
        lost = next((word for word in _WORD.findall(written) if word not in prompt), None)
        if lost is not None:
            kind = text(entry.get("type"))
            message = RedactableText("the content of a {} is not in the prompt", kind)
            yield mismatch(message, where, shorten(written.strip()), RedactableText("no {!r} in the prompt", lost))


def _written(entry: JsonObject) -> str:
    """Return what the model or the tool wrote in an item."""
    action, operation, output = (entry.get(name) for name in ("action", "operation", "output"))
    commands = [*items(value_at(action, "command")), *items(value_at(action, "commands"))]
    parts = [value_at(part, name) for part in items(output) for name in ("text", "stdout", "stderr")]
    given = strings(parse_object(text(entry.get("arguments")))) if entry.get("type") == "mcp_call" else ()
    written = [entry.get("input"), *commands, value_at(operation, "path"), value_at(operation, "diff"), output, *parts]
    return " ".join((*given, *map(text, written)))
