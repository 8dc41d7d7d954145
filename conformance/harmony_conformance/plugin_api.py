"""The names that a plug-in with checks of your own uses (`--plugin FILE`). They stay stable as the ids of checks do.

from harmony_conformance.plugin_api import MUST, Clause, Exchange, Finding, check, conditions
"""

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge import conditions
from harmony_conformance.judge.check import (
    MUST,
    SHOULD,
    Finding,
    Reads,
    Severity,
    Verdict,
    check,
    comparison,
    mismatch,
    variant,
)
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.redactable_text import RedactableText, quote

__all__ = [
    "MUST",
    "SHOULD",
    "Clause",
    "Exchange",
    "Finding",
    "Reads",
    "RedactableText",
    "Series",
    "Severity",
    "Verdict",
    "check",
    "comparison",
    "condition",
    "conditions",
    "evidence",
    "mismatch",
    "quote",
    "variant",
]
