"""How the system message and the developer's differ from those of an accepted rendering: in form, or in what they tell the model.

A server has a free hand in the date, the cutoff, the lines of the channels, the line ends between sections and their order, and in how it spells a type.
The identity, the effort that was asked for, instructions, functions with all that is said about them, and the schema of the answer are the request's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from harmony_conformance.checks.helpers.value_diff import json_differences
from harmony_conformance.checks.rendering.tool_schemas import Mark, declared_members, parameters, undescribed, untyped
from harmony_conformance.json_value import Json, at, canonical, dumps, items, members, objects_in, text
from harmony_conformance.judge.check import Verdict
from harmony_conformance.prompts.conversation import EFFORTS
from harmony_conformance.prompts.prompt_parser import PartKind, expected_parts
from harmony_conformance.prompts.tool_declarations import Declaration, as_identifier, declarations_in, official_spelling
from harmony_conformance.redactable_text import shorten
from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.message_difference import EFFORT_LINE, FREE_LINES, difference_of_contents


@dataclass(frozen=True)
class JudgedDifference(Difference):
    """A difference, and whether it is a failure or a variant."""

    verdict: Verdict


fails = partial(JudgedDifference, verdict=Verdict.FAIL)
"""A difference in meaning: part, problem, words."""
varies = partial(JudgedDifference, verdict=Verdict.VARIANT)
"""A difference in form: part, problem, words."""

_TOOLS = "# Tools\n"
_FORMATS = "# Response Formats\n"
_HEADING = "# Instructions"
_BLANKS = re.compile(r"[\s/*]+")


def system_difference(expected: str, shown: str, request: Json) -> Iterator[JudgedDifference]:
    """How a system message differs from the one expected, which names the same date."""
    if expected == shown:
        return
    is_asked = text(at(request, "reasoning_effort")) in EFFORTS
    free = FREE_LINES if is_asked else FREE_LINES | EFFORT_LINE
    for label, part in free.items():
        line, found = _line(expected, label), _line(shown, label)
        if line != found and part is not Part.DATE:
            problem = Problem.MISSING if not found else Problem.EXTRA if not line else Problem.DIFFERENT
            yield varies(part, problem, f"{found or 'no such line'!r} where {line or 'none'!r} was expected")
    bare, bare_shown = _without(expected, free), _without(shown, free)
    if bare != bare_shown:
        found_there = difference_of_contents(bare, bare_shown, "system")
        yield fails(found_there.part, found_there.problem, found_there.words)


def _line(content: str, label: str) -> str:
    return next((line for line in content.split("\n") if line.startswith(label)), "")


def _without(content: str, labels: Iterable[str]) -> str:
    """The text without the first line of each label, and without blank lines."""
    lines = [line for line in content.split("\n") if line]
    for line in {_line(content, label) for label in labels}.intersection(lines):
        lines.remove(line)
    return "\n".join(lines)


def developer_difference(expected: str, shown: str, request: Json) -> Iterator[JudgedDifference]:
    """How a developer message differs from the one expected: the first of what is lost, changed or added, else the form."""
    if expected == shown:
        return
    said = [part.text for part in expected_parts(request) if part.kind is PartKind.INSTRUCTIONS and part.text.strip()]
    told = [one for one in said if one in expected]
    found = difference_of_contents(expected, shown, "developer")
    if not all(one in shown for one in told):
        yield fails(Part.INSTRUCTIONS, found.problem, found.words)
        return
    if not _stand_in_order(told, shown):
        words = "the instructions stand in another order than they were sent"
        yield fails(Part.INSTRUCTIONS, Problem.MOVED, words)
        return
    tools, formats, _ = _sections(expected, told)
    tools_shown, formats_shown, rest = _sections(shown, told)
    lost = [
        *_tools_difference(tools, tools_shown, items(at(request, "tools"))),
        *_formats_difference(formats, formats_shown, at(request, "response_format", "json_schema", "schema")),
    ]
    if rest:
        words = f"it holds text that the request does not have: {shorten(rest)!r}"
        lost.append(fails(Part.INSTRUCTIONS, Problem.EXTRA, words))
    worst = sorted(lost, key=lambda one: one.verdict is not Verdict.FAIL)
    yield from worst[:1] or [varies(found.part, found.problem, found.words)]


def _stand_in_order(told: Sequence[str], shown: str) -> bool:
    for one in told:
        _, found, shown = shown.partition(one)
        if not found:
            return False
    return True


def _sections(content: str, told: Sequence[str]) -> tuple[str, str, str]:
    """The section of tools and that of formats, and what stands besides these and the instructions."""
    rest = content
    for one in told:
        rest = rest.replace(one, "", 1)
    rest = rest.replace(f"{_HEADING}\n", "", 1)
    rest, formats_heading, formats = rest.partition(_FORMATS)
    rest, tools_heading, tools = rest.partition(_TOOLS)
    sections = (f"{tools_heading}{tools}", f"{formats_heading}{formats}", rest.replace(_HEADING, "", 1))
    tools, formats, rest = map(str.strip, sections)
    return tools, formats, rest


def _formats_difference(expected: str, shown: str, schema: Json) -> Iterator[JudgedDifference]:
    if expected == shown:
        return
    told = list(objects_in(shown))
    if expected and shown and not any(canonical(one) == canonical(schema) for one in told):
        lost = next(map(str, json_differences(schema, told[0])), "") if told else "no JSON object is told"
        yield fails(Part.RESPONSE_FORMATS, Problem.DIFFERENT, f"of the schema {lost}")
    elif not expected:
        words = f"they are there without being asked for: {shorten(shown)!r}"
        yield fails(Part.RESPONSE_FORMATS, Problem.EXTRA, words)
    else:
        yield varies(Part.RESPONSE_FORMATS, Problem.OTHER_SPELLING, "they are spelled otherwise, or not told")


def _tools_difference(expected: str, shown: str, tools: Sequence[Json]) -> Iterator[JudgedDifference]:
    if expected == shown:
        return
    if not expected or not shown:
        words = "functions are declared that were not offered" if shown else "no function is declared"
        yield fails(Part.TOOLS, Problem.EXTRA if shown else Problem.MISSING, words)
        return
    wanted_there, found = declarations_in(expected), declarations_in(shown)
    names = [as_identifier(name) for name in wanted_there]
    names_shown = [as_identifier(name) for name in found]
    if names != names_shown:
        is_moved = Counter(names) == Counter(names_shown)
        problem = Problem.MOVED if is_moved else Problem.MISSING if len(names_shown) < len(names) else Problem.DIFFERENT
        words = f"the functions are {', '.join(names_shown) or 'none'} where {', '.join(names)} were expected"
        yield fails(Part.TOOLS, problem, words)
        return
    functions = {text(at(tool, "function", "name")): at(tool, "function") for tool in tools}
    official = declarations_in(official_spelling(tools))
    for (name, one), other in zip(wanted_there.items(), found.values(), strict=True):
        lost = _function_problem(functions.get(name), one, other, official.get(name, one))
        if lost is not None:
            difference = difference_of_contents(_text(one), _text(other), "user")
            yield fails(Part.TOOLS, lost, f"in the function {name}: {difference.words}")
            return
    yield varies(Part.TOOLS, Problem.OTHER_SPELLING, "they are spelled as in no known style, and tell the same")


def _text(declared: Declaration) -> str:
    return f"{declared.comment}{declared.type}"


def _function_problem(
    function: Json, expected: Declaration, shown: Declaration, official: Declaration
) -> Problem | None:
    """What of a function's declaration is lost or changed; None where it is spelled otherwise at most."""
    whole, whole_shown = _text(expected), _text(shown)
    if whole == whole_shown:
        return None
    own = Counter(
        _words(*(said for name, value in members(function).items() if name != "name" for said in _said(value)))
    )
    lines = (line.strip("/ \t\r") for line in whole.split("\n") if line.lstrip().startswith("//"))
    if any(_flat(line) not in _flat(whole_shown) for line in lines):
        return Problem.DIFFERENT
    lost = (Counter(_words(whole)) - Counter(_words(whole_shown))) & own
    if lost:
        return Problem.MISSING
    blamed = (*undescribed(function, shown, official, ""), *untyped(function, shown, official, ""))
    if any(finding.verdict is Verdict.FAIL for finding in blamed):
        return Problem.DIFFERENT
    for parameter in parameters(function):
        marks = {member.mark for member in declared_members(parameter.name, expected)}
        marks_shown = {member.mark for member in declared_members(parameter.name, shown)}
        if marks and marks_shown and marks != marks_shown and Mark.OPTIONAL in _all_marks(function, shown):
            return Problem.DIFFERENT
    return None


def _all_marks(function: Json, shown: Declaration) -> set[Mark]:
    """The marks that the server writes at all: without any `?` it tells what is optional in another way."""
    return {member.mark for parameter in parameters(function) for member in declared_members(parameter.name, shown)}


_UNTOLD = frozenset({"type", "format", "required", "$schema", "$ref", "additionalProperties"})


def _said(schema: Json) -> Iterator[str]:
    """What a function's schema says in the client's own words: names of parameters, descriptions, values."""
    match schema:
        case dict():
            for key, value in schema.items():
                if key == "properties":
                    yield from members(value)
                    yield from _said(list(members(value).values()))
                elif key not in _UNTOLD:
                    yield from _said(value)
        case list():
            for item in schema:
                yield from _said(item)
        case str():
            yield schema
        case _:
            yield dumps(schema)


def _flat(line: str) -> str:
    return _BLANKS.sub(" ", line).strip()


def _words(*said: str) -> list[str]:
    return re.findall(r"\w+", " ".join(said))
