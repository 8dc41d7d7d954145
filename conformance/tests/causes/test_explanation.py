"""`harmony-conformance explain ID`: every id of a report leads to an explanation."""

import json

import pytest

from harmony_conformance.causes.explanation import explain
from harmony_conformance.causes.known import catalogue, engine_causes
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.golden.clients import client_profiles
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.sampling.rates import describe_rate, rate_names

SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}
ENGINE_CAUSES = [cause.id for causes in engine_causes().values() for cause in causes]


def sections(name):
    return {heading: [one for one in paragraphs if one] for heading, paragraphs in explain(name, SCENARIOS)}


@pytest.mark.parametrize("name", [check.id for check in CHECKS])
def test_a_check_has_its_requirement_clause_and_a_right_and_a_wrong_example(name):
    shown = sections(name)
    check = next(one for one in CHECKS if one.id == name)
    assert shown[f"check {name} ({check.severity.value.upper()})"][0] == check.requirement
    assert shown["clause"] == [check.clause.quotation, check.clause.source]
    assert shown["right"][-1].startswith(f"golden/exchanges/{name}/pass-")
    assert shown["wrong"][-1].startswith(f"golden/exchanges/{name}/fail-")


def test_an_example_shows_the_fault_where_no_answer_does():
    wrong = sections("tool-result-quoted")["wrong"]
    assert wrong[0] == "The result is quoted as a JSON text."
    assert wrong[1:4] == [
        "The check says: a function result is quoted as a JSON string",
        'expected: {"t":21}',
        'got: "{\\\\"t\\\\":21}"',
    ]


@pytest.mark.parametrize("name", [check.id for check in CHECKS])
def test_an_example_has_short_lines_and_names_the_whole_file_where_it_is_cut(name):
    shown = sections(name)
    for heading in ("right", "wrong"):
        for paragraph in shown[heading]:
            lines = paragraph.splitlines()
            assert max(map(len, lines)) <= 260
            assert len(lines) <= 31
            if lines[0] == "{":
                assert lines[1].startswith('  "')
            if len(lines) == 31:
                assert lines[-1].startswith("… (")
                assert lines[-1].endswith(f" in {shown[heading][-1]})")


def test_an_everyday_example_comes_before_a_special_case():
    everyday = sections("channels.content_is_the_answer")
    assert everyday["wrong"][0] == "The answer arrives twice."
    assert '  "object": "chat.completion",' in everyday["right"][1].splitlines()
    assert len(json.loads(everyday["right"][1])["choices"]) == 1


@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_defect_has_its_effect_on_users_and_its_checks(name):
    shown = sections(name)
    assert shown[f"defect {name}"] == [DEFECTS[name].summary]
    assert shown["effect on users"]
    assert shown["checks that fail"]
    assert shown["wrong"]


@pytest.mark.parametrize("name", [*catalogue(), *ENGINE_CAUSES])
def test_a_cause_has_its_effect_on_users_and_how_it_is_known(name):
    shown = sections(name)
    assert len(shown["effect on users"]) == 1
    assert shown["threads"] or shown["recognized by failures of"]


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_scenario_has_its_description_and_steps(name):
    shown = sections(name)
    assert shown[f"scenario {name}"] == [SCENARIOS[name].description]
    assert shown["steps"]


FAMILIES = sorted({check.id.partition(".")[0] for check in CHECKS})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_all_its_checks_in_order(name):
    shown = sections(name)[f"family {name}"]
    ids = [line.partition(" (")[0] for line in shown]
    assert ids == sorted(check.id for check in CHECKS if check.id.startswith(f"{name}."))


@pytest.mark.parametrize("name", list(client_profiles()))
def test_a_client_has_its_needs_and_their_checks(name):
    shown = sections(name)
    assert shown["checks of the needs"] == sorted(shown["checks of the needs"])
    assert len(shown["needs"]) == len(client_profiles()[name].needs)


@pytest.mark.parametrize("name", ["quality", "tools", "tools.named", "no_leak", "effort.low-medium"])
def test_a_rate_is_explained(name, capsys):
    assert main(["explain", name]) == Exit.CONFORMS
    out = capsys.readouterr().out
    assert f"rate {name}\n  Share of " in out
    assert f"--min {name}=0.9" in out


def test_each_rate_is_explained_and_no_other_name():
    assert all(map(describe_rate, rate_names()))
    assert not any(map(describe_rate, ("effort.high-low", "nothing", "")))


def test_lists_of_checks_are_sorted():
    for cause in (one for causes in engine_causes().values() for one in causes):
        for heading in ("recognized by failures of", "checks that fail"):
            shown = [line for line in sections(cause.id)[heading] if not line.startswith("…")]
            assert shown == sorted(shown)


def test_a_part_of_an_id_finds_those_that_have_it(capsys):
    assert main(["explain", "marker_leak"]) == Exit.USAGE
    assert "channels.no_marker_leak" in capsys.readouterr().err


def test_the_catalogue_and_the_checks_share_no_id():
    ids = [*(check.id for check in CHECKS), *DEFECTS, *catalogue(), *ENGINE_CAUSES, *SCENARIOS]
    assert len(ids) == len(set(ids))


def test_the_explanation_is_printed_as_text_and_as_json(capsys):
    assert main(["explain", "V07"]) == Exit.CONFORMS
    assert "effect on users" in capsys.readouterr().out.splitlines()
    assert main(["explain", "V07", "--format", "json"]) == Exit.CONFORMS
    assert json.loads(capsys.readouterr().out)["effect on users"] == [catalogue()["V07"].users_see]


def test_an_unknown_id_is_one_line_with_similar_ones(capsys):
    assert main(["explain", "channels.no_marker_leek"]) == Exit.USAGE
    error = capsys.readouterr().err
    assert (
        "invalid id: expected a check, family, defect, cause, scenario, rate or client, got 'channels.no_marker_leek'"
        in error
    )
    assert "channels.no_marker_leak" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("defect", "command"),
    [
        (
            "messages-out-of-range-500",
            "harmony-conformance run reference:defect=messages-out-of-range-500 --api messages",
        ),
        ("responses-usage-zero", "harmony-conformance run reference:defect=responses-usage-zero --api responses"),
        ("calls-dropped", "harmony-conformance run reference:defect=calls-dropped"),
    ],
)
def test_the_command_of_a_defect_sends_requests_to_the_api_that_shows_it(defect, command):
    assert ("try it", (command,)) in explain(defect, SCENARIOS)


@pytest.mark.parametrize(
    ("number", "names"), [("M15", ("output-unparsed:", "effort-ignored:")), ("P04", ("demanded-call-as-content:",))]
)
def test_a_number_lists_each_cause_that_it_is_shown_with(number, names):
    _, (heading, lines), *_ = explain(number, {})
    assert heading == f"causes known as {number}"
    assert [name for name in names if any(line.startswith(name) for line in lines)] == [*names]
