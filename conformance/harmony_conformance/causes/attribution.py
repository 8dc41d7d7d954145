"""Attribute the failures of a run to causes.

1. A known cause of the engine owns the failures that its patterns match.
2. The fewest defects whose signatures fit explain as many of the others as possible. A signature fits if most of what it predicts,
   among what was judged in this run, failed. A defect of one API explains failures over that API alone. A named
   defect may hide another one in the steps where it shows: there a prediction that did not fail is not counted.
3. A failure that is left joins a defect that shows the same kind of failure elsewhere.
   It also joins one whose failures in the same exchange it is known to accompany.
4. The rest forms groups of kinds of failures that occur together, and that are known to accompany each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from harmony_conformance.apis.registry import APIS
from harmony_conformance.causes.cause import Cause
from harmony_conformance.causes.known import KnownCause, failure_parts, known_causes
from harmony_conformance.causes.signatures import FailureKey, Signature, message_kind, read_signatures, step_of
from harmony_conformance.causes.signs import SIGNS, has_sign
from harmony_conformance.evidence.exchange import ALL_APIS, Exchange
from harmony_conformance.judge.check import Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result
from harmony_conformance.judge.rulings import RULINGS
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.reference_server.defects.stages import API_STAGES, ApiFamily

_LEAST_FIT = 0.6
"""The smallest share of the predicted failures that must be seen. Another defect may hide some of them."""
_LEAST_NEW = 0.5
"""The smallest share of the seen failures that nothing else explains yet."""
_LEAST_OVERLAP = 0.8
"""Two kinds of failures occur together if the rarer one has this share of its scenarios in common with the other."""

_ODD = "odd_"
"""The beginning of the names of scenarios with requests that few clients send."""

_JUDGED = frozenset((Outcome.PASS, Outcome.VARIANT, Outcome.FAIL))
"""The outcomes of what was judged."""

_Kind = tuple[str, str]
"""A check, and a message without its values."""


_Instance = tuple[str, FailureKey]
"""The name of an API, and a failure over it."""


@dataclass(frozen=True, kw_only=True)
class _Failure:
    key: FailureKey
    result: Result
    finding: Finding

    @property
    def instance(self) -> _Instance:
        """The failure over its API."""
        return _api_of(self.result, self.finding.exchange), self.key

    @property
    def severity(self) -> Severity:
        """The severity of the finding, which a ruling may lower."""
        ruled = RULINGS[self.finding.ruling].severity if self.finding.ruling else None
        return ruled or self.result.severity


def _api_of(result: Result, exchange: str) -> str:
    """Return the API of an exchange. A comparison of several APIs has exchanges of each, `scenario/api/step/try`."""
    return exchange.split("/")[1] if result.api == ALL_APIS and "/" in exchange else result.api


@dataclass(frozen=True, eq=False)
class _Named:
    """Defects that explain the same failures, the likeliest first."""

    defects: tuple[str, ...]
    seen: frozenset[_Instance]


_Owner = KnownCause | _Named | _Kind
"""The owner of failures. A group has the commonest kind of its failures."""


def find_causes(
    results: Sequence[Result],
    signatures: Mapping[str, Signature] | None = None,
    known: Sequence[KnownCause] = (),
    sizes: Mapping[str, int] | None = None,
    exchanges: Mapping[str, Exchange] | None = None,
) -> tuple[Cause, ...]:
    """Return the causes of all failures, those of severity MUST first, then those with more results.

    Args:
        results: All results of a run.
        signatures: Signatures of defects. By default those in the golden data.
        known: Known causes of the engine. The first one that matches a failure owns it.
        sizes: Sizes of the exchanges by id. The example of a cause is in the smallest.
        exchanges: Exchanges by id. With them, a defect is named only if one of its failures shows its sign.
    """
    found = list(_failures(results))
    if not found:
        return ()
    predicted = read_signatures() if signatures is None else signatures
    if exchanges is not None:
        predicted = _with_sign(found, predicted, exchanges)
    recognized = [_recognize(failure_parts(each.result, each.finding), known) for each in found]
    left = frozenset(failure.instance for failure, cause in zip(found, recognized, strict=True) if cause is None)
    named = _name_defects(found, left, _applied(results), predicted)
    owners: dict[_Instance, list[_Named]] = defaultdict(list)
    for one in named:
        for instance in one.seen:
            owners[instance].append(one)
    _add_consequences(left, named, owners, predicted)
    must = {failure.key for failure in found if failure.severity is Severity.MUST}
    keys = frozenset(key for _, key in left - owners.keys())
    groups = {**_group(keys - must), **_group(keys & must)}
    owned: dict[_Owner, list[_Failure]] = defaultdict(list)
    for failure, cause in zip(found, recognized, strict=True):
        for owner in (cause,) if cause else owners.get(failure.instance) or (groups[failure.key],):
            owned[owner].append(failure)
    causes = (_cause(owner, of_owner, sizes or {}) for owner, of_owner in owned.items())
    return tuple(sorted(causes, key=lambda cause: (cause.severity is not Severity.MUST, -len(cause.results), cause.id)))


def _with_sign(
    found: Sequence[_Failure], known: Mapping[str, Signature], exchanges: Mapping[str, Exchange]
) -> Mapping[str, Signature]:
    """Return the signatures of the defects whose sign is in an exchange of one of the failures that they predict."""

    def is_shown(defect: str, levels: Signature) -> bool:
        return defect not in SIGNS or any(
            has_sign(defect, exchanges.get(failure.finding.exchange))
            for failure in found
            if any(failure.key in level for level in levels.values())
        )

    return {defect: levels for defect, levels in known.items() if is_shown(defect, levels)}


def _recognize(parts: Mapping[str, str], known: Iterable[KnownCause]) -> KnownCause | None:
    """Return the first known cause that explains a failure."""
    return next((one for one in known if one.explains(parts)), None)


def _failures(results: Iterable[Result]) -> Iterator[_Failure]:
    for result in results:
        for finding in result.findings if result.outcome is Outcome.FAIL else ():
            if finding.verdict is Verdict.FAIL:
                step, message = step_of(finding.exchange), message_kind(finding.message)
                key = FailureKey(result.check, result.scenario, step, message)
                yield _Failure(key=key, result=result, finding=finding)


_Judged = tuple[str, str, str]
"""A check, a scenario, and a step that it judged. A check of a whole series has an empty step."""


def _applied(results: Iterable[Result]) -> Mapping[str, frozenset[_Judged]]:
    """Return everything that was judged, by API."""
    applied: dict[str, set[_Judged]] = defaultdict(set)
    for result in results:
        if result.applied and result.outcome in _JUDGED:
            for exchange in ("", *result.exchanges):
                judged = result.check, result.scenario, step_of(exchange)
                applied[_api_of(result, exchange)].add(judged)
    return {api: frozenset(judged) for api, judged in applied.items()}


@cache
def _own_apis(defect: str) -> frozenset[str]:
    """Return the names of the APIs over which a defect shows, none if over all.

    A defect of Chat Completions is one that the server can have over its other APIs too.
    """
    change = DEFECTS[defect].change
    stages = change if isinstance(change, tuple) else (change,)
    families = {stage.api for stage in stages if isinstance(stage, API_STAGES)}
    if ApiFamily.CHAT in families or not all(isinstance(stage, API_STAGES) for stage in stages):
        return frozenset()
    return frozenset((ALL_APIS, *(name for name, api in APIS.items() if api.option_name in families)))


@dataclass(frozen=True, eq=False)
class _Prediction:
    """The predictions of a defect among what was judged: the failures that are seen, where, and those that are not."""

    defect: str
    seen: frozenset[FailureKey]
    instances: frozenset[_Instance]
    missing: frozenset[FailureKey]


def _predictions(
    found: Sequence[_Failure], applied: Mapping[str, frozenset[_Judged]], known: Mapping[str, Signature]
) -> Iterator[_Prediction]:
    """Yield the predictions with a failure that is seen."""
    scopes: dict[frozenset[str], tuple[Mapping[FailureKey, set[_Instance]], frozenset[_Judged]]] = {}
    for defect, levels in known.items():
        own = _own_apis(defect)
        if own not in scopes:
            scopes[own] = _scope(own, found, applied)
        failures, of_scope = scopes[own]
        for level in levels.values():
            predicted = frozenset(failure for failure in level if failure[:3] in of_scope)
            if seen := predicted & failures.keys():
                instances = frozenset[_Instance]().union(*(failures[key] for key in seen))
                yield _Prediction(defect, seen, instances, predicted - seen)


def _scope(
    own: frozenset[str], found: Iterable[_Failure], applied: Mapping[str, frozenset[_Judged]]
) -> tuple[Mapping[FailureKey, set[_Instance]], frozenset[_Judged]]:
    """Return the failures that a defect of these APIs can explain, and what was judged of them.

    A scenario that its APIs do not have shows what it does to the whole server, such as a crash.
    """
    of_own = frozenset[_Judged]().union(*(judged for api, judged in applied.items() if not own or api in own))
    scenarios = {scenario for _, scenario, _ in of_own}

    def is_open(api: str, scenario: str) -> bool:
        return not own or api in own or (bool(scenarios) and scenario not in scenarios)

    where: dict[FailureKey, set[_Instance]] = defaultdict(set)
    for api, failure in (each.instance for each in found):
        if is_open(api, failure.scenario):
            where[failure].add((api, failure))
    judged = (one for api, of_api in applied.items() for one in of_api if is_open(api, one[1]))
    return where, of_own.union(judged)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A prediction, and what of it nothing else explains yet.

    Attributes:
        new: The number of the seen failures that nothing else explains yet.
        unhidden: The number of the missing failures that no named defect can hide.
    """

    prediction: _Prediction
    new: int
    unhidden: int

    @property
    def is_good(self) -> bool:
        """True if the defect is named."""
        seen, missing = len(self.prediction.seen), len(self.prediction.missing)
        return seen >= _LEAST_FIT * (seen + self.unhidden) and self.new >= _LEAST_NEW * seen and self.new > missing

    @property
    def rank(self) -> tuple[int, int, int]:
        """The better fit has the higher rank."""
        missing = len(self.prediction.missing)
        return self.new - missing, -missing, len(self.prediction.instances)

    def is_like(self, other: _Fit) -> bool:
        """Return True if it explains the same."""
        one, another = self.prediction, other.prediction
        return one.instances == another.instances and len(one.missing) == len(another.missing)


