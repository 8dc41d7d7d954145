"""Family `tools`: the declarations of functions, and their results, reach the model whole."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.helpers.counted_pairs import (
    STEP_WITH_TOOLS,
    STEP_WITHOUT_TOOLS,
    counted_pair,
    token_difference,
)
from harmony_conformance.checks.rendering.tool_schemas import find_missing_defaults, find_missing_types
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, items, members, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only, within_limits
from harmony_conformance.judge.history_conditions import has_full_history
from harmony_conformance.prompts.conversation import built_in_tools
from harmony_conformance.prompts.declarations_in_prompt import (
    Declaration,
    as_identifier,
    declared_functions,
    is_same_function,
    official_tools_text,
    parse_declarations,
)
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_ref import ToolNamespaceConfig, encode, tools_text


def _declared_functions(x: Exchange) -> Iterator[tuple[Json, Declaration, Declaration, str]]:
    """Yield each function that the prompt declares: from the request, from the prompt, from the official library, and its path in the request."""
    declared, by_library = declared_functions(x.prompt_messages), parse_declarations(official_tools_text(x.tools))
    for index, tool in enumerate(x.tools):
        name = text(value_at(tool, "function", "name"))
        shown, library = declared.get(name) or declared.get(as_identifier(name)), by_library.get(name)
        if shown is not None and library is not None:
            yield value_at(tool, "function"), shown, library, pointer("tools", index, "function")


@check(MUST, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def parameters_are_typed(x: Exchange) -> Iterator[Finding]:
    """Parameters are declared with their types, their allowed values, and whether they are required.

    Without the allowed values a model invents others, and it omits parameters that look optional. For types that the official library writes as `any`,
    `any` is enough.
    """
    for function, shown, library, where in _declared_functions(x):
        yield from find_missing_types(function, shown, library, where)


@check(SHOULD, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def defaults_are_told(x: Exchange) -> Iterator[Finding]:
    """Declarations of parameters contain their defaults."""
    for function, shown, library, where in _declared_functions(x):
        yield from find_missing_defaults(function, shown, library, where)


def _orphans(x: Exchange) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Yield each result that names no call: its index among the results, the index of its message, and its possible functions.

    Possible are the functions that were called and not answered, or else all that were called. If the history has no calls, all offered ones are possible.
    """
    offered = [text(value_at(tool, "function", "name")) for tool in x.tools]
    called: dict[str, str] = {}
    answered: set[str] = set()
    number = 0
    for index, message in enumerate(x.messages):
        calls = items(value_at(message, "tool_calls"))
        called |= {text(value_at(call, "id")): text(value_at(call, "function", "name")) for call in calls}
        if value_at(message, "role") != "tool":
            continue
        answers = text(value_at(message, "tool_call_id"))
        if answers not in called:
            waiting = [name for call, name in called.items() if call not in answered]
            yield number, index, frozenset(waiting or called.values() or offered)
        answered.add(answers)
        number += 1


@condition
def has_orphan_result(x: Exchange) -> bool:
    """requests with a function result whose `tool_call_id` is missing, or names no earlier call"""
    return x.response is not None and any(True for _ in _orphans(x))


@check(
    SHOULD,
    spec="harmony#tool-messages",
    when=(on.is_conversation, has_orphan_result, has_full_history, on.is_refused_or_shows_prompt),
)
def orphan_result_is_not_misnamed(x: Exchange) -> Iterator[Finding]:
    """A result that names no call is refused, or is in the prompt under a possible function: one that was called and not answered.

    Under an invented or an empty name (vLLM 0.32.0 writes `functions.`) the model takes it for a result that it never requested.
    """
    results = [message for message in x.prompt_messages if message.role == "tool"]
    for number, index, functions in _orphans(x):
        shown = results[number] if number < len(results) else None
        if shown is None:
            continue
        where = pointer("messages", index)
        if not any(is_same_function(name, shown.function) for name in functions):
            problem = "a result that names no call is not under the name of a call without a result"
            expected = quote(" or ".join(f"functions.{name}" for name in sorted(functions))) or "a 4xx status"
            yield mismatch(problem, where, expected, quote(shown.name or "no name"))
        else:
            message = RedactableText("a result that names no call is treated as that of {}", shown.function)
            yield variant(message, where=where)


