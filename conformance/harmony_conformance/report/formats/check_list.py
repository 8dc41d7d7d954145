"""The list of checks as a document: Markdown for people (CHECKS.md), JSON for programs; the table of token accounting. Made from the checks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.judge.rulings import RULINGS
from harmony_conformance.plugins.registry import all_checks
from harmony_conformance.prompts.token_accounting import FORMS, RequestSet, cost_tables

_HEAD = """# Checks

Made by `harmony-conformance checks`; do not edit. {count} checks in {families} families.

- **must**: the Harmony guide, the API reference or HTTP states it, and a client or the model is harmed when it is broken.
- **should**: the sources disagree about it, or only imply it.

A check does not apply if its conditions do not hold, and the report says which. Nothing else skips a check. Each is shown passing and failing under
[golden/exchanges](../golden/exchanges). Defect ids are those of the catalogue of real servers' defects.

## Rulings

Where the cited clause is silent, or the sources differ, the severity is settled here.
If every finding of a failure has such a ruling, the failure has the severity of the ruling.
A request with a ruling may be refused with a 4xx status. An answer to it is judged, and a 5xx status is a failure.

{rulings}
"""


def checks_markdown() -> str:
    """The document: a section for each family, an entry for each check."""
    families = [(family, list(rules)) for family, rules in groupby(all_checks(), key=lambda rule: rule.family)]
    head = _HEAD.format(count=len(all_checks()), families=len(families), rulings="\n".join(_rulings()))
    return "\n".join((head, *(line for family, rules in families for line in _family(family, rules)))).rstrip()


def _rulings() -> Iterator[str]:
    yield from ("| question | severity | applies to | sources |", "| --- | --- | --- | --- |")
    for ruling in RULINGS.values():
        severity = ruling.severity or "may be refused"
        where = ", ".join(f"`{name}`" for name in (*ruling.checks, *ruling.steps))
        yield f"| {ruling.subject} | {severity} | {where} | {ruling.source} |"


def checks_json() -> str:
    """The same as a JSON array, one check a line."""
    return "[\n" + ",\n".join(dumps(_record(rule)) for rule in all_checks()) + "\n]"


_ACCOUNTING = """# Token accounting

Made by `harmony-conformance checks --format accounting`; do not edit.

What `usage.prompt_tokens` reveals of an endpoint that shows no prompt. The requests below are those of
[prompt_accounting](../golden/scenarios/prompt_accounting.json). A preamble of the provider adds the same number to each count, so only differences
from the plainest request are used. They are compared with {forms} accepted forms: the named styles, calls with and without content type and marker,
instructions in the developer or the system message, disputed reasoning retained or dropped. These requests distinguish {distinct} of them.

Where no form fits, the checks of the family `accounting` look for the fewest mistakes that explain every count to the token. The table shows by how many
tokens each mistake changes each count, in the form {form}. Counts cannot distinguish mistakes in one row, so they are named together.

"""

_BAR = "\\|"
"""A bar within a cell of a table."""

_NOT_COUNTED = """
What counts can not show, because it changes no count, or every count alike: the identity, the date and the cutoff; the level of the effort (each is one
token); the order of messages, and of recipient and channel; a function's name that was replaced by one as long; whether the prompt ends with
`<|start|>assistant`. A result without ` to=assistant` costs as much less as a call without content type, which is an accepted form.
"""


def accounting_markdown(requests: RequestSet) -> str:
    """The table of what each mistake costs in each request, and what counts can not show."""
    found = cost_tables(requests)
    first = found[0]
    shown = [name for name in requests.names if name != requests.base_name]
    rows = [
        (
            "; or ".join(mistake.description for mistake in group.mistakes),
            ", ".join(dict.fromkeys(name for mistake in group.mistakes for name in mistake.defects)),
            *(f"{change:+}" if change else "" for change in _others(requests, group.changes)),
        )
        for group in first.groups
    ]
    expected = ("*tokens as they should be*", "", *map(str, _others(requests, first.expected_counts)))
    head = ("mistake", "defects", *shown)
    lines = [head, ("---",) * len(head), expected, *rows]
    table = "\n".join(f"| {' | '.join(cell.replace('|', _BAR) for cell in line)} |" for line in lines)
    told = _ACCOUNTING.format(forms=len(FORMS), distinct=len(found), form=first.form_names[0])
    return f"{told}{table}\n{_NOT_COUNTED}"


def _others(requests: RequestSet, numbers: Sequence[int]) -> list[int]:
    return [number for name, number in zip(requests.names, numbers, strict=True) if name != requests.base_name]


def applies_to(rule: Check | Comparison) -> str:
    """The conditions of a check, joined: what completes "applies to …"."""
    return "; ".join(needed.description for needed in rule.when)


def _family(name: str, rules: list[Check | Comparison]) -> Iterator[str]:
    yield f"## {name}\n"
    for rule in rules:
        yield from _entry(rule)


def _entry(rule: Check | Comparison) -> Iterator[str]:
    yield f"### {rule.id}\n"
    yield f"**{rule.severity}** · {rule.requirement}\n"
    if rule.reason:
        yield f"{rule.reason}\n"
    yield f"Applies to {applies_to(rule)}.\n"
    yield f"> {rule.clause.quotation}\n>\n> — {rule.clause.source}\n"
    if rule.clause.differs:
        yield f"Where sources differ: {rule.clause.differs}\n"


def _record(rule: Check | Comparison) -> JsonObject:
    return {
        "id": rule.id,
        "family": rule.family,
        "severity": rule.severity.value,
        "judges": "series" if rule.subject is Series else "exchange",
        "requirement": rule.requirement,
        "reason": rule.reason,
        "applies_to": [needed.description for needed in rule.when],
        "clause": {
            "id": rule.clause.id,
            "quotation": rule.clause.quotation,
            "source": rule.clause.source,
            "differs": rule.clause.differs,
        },
    }
