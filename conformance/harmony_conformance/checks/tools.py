"""Family `tools`: the functions a request offers reach the model, seen by what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, Finding, comparison, evidence
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import Json, at, members, text
from harmony_ref import encode

WITHOUT, WITH = "without tools", "with tools"


def _counted(series: Series) -> tuple[Exchange, int] | None:
    """The request with tools, and by how many tokens its prompt is longer."""
    found = on.pair(series, WITHOUT, WITH)
    if found is None:
        return None
    less, more = on.prompt_count(found[0]), on.prompt_count(found[1])
    return (found[1], more - less) if less is not None and more is not None else None


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
            message=f"{len(offered.tools)} tools made the prompt longer by {grown} tokens",
            at="/usage/prompt_tokens",
            expected=f"at least {least} more tokens",
            actual=f"{grown} more tokens",
            exchange=offered.id,
        )


def _words(function: Json) -> int:
    """Tokens of the name, the description and the names of the parameters."""
    named = (text(at(function, "name")), text(at(function, "description")))
    return sum(len(encode(word)) for word in (*named, *members(at(function, "parameters", "properties"))))
