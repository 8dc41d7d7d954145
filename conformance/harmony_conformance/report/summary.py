"""What every rendering of a report says: what was tested, what came of it, and the results check by check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from harmony_conformance.checks import CHECKS, FAMILIES
from harmony_conformance.json_value import Json, JsonObject, at, canonical, items, members, number, text
from harmony_conformance.judge.check import Check, Comparison, Outcome, Severity
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.report.model import ORDER, WORDS, Report, ResultLine
from harmony_conformance.report.text_excerpt import LIMIT, Pieces, contrast, cut

WORST_FIRST = (
    Outcome.ERROR,
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.VARIANT,
    Outcome.PASS,
    Outcome.NOT_APPLICABLE,
)
MUST_FAILS = frozenset({Severity.MUST})

_RULES: Mapping[str, Check | Comparison] = MappingProxyType({rule.id: rule for rule in CHECKS})
_FAMILIES = MappingProxyType({family.__name__.rpartition(".")[2]: family.__doc__ or "" for family in FAMILIES})
_FORMS_SHOWN = 2
_PROMPT = MappingProxyType(
    {
        "ids": "the token ids of this very generation",
        "rendered": "a rendering by a side endpoint",
        "accounting": "the number of its tokens",
        "none": "none: it shows in the model's behaviour only",
    }
)


class Standing(StrEnum):
    """What a run comes to."""

    CONFORMS = "conforms"
    NOT_ALL_CHECKED = "no failure found"
    ONLY_IGNORED_FAILURES = "no failure that counts found"
    DIVERGES = "does not conform"
    UNCHECKED = "nothing could be checked"
    OUR_ERROR = "error of the suite"


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """The standing, one sentence on what it rests on, and how many results are inconclusive."""

    standing: Standing
    sentence: str
    inconclusive: int = 0

    @property
    def headline(self) -> str:
        """The standing in words that promise no more than was checked."""
        if not self.inconclusive:
            return self.standing.value
        return f"{self.standing.value}, {_number(self.inconclusive, 'result')} inconclusive"


@dataclass(frozen=True, kw_only=True)
class CheckResults:
    """All results of one check."""

    check: str
    results: tuple[ResultLine, ...]

    @property
    def family(self) -> str:
        """The family it belongs to."""
        return self.check.partition(".")[0]

    @property
    def severity(self) -> Severity:
        """Its severity."""
        return self.results[0].severity

    @cached_property
    def counts(self) -> Counter[Outcome]:
        """How many scenarios ended how."""
        return Counter(result.outcome for result in self.results)

    @property
    def outcome(self) -> Outcome:
        """The worst of its outcomes."""
        return next(outcome for outcome in WORST_FIRST if self.counts[outcome])

    @property
    def requirement(self) -> str:
        """What it demands, in a sentence; empty for a check that this version does not have."""
        rule = _RULES.get(self.check)
        return rule.requirement if rule is not None else ""

    @property
    def reason(self) -> str:
        """Why it matters."""
        rule = _RULES.get(self.check)
        return rule.reason if rule is not None else ""

    @property
    def clause(self) -> Clause:
        """What it cites. A clause that this version does not have is told by its id."""
        cited = self.results[0]
        return CLAUSES.get(cited.spec) or Clause(id=cited.spec, quotation=cited.quotation, source=cited.spec)

    @property
    def applied(self) -> int:
        """To how many scenarios it applied."""
        return sum(result.applied > 0 for result in self.results)

    def with_outcome(self, outcome: Outcome) -> tuple[ResultLine, ...]:
        """The results that ended so."""
        return tuple(result for result in self.results if result.outcome is outcome)

    def tally(self) -> str:
        """Outcomes counted, without those that did not apply; else the reason why none did."""
        counts = self.counts
        told = ", ".join(
            f"{counts[outcome]} {WORDS[outcome]}"
            for outcome in ORDER
            if counts[outcome] and outcome is not Outcome.NOT_APPLICABLE
        )
        return told or commonest(result.reason for result in self.results)


def by_check(report: Report) -> tuple[CheckResults, ...]:
    """The results of each check, in the report's order."""
    grouped: dict[str, list[ResultLine]] = {}
    for result in report.results:
        grouped.setdefault(result.check, []).append(result)
    return tuple(CheckResults(check=check, results=tuple(results)) for check, results in grouped.items())