def _name_defects(
    found: Sequence[_Failure],
    unexplained: frozenset[_Instance],
    applied: Mapping[str, frozenset[_Judged]],
    known: Mapping[str, Signature],
) -> list[_Named]:
    """Return the defects that explain the failures. Those that explain them equally well are together."""
    predictions = list(_predictions(found, applied, known))
    named = list[_Named]()
    shown = set[tuple[str, str]]()
    """The scenarios and steps in which a named defect shows."""
    while True:
        fits = [_fit(one, unexplained, shown) for one in predictions]
        best = max((fit for fit in fits if fit.is_good), key=lambda fit: fit.rank, default=None)
        if best is None:
            return named
        seen = best.prediction.instances
        alike = (fit.prediction.defect for fit in fits if fit.is_like(best))
        named.append(_Named(tuple(dict.fromkeys((best.prediction.defect, *alike))), seen))
        unexplained -= seen
        shown.update((key.scenario, key.step) for _, key in seen)


def _fit(one: _Prediction, unexplained: frozenset[_Instance], shown: set[tuple[str, str]]) -> _Fit:
    new = {key for _, key in one.instances & unexplained}
    # a failure of a whole series has no step: that of another one does not hide it
    unhidden = sum(not key.step or (key.scenario, key.step) not in shown for key in one.missing)
    return _Fit(one, len(new), unhidden)


