"""Write `docs/coverage.md`: the step and scenario that show each parameter, string and JSON value of a request.

    python tools/write_coverage.py

The data are in `golden/coverage/`. A test compares them with the scenarios and with the client libraries of the APIs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harmony_conformance.apis.registry import APIS
from harmony_conformance.json_value import Json, items, loads, members, text, value_at

ROOT = Path(__file__).parents[1]
COVERAGE = ROOT / "golden" / "coverage"
PAGE = ROOT / "docs" / "coverage.md"
APIS_IN_ORDER = ("chat", "responses", "messages", "completions", "ollama", "tgi", "sglang", "llamacpp")
"""The files of parameters, in the order of the page."""

HEAD = """# Coverage: parameters, strings, JSON values

<!-- Made by `tools/write_coverage.py` from golden/coverage. -->

Each row names the step of a scenario that shows it (`scenario: step`), or the reason why none does. A test proves that the step sends it.
It also proves that each parameter which a scenario sends has a row, and each parameter which the client library of the API declares.

What a conforming gpt-oss server may do with a parameter: *honour* it, *refuse* it with a 4xx that names it, or *ignore* it. To ignore is right only
where the answer would be the same. A 5xx is never right.

{summary}
"""
STRINGS = """## Strings of a request

Every string that a client can write into a chat request, with what the scenarios put there. Header words are words such as `assistantfinal`. Where the
string reaches the prompt, `prompt.markers_in_text_stay_text` and `prompt.is_an_accepted_rendering` judge it. The others must not reach it.
"""
VALUES = """## JSON values to the letter

Values that parsers rewrite. `tool_calls.calls_arrive` compares the arguments that the model writes, `prompt.calls_are_rendered` those of the history. Vectors
define the text of a schema; where none is named, the request must be answered or refused.
"""


def documents() -> dict[str, Json]:
    """Return the files of `golden/coverage` by name."""
    return {file.stem: loads(file.read_text("utf-8")) for file in sorted(COVERAGE.glob("*.json"))}


def page_text(found: dict[str, Json]) -> str:
    """Return the page."""
    apis = {name: found[name] for name in APIS_IN_ORDER}
    counts = [
        "| API | parameters | shown | not judged |",
        "| --- | ---: | ---: | ---: |",
        *(_summary_row(document) for document in apis.values()),
    ]
    parts = [HEAD.format(summary="\n".join(counts)), *map(_api_part, apis.values())]
    parts += [STRINGS + "\n" + "\n".join(_string_rows(found["strings"])) + "\n"]
    parts += [VALUES + "\n" + "\n".join(_value_rows(found["json_values"])) + "\n"]
    return "\n".join(parts)


def _summary_row(document: Json) -> str:
    rows = [row for section in items(value_at(document, "sections")) for row in items(value_at(section, "parameters"))]
    judged = Counter("not_judged" not in members(row) for row in rows)
    return f"| {text(value_at(document, 'title'))} | {len(rows)} | {judged[True]} | {judged[False]} |"


def _api_part(document: Json) -> str:
    links = ", ".join(f"<{text(link)}>" for link in items(value_at(document, "source", "links")))
    lines = [
        f"## {text(value_at(document, 'title'))}",
        "",
        f"Source of the list: {text(value_at(document, 'source', 'name'))} ({links}).",
    ]
    for section in items(value_at(document, "sections")):
        api = text(value_at(section, "api"))
        path = text(value_at(section, "path")) or APIS[api].path
        lines += [
            "",
            f"### POST {path}{', raw' if api == 'ollama-raw' else ''}",
            "",
            "| parameter | may | shown by | judged by |",
            "| --- | --- | --- | --- |",
        ]
        lines += map(_parameter_row, items(value_at(section, "parameters")))
    return "\n".join(lines) + "\n"


def _parameter_row(row: Json) -> str:
    reason, note = text(value_at(row, "not_judged")), text(value_at(row, "note"))
    shown = f"not judged: {reason}" if reason else "; ".join(map(_step, items(value_at(row, "shown"))))
    judged = ", ".join(f"`{text(check)}`" for check in items(value_at(row, "checks")))
    may = ", ".join(map(text, items(value_at(row, "may"))))
    return f"| `{text(value_at(row, 'name'))}` | {may} | {shown}{'. ' + note if note else ''} | {judged} |"


def _step(cell: Json) -> str:
    """Return a cell: a step, a vector, or the reason why nothing shows it."""
    if reason := text(value_at(cell, "not_judged")):
        return f"not judged: {reason}"
    if vector := text(value_at(cell, "vector")):
        return f"vector `{vector}`"
    return f"`{text(value_at(cell, 'scenario'))}: {text(value_at(cell, 'step'))}`"


def _string_rows(document: Json) -> Iterator[str]:
    yield from ("| string | plain words | markers | header words |", "| --- | --- | --- | --- |")
    for row in items(value_at(document, "places")):
        cells = (value_at(row, "contents", kind) for kind in ("plain", "markers", "header_words"))
        yield _table_row(text(value_at(row, "place")), cells)


def _value_rows(document: Json) -> Iterator[str]:
    yield from (
        "| value | arguments from the model | arguments in the history | schema of a function |",
        "| --- | --- | --- | --- |",
    )
    for row in items(value_at(document, "values")):
        first = f"{text(value_at(row, 'value'))}, `{text(value_at(row, 'example'))}`"
        yield _table_row(first, (value_at(row, column) for column in ("returned", "history", "schema")))


def _table_row(first: str, cells: Iterable[Json]) -> str:
    return f"| {' | '.join((first, *map(_step, cells)))} |"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page_text(documents()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
