"""`golden/clients.json` and the recorded scenarios: patterns that match, sources, and no text or path that must not be kept."""

import json
import re
import runpy
from fnmatch import filter as matching
from pathlib import Path

import jsonschema
import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.clients import client_profiles
from harmony_conformance.json_value import items, members, text, value_at
from harmony_conformance.runner.selection import load_scenarios, select_plan

ROOT = Path(__file__).parents[3]
PROFILES = client_profiles()
SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}
RECORDED = sorted(golden.root().glob("scenarios/recorded_*.json"))
LONGEST = 300
"""Characters of a text of a client: the shortened beginning and the note about it."""


def texts(value):
    match value:
        case str():
            yield value
        case dict():
            for member in value.values():
                yield from texts(member)
        case list():
            for item in value:
                yield from texts(item)


def test_the_profiles_follow_their_schema():
    schema = json.loads((golden.root() / "schema" / "clients.schema.json").read_text("utf-8"))
    value = json.loads((golden.root() / "clients.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(value)
    used = {name for profile in value["clients"].values() for name in profile["needs"]}
    assert used == value["needs"].keys()
    for profile in value["clients"].values():
        assert profile["remedies"].keys() <= set(profile["needs"])


@pytest.mark.parametrize("name", PROFILES)
def test_each_need_has_checks_on_requests_of_the_client(name):
    profile = PROFILES[name]
    plan = select_plan((profile.api,), profile.patterns, ())
    for need in profile.needs:
        assert all(matching([check.id for check in CHECKS], pattern) for pattern in need.checks), need.name
        decided = [
            (check.id, scenario.name)
            for scenario in plan.scenarios
            for check in plan.checks_of(scenario.name)
            if need.covers(check.id, scenario.name)
        ]
        assert decided, need.name
        if need.name != "effort":
            assert any(scenario.startswith("recorded_") for _, scenario in decided), need.name


@pytest.mark.parametrize("name", PROFILES)
def test_each_client_has_its_recorded_conversations(name):
    for topic in ("call", "parallel_calls"):
        scenario = SCENARIOS[f"recorded_{name.replace('-', '_')}_{topic}"]
        assert scenario.api == PROFILES[name].api
        assert [step.name for step in scenario.steps] == ["call", "result"]
        assert scenario.steps[1].expected is not None
        calls = scenario.steps[0].expected.required_output.calls
        assert len(calls) == (2 if topic == "parallel_calls" else 1)


def test_codex_continues_each_turn_of_its_websocket_after_one_that_generates_nothing():
    scenario = SCENARIOS["recorded_codex_websocket"]
    assert (scenario.over_websocket, [step.name for step in scenario.steps]) == (True, ["warm-up", "call", "result"])
    first, *later = (step.request for step in scenario.steps)
    assert (first["generate"], "previous_response_id" in first) == (False, False)
    assert [request["previous_response_id"] for request in later] == [{"$from": "warm-up#/id"}, {"$from": "call#/id"}]
    assert all("generate" not in request and request["store"] is False for request in later)
    assert [value_at(item, "type") for item in items(later[1]["input"])] == ["function_call_output"]
    assert {step.headers["openai-beta"] for step in scenario.steps} == {"responses_websockets=2026-02-06"}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_recording_names_its_source_and_keeps_no_secret_path_or_long_text(file):
    value = json.loads(file.read_text("utf-8"))
    assert value["source"].keys() == {"client", "package", "version", "licence", "recorded"}
    assert all(value["source"].values())
    requests = [value_at(step, "request") for step in items(value["steps"])]
    headers = {name for step in items(value["steps"]) for name in members(value_at(step, "headers"))}
    assert not headers & {"authorization", "x-api-key", "cookie"}
    for one in texts(requests):
        assert not re.search(r"/tmp/|/root/|/home/|not-a-secret|harmony-conformance:", one), one
    is_proprietary = text(value["source"]["licence"]).startswith("proprietary")
    own = {"One moment.", "Show me a.txt and b.txt.", "one", "two"}
    for request in requests:
        spoken = [*texts(request.get("messages")), *texts(request.get("input")), *texts(request.get("system"))]
        assert all(len(one) <= LONGEST for one in spoken)
        if is_proprietary:
            prose = [one for one in spoken if " " in one and one not in own and not one.startswith("{")]
            assert all(
                re.fullmatch(r"A text of the client, \d+ characters\.|cat [ab]\.txt|Show a file", one) for one in prose
            )
            described = list(descriptions(request["tools"]))
            assert all(re.fullmatch(r"A description of the client, \d+ characters\.", one) for one in described)


def descriptions(value):
    match value:
        case dict():
            if isinstance(value.get("description"), str):
                yield value["description"]
            for member in value.values():
                yield from descriptions(member)
        case list():
            for item in value:
                yield from descriptions(item)


def test_the_page_is_that_of_the_data():
    tool = runpy.run_path(str(ROOT / "tools" / "write_clients.py"))
    assert tool["PAGE"].read_text("utf-8") == tool["page"](), "run `python tools/write_clients.py`"