def _add_consequences(
    failures: frozenset[_Instance],
    named: list[_Named],
    owners: dict[_Instance, list[_Named]],
    known: Mapping[str, Signature],
) -> None:
    """Add the failures of step 3 to `owners`."""
    kinds: dict[_Kind, list[_Named]] = defaultdict(list)
    steps: dict[tuple[str, str], list[tuple[_Named, str]]] = defaultdict(list)
    for one in named:
        for kind in {(failure.check, failure.message) for level in known[one.defects[0]].values() for failure in level}:
            kinds[kind].append(one)
        for _, failure in one.seen:
            steps[failure.scenario, failure.step].append((one, failure.check))
    for instance in failures - owners.keys():
        api, failure = instance
        alike = kinds[failure.check, failure.message]
        together = (one for one, check in steps[failure.scenario, failure.step] if _accompany(failure.check, check))
        possible = (one for one in chain(alike, together) if _can_show(one.defects[0], api))
        if owner := next(possible, None):
            owners[instance] = [owner]


def _can_show(defect: str, api: str) -> bool:
    own = _own_apis(defect)
    return not own or api in own


def _group(failures: frozenset[FailureKey]) -> Mapping[FailureKey, _Kind]:
    """Return the commonest kind in the group of each failure."""
    scenarios: dict[_Kind, set[str]] = defaultdict(set)
    for failure in failures:
        scenarios[failure.check, failure.message].add(f"{failure.scenario}/{failure.step}")
    group: dict[_Kind, _Kind] = {}
    for kind in sorted(scenarios, key=lambda one: (-len(scenarios[one]), one)):
        joined = (
            group[other]
            for other in group
            if (kind[0] == other[0] or _accompany(kind[0], other[0]))
            and len(scenarios[kind] & scenarios[other])
            >= _LEAST_OVERLAP * min(len(scenarios[kind]), len(scenarios[other]))
        )
        group[kind] = next(joined, kind)
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


