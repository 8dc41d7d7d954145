"""The list of checks as a document: Markdown for people (CHECKS.md), JSON for programs. Made from the checks themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from harmony_conformance.check import Check, Comparison
from harmony_conformance.checks import CHECKS
from harmony_conformance.exchange import Series
from harmony_conformance.json_value import JsonObject, dumps

_HEAD = """# Checks

Made by `harmony-conformance checks`; do not edit. {count} checks in {families} families.

- **must**: the Harmony guide, the API reference or HTTP states it, and a client or the model is harmed when it is broken.
- **should**: the sources disagree about it, or only imply it.

A check steps aside where its conditions do not hold, and says which; there is no other way to skip one. Each is shown passing and failing under
[golden/exchanges](../golden/exchanges). Defect ids are those of the catalogue of real servers' defects.
"""


def checks_markdown() -> str:
    """The document: a section for each family, an entry for each check."""
    families = [(family, list(rules)) for family, rules in groupby(CHECKS, key=lambda rule: rule.family)]
    head = _HEAD.format(count=len(CHECKS), families=len(families))
    return "\n".join((head, *(line for family, rules in families for line in _family(family, rules)))).rstrip()


def checks_json() -> str:
    """The same as a JSON array, one check a line."""
    return "[\n" + ",\n".join(dumps(_record(rule)) for rule in CHECKS) + "\n]"


def applies_to(rule: Check | Comparison) -> str:
    """The conditions of a check, joined: what completes "applies to …"."""
    return "; ".join(needed.about for needed in rule.when)


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
        "applies_to": [needed.about for needed in rule.when],
        "clause": {
            "id": rule.clause.id,
            "quotation": rule.clause.quotation,
            "source": rule.clause.source,
            "differs": rule.clause.differs,
        },
    }
