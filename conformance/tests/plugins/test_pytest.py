"""Checks of a plug-in are items of pytest, in each of its processes."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harmony_conformance.plugins.registry import loaded_plugins

pytest_plugins = ["pytester"]

ACME = Path(__file__).parents[3] / "examples" / "acme.py"
QUIET = ("-p", "no:randomly", "-p", "no:benchmark", "-p", "no:hypothesispytest")


def session(pytester, *words):
    start = pytester.runpytest_subprocess if "-n" in words else pytester.runpytest_inprocess
    options = [word for option in words if "=" in option for word in ("--harmony", option)]
    others = [word for word in words if "=" not in word]
    target = ("--endpoint", "reference:defect=final-as-reasoning")
    return start(
        "--pyargs", "harmony_conformance.conformance_test", *target, *QUIET, "--junitxml", "j.xml", *options, *others
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_checks_of_a_plug_in_are_items(workers, pytester):
    done = session(pytester, f"plugin={ACME}", "select=acme.*@simple_answer", "fail-on=should", *workers)
    assert done.ret == 1
    cases = {case.get("name"): case for case in ET.parse(pytester.path / "j.xml").iter("testcase")}
    assert {name: case.find("failure") is not None for name, case in cases.items()} == {
        "acme.answers_are_visible[simple_answer]": True,
        "acme.no_internal_names[simple_answer]": False,
    }
    text = cases["acme.answers_are_visible[simple_answer]"].find("failure").text
    assert "the user sees nothing" in text
    assert f"--plugin {ACME}" in text
    assert loaded_plugins() == ()


def test_an_invalid_plug_in_ends_the_session_in_one_line(pytester):
    done = session(pytester, "plugin=missing.py")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "invalid plug-in missing.py: expected a readable file, got No such file" in done.stderr.str()