def _cause(owner: _Owner, failures: list[_Failure], sizes: Mapping[str, int]) -> Cause:
    defects: tuple[str, ...] = ()
    known: tuple[KnownCause, ...] = ()
    match owner:
        case KnownCause():
            name, known, typical = owner.id, (owner,), failures
        case _Named():
            name, defects, known = owner.defects[0], owner.defects, known_causes(owner.defects)
            typical = [failure for failure in failures if failure.instance in owner.seen]
        case (name, message):
            typical = [each for each in failures if (each.key.check, each.key.message) == (name, message)]
    example = min(typical, key=lambda each: _difficulty(each, sizes))
    results = {id(each.result): each.result for each in (example, *failures)}
    first, *others = results.values()
    others.sort(key=lambda result: result.severity is not Severity.MUST)
    return Cause(
        id=name,
        sentence=_sentence(owner, example.finding),
        defects=defects,
        known=known,
        results=(first, *others),
        severity=(owner.severity if isinstance(owner, KnownCause) else None)
        or min((each.severity for each in failures), key=lambda one: one is not Severity.MUST),
        example=example.finding,
    )


def _difficulty(failure: _Failure, sizes: Mapping[str, int]) -> tuple[bool, bool, int]:
    """Return a key that puts the failure first that shows the fault best: not of odd texts, such as an empty one, and small."""
    is_odd = failure.result.scenario.startswith(_ODD)
    return failure.severity is not Severity.MUST, is_odd, sizes.get(failure.finding.exchange, 0)


def _sentence(owner: _Owner, example: Finding) -> str:
    match owner:
        case KnownCause():
            return owner.sentence
        case _Named():
            return DEFECTS[owner.defects[0]].summary
        case _:
            return str(example.message)
