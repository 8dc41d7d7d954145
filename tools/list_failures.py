"""Print the failures of the stored reports in groups, each with its exchange, so that a reader can judge them.

    python tools/list_failures.py [--brief] [--sample COUNT --seed SEED] [--instances COUNT] [REPORT ...]

A group has the failing findings of a report with the same check, known cause and message, numbers aside. An instance is printed with the request,
the scripted output, the answer, the expected and the actual value, and the clause. Where its command sends another request, the difference follows.
"""

from __future__ import annotations

import lzma
import random
import re
import sys
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.causes.known import KnownCause, causes_of_version
from harmony_conformance.causes.signatures import step_of
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import drop_unproven_stream_scripts
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.recording_file import read_recording
from harmony_conformance.json_value import JsonObject, items, loads, members, text, value_at
from harmony_ref import decode

REPORTS = Path(__file__).parents[1] / "reports"
_LENGTHS = {"request": 560, "script": 300, "answer": 700, "prompt": 400}
_PADDING = re.compile(r"(?:70[0-9]){12,}")
"""The end of the text that gives the teleprompter its script."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failing finding, its result, and its known cause."""

    report: str
    result: JsonObject
    finding: JsonObject
    cause: str

    @property
    def severity(self) -> str:
        """The severity of the finding: that of its ruling, else that of the result."""
        return text(self.finding.get("severity") or self.result.get("severity"))

    @property
    def group(self) -> tuple[str, str, str, str]:
        """The key of its group."""
        message = re.sub(r"\d+", "#", text(self.finding.get("message")))
        return self.report, text(self.result.get("check")), self.cause, message


def failures(report: str) -> Iterator[Failure]:
    """Yield the failing findings of a stored report."""
    known: tuple[KnownCause, ...] = ()
    for row in _rows(report):
        if row.get("kind") == "header":
            engine, version = (text(value_at(row, "target", name)) for name in ("engine", "engine_version"))
            known = causes_of_version(engine, version)
        if row.get("kind") != "result" or row.get("outcome") != "fail":
            continue
        for finding in map(members, items(row.get("findings"))):
            if finding.get("verdict") == "fail":
                parts = {
                    **{name: text(row.get(name)) for name in ("check", "scenario", "api")},
                    **{name: text(finding.get(name)) for name in ("message", "at", "actual")},
                    "step": step_of(text(finding.get("exchange"))),
                }
                cause = next((one.id for one in known if one.explains(parts)), "-")
                yield Failure(report=report, result=row, finding=finding, cause=cause)


def _rows(report: str) -> Iterator[JsonObject]:
    lines = lzma.decompress((REPORTS / report / "report.jsonl.xz").read_bytes()).decode()
    yield from (members(loads(line)) for line in lines.removesuffix("\n").split("\n"))


def _judged_exchanges(report: str) -> Mapping[str, Exchange]:
    """Return the recorded exchanges of a report by id."""
    header = next(_rows(report))
    method = ScriptMethod(text(value_at(header, "capabilities", "script")))
    return judged_exchanges(read_recording(REPORTS / report / "exchanges.jsonl.gz").series, method)


def judged_exchanges(series: Sequence[Series], method: ScriptMethod) -> Mapping[str, Exchange]:
    """Return recorded exchanges by id, with the script by which they are judged, or the reason why by none."""
    return {x.id: x for one in series for x in drop_unproven_stream_scripts(one, method).exchanges.values()}


def severities_of(group: Sequence[Failure]) -> str:
    """Return the severity of a group, with the numbers of findings if it has several."""
    counts = Counter(failure.severity for failure in group)
    return ", ".join(f"{count} {severity}" if len(counts) > 1 else severity for severity, count in counts.most_common())


