"""Every writer of a report takes every text: all characters, and templates of any language."""

from io import StringIO
from xml.etree import ElementTree as ET

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.files import RENDERERS
from harmony_conformance.report.formats.terminal import EscapingConsole, print_report
from harmony_conformance.report.model import read_report

MUST = frozenset({Severity.MUST})
TEMPLATES = [
    "\\g<0>",
    "\\1",
    "a\\",
    "{}",
    "{0!r:>9}",
    "{{ x }}",
    "{% raw %}",
    "%s%n",
    "$HOME",
    "[/]",
    "[bold]\\",
    "\ud800",
]
TEXTS = st.lists(st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(TEMPLATES), max_size=3)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS.map("".join))
@example(text="".join(TEMPLATES))
def test_every_text_is_written(samples, text):
    report = samples.all_outcomes(text)
    written = "".join(f"{line}\n" for line in report.lines()).encode("utf-8", "backslashreplace")
    assert [*read_report(written.decode()).lines()] == [*report.lines()]
    rendered = {form: render(report, MUST).encode("utf-8", "backslashreplace") for form, render in RENDERERS.items()}
    applied = [result for result in report.results if result.outcome is not Outcome.NOT_APPLICABLE]
    assert len(list(ET.fromstring(rendered["junit"]).iter("testcase"))) == len(applied)
    assert all(char == "\n" or char.isprintable() for form in rendered.values() for char in form.decode())
    shown = StringIO()
    print_report(report, EscapingConsole(width=140, highlight=False, file=shown))
    assert all(char == "\n" or char.isprintable() for char in shown.getvalue())
    assert shown.getvalue().endswith(f"{report.summary()}\n")
