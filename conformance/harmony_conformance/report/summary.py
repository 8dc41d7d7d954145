"""Content shared by all renderings of a report: facts about the run, verdict, results by check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType

from harmony_conformance.checks import FAMILIES
from harmony_conformance.json_value import Json, JsonObject, canonical_json, integer, items, members, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.plugins.registry import find_check
from harmony_conformance.report.model import Report, ResultLine, count_applied
from harmony_conformance.report.plugins_used import describe_plugins, has_only_plugin_errors
from harmony_conformance.report.text_excerpt import LIMIT, Pieces, contrast, cut
from harmony_conformance.runtime.plural import number_of

WORST_FIRST = (
    Outcome.ERROR,
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.VARIANT,
    Outcome.PASS,
    Outcome.NOT_APPLICABLE,
)
DEFAULT_FAILS_ON = frozenset({Severity.MUST})

_FAMILIES = MappingProxyType({family.__name__.rpartition(".")[2]: family.__doc__ or "" for family in FAMILIES})
_FORMS_SHOWN = 2
_PROMPT_EVIDENCE = MappingProxyType(
    {
        "ids": "token ids of the same generation",
        "rendered": "rendering by a separate endpoint",
        "accounting": "token counts",
        "none": "none: only the model's behaviour",
    }
)
_SERVER_FOR_SCRIPTS = MappingProxyType(
    {
        "reference": "harmony-conformance serve",
        "vllm": "vllm serve MODEL --logits-processors harmony_conformance.vllm_script:ScriptedLogits; without it, the model answers in its own words",
        "derender": "vllm launch render MODEL",
        "teleprompter": "the checkpoint of `harmony-conformance teleprompter build`; other models see a message of digits and answer in their own words",
    }
)
"""The server that plays the scripts in printed commands, by script method."""


class Standing(StrEnum):
    """Headlines of a verdict."""

    CONFORMS = "conforms"
    NOT_ALL_CHECKED = "no failure found"
    ONLY_IGNORED_FAILURES = "no failure at the selected severity"
    ONLY_EXPECTED_FAILURES = "no failure beyond the baseline"
    STALE_BASELINE = "no failure beyond the baseline, which has stale entries"
    DIVERGES = "does not conform"
    UNCHECKED = "nothing could be checked"
    OUR_ERROR = "internal error of the suite"
    PLUGIN_ERROR = "error of a plug-in"


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """Verdict on a run: its standing, one sentence with counts, and the number of inconclusive results."""

    standing: Standing
    sentence: str
    inconclusive: int = 0

    @property
    def headline(self) -> str:
        """The standing, with the number of inconclusive results if there are any."""
        inconclusive = f", {number_of(self.inconclusive, 'result')} inconclusive" if self.inconclusive else ""
        return f"{self.standing.value}{inconclusive}"


@dataclass(frozen=True, kw_only=True)
class CheckResults:
    """All results of one check."""

    check: str
    results: tuple[ResultLine, ...]

    @property
    def family(self) -> str:
        """The family of the check."""
        return self.check.partition(".")[0]

    @property
    def severity(self) -> Severity:
        """The severity of the check; of one that failed, the highest severity of its failures."""
        severities = {result.severity for result in self.with_outcome(Outcome.FAIL) or self.results[:1]}
        return Severity.MUST if Severity.MUST in severities else Severity.SHOULD

    @cached_property
    def counts(self) -> Counter[Outcome]:
        """Number of scenarios by outcome."""
        return Counter(result.outcome for result in self.results)

    @property
    def outcome(self) -> Outcome:
        """The worst outcome."""
        return next(outcome for outcome in WORST_FIRST if self.counts[outcome])

    @property
    def requirement(self) -> str:
        """The requirement, in a sentence. Empty for a check that this version does not have."""
        rule = find_check(self.check)
        return rule.requirement if rule is not None else ""

    @property
    def reason(self) -> str:
        """Explanation of the requirement. Empty for a check that this version does not have."""
        rule = find_check(self.check)
        return rule.reason if rule is not None else ""

    @property
    def clause(self) -> Clause:
        """The cited clause: that of the check if a result cites it, else that of the first result."""
        rule = find_check(self.check)
        is_cited = rule is not None and any(result.spec == rule.clause.id for result in self.results)
        return (
            rule.clause if rule is not None and is_cited else _clause(self.results[0].spec, self.results[0].quotation)
        )

    @property
    def applied(self) -> int:
        """Number of scenarios to which the check applied."""
        return sum(result.applied > 0 for result in self.results)

    def with_outcome(self, outcome: Outcome) -> tuple[ResultLine, ...]:
        """Return the results with this outcome."""
        return tuple(result for result in self.results if result.outcome is outcome)

    def tally(self) -> str:
        """Return the counts of outcomes except "not applicable", or the commonest reason if the check never applied."""
        return count_applied(self.counts) or commonest(result.reason for result in self.results)


def by_check(report: Report) -> tuple[CheckResults, ...]:
    """Return the results of each check, in the report's order."""
    return _checks_of(report.results)


