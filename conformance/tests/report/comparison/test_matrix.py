"""Several runs side by side, on results written by hand and on runs of the reference server."""

import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.comparison.matrix import make_matrix
from harmony_conformance.report.formats.markdown import prose, table
from harmony_conformance.report.model import ResultLine, make_report


def report(outcomes, *causes, severity=Severity.MUST):
    lines = [
        ResultLine(
            check=check,
            severity=severity,
            outcome=outcome,
            scenario="one",
            api="chat",
            spec="",
            quotation="",
            applied=outcome is not Outcome.NOT_APPLICABLE,
        )
        for check, outcome in outcomes.items()
    ]
    return make_report({"target": {"model": "m", "engine": "e"}}, lines, causes=causes)


def cause(name, results, catalogue=(), defects=()):
    return {
        "id": name,
        "severity": "must",
        "sentence": f"About {name}.",
        "results": results,
        "catalogue": list(catalogue),
        "defects": list(defects),
    }


FAIL, PASS, NOT_APPLICABLE = Outcome.FAIL, Outcome.PASS, Outcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("outcomes", "severity", "cell"),
    [
        ({"tools.a": PASS, "tools.b": PASS}, Severity.MUST, "all 2 pass"),
        ({"tools.a": PASS, "tools.b": FAIL}, Severity.MUST, "1 of 2 fail"),
        ({"tools.a": PASS, "tools.b": FAIL}, Severity.SHOULD, "1 of 2 fail (SHOULD)"),
        ({"tools.a": FAIL, "tools.b": NOT_APPLICABLE}, Severity.MUST, "1 of 1 fail"),
        ({"tools.a": NOT_APPLICABLE}, Severity.MUST, "not judged"),
    ],
)
def test_a_family_has_the_number_of_its_checks_that_fail(outcomes, severity, cell):
    (row,) = make_matrix([report(outcomes, severity=severity)]).families
    assert (row.name, row.cells) == ("tools", (cell,))


def test_causes_of_two_engines_share_a_row_by_the_catalogue_or_the_defect():
    one = report({}, cause("vllm-a", 2, ["V07"]), cause("leak", 1, defects=["leak"]), cause("vllm-own", 5))
    two = report({}, cause("llamacpp-b", 3, ["V07"]), cause("llamacpp-c", 4, ["V07"]))
    rows = {row.name: row.cells for row in make_matrix([one, two]).causes}
    assert rows == {"V07": ("2", "7"), "leak": ("1", ""), "vllm-own": ("5", "")}


def test_a_run_that_did_not_judge_a_failure_of_another_does_not_look_like_one_that_passed():
    failed = {**cause("a", 1), "failed": ["tools.a@one"]}
    runs = [report({"tools.a": outcome}) for outcome in (PASS, Outcome.INCONCLUSIVE, NOT_APPLICABLE)]
    (row,) = make_matrix([report({"tools.a": FAIL}, failed), *runs, None]).causes
    assert row.cells == ("1", "", "not judged", "not judged", "")


def test_results_that_a_rate_limit_left_open_are_counted():
    whole, limited = (
        report({"tools.a": PASS}),
        report({"tools.a": Outcome.INCONCLUSIVE, "tools.b": Outcome.INCONCLUSIVE}),
    )
    for result in limited.results[:1]:
        object.__setattr__(result, "reason", "rate limited: one/chat/a/0")
    rows = {row.name: row.cells for row in make_matrix([whole, limited]).summary}
    assert rows["rate limited"] == ("", "1")
    assert "rate limited" not in {row.name for row in make_matrix([whole, whole]).summary}


def test_a_bar_in_code_does_not_end_a_cell():
    shown = table(("cause", "what happens"), [("`a`", prose("`<|end|>` is missing, or a | is.")), ("`b`", "c")])
    assert shown.splitlines()[2] == r"| `a` | `<\|end\|>` is missing, or a \| is\. |"


def test_runs_of_equal_names_are_numbered():
    assert make_matrix([report({}), report({})]).runs == ("m on e (1)", "m on e (2)")


def test_the_matrix_of_stored_runs_is_printed_as_markdown_and_json(tmp_path, capsys):
    folders = []
    for name, target in {"right": "reference", "wrong": "reference:defect=stream-without-done"}.items():
        folders.append(str(tmp_path / name))
        main(["run", target, "--select", "simple_answer", "--latency", "0", "--out", folders[-1]])
    capsys.readouterr()
    assert main(["matrix", *folders]) == Exit.CONFORMS
    lines = capsys.readouterr().out.splitlines()
    (streaming,) = [line for line in lines if line.startswith("| streaming ")]
    assert "| all " in streaming
    assert "| 1 of " in streaming
    assert any(line.startswith("| O04 |") and line.endswith("|  | 1 |") for line in lines)
    assert main(["matrix", *folders, "--format", "json"]) == Exit.CONFORMS
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2
    assert main(["matrix", str(tmp_path / "absent")]) == Exit.USAGE