def lines_of(failure: Failure, exchanges: Mapping[str, Exchange]) -> Iterator[str]:
    """Yield what a reader needs to judge a failure."""
    finding, result = failure.finding, failure.result
    check = text(result.get("check"))
    yield f"    {finding.get('exchange')} at {finding.get('at', '')}"
    yield f"    {_values(finding)}"
    yield f"    clause {text(finding.get('quotation') or result.get('quotation'))!r}"
    x = exchanges.get(text(finding.get("exchange")))
    if x is None:
        return
    body = _PADDING.sub("<script>", x.request.body.decode("utf-8", "replace"))
    answer = b"" if x.response is None else b"".join(chunk.data for chunk in x.response.chunks)
    status = "no answer" if x.response is None else f"HTTP {x.response.status}"
    shown = {
        "request": f"{x.request.path} {body}",
        "script": _script(x),
        "answer": f"{status} {_PADDING.sub('<script>', answer.decode('utf-8', 'replace'))}",
    }
    if check.startswith(("prompt", "hierarchy", "tools", "multi_turn", "reasoning", "accounting")) and x.prompt.ids:
        shown["prompt"] = _PADDING.sub("<script>", decode(x.prompt.ids))
    for name, value in shown.items():
        yield f"    {name}: {_shorten(value, _LENGTHS[name])}"
    command = text(result.get("reproduce"))
    first = next((one for one in map(members, items(result.get("findings"))) if one.get("verdict") == "fail"), None)
    if first == finding and x.request.body.decode("utf-8", "replace").replace("'", "'\"'\"'") not in command:
        yield f"    command: {_shorten(_PADDING.sub('<script>', command), 500)}"


def _values(finding: JsonObject) -> str:
    """Return the values of a finding by name: expected and actual one, or an excerpt."""
    shown = ((name, finding.get(name)) for name in ("expected", "actual", "excerpt"))
    return ", ".join(f"{name} {value!r}" for name, value in shown if value is not None)


def _script(x: Exchange) -> str:
    """Return the scripted output, with the reason if it is not judged by it. Empty without a script."""
    script = decode(x.script) if x.script else ""
    return f"{script} (not judged: {x.script_not_played})".strip() if x.script_not_played else script


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _shorten(value: str, most: int) -> str:
    half = most // 2
    return value if len(value) <= most else f"{value[:half]} …({len(value) - most})… {value[-half:]}"


def main() -> None:
    """Print the groups of the reports."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="*", metavar="REPORT")
    parser.add_argument("--brief", action="store_true", help="the message and the first values alone")
    parser.add_argument("--sample", type=int, default=0, metavar="COUNT", help="that many groups, by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=1, metavar="COUNT", help="instances of each group")
    options = parser.parse_args()
    folders = options.reports or sorted(file.parent.name for file in REPORTS.glob("*/report.jsonl.xz"))
    groups = defaultdict[tuple[str, str, str, str], list[Failure]](list)
    for report in folders:
        for failure in failures(report):
            groups[failure.group].append(failure)
    chance = random.Random(options.seed)  # noqa: S311 - a sample that anybody can draw again
    keys = sorted(groups)
    chosen = sorted(chance.sample(keys, min(options.sample, len(keys)))) if options.sample else keys
    exchanges: dict[str, Mapping[str, Exchange]] = {}
    for number, key in enumerate(chosen, 1):
        (report, check, cause, _), group = key, groups[key]
        first = group[0]
        _print(f"{number} {report} | {check} {severities_of(group)} | {cause} | {len(group)} times")
        _print(f"    {first.finding.get('message')}")
        if options.brief:
            values = (str(first.finding.get(name, "")) for name in ("exchange", "at"))
            _print("    " + " | ".join(_shorten(value, 320) for value in (*values, _values(first.finding))))
            continue
        if report not in exchanges:
            exchanges = {report: _judged_exchanges(report)}
        for failure in [first, *chance.sample(group[1:], min(options.instances, len(group)) - 1)]:
            _print("\n".join(lines_of(failure, exchanges[report])))
    _print(f"{len(chosen)} of {len(groups)} groups, {sum(map(len, groups.values()))} failing findings")


if __name__ == "__main__":
    main()