def _checks_of(lines: Iterable[ResultLine]) -> tuple[CheckResults, ...]:
    results: dict[str, list[ResultLine]] = {}
    for result in lines:
        results.setdefault(result.check, []).append(result)
    return tuple(CheckResults(check=check, results=tuple(of_check)) for check, of_check in results.items())


def with_outcome(checks: Iterable[CheckResults], outcome: Outcome) -> list[CheckResults]:
    """Return the checks with a result of this outcome."""
    return [check for check in checks if check.counts[outcome]]


def failed_checks(checks: Iterable[CheckResults]) -> list[CheckResults]:
    """Return the checks that failed, those of severity MUST first."""
    return sorted(with_outcome(checks, Outcome.FAIL), key=lambda check: check.severity is not Severity.MUST)


def by_family(checks: Iterable[CheckResults]) -> dict[str, list[CheckResults]]:
    """Return the checks of each family, in the order of `FAMILIES`; unknown families last."""
    families: dict[str, list[CheckResults]] = {family: [] for family in _FAMILIES}
    for check in checks:
        families.setdefault(check.family, []).append(check)
    return {family: members for family, members in families.items() if members}


def family_about(family: str) -> str:
    """Return the topic of a family of checks, in a sentence."""
    topic = _FAMILIES.get(family, "").partition("\n")[0].partition(": ")[2]
    return topic[:1].upper() + topic[1:]


