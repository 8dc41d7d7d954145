"""The hand-written rows: whole, of their schema, each case of the recorded ones in one of them, and at one with openai_harmony where that has an opinion."""

import json
from pathlib import Path

import jsonschema
import pytest
from openai_harmony import HarmonyError, Role
from referencing import Registry, Resource

from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.evidence.emitted_ids import cut_at_stop
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.expected_rows import read_row_scenarios
from harmony_conformance.golden.scenario import (
    InvalidScenarioError,
    expand,
    has_only_rows,
    one_of_each_row,
    skip_reason,
)
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_one
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.selftest.row_runner import send_scenario
from harmony_ref import decode, encode_with_special_tokens, tokens

FILE = golden.root() / "scenarios" / "expectations.json"
DOCUMENT = json.loads(FILE.read_text("utf-8"))
ROWS = [(group, row) for group in DOCUMENT["groups"] for row in group["rows"]]
SCENARIOS = tuple(read_row_scenarios(DOCUMENT))
STEPS = [(scenario, step) for scenario in SCENARIOS for step in scenario.steps]
CASES = Path(__file__).parents[3] / "harmony_ref" / "tests" / "cases"
MATRIX = frozenset(
    {
        *(
            "ok-final",
            "call-space",
            "call-nospace",
            "call-json",
            "call-code",
            "call-none",
            "call-in-role",
            "call-analysis",
        ),
        *("dup-channel", "both-recip", "space-name", "no-markup", "dash-channel", "double-assistant", "no-role"),
        *("missing-end", "text-after-end", "after-return", "to-assistant", "trunc-header", "trunc-args", "term-return"),
        *("stripped-EOS", "bare-name", "dotted", "bad-JSON", "unknown-tool"),
    }
)


def test_the_file_is_of_its_schema():
    schemas = {
        name: json.loads((golden.root() / "schema" / name).read_text("utf-8"))
        for name in ("expectations.schema.json", "exchange.schema.json")
    }
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    validator = jsonschema.Draft202012Validator(schemas["expectations.schema.json"], registry=registry)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(DOCUMENT)] == []


def test_there_are_enough_rows_and_no_id_or_script_is_there_twice():
    ids = [(group["name"], row["id"]) for group, row in ROWS]
    assert len(ids) >= 150
    assert len(set(ids)) == len(ids)
    for scenario in SCENARIOS:
        names = [step.name for step in expand(scenario)]
        assert len(set(names)) == len(names)


def recorded():
    for kind in ("header", "parse"):
        for place, case in enumerate(json.loads((CASES / f"{kind}.json").read_text("utf-8"))):
            yield f"{kind} {place}", case


def test_every_recorded_case_and_the_whole_matrix_stand_for_a_row_or_have_a_reason():
    covered = [case for _, row in ROWS for case in row.get("covers", [])]
    excused = [case for entry in DOCUMENT["not_covered"] for case in entry["cases"]]
    assert set(covered) & set(excused) == set()
    assert len(excused) == len(set(excused))
    assert set(covered) | set(excused) == {name for name, _ in recorded()} | {f"matrix {name}" for name in MATRIX}


def emittable(case):
    """Whether an assistant can emit a case: the prompt ended with its role, and the vocabulary ends at 201087."""
    return case["role"] in (None, "assistant") and case["tokens"] != [] and max(case["tokens"]) <= 201087


def test_what_no_row_stands_for_is_what_no_assistant_can_emit():
    excused = {case for entry in DOCUMENT["not_covered"] for case in entry["cases"]}
    assert excused == {name for name, case in recorded() if not emittable(case)}


def holds(ids, part):
    return any(tuple(ids[start : start + len(part)]) == tuple(part) for start in range(len(ids)))


def scripts(row):
    """The row's scripts behind the end of the prompt, as they are sent."""
    name = row["id"]
    prompt = encode_with_special_tokens("<|start|>assistant")
    return [(*prompt, *step.script) for _, step in STEPS if step.row_id == name]


HEADERS = [
    pytest.param(row, name, case, id=name)
    for name, case in recorded()
    for _, row in ROWS
    if name.startswith("header") and name in row.get("covers", [])
]


@pytest.mark.parametrize(("row", "name", "case"), HEADERS)
def test_the_header_of_a_case_is_really_sent(row, name, case):
    header = case["tokens"][: case["tokens"].index(tokens.MESSAGE) + 1]
    whole = [200006, 173781, *header] if case["role"] == "assistant" else header
    text = decode(whole)
    assert any(holds(script, whole) or text in decode(script) for script in scripts(row)), name


CHANNELS = ("analysis", "commentary", "final")


def read_by(library, ids):
    """(channel, recipient, text) of each message; None where the library raises, or what it reads has no place: a marker in a text, another channel or role."""
    try:
        messages = library.parse_messages_from_completion_tokens(list(ids), role=Role.ASSISTANT)
    except HarmonyError:
        return None
    words = [word or "" for message in messages for word in (message.recipient, message.content_type)]
    inside = False
    for token in ids:
        if inside and tokens.is_special(token) and token not in tokens.STOP_TOKENS:
            return None
        inside = token not in tokens.STOP_TOKENS and (inside or token == tokens.MESSAGE)
    if any(message.author.role is not Role.ASSISTANT or message.channel not in CHANNELS for message in messages):
        return None
    if any("<|" in word.removeprefix("<|constrain|>") for word in words):
        return None
    return [(message.channel, message.recipient, message.content[0].text) for message in messages]


