"""Differences of the system and developer messages from those of an accepted rendering, in form or in content.

Free for a server: the date, the cutoff, the channel lines, line ends between sections and their order, and the spelling of types.
Fixed by the request: the identity, the requested effort, instructions, functions with their descriptions, and the schema of the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from harmony_conformance.checks.helpers.value_diff import json_differences
from harmony_conformance.checks.rendering.tool_schemas import (
    Mark,
    declared_parameters,
    find_missing_descriptions,
    find_missing_types,
    parameters,
)
from harmony_conformance.json_value import Json, canonical_json, dumps, find_objects, items, members, text, value_at
from harmony_conformance.judge.check import Verdict
from harmony_conformance.prompts.conversation import EFFORTS
from harmony_conformance.prompts.declarations_in_prompt import (
    Declaration,
    as_identifier,
    official_tools_text,
    parse_declarations,
)
from harmony_conformance.prompts.expected_parts import PartKind, expected_parts
from harmony_conformance.prompts.request_members import is_offered
from harmony_conformance.redactable_text import shorten
from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.message_difference import EFFORT_LINE, FREE_LINES, difference_of_contents


@dataclass(frozen=True)
class JudgedDifference(Difference):
    """A difference with a verdict: failure or variant.

    `texts`: the differing texts, expected and actual, if they are not the first difference of their messages. An empty one is missing.
    """

    verdict: Verdict
    texts: tuple[str, str] | None = None


failing_difference = partial(JudgedDifference, verdict=Verdict.FAIL)
"""A difference in meaning: part, problem, words."""
variant_difference = partial(JudgedDifference, verdict=Verdict.VARIANT)
"""A difference in form: part, problem, words."""

_TOOLS = "# Tools\n"
_FORMATS = "# Response Formats\n"
_HEADING = "# Instructions"
_BLANKS = re.compile(r"[\s/*]+")


def system_difference(expected: str, shown: str, request: Json) -> Iterator[JudgedDifference]:
    """Yield the differences of a system message from the expected one, which has the same date."""
    if expected == shown:
        return
    effort = text(value_at(request, "reasoning_effort"))
    free = FREE_LINES if effort in EFFORTS else FREE_LINES | EFFORT_LINE
    if "\n" in effort and effort in shown:
        words = f"it has all lines of the effort in the request: {shorten(effort)!r}"
        yield failing_difference(Part.EFFORT, Problem.EXTRA, words)
        shown = shown.replace(effort, "", 1)
    for label, part in free.items():
        line, actual = _line(expected, label), _line(shown, label)
        if line != actual and part is not Part.DATE:
            problem = Problem.MISSING if not actual else Problem.EXTRA if not line else Problem.DIFFERENT
            words = f"{actual or 'no such line'!r} where {line or 'none'!r} was expected"
            yield variant_difference(part, problem, words)
    rest, rest_shown = _without_lines(expected, free), _without_lines(shown, free)
    if rest != rest_shown:
        difference = difference_of_contents(rest, rest_shown, "system")
        yield failing_difference(difference.part, difference.problem, difference.description)


def _line(content: str, label: str) -> str:
    return next((line for line in content.split("\n") if line.startswith(label)), "")


def _without_lines(content: str, labels: Iterable[str]) -> str:
    """Remove the first line of each label, and blank lines."""
    lines = [line for line in content.split("\n") if line]
    for line in {_line(content, label) for label in labels}.intersection(lines):
        lines.remove(line)
    return "\n".join(lines)


def developer_difference(expected: str, shown: str, request: Json) -> Iterator[JudgedDifference]:
    """Yield the first lost, changed or added content of a developer message, else the difference of form."""
    if expected == shown:
        return
    texts = [part.text for part in expected_parts(request) if part.kind is PartKind.INSTRUCTIONS and part.text.strip()]
    instructions = [one for one in texts if one in expected]
    difference = difference_of_contents(expected, shown, "developer")
    if not all(one in shown for one in instructions):
        yield failing_difference(Part.INSTRUCTIONS, difference.problem, difference.description)
        return
    if not _are_in_order(instructions, shown):
        yield failing_difference(
            Part.INSTRUCTIONS, Problem.MOVED, "the instructions are in another order than they were sent"
        )
        return
    tools, formats, _ = _sections(expected, instructions)
    tools_shown, formats_shown, rest = _sections(shown, instructions)
    differences = [
        *_tools_difference(tools, tools_shown, request),
        *_formats_difference(formats, formats_shown, value_at(request, "response_format", "json_schema", "schema")),
    ]
    if rest:
        words = f"it has text that is not in the request: {shorten(rest)!r}"
        differences.append(failing_difference(Part.INSTRUCTIONS, Problem.EXTRA, words, texts=("", rest)))
    worst = sorted(differences, key=lambda one: one.verdict is not Verdict.FAIL)
    yield from worst[:1] or [variant_difference(difference.part, difference.problem, difference.description)]


def _are_in_order(instructions: Sequence[str], shown: str) -> bool:
    for one in instructions:
        _, match, shown = shown.partition(one)
        if not match:
            return False
    return True


def _sections(content: str, instructions: Sequence[str]) -> tuple[str, str, str]:
    """Return the section of tools, the section of formats, and the rest without the instructions."""
    rest = content
    for one in instructions:
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
    objects = list(find_objects(shown))
    is_equal = any(canonical_json(one) == canonical_json(schema) for one in objects)
    if expected and shown and not is_equal and (schema is not None or any(objects)):
        words = next(map(str, json_differences(schema, objects[0])), "") if objects else "it has no JSON object"
        words = f"in the schema: {words}"
        yield failing_difference(Part.RESPONSE_FORMATS, Problem.DIFFERENT, words, texts=(expected, shown))
    elif not expected:
        words = f"they were not requested: {shorten(shown)!r}"
        yield failing_difference(Part.RESPONSE_FORMATS, Problem.EXTRA, words, texts=("", shown))
    else:
        words = "they have another spelling, or are missing"
        yield variant_difference(Part.RESPONSE_FORMATS, Problem.OTHER_SPELLING, words)


def _tools_difference(expected: str, shown: str, request: Json) -> Iterator[JudgedDifference]:
    if expected == shown:
        return
    if not expected or not shown:
        words = "functions are declared that are not in the request" if shown else "no function is declared"
        kind = Problem.EXTRA if shown else Problem.MISSING
        yield failing_difference(Part.TOOLS, kind, words, texts=(expected, shown))
        return
    tools, declared_shown = items(value_at(request, "tools")), parse_declarations(shown)
    left_out = {as_identifier(name) for name in parse_declarations(expected) if not is_offered(request, name)}
    left_out -= {*map(as_identifier, declared_shown)}
    declared = {name: one for name, one in parse_declarations(expected).items() if as_identifier(name) not in left_out}
    if [*map(as_identifier, declared)] != [*map(as_identifier, declared_shown)]:
        yield _names_difference(declared, declared_shown)
        return
    functions = {text(value_at(tool, "function", "name")): value_at(tool, "function") for tool in tools}
    official = parse_declarations(official_tools_text(tools))
    for (name, one), other in zip(declared.items(), declared_shown.values(), strict=True):
        problem = _function_problem(functions.get(name), one, other, official.get(name, one))
        if problem is not None:
            difference = difference_of_contents(_text(one), _text(other), "user")
            words = f"in the function {name}: {difference.description}"
            yield failing_difference(Part.TOOLS, problem, words, texts=(_whole(one), _whole(other)))
            return
    words = "they have the same content in an unknown style"
    if left_out:
        words = f"{', '.join(sorted(left_out))}, which may not be called, is not declared"
    yield variant_difference(Part.TOOLS, Problem.OTHER_SPELLING, words)


def _names_difference(declared: Mapping[str, Declaration], shown: Mapping[str, Declaration]) -> JudgedDifference:
    """Return the difference of the declared names, with the declarations of one side only, or all of them in another order."""
    names, names_shown = [*map(as_identifier, declared)], [*map(as_identifier, shown)]
    is_moved = Counter(names) == Counter(names_shown)
    problem = Problem.MOVED if is_moved else Problem.MISSING if len(names_shown) < len(names) else Problem.DIFFERENT
    words = f"the functions are {', '.join(shown) or 'none'} where {', '.join(declared)} were expected"
    sides = [(declared, names_shown), (shown, names)]
    missing, added = (
        "\n".join(_whole(one) for name, one in side.items() if is_moved or as_identifier(name) not in others)
        for side, others in sides
    )
    return failing_difference(Part.TOOLS, problem, words, texts=(missing, added))


def _whole(declared: Declaration) -> str:
    """Return the whole declaration as it is in the prompt."""
    return f"{declared.comment}type {declared.name} = {declared.type}".strip()


def _text(declared: Declaration) -> str:
    return f"{declared.comment}{declared.type}"


def _function_problem(
    function: Json, expected: Declaration, shown: Declaration, official: Declaration
) -> Problem | None:
    """Return the problem of a function's declaration, None if only the spelling differs."""
    whole, whole_shown = _text(expected), _text(shown)
    if whole == whole_shown:
        return None
    schemas = [value for name, value in members(function).items() if name != "name"]
    own = Counter(_words(*(word for schema in schemas for word in _client_texts(schema))))
    lines = (line.strip("/ \t\r") for line in whole.split("\n") if line.lstrip().startswith("//"))
    if any(_flat(line) not in _flat(whole_shown) for line in lines):
        return Problem.DIFFERENT
    if (Counter(_words(whole)) - Counter(_words(whole_shown))) & own:
        return Problem.MISSING
    findings = (
        *find_missing_descriptions(function, shown, official, ""),
        *find_missing_types(function, shown, official, ""),
    )
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        return Problem.DIFFERENT
    # a declaration without any `?` marks optional parameters in another way
    all_marks = {member.mark for one in parameters(function) for member in declared_parameters(one.name, shown)}
    for parameter in parameters(function):
        marks = {member.mark for member in declared_parameters(parameter.name, expected)}
        marks_shown = {member.mark for member in declared_parameters(parameter.name, shown)}
        if marks and marks_shown and marks != marks_shown and Mark.OPTIONAL in all_marks:
            return Problem.DIFFERENT
    return None


_NOT_CLIENT_TEXT = frozenset({"type", "format", "required", "$schema", "$ref", "additionalProperties"})


def _client_texts(schema: Json) -> Iterator[str]:
    """Yield the client's own words in a function's schema: names of parameters, descriptions, values."""
    match schema:
        case dict():
            for key, value in schema.items():
                if key == "properties":
                    yield from members(value)
                    yield from _client_texts(list(members(value).values()))
                elif key not in _NOT_CLIENT_TEXT:
                    yield from _client_texts(value)
        case list():
            for item in schema:
                yield from _client_texts(item)
        case str():
            yield schema
        case _:
            yield dumps(schema)


def _flat(line: str) -> str:
    return _BLANKS.sub(" ", line).strip()


def _words(*texts: str) -> list[str]:
    return re.findall(r"\w+", " ".join(texts))