def run_verdict(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> RunVerdict:
    """Return the verdict on a run if only failures of the severities in `fails_on` count, and none that a baseline expects."""
    applied = [check for check in by_check(report) if check.applied]
    failing = [result for result in report.results if result.outcome is Outcome.FAIL]
    failed = _checks_of(result for result in failing if result.name not in report.expected)
    expected = _checks_of(result for result in failing if result.name in report.expected)
    counted = [check for check in failed if check.severity in fails_on]
    ignored = [check for check in failed if check not in counted]
    sentence = f"None of the {number_of(len(applied), 'check')} that applied failed."
    if failing:
        parts = (
            _count_by_severity(counted, "failed"),
            _count_by_severity(ignored, "failed (ignored by --fail-on)"),
            _count_by_severity(expected, "failed as the baseline expects"),
        )
        sentence = f"{', '.join(filter(None, parts))}; {number_of(len(applied), 'check')} applied."
    if errors := report.counts[Outcome.ERROR]:
        is_own = has_only_plugin_errors(report)
        source = "an error of a plug-in" if is_own else "an internal error of this suite"
        sentence = f"{number_of(errors, 'result')} unknown because of {source}. {sentence}"
        return RunVerdict(standing=Standing.PLUGIN_ERROR if is_own else Standing.OUR_ERROR, sentence=sentence)
    if missing := items(value_at(report.header, "missing_features")):
        sentence = f"No answer had {' or '.join(map(text, missing))} (--require). {sentence}"
    if stale := items(value_at(report.header, "baseline", "stale")):
        sentence = f"Stale in the baseline, because nothing fails: {'; '.join(map(text, stale))}. {sentence}"
    if counted or missing:
        return RunVerdict(standing=Standing.DIVERGES, sentence=sentence)
    if stale:
        return RunVerdict(standing=Standing.STALE_BASELINE, sentence=sentence)
    if not any(check.severity is Severity.MUST for check in applied):
        return RunVerdict(standing=Standing.UNCHECKED, sentence="No MUST check was applicable.")
    inconclusive = report.counts[Outcome.INCONCLUSIVE]
    is_open = inconclusive or value_at(report.header, "incomplete")
    if ignored and (is_open or expected):
        standing = Standing.ONLY_IGNORED_FAILURES
    elif expected:
        standing = Standing.ONLY_EXPECTED_FAILURES
    else:
        standing = Standing.NOT_ALL_CHECKED if is_open else Standing.CONFORMS
    return RunVerdict(standing=standing, sentence=sentence, inconclusive=inconclusive)


def gate_failures(report: Report) -> tuple[tuple[str, str], ...]:
    """Return why a run fails apart from its results: the name and the sentence of each missing feature and each stale entry of the baseline."""
    missing = map(text, items(value_at(report.header, "missing_features")))
    stale = map(text, items(value_at(report.header, "baseline", "stale")))
    return (
        *((f"require {name}", f"No answer had {name} (--require).") for name in missing),
        *((f"baseline {entry}", f"Stale entry of the baseline: {entry} explains no failure.") for entry in stale),
    )


def _count_by_severity(checks: Sequence[CheckResults], suffix: str) -> str:
    counts = Counter(check.severity for check in checks)
    parts = [
        number_of(counts[severity], f"{severity.value.upper()} check") for severity in Severity if counts[severity]
    ]
    return f"{' and '.join(parts)} {suffix}" if parts else ""


def title(report: Report) -> str:
    """Return the model and its engine, for example "gpt-oss-20b on vllm 0.11.0"."""
    target = value_at(report.header, "target")
    model = text(value_at(target, "model"))
    engine = " ".join(filter(None, (text(value_at(target, "engine")), text(value_at(target, "engine_version")))))
    return f"{model} on {engine}" if model and engine else model or engine or "unknown endpoint"


def facts(report: Report) -> tuple[tuple[str, str], ...]:
    """Return names and values of the run's facts: endpoint, evidence, options."""
    header = report.header
    target, capabilities = value_at(header, "target"), value_at(header, "capabilities")
    tries, seed = value_at(header, "tries"), value_at(header, "seed")
    unknown = members(value_at(capabilities, "unknown")).items()
    values = (
        (
            "Engine",
            " ".join(filter(None, (text(value_at(target, "engine")), text(value_at(target, "engine_version"))))),
        ),
        ("Model", text(value_at(target, "model"))),
        ("Host", text(value_at(target, "url_host"))),
        ("Prompt evidence", _prompt_evidence(capabilities)),
        ("Prompts rendered as", _renderer(value_at(header, "renderer"))),
        ("Model output", _output(capabilities)),
        ("Unknown capabilities", "; ".join(f"{api}: {text(reason)}" for api, reason in unknown)),
        ("Reproduce with", _SERVER_FOR_SCRIPTS.get(text(value_at(capabilities, "script")), "")),
        ("Tries", "" if tries is None else str(tries)),
        ("Seed", "none sent" if seed is None else str(seed)),
        ("In no answer", ", ".join(map(text, items(value_at(header, "features", "never"))))),
        ("Incomplete", text(value_at(header, "incomplete"))),
        ("Started", text(value_at(header, "started"))),
        ("Plug-ins", describe_plugins(header)),
        ("Suite", f"harmony-conformance {text(value_at(header, 'version'))}".strip()),
    )
    return tuple((name, value) for name, value in values if value)


def _prompt_evidence(capabilities: Json) -> str:
    level, source = text(value_at(capabilities, "prompt")), text(value_at(capabilities, "prompt_source"))
    evidence = _PROMPT_EVIDENCE.get(level, level)
    return f"{evidence} ({source})" if evidence and source else evidence


def _renderer(renderer: Json) -> str:
    """Return the matching forms, the number of matching prompts, and the tokens that precede every prompt."""
    forms = [text(form) for form in items(value_at(renderer, "forms"))]
    if not forms:
        return ""
    names = " or ".join(forms[:_FORMS_SHOWN]) + (" …" if len(forms) > _FORMS_SHOWN else "")
    fitting, total = integer(value_at(renderer, "fitting")) or 0, integer(value_at(renderer, "prompts")) or 0
    unit = "count" if text(value_at(renderer, "evidence")) == "accounting" else "prompt"
    preamble = integer(value_at(renderer, "preamble"))
    return f"{names} ({fitting} of {number_of(total, unit)})" + (
        f", and {preamble:+} {'token' if abs(preamble) == 1 else 'tokens'} in each" if preamble else ""
    )


def _output(capabilities: Json) -> str:
    match text(value_at(capabilities, "script")):
        case "":
            return ""
        case "none":
            return "the model's own"
        case method:
            return f"scripted by the suite, token by token ({method})"


def failures(result: ResultLine) -> list[JsonObject]:
    """Return the failures among the findings of a result."""
    return [finding for finding in result.findings if text(value_at(finding, "verdict")) == "fail"]


FindingLocation = tuple[str, str]
"""The id of an exchange, and a location in it."""


def grouped(findings: Iterable[JsonObject]) -> list[tuple[JsonObject, list[FindingLocation]]]:
    """Return the distinct findings, each with all its places."""
    groups: dict[str, tuple[JsonObject, list[FindingLocation]]] = {}
    for finding in findings:
        content = {name: value for name, value in finding.items() if name not in ("exchange", "at")}
        places = groups.setdefault(canonical_json(content), (finding, []))[1]
        places.append((text(value_at(finding, "exchange")), text(value_at(finding, "at"))))
    return list(groups.values())


def place_of(result: ResultLine) -> str:
    """Return the scenario of a result, with its API unless that is Chat Completions."""
    return result.scenario if result.api == "chat" else f"{result.scenario} ({result.api})"


def reasons(check: CheckResults, outcome: Outcome) -> dict[str, list[str]]:
    """Return the scenarios of a check with this outcome, by reason."""
    scenarios: dict[str, list[str]] = {}
    for result in check.with_outcome(outcome):
        scenarios.setdefault(result.reason, []).append(place_of(result))
    return scenarios


def ruling_note(finding: JsonObject) -> str:
    """Return the severity of a finding if a ruling settles it, and the subject of the ruling; else nothing."""
    ruling = text(value_at(finding, "ruling"))
    return f"{text(value_at(finding, 'severity')).upper()}, by a ruling of CHECKS.md: {ruling}" if ruling else ""


def own_clause(finding: JsonObject, result: ResultLine, shown: Clause) -> Clause | None:
    """Return the clause of a failure if it is another one than the clause that its page shows."""
    own, quotation = text(value_at(finding, "spec")), text(value_at(finding, "quotation"))
    clause = _clause(own, quotation) if own else _clause(result.spec, result.quotation)
    return None if clause.id == shown.id else clause


def _clause(name: str, quotation: str) -> Clause:
    """Return a clause. One that this version does not have gets its id as source."""
    return CLAUSES.get(name) or Clause(id=name, quotation=quotation, source=name)


def sides(finding: JsonObject, limit: int = LIMIT) -> list[tuple[str, Pieces]]:
    """Return the expected and the actual text of a finding by name. If it has both, differences are marked."""
    texts = {name: value for name in ("expected", "actual") if isinstance(value := value_at(finding, name), str)}
    if len(texts) > 1:
        return list(zip(texts, contrast(texts["expected"], texts["actual"], limit), strict=True))
    return [(name, cut(value, limit)) for name, value in texts.items()]


def variants(report: Report) -> Counter[tuple[str, str]]:
    """Return the number of occurrences of each variant, by check and message."""
    return Counter(
        (result.check, text(value_at(finding, "message")))
        for result in report.results
        for finding in result.findings
        if text(value_at(finding, "verdict")) == "variant"
    )


def never_applied(checks: Iterable[CheckResults]) -> dict[str, list[str]]:
    """Return the checks that never applied, by their commonest reason."""
    ids: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome is Outcome.NOT_APPLICABLE:
            ids.setdefault(commonest(result.reason for result in check.results), []).append(check.check)
    return ids


def commonest(reasons: Iterable[str]) -> str:
    """Return the commonest reason, or an empty text."""
    return max(Counter(reasons).items(), key=itemgetter(1), default=("", 0))[0]


def case_name(result: ResultLine) -> str:
    """Return the unique name of a result: check, scenario, and the API unless that is Chat Completions."""
    api = "" if result.api == "chat" else f"/{result.api}"
    return f"{result.check}[{result.scenario}{api}]"