@condition
def asks_for_built_in_tools(x: Exchange) -> bool:
    """requests for built-in tools, by variables of the published chat template"""
    return x.response is not None and bool(built_in_tools(x.chat_request))


@within_limits
def accepts_template_variables(x: Exchange) -> bool:
    """requests whose chat template variables are not refused"""
    return x.response is None or x.response.status not in range(on.MIN_ERROR_STATUS, on.MIN_SERVER_ERROR_STATUS)


@check(
    MUST,
    spec="harmony#built-in-tools",
    when=(on.is_conversation, asks_for_built_in_tools, accepts_template_variables, on.prompt_is_known),
)
def built_in_tools_are_as_trained(x: Exchange) -> Iterator[Finding]:
    """Built-in tools are in the system message, in the words of the training: browser with its three functions, python with its rules.

    A server that ignores `chat_template_kwargs` gets a variant. The words are those of the official library, and of the published template.
    """
    system = x.system_message.content if x.system_message is not None else ""
    requested = built_in_tools(x.chat_request)
    together = tools_text({tool.name: tool for tool in requested})
    if all(_section(tool) in system for tool in requested) and f"{together}\n\n# " not in system:
        separated = "the sections of built-in tools are separated differently than by the library"
        yield variant(separated, where="system message")
    for tool in requested:
        heading = f"## {tool.name}\n"
        section = _section(tool)
        elsewhere = next((m for m in x.prompt_messages if m.role == "developer" and heading in m.content), None)
        if heading in system:
            missing = next((line for line in section.splitlines() if _bare(line) not in _bare(system)), None)
            if missing is not None:
                message = RedactableText("the built-in tool {} is not declared as in the training", tool.name)
                yield mismatch(message, "system message", shorten(missing), shorten(system[system.index(heading) :]))
            elif section not in system:
                spelled = RedactableText("the built-in tool {} is spelled differently than by the library", tool.name)
                yield variant(spelled, where="system message")
        elif elsewhere is not None:
            message = RedactableText("the built-in tool {} is declared in the developer message", tool.name)
            actual = shorten(elsewhere.content[elsewhere.content.index(heading) :])
            yield mismatch(message, "developer message", "in the system message", actual)
        else:
            missing_tool = RedactableText("the built-in tool {} is not in the prompt", tool.name)
            yield variant(missing_tool, where="/chat_template_kwargs")


def _section(tool: ToolNamespaceConfig) -> str:
    return tools_text({tool.name: tool}).removeprefix("# Tools\n\n")


def _bare(line: str) -> str:
    """Return the text of a line without white space and comment marks."""
    return "".join(line.split()).replace("//", "")


@series_only
@evidence
def has_counted_tools(series: Series) -> bool:
    """the same request with and without tools, both prompts counted"""
    return counted_pair(series, STEP_WITHOUT_TOOLS, STEP_WITH_TOOLS) is not None


@comparison(MUST, spec="harmony#tools", when=has_counted_tools)
def tools_cost_tokens(series: Series) -> Iterator[Finding]:
    """Tools make the prompt longer by at least their names, descriptions and parameters.

    Works on a black box. A server that drops them lets the model guess what it may call (defect M14).
    """
    counted = counted_pair(series, STEP_WITHOUT_TOOLS, STEP_WITH_TOOLS)
    if counted is None:
        return
    offered, grown = counted.longer, counted.prompt_growth
    least = sum(_declaration_token_count(value_at(tool, "function")) for tool in offered.tools)
    if grown < least:
        message = RedactableText("{} tools gave the prompt {}", len(offered.tools), token_difference(grown))
        expected = RedactableText("at least {} more tokens", least)
        yield mismatch(message, "/usage/prompt_tokens", expected, token_difference(grown), exchange=offered.id)


def _declaration_token_count(function: Json) -> int:
    """Return the number of tokens of the name, the description and the names of the parameters."""
    texts = (text(value_at(function, "name")), text(value_at(function, "description")))
    return sum(len(encode(word)) for word in (*texts, *members(value_at(function, "parameters", "properties"))))