def with_outcome(checks: Iterable[CheckResults], outcome: Outcome) -> list[CheckResults]:
    """Return the checks with a result of this outcome."""
    return [check for check in checks if check.counts[outcome]]


def failed_checks(checks: Iterable[CheckResults]) -> list[CheckResults]:
    """Return the checks that failed, those of severity MUST first."""
    return sorted(with_outcome(checks, Outcome.FAIL), key=lambda check: check.severity is not Severity.MUST)


def by_family(checks: Iterable[CheckResults]) -> dict[str, list[CheckResults]]:
    """The checks of each family, in the order in which families are listed; unknown ones last."""
    grouped: dict[str, list[CheckResults]] = {}
    for check in checks:
        grouped.setdefault(check.family, []).append(check)
    known = [family for family in _FAMILIES if family in grouped]
    return {family: grouped[family] for family in (*known, *(family for family in grouped if family not in _FAMILIES))}


def family_about(family: str) -> str:
    """What a family of checks is about, in a sentence."""
    said = _FAMILIES.get(family, "").partition("\n")[0].partition(": ")[2]
    return said[:1].upper() + said[1:]


def judged(report: Report, fails_on: frozenset[Severity] = MUST_FAILS) -> RunVerdict:
    """What the run comes to when failures of these severities count."""
    checks = by_check(report)
    applied = [check for check in checks if check.applied]
    must = [check for check in applied if check.severity is Severity.MUST]
    failed = with_outcome(checks, Outcome.FAIL)
    counted = [check for check in failed if check.severity in fails_on]
    beside = _failed(failed, counted, len(applied))
    if wrong := report.counts[Outcome.ERROR]:
        sentence = f"{_number(wrong, 'result')} ended in an error of this suite: what they would have said is not known. {beside}"
        return RunVerdict(standing=Standing.OUR_ERROR, sentence=sentence)
    if counted:
        return RunVerdict(standing=Standing.DIVERGES, sentence=beside)
    if not must:
        return RunVerdict(standing=Standing.UNCHECKED, sentence="Not one MUST check could be applied.")
    if inconclusive := report.counts[Outcome.INCONCLUSIVE]:
        standing = Standing.ONLY_IGNORED_FAILURES if failed else Standing.NOT_ALL_CHECKED
        return RunVerdict(standing=standing, sentence=beside, inconclusive=inconclusive)
    return RunVerdict(standing=Standing.CONFORMS, sentence=beside)


def _failed(failed: list[CheckResults], counted: list[CheckResults], applied: int) -> str:
    """Which checks failed, those that count apart from the others."""
    if not failed:
        return f"None of the {_number(applied, 'check')} that applied failed."
    others = [check for check in failed if check not in counted]
    told = (_by_severity(counted, "failed"), _by_severity(others, "failed without counting"))
    return f"{', '.join(filter(None, told))}; {_number(applied, 'check')} applied."


def _by_severity(checks: list[CheckResults], how: str) -> str:
    counts = Counter(check.severity for check in checks)
    told = " and ".join(
        _number(counts[severity], f"{severity.value.upper()} check") for severity in Severity if counts[severity]
    )
    return f"{told} {how}" if told else ""


def title(report: Report) -> str:
    """The model and where it runs, in a few words."""
    target = at(report.header, "target")
    model = text(at(target, "model"))
    engine = " ".join(filter(None, (text(at(target, "engine")), text(at(target, "engine_version")))))
    return f"{model} on {engine}" if model and engine else model or engine or "unknown endpoint"


def facts(report: Report) -> tuple[tuple[str, str], ...]:
    """What was tested, how, and on what evidence: names and values."""
    header = report.header
    found = at(header, "capabilities")
    seed = at(header, "seed")
    told = (
        ("Engine", " ".join(filter(None, (_target(header, "engine"), _target(header, "engine_version"))))),
        ("Model", _target(header, "model")),
        ("Host", _target(header, "url_host")),
        ("Prompt seen by", _prompt(found)),
        ("Prompts rendered as", _renderer(at(header, "renderer"))),
        ("Model output", _output(found)),
        ("Not found out", "; ".join(f"{api}: {text(why)}" for api, why in members(at(found, "unknown")).items())),
        ("Tries", _plain(at(header, "tries"))),
        ("Seed", _plain(seed) if seed is not None else "none sent"),
        ("Started", text(at(header, "started"))),
        ("Suite", f"harmony-conformance {text(at(header, 'version'))}".strip()),
    )
    return tuple((name, value) for name, value in told if value)