def agree(step, read):
    """Whether a row and what the library reads say the same."""
    row, must = step.expected, step.expected.required_output
    told = {"analysis": [], "commentary": [], "final": []}
    calls = []
    for channel, recipient, text in read:
        if recipient is not None and recipient.startswith("functions.") and channel != "final":
            calls.append((recipient.removeprefix("functions."), text))
        elif text and (
            recipient is None or (channel == "final" and recipient.removeprefix("<|constrain|>") in ("json", ""))
        ):
            told[channel].append(text)
    wanted = [(call.name, call.arguments) for call in must.calls]
    if row.is_well_formed:
        in_places = [*told.values()] == [list(must.reasoning), list(must.preambles), list(must.finals)]
        return in_places and wanted == (calls[:1] if step.request.get("parallel_tool_calls") is False else calls)
    everything = [text for _, _, text in read]
    return (
        all(text in everything for text in (*must.reasoning, *must.preambles, *must.finals))
        and all(any(text in other for other in everything) for text in row.required_texts)
        and [call for call in calls if call in wanted] == wanted
    )


def test_rows_agree_with_the_library_where_that_neither_raises_nor_loses_text(library):
    known = [
        (scenario.name, step, read)
        for scenario, step in STEPS
        if not step.continues_after_stop and (read := read_by(library, step.script)) is not None
    ]
    assert len(known) > 150
    assert [f"{name}: {step.name}: {read}" for name, step, read in known if not agree(step, read)] == []


def test_scripts_end_at_their_first_stop_token_unless_they_are_sent_past_it():
    for scenario, step in STEPS:
        assert (step.continues_after_stop, scenario.name, step.name) == (
            cut_at_stop(step.script) != step.script or "endoftext" in decode(step.script[:-1]),
            scenario.name,
            step.name,
        )


def test_the_finish_reason_of_a_row_goes_with_its_calls_and_its_limit():
    for _, step in STEPS:
        row = step.expected
        if "max_tokens" in step.request:
            assert row.finish_reasons == ("length",)
        elif row.required_output.calls:
            assert row.finish_reasons == ("tool_calls",)
        else:
            assert set(row.finish_reasons) <= {"stop", "tool_calls", "length"}
            assert "stop" in row.finish_reasons


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in SCENARIOS])
def test_the_reference_server_does_what_every_row_says(scenario):
    series = send_scenario(scenario, Changes())
    outcomes = {
        (rule.id, judge_one(rule, [series], exercised=rule.id in scenario.exercises).outcome) for rule in CHECKS
    }
    assert {pair for pair in outcomes if pair[1] not in (Outcome.PASS, Outcome.NOT_APPLICABLE)} == set()


def test_rows_are_among_the_scenarios_by_name():
    loaded = load_scenarios()
    assert [scenario.name for scenario in loaded] == sorted(scenario.name for scenario in loaded)
    assert {scenario.name for scenario in loaded if has_only_rows(scenario)} == {
        scenario.name for scenario in SCENARIOS
    }


def test_one_of_each_row_is_its_first_variety_without_chunkings():
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "rows_other_roles"]
    lean = one_of_each_row(scenario)
    assert [step.row_id for step in lean.steps] == [
        row["id"] for group, row in ROWS if group["name"] == "rows_other_roles"
    ]
    assert [step.name for step in expand(lean)][:2] == [
        "as user, system or developer, 1",
        "as user, system or developer, 1+stream",
    ]


PAST = next(scenario for scenario in SCENARIOS if scenario.steps[0].continues_after_stop)
UNBOUND = next(scenario for scenario in SCENARIOS if scenario.violates_grammar)
BEHIND = "needs a script that continues after a token that ends the turn"
BOUND = "the server constrains its sampler by parallel_tool_calls, response_format, strict, tool_choice, and the scripts violate that grammar"


@pytest.mark.parametrize(
    ("scenario", "way", "reason"),
    [
        (PAST, ScriptMethod.REFERENCE, None),
        (PAST, ScriptMethod.VLLM, BEHIND),
        (UNBOUND, ScriptMethod.REFERENCE, None),
        (UNBOUND, ScriptMethod.VLLM, BOUND),
        (UNBOUND, ScriptMethod.NONE, "needs a scripted model"),
    ],
)
def test_rows_are_sent_where_their_scripts_can_be_emitted(scenario, way, reason):
    assert skip_reason(scenario, way) == reason


def test_how_many_tokens_an_event_has_is_asked_only_where_it_can_be():
    step = next(step for step in expand(PAST) if step.stream_chunk_size is not None)
    sent = build_request(step, RequestProfile(model="m", script_method=ScriptMethod.REFERENCE, extra_body={}), {}).json
    assert (sent["harmony_event_tokens"], sent["ignore_eos"], sent["stream"]) == (step.stream_chunk_size, True, True)
    with pytest.raises(StepSkippedError, match="does not support a number of tokens per event"):
        build_request(step, RequestProfile(model="m", script_method=ScriptMethod.VLLM, extra_body={}), {})


HI = {"id": "hi", "request": "r", "script": "<|channel|>final<|message|>hi<|return|>", "must": {"finals": ["hi"]}}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "g: no rows"),
        ([{**HI, "id": ""}], "g: a row has no `id`"),
        ([{**HI, "request": "other"}], "g, row hi: unknown request 'other'"),
        ([{**HI, "script": 7}], "g, row hi: invalid script: expected a text, or a list"),
        ([{**HI, "limits": [0]}], "g, row hi: invalid limit 0: expected 1 to 5 tokens"),
        ([{**HI, "limits": [6]}], "g, row hi: invalid limit 6: expected 1 to 5 tokens"),
    ],
)
def test_a_row_that_can_not_be_used_is_refused_with_its_name(rows, said):
    with pytest.raises(InvalidScenarioError) as error:
        list(read_row_scenarios({"requests": {"r": {"messages": []}}, "groups": [{"name": "g", "rows": rows}]}))
    assert str(error.value).startswith(said)
