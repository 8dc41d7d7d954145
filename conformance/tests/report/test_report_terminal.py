from io import StringIO

from rich.console import Console

from harmony_conformance.judge.check import Outcome
from harmony_conformance.report.terminal import print_report


def printed(report):
    text = StringIO()
    print_report(report, Console(width=140, highlight=False, file=text))
    return text.getvalue()


def test_what_was_left_open_is_one_line_for_each_reason_after_the_failures(samples):
    lines = [samples.result(Outcome.INCONCLUSIVE, check=f"usage.{name}", reason="no [usable] answer") for name in "cab"]
    lines += [samples.result(Outcome.INCONCLUSIVE, check="usage.a", scenario="b", reason="no [usable] answer")]
    lines += [samples.result(Outcome.INCONCLUSIVE, check="usage.d", reason="rate limited")]
    lines += [samples.result(Outcome.FAIL, check="usage.z", findings=(samples.finding(),))]
    lines += [samples.result(Outcome.ERROR, check="usage.e", reason="ValueError: oops")]
    text = printed(samples.report(*lines))
    assert "  no [usable] answer: usage.a, usage.b, usage.c\n  rate limited: usage.d\n" in text
    assert text.count("no [usable] answer") == 1
    assert text.index("FAILED MUST") < text.index("ERROR MUST") < text.index("no [usable] answer")
