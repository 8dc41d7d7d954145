"""Family `tools`: what a request says of functions, and what comes back from them, reaches the model whole."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.rendering.tool_schemas import untyped, without_default
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import pair, prompt_count
from harmony_conformance.json_value import Json, at, items, members, pointer, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import (
    MUST,
    SHOULD,
    Finding,
    check,
    comparison,
    condition,
    evidence,
    series_only,
    variant,
    within_limits,
)
from harmony_conformance.judge.history_conditions import says_all
from harmony_conformance.prompts.conversation import built_in_tools
from harmony_conformance.prompts.tool_declarations import (
    Declaration,
    as_identifier,
    declarations,
    declarations_in,
    is_same_function,
    official_spelling,
)
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_ref import ToolNamespaceConfig, encode, tools_text


def _declared(x: Exchange) -> Iterator[tuple[Json, Declaration, Declaration, str]]:
    """Each function that the prompt declares: as it was offered, as the prompt has it, as the official library writes it, and where it was offered."""
    shown, by_library = declarations(x.prompt_messages), declarations_in(official_spelling(x.tools))
    for index, tool in enumerate(x.tools):
        name = text(at(tool, "function", "name"))
        found, library = shown.get(name) or shown.get(as_identifier(name)), by_library.get(name)
        if found is not None and library is not None:
            yield at(tool, "function"), found, library, pointer("tools", index, "function")


@check(MUST, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def parameters_are_typed(x: Exchange) -> Iterator[Finding]:
    """Parameters are declared with their types, with the values they may have, and with what is required of them.

    A model that is not told the allowed values invents others, and leaves out what it takes for optional. Types that the official library writes as `any`
    need no better.
    """
    for function, shown, library, where in _declared(x):
        yield from untyped(function, shown, library, where)


@check(SHOULD, spec="harmony#tools", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def defaults_are_told(x: Exchange) -> Iterator[Finding]:
    """Defaults of parameters stand in their declarations."""
    for function, shown, library, where in _declared(x):
        yield from without_default(function, shown, library, where)


def _offered(x: Exchange) -> list[str]:
    return [text(at(tool, "function", "name")) for tool in x.tools]


def _orphans(x: Exchange) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Results that name no call: which result of the request it is, its message, and the functions that it can be of.

    These are the called ones not answered yet, else any called one; of a history that was cut before its calls, any that is offered.
    """
    called: dict[str, str] = {}
    answered: set[str] = set()
    number = 0
    for index, message in enumerate(x.messages):
        called |= {
            text(at(call, "id")): text(at(call, "function", "name")) for call in items(at(message, "tool_calls"))
        }
        if at(message, "role") != "tool":
            continue
        answers = text(at(message, "tool_call_id"))
        if answers not in called:
            waiting = [name for call, name in called.items() if call not in answered]
            yield number, index, frozenset(waiting or called.values() or _offered(x))
        answered.add(answers)
        number += 1


@condition
def has_orphan_result(x: Exchange) -> bool:
    """requests with a function result whose `tool_call_id` is missing, or names no earlier call"""
    return x.response is not None and any(True for _ in _orphans(x))


@check(
    MUST,
    spec="harmony#tool-messages",
    when=(on.is_conversation, has_orphan_result, says_all, on.is_refused_or_shows_prompt),
)
def orphan_result_is_not_misnamed(x: Exchange) -> Iterator[Finding]:
    """A result that names no call is refused, or stands in the prompt under a function that it can be of: one that was called and not answered.

    Under an invented or an empty name (vLLM 0.32.0 writes `functions.`) the model takes it for something that it never asked for.
    """
    results = [message for message in x.prompt_messages if message.role == "tool"]
    for number, index, functions in _orphans(x):
        shown = results[number] if number < len(results) else None
        if shown is None:
            continue
        where = pointer("messages", index)
        if not any(is_same_function(name, shown.function) for name in functions):
            yield Finding(
                message="a result that names no call stands under a name of the server's own",
                at=where,
                expected=quote(" or ".join(f"functions.{name}" for name in sorted(functions))) or "a 4xx status",
                actual=quote(shown.name or "no name"),
            )
        else:
            yield variant(
                RedactableText("a result that names no call is taken for that of {}", shown.function), where=where
            )


