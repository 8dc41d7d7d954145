"""Attribute the failures of a run to causes.

1. The fewest defects whose signatures fit explain as many failures as possible. A signature fits if most of what it predicts,
   among what was judged in this run, failed.
2. A failure that is left joins a defect that shows the same kind of failure elsewhere.
   It also joins one whose failures in the same exchange it is known to accompany.
3. The rest forms groups of kinds of failures that occur together, and that are known to accompany each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harmony_conformance.causes.cause import Cause, first_failure
from harmony_conformance.causes.signatures import FailureKey, Signature, message_kind, read_signatures, step_of
from harmony_conformance.judge.check import Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result
from harmony_conformance.reference_server.defects import DEFECTS

_LEAST_FIT = 0.6
"""The smallest share of the predicted failures that must be seen. Another defect may hide some of them."""
_LEAST_NEW = 0.5
"""The smallest share of the seen failures that no other defect explains yet."""
_LEAST_OVERLAP = 0.8
"""Two kinds of failures occur together if the rarer one has this share of its scenarios in common with the other."""

_Kind = tuple[str, str]
"""A check, and a message without its values."""


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A defect, and how well it explains the failures of a run."""

    defect: str
    seen: frozenset[FailureKey]
    missing: int
    new: int

    @property
    def is_good(self) -> bool:
        """True if the defect is named."""
        share = len(self.seen) / (len(self.seen) + self.missing)
        return share >= _LEAST_FIT and self.new >= _LEAST_NEW * len(self.seen) and self.new > self.missing

    @property
    def rank(self) -> tuple[int, int]:
        """The better fit has the higher rank."""
        return self.new - self.missing, -self.missing


def find_causes(results: Sequence[Result], signatures: Mapping[str, Signature] | None = None) -> tuple[Cause, ...]:
    """Return the causes of all failures, those of severity MUST first, then those with more results."""
    found = list(_failures(results))
    failures = frozenset(failure for failure, _ in found)
    if not failures:
        return ()
    known = read_signatures() if signatures is None else signatures
    named = _name_defects(failures, _applied(results), known)
    owners: dict[FailureKey, list[int]] = defaultdict(list)
    for number, alike in enumerate(named):
        for failure in alike[0].seen:
            owners[failure].append(number)
    _add_consequences(failures, named, owners, known)
    rest = _group(failures - owners.keys())
    by_cause: dict[int, list[Result]] = defaultdict(list)
    for failure, result in found:
        numbers = owners.get(failure) or [len(named) + rest[failure]]
        for number in numbers:
            if not any(result is other for other in by_cause[number][-1:]):
                by_cause[number].append(result)
    causes = (
        _defect_cause(named[number], of_cause)
        if number < len(named)
        else _group_cause(of_cause, found, rest, number - len(named))
        for number, of_cause in by_cause.items()
    )
    return tuple(sorted(causes, key=lambda cause: (cause.severity is not Severity.MUST, -len(cause.results), cause.id)))


def _failures(results: Iterable[Result]) -> Iterator[tuple[FailureKey, Result]]:
    for result in results:
        if result.outcome is Outcome.FAIL:
            for kind in dict.fromkeys(_failure(result, one) for one in result.findings if one.verdict is Verdict.FAIL):
                yield kind, result


def _failure(result: Result, finding: Finding) -> FailureKey:
    return FailureKey(result.check, result.scenario, step_of(finding.exchange), message_kind(finding.message))


def _applied(results: Iterable[Result]) -> frozenset[tuple[str, str, str]]:
    """Return the check, scenario and step of everything that was judged. A check of a whole series has an empty step."""
    judged = (result for result in results if result.applied)
    return frozenset(
        (result.check, result.scenario, step) for result in judged for step in ("", *map(step_of, result.exchanges))
    )


def _name_defects(
    failures: frozenset[FailureKey], applied: frozenset[tuple[str, str, str]], known: Mapping[str, Signature]
) -> list[list[_Fit]]:
    """Return the defects that explain the failures. Those that explain them equally well are together."""
    predictions = [
        (defect, frozenset(failure for failure in level if failure[:3] in applied))
        for defect, levels in known.items()
        for level in levels.values()
    ]
    predictions = [(defect, predicted) for defect, predicted in predictions if not predicted.isdisjoint(failures)]
    unexplained, named = failures, list[list[_Fit]]()
    while True:
        fits = [
            _Fit(
                defect=defect,
                seen=predicted & failures,
                missing=len(predicted - failures),
                new=len(predicted & unexplained),
            )
            for defect, predicted in predictions
        ]
        best = max((fit for fit in fits if fit.is_good), key=lambda fit: fit.rank, default=None)
        if best is None:
            return named
        alike = {fit.defect: fit for fit in fits if fit.seen == best.seen and fit.missing == best.missing}
        named.append(list(alike.values()))
        unexplained -= best.seen


