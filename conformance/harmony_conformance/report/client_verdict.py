"""The verdict on a server for one client: the result of each of its needs, and the settings that avoid a loss."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from harmony_conformance.apis.registry import APIS
from harmony_conformance.golden.clients import ClientProfile, Need
from harmony_conformance.json_value import JsonObject, members, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.client_rows import CLIENT, NeedState
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.runtime.plural import number_of


@dataclass(frozen=True, kw_only=True)
class NeedResult:
    """The results of one need. `detail`: the first failure, or the reason why nothing is known."""

    need: Need
    state: NeedState
    passed: int
    judged: int
    failed_checks: tuple[str, ...]
    detail: str

    def to_json(self) -> JsonObject:
        """Return the JSON form; `remedy` only for a need that fails."""
        remedy = self.need.remedy if self.state is NeedState.FAILS else ""
        return {
            "need": self.need.name,
            "state": self.state.value,
            "passed": self.passed,
            "judged": self.judged,
            **({"failed_checks": [*self.failed_checks]} if self.failed_checks else {}),
            **({"detail": self.detail} if self.detail else {}),
            **({"remedy": remedy} if remedy else {}),
        }


def with_client(report: Report, profile: ClientProfile, fails_on: frozenset[Severity]) -> Report:
    """Return the report with the verdict for a client in its header."""
    results = [_need_result(need, report, profile.api, fails_on) for need in profile.needs]
    verdict: JsonObject = {
        "name": profile.name,
        "title": profile.title,
        "verdict": _verdict(profile, results, report),
        "needs": [result.to_json() for result in results],
    }
    return replace(report, header={**report.header, CLIENT: verdict})


def _need_result(need: Need, report: Report, api: str, fails_on: frozenset[Severity]) -> NeedResult:
    results = [one for one in report.results if one.api == api and need.covers(one.check, one.scenario)]
    counts = Counter(one.outcome for one in results)
    failed = [one for one in results if one.outcome is Outcome.FAIL and one.severity in fails_on]
    passed = counts[Outcome.PASS] + counts[Outcome.VARIANT]
    state = NeedState.FAILS if failed else NeedState.WORKS if passed else NeedState.UNKNOWN
    return NeedResult(
        need=need,
        state=state,
        passed=passed,
        judged=passed + counts[Outcome.FAIL],
        failed_checks=tuple(dict.fromkeys(one.check for one in failed)),
        detail="" if state is NeedState.WORKS else _detail(failed or results),
    )


def _detail(results: list[ResultLine]) -> str:
    """Return the message of the first failure, else the reason of an inconclusive result, else another reason."""
    failures = (text(value_at(finding, "message")) for one in results for finding in one.findings)
    reasons = (
        one.reason for outcome in (Outcome.ERROR, Outcome.INCONCLUSIVE) for one in results if one.outcome is outcome
    )
    others = (one.reason for one in results)
    return next((one for texts in (failures, reasons, others) for one in texts if one), "no request was sent")


def _verdict(profile: ClientProfile, results: list[NeedResult], report: Report) -> str:
    lost = [result.need.loss for result in results if result.state is NeedState.FAILS]
    if lost:
        return f"{profile.title} {', '.join(lost[:-1])}{' and ' if lost[1:] else ''}{lost[-1]} on this server."
    support = members(value_at(report.header, "capabilities", "apis", profile.api))
    if support.get("offered") is False:
        return f"{profile.title} cannot use this server: it does not offer {APIS[profile.api].title}."
    if "offered" in support and support["offered"] is None:
        why = f"it is unknown whether it offers {APIS[profile.api].title} ({text(support.get('reason'))})"
        return f"Nothing is known about {profile.title} on this server: {why}."
    unknown = sum(result.state is NeedState.UNKNOWN for result in results)
    if unknown == len(results):
        return (
            f"Nothing is known about {profile.title} on this server: none of its {len(results)} needs could be judged."
        )
    if unknown:
        return f"{profile.title} loses nothing that could be judged on this server; {number_of(unknown, 'need')} of {len(results)} could not be."
    return f"{profile.title} can work with this server: all of its {len(results)} needs are met."