@condition
def asks_for_built_in_tools(x: Exchange) -> bool:
    """requests for built-in tools, by the variables of the published chat template"""
    return x.response is not None and bool(built_in_tools(x.chat_request))


@within_limits
def takes_template_variables(x: Exchange) -> bool:
    """requests whose variables of the chat template are not refused"""
    return x.response is None or x.response.status not in range(on.REFUSED, on.SERVER_ERROR)


@check(
    MUST,
    spec="harmony#built-in-tools",
    when=(on.is_conversation, asks_for_built_in_tools, takes_template_variables, on.prompt_is_known),
)
def built_in_tools_are_as_trained(x: Exchange) -> Iterator[Finding]:
    """Built-in tools stand in the system message, in the words that the model was trained with: browser with its three functions, python with its rules.

    A server that does not read `chat_template_kwargs` is not blamed. The words are those of the official library, and of the published template.
    """
    system = x.system_message.content if x.system_message is not None else ""
    told = built_in_tools(x.chat_request)
    together = tools_text({tool.name: tool for tool in told})
    if all(_section(tool) in system for tool in told) and f"{together}\n\n# " not in system:
        yield variant("the sections of built-in tools are parted otherwise than by the library", where="system message")
    for tool in told:
        heading = f"## {tool.name}\n"
        section = _section(tool)
        elsewhere = next((m for m in x.prompt_messages if m.role == "developer" and heading in m.content), None)
        if heading in system:
            lost = next((line for line in section.splitlines() if _bare(line) not in _bare(system)), None)
            if lost is not None:
                yield Finding(
                    message=RedactableText("the built-in tool {} is not declared as the model knows it", tool.name),
                    at="system message",
                    expected=shorten(lost),
                    actual=shorten(system[system.index(heading) :]),
                )
            elif section not in system:
                yield variant(
                    RedactableText("the built-in tool {} is spelled otherwise than by the library", tool.name),
                    where="system message",
                )
        elif elsewhere is not None:
            yield Finding(
                message=RedactableText("the built-in tool {} is declared in the developer message", tool.name),
                at="developer message",
                expected="in the system message",
                actual=shorten(elsewhere.content[elsewhere.content.index(heading) :]),
            )
        else:
            yield variant(
                RedactableText("the built-in tool {} is not told to the model", tool.name),
                where="/chat_template_kwargs",
            )


def _section(tool: ToolNamespaceConfig) -> str:
    return tools_text({tool.name: tool}).removeprefix("# Tools\n\n")


def _bare(line: str) -> str:
    """The words of a line, without white space and marks of comments."""
    return "".join(line.split()).replace("//", "")


WITHOUT, WITH = "without tools", "with tools"


def _counted(series: Series) -> tuple[Exchange, int] | None:
    """The request with tools, and by how many tokens its prompt is longer."""
    found = pair(series, WITHOUT, WITH)
    if found is None:
        return None
    less, more = prompt_count(found[0]), prompt_count(found[1])
    return (found[1], more - less) if less is not None and more is not None else None


@series_only
@evidence
def has_counted_tools(series: Series) -> bool:
    """the same request with and without tools, their prompts counted"""
    return _counted(series) is not None


@comparison(MUST, spec="harmony#tools", when=has_counted_tools)
def tools_cost_tokens(series: Series) -> Iterator[Finding]:
    """Tools make the prompt longer by at least their names, descriptions and parameters.

    Works on a black box. A server that drops them lets the model guess what it may call (defect M14).
    """
    counted = _counted(series)
    if counted is None:
        return
    offered, grown = counted
    least = sum(_words(at(tool, "function")) for tool in offered.tools)
    if grown < least:
        yield Finding(
            message=RedactableText("{} tools made the prompt longer by {} tokens", len(offered.tools), grown),
            at="/usage/prompt_tokens",
            expected=RedactableText("at least {} more tokens", least),
            actual=RedactableText("{} more tokens", grown),
            exchange=offered.id,
        )


def _words(function: Json) -> int:
    """Tokens of the name, the description and the names of the parameters."""
    named = (text(at(function, "name")), text(at(function, "description")))
    return sum(len(encode(word)) for word in (*named, *members(at(function, "parameters", "properties"))))
