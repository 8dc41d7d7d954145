"""The checks of a plug-in, as the judge runs them: with ids of their own, and with findings that a report can show."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import CodeType
from typing import cast

from harmony_conformance.judge.check import Check, CheckBase, CheckFunction, Comparison, Finding, Verdict
from harmony_conformance.judge.condition import Condition, Subject
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.rulings import RULINGS
from harmony_conformance.redactable_text import RedactableText, ReportText, quote

_OURS = "harmony_conformance"


class InvalidCheckError(ValueError):
    """A check of a plug-in that cannot be used. The message continues "expected"."""


@dataclass(frozen=True)
class Literals:
    """The texts that are written in the source of a plug-in. Any other text may be traffic, which a redacted audit masks."""

    texts: frozenset[str]

    @classmethod
    def of_sources(cls, sources: Iterable[bytes]) -> Literals:
        """Return the texts of files of Python. A file of a package that cannot be compiled is no code of its checks."""
        texts: set[str] = set()
        with warnings.catch_warnings(action="ignore"):
            for source in sources:
                with suppress(SyntaxError, ValueError):
                    texts.update(_constants(compile(source, "plug-in", "exec", dont_inherit=True)))
        return cls(frozenset(texts))

    def mark(self, text: object) -> ReportText:
        """Return a text of a finding. One that is not written in the source is marked as traffic.

        Raises:
            TypeError: It is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"invalid text of a finding: expected a str, got {type(text).__name__}")
        if isinstance(text, RedactableText) or text in self.texts:
            return text  # pyright: ignore[reportReturnType]  # written in the source, and so a literal
        return quote(text)


def _constants(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case CodeType():
            yield from (text for part in value.co_consts for text in _constants(part))
        case tuple() | frozenset():
            yield from (text for part in cast("Iterable[object]", value) for text in _constants(part))
        case _:
            return


def own_checks(
    found: Iterable[Check | Comparison], prefix: str, owner: str, literals: Literals
) -> tuple[Check | Comparison, ...]:
    """Return the checks that a module defines. Those of this package that it imports are left out.

    Raises:
        InvalidCheckError: The module has no check, or one is invalid.
    """
    checks: dict[str, Check | Comparison] = {}
    for rule in found:
        module = rule.run.__module__
        if module.partition(".")[0] == _OURS:
            continue
        name = f"{prefix}.{rule.id.partition('.')[2]}"
        if module != owner and not module.startswith(f"{owner}."):
            raise InvalidCheckError(f"checks that it defines, got {name.partition('.')[2]} of the module {module}")
        if name in checks:
            raise InvalidCheckError(f"a check for each name, got {name} twice")
        checks[name] = _own_check(rule, name, literals)  # type: ignore[misc]  # a check or a comparison
    if not checks:
        raise InvalidCheckError("functions with the decorator check or comparison, got none")
    return tuple(checks.values())


def _own_check(rule: CheckBase[Subject], name: str, literals: Literals) -> CheckBase[Subject]:
    if not name.isascii():
        raise InvalidCheckError(f"an ASCII name, got {name!r}")
    if not rule.requirement:
        raise InvalidCheckError(f"a docstring with the requirement of {name}, got none")
    others = [type(one).__name__ for one in cast("Iterable[object]", rule.when) if not isinstance(one, Condition)]
    if others:
        raise InvalidCheckError(f"conditions in `when` of {name}, got a {others[0]}")
    clause = rule.clause
    if clause.id in CLAUSES and clause is not CLAUSES[clause.id]:
        raise InvalidCheckError(f"a new id for the clause of {name}, got {clause.id!r}, which this package has")
    if not clause.id:
        clause = replace(clause, id=name)
    return replace(rule, id=name, clause=clause, run=_guarded(rule.run, literals))


def _guarded(body: CheckFunction[Subject], literals: Literals) -> CheckFunction[Subject]:
    """Return the function of a check with findings that a report can show. Anything else is an error of the check."""

    def run(subject: Subject) -> Iterator[Finding]:
        try:
            for finding in body(subject):
                yield _reportable(finding, literals)
        except SystemExit as error:  # it would end the run
            raise RuntimeError(f"SystemExit: {error}") from error

    return run


def _reportable(finding: object, literals: Literals) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"invalid finding: expected a Finding, got {type(finding).__name__}")
    if finding.verdict not in (Verdict.FAIL, Verdict.VARIANT):
        raise ValueError(f"invalid verdict of a finding: expected fail or variant, got {finding.verdict}")
    if finding.ruling and finding.ruling not in RULINGS:
        raise ValueError(f"invalid ruling of a finding: expected a key of RULINGS, got {finding.ruling!r}")
    for name in ("location", "exchange", "clause"):
        if not isinstance(getattr(finding, name), str):
            raise TypeError(f"invalid {name} of a finding: expected a str, got {type(getattr(finding, name)).__name__}")
    excerpt = cast("object", finding.excerpt)
    if not isinstance(excerpt, str | None):
        raise TypeError(f"invalid excerpt of a finding: expected a str, got {type(excerpt).__name__}")
    expected, actual = (None if side is None else literals.mark(side) for side in (finding.expected, finding.actual))
    return replace(finding, message=literals.mark(finding.message), expected=expected, actual=actual)