def _add_consequences(
    failures: frozenset[FailureKey],
    named: list[list[_Fit]],
    owners: dict[FailureKey, list[int]],
    known: Mapping[str, Signature],
) -> None:
    """Add the failures of step 2 to `owners`."""
    kinds: dict[_Kind, list[int]] = defaultdict(list)
    steps: dict[tuple[str, str], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for number, (first, *_) in enumerate(named):
        for kind in {(failure.check, failure.message) for level in known[first.defect].values() for failure in level}:
            kinds[kind].append(number)
        for failure in first.seen:
            steps[failure.scenario, failure.step][number].add(failure.check)
    for failure in failures - owners.keys():
        same_kind = kinds.get((failure.check, failure.message), [])[:1]
        together = [
            number
            for number, checks in steps[failure.scenario, failure.step].items()
            if any(_accompany(failure.check, check) for check in checks)
        ]
        if same_kind or together:
            owners[failure] = same_kind or together[:1]


def _group(failures: frozenset[FailureKey]) -> Mapping[FailureKey, int]:
    """Return the number of the group of each failure."""
    scenarios: dict[_Kind, set[str]] = defaultdict(set)
    for failure in sorted(failures):
        scenarios[failure.check, failure.message].add(f"{failure.scenario}/{failure.step}")
    group: dict[_Kind, int] = {}
    for number, kind in enumerate(sorted(scenarios, key=lambda one: (-len(scenarios[one]), one))):
        joined = (
            group[other]
            for other in group
            if (kind[0] == other[0] or _accompany(kind[0], other[0]))
            and len(scenarios[kind] & scenarios[other])
            >= _LEAST_OVERLAP * min(len(scenarios[kind]), len(scenarios[other]))
        )
        group[kind] = next(joined, number)
    return {failure: group[failure.check, failure.message] for failure in failures}


@cache
def _accompanying() -> frozenset[frozenset[str]]:
    """Return the pairs of checks that one defect makes fail in one exchange."""
    pairs = set[frozenset[str]]()
    for levels in read_signatures().values():
        for level in levels.values():
            checks: dict[tuple[str, str], set[str]] = defaultdict(set)
            for failure in level:
                checks[failure.scenario, failure.step].add(failure.check)
            pairs.update(frozenset((one, other)) for some in checks.values() for one in some for other in some)
    return frozenset(pairs)


def _accompany(one: str, other: str) -> bool:
    return frozenset((one, other)) in _accompanying()


def _defect_cause(alike: list[_Fit], results: list[Result]) -> Cause:
    defects = tuple(fit.defect for fit in alike)
    ordered = _must_first(results)
    return Cause(
        id=defects[0],
        sentence=DEFECTS[defects[0]].summary,
        defects=defects,
        catalogue=tuple(dict.fromkeys(one for defect in defects for one in DEFECTS[defect].catalogue)),
        results=ordered,
        example=next(
            (
                finding
                for finding in ordered[0].findings
                if finding.verdict is Verdict.FAIL and _failure(ordered[0], finding) in alike[0].seen
            ),
            first_failure(ordered[0]),
        ),
    )


def _group_cause(
    results: list[Result], found: list[tuple[FailureKey, Result]], rest: Mapping[FailureKey, int], number: int
) -> Cause:
    ordered = _must_first(results)
    kinds = Counter((failure.check, failure.message) for failure, _ in found if rest.get(failure) == number)
    (check, message), _ = kinds.most_common(1)[0]
    of_kind = [result for result in ordered if result.check == check] or list(ordered)
    example = next(
        (
            finding
            for result in of_kind
            for finding in result.findings
            if finding.verdict is Verdict.FAIL and message_kind(finding.message) == message
        ),
        first_failure(of_kind[0]),
    )
    first = next(result for result in of_kind if example in result.findings)
    others = tuple(result for result in ordered if result is not first)
    return Cause(
        id=check, sentence=str(example.message), defects=(), catalogue=(), results=(first, *others), example=example
    )


def _must_first(results: list[Result]) -> tuple[Result, ...]:
    return tuple(sorted(results, key=lambda result: result.severity is not Severity.MUST))