def _target(header: JsonObject, name: str) -> str:
    return text(at(header, "target", name))


def _prompt(found: Json) -> str:
    level, source = text(at(found, "prompt")), text(at(found, "prompt_source"))
    told = _PROMPT.get(level, level)
    return f"{told} ({source})" if told and source else told


def _renderer(found: Json) -> str:
    """The forms that fit, on how many prompts, and what every prompt has besides."""
    forms = [text(form) for form in items(at(found, "forms"))]
    if not forms:
        return ""
    named = " or ".join(forms[:_FORMS_SHOWN]) + (" …" if len(forms) > _FORMS_SHOWN else "")
    fitting, looked_at = number(at(found, "fitting")) or 0, number(at(found, "prompts")) or 0
    by = "counts" if text(at(found, "evidence")) == "accounting" else "prompts"
    preamble = number(at(found, "preamble"))
    besides = f", and {preamble:+} tokens in each" if preamble else ""
    return f"{named} ({fitting} of {looked_at} {by}){besides}"


def _output(found: Json) -> str:
    match text(at(found, "script")):
        case "":
            return ""
        case "none":
            return "the model's own"
        case way:
            return f"scripted by the suite, token by token ({way})"


def _plain(value: Json) -> str:
    return "" if value is None else str(value)


def failures(result: ResultLine) -> list[JsonObject]:
    """The findings of a result that are failures."""
    return [finding for finding in result.findings if text(at(finding, "verdict")) == "fail"]


Place = tuple[str, str]
"""An exchange, and where in it."""


def grouped(findings: Iterable[JsonObject]) -> list[tuple[JsonObject, list[Place]]]:
    """Findings that say the same as one, with all the places where it was found."""
    found: dict[str, tuple[JsonObject, list[Place]]] = {}
    for finding in findings:
        said = {name: value for name, value in finding.items() if name not in ("exchange", "at")}
        places = found.setdefault(canonical(said), (finding, []))[1]
        places.append((text(at(finding, "exchange")), text(at(finding, "at"))))
    return list(found.values())


def place_of(result: ResultLine) -> str:
    """Return the scenario of a result, with its API where that is not Chat Completions."""
    return result.scenario if result.api == "chat" else f"{result.scenario} ({result.api})"


def reasons(check: CheckResults, outcome: Outcome) -> dict[str, list[str]]:
    """Group the scenarios of a check that ended so by the reason."""
    grouped: dict[str, list[str]] = {}
    for result in check.with_outcome(outcome):
        grouped.setdefault(result.reason, []).append(place_of(result))
    return grouped


def sides(finding: JsonObject, limit: int = LIMIT) -> list[tuple[str, Pieces]]:
    """Return the expected and the actual text of a finding by name, with what differs marked where it has both."""
    expected, actual = at(finding, "expected"), at(finding, "actual")
    if isinstance(expected, str) and isinstance(actual, str):
        return list(zip(("expected", "actual"), contrast(expected, actual, limit), strict=True))
    return [(name, cut(value, limit)) for name in ("expected", "actual") if isinstance(value := at(finding, name), str)]


def variants(report: Report) -> Counter[tuple[str, str]]:
    """How often each legitimate difference was seen: check and message."""
    return Counter(
        (result.check, text(at(finding, "message")))
        for result in report.results
        for finding in result.findings
        if text(at(finding, "verdict")) == "variant"
    )


def never_applied(checks: Iterable[CheckResults]) -> dict[str, list[str]]:
    """Checks that applied to nothing, by the reason given most often."""
    grouped: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome is Outcome.NOT_APPLICABLE:
            grouped.setdefault(commonest(result.reason for result in check.results), []).append(check.check)
    return grouped


def commonest(reasons: Iterable[str]) -> str:
    """The reason given most often."""
    counted = Counter(reasons).most_common(1)
    return counted[0][0] if counted else ""


def case_name(result: ResultLine) -> str:
    """What a result is called beside other results: check, scenario, and the API where it is not Chat Completions."""
    api = "" if result.api == "chat" else f"/{result.api}"
    return f"{result.check}[{result.scenario}{api}]"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
