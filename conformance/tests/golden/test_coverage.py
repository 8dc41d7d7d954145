"""`golden/coverage/`: each row is shown by the step that it names, and nothing that the scenarios or the client libraries have is without a row."""

import json
import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from harmony_conformance.apis.api import CHAT_PATH, UnsupportedByApiError
from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.scenario import expand, for_api
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.runner.selection import load_scenarios
from harmony_ref import decode

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "write_coverage.py"))
DOCUMENTS = TOOL["documents"]()
SCHEMA = json.loads((golden.root() / "schema" / "coverage.schema.json").read_text("utf-8"))
SCENARIOS = {one.name: one for one in load_scenarios()}
NESTED = ("stream_options", "reasoning", "text", "options", "parameters", "sampling_params")
"""Members of requests whose members have rows of their own."""
CONTAINED = {
    "plain": lambda text: text != "" and not MARKER.search(text) and not HEADER_WORDS.search(text),
    "markers": lambda text: MARKER.search(text) is not None,
    "header_words": lambda text: HEADER_WORDS.search(text) is not None,
}
MARKER, HEADER_WORDS = re.compile(r"<\|\w+\|>"), re.compile(r"assistant(?:final|analysis|commentary)|to=functions\.")

SECTIONS = [
    pytest.param(
        section["api"], section.get("path"), section["parameters"], id=f"{section['api']}{section.get('path', '')}"
    )
    for name in TOOL["APIS_IN_ORDER"]
    for section in DOCUMENTS[name]["sections"]
]


@cache
def requests(api):
    """The requests that an API gets: by scenario and step, the path (None for that of the API), the body, and the validity."""
    profile, sent = RequestProfile(model="m", extra_body={}, api=APIS[api]), {}
    for scenario in filter(None, (for_api(one, APIS[api]) for one in SCENARIOS.values())):
        for step in expand(scenario):
            try:
                request = build_request(step, profile, {})
            except UnsupportedByApiError:
                continue
            except StepSkippedError:  # it needs an earlier answer
                if step.is_native or api == "chat":
                    path = None if step.path == CHAT_PATH else step.path
                    sent[scenario.name, step.name] = path, step.request, step.validity
                continue
            body = request.json if request.json is not None else request.body.decode("utf-8", "replace")
            sent[scenario.name, step.name] = None if request.path == CHAT_PATH else request.path, body, step.validity
    return sent


def names_in(body):
    """The names of the parameters in a body."""
    if not isinstance(body, dict):
        return set()
    return {
        *body,
        *(f"{outer}.{inner}" for outer in NESTED if isinstance(body.get(outer), dict) for inner in body[outer]),
    }


def strings_at(value, path):
    """The strings at a path of `strings.json`."""
    if not path:
        yield from [value] if isinstance(value, str) else []
        return
    first, *rest = path
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if first == "**":
        yield from strings_at(value, rest)
    if first in ("*", "**"):
        for child in children:
            yield from strings_at(child, path if first == "**" else rest)
    elif first == "@names":
        yield from value if isinstance(value, dict) else []
    elif isinstance(value, dict) and "=" in first:
        name, _, wanted = first.partition("=")
        yield from strings_at(value, rest) if value.get(name) == wanted else []
    elif isinstance(value, dict) and first in value:
        yield from strings_at(value[first], rest)


def test_files_follow_their_schema():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert {name: [error.json_path for error in validator.iter_errors(value)] for name, value in DOCUMENTS.items()} == {
        name: [] for name in (*TOOL["APIS_IN_ORDER"], "strings", "json_values")
    }


@pytest.mark.parametrize(
    "row",
    [
        {"name": "n", "may": ["honour"]},
        {"name": "n", "may": ["honour"], "shown": [{"scenario": "a", "step": "b"}]},
        {"name": "n", "may": ["honour"], "not_judged": "No reason"},
        {"name": "n", "may": ["honour"], "not_judged": "None.", "checks": ["a.b"]},
        {"name": "n", "may": ["fail"], "not_judged": "None."},
        {"name": "n", "may": [], "not_judged": "None."},
    ],
    ids=[
        "neither shown nor a reason",
        "no check",
        "a reason that is no sentence",
        "both",
        "an unknown word",
        "nothing allowed",
    ],
)
def test_schema_refuses_other_rows(row):
    document = {**DOCUMENTS["chat"], "sections": [{"api": "chat", "parameters": [row]}]}
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


@pytest.mark.parametrize(("api", "path", "rows"), SECTIONS)
def test_each_step_of_a_row_sends_the_parameter(api, path, rows):
    wrong = []
    for row in rows:
        for cell in row.get("shown", []):
            its_path, body, _ = requests(api).get((cell["scenario"], cell["step"]), ("no such step", None, None))
            is_sent = row["name"] in names_in(body) if isinstance(body, dict) else f'"{row["name"]}"' in str(body)
            if its_path != path or not is_sent:
                wrong.append((row["name"], cell))
    assert wrong == []


@pytest.mark.parametrize(("api", "path", "rows"), SECTIONS)
def test_a_row_is_there_once_and_names_checks_that_exist(api, path, rows):
    known = {check.id for check in CHECKS}
    assert [name for name, count in Counter(row["name"] for row in rows).items() if count > 1] == []
    assert [(row["name"], check) for row in rows for check in row.get("checks", []) if check not in known] == []


def test_each_parameter_that_a_scenario_sends_has_a_row():
    rows = {(*section.values[:2], row["name"]) for section in SECTIONS for row in section.values[2]}
    sections = {section.values[:2] for section in SECTIONS}
    missing = {
        (api, path, name)
        for api in APIS
        for path, body, validity in requests(api).values()
        if (api, path) in sections or validity is not Validity.INVALID  # an invalid path is no endpoint
        for name in names_in(body)
    } - rows
    assert missing == set()


def members_of_openai(module, *kinds):
    pytest.importorskip("openai")
    types = __import__(f"openai.types.{module}", fromlist=kinds)
    return {name for kind in kinds for name in getattr(types, kind).__annotations__}


def declared_by_client(api):
    """The parameters that the client library of an API declares."""
    if api == "chat":
        return members_of_openai(
            "chat.completion_create_params", "CompletionCreateParamsBase", "CompletionCreateParamsStreaming"
        )
    if api == "responses":
        return members_of_openai(
            "responses.response_create_params", "ResponseCreateParamsBase", "ResponseCreateParamsStreaming"
        )
    if api == "completions":
        return members_of_openai(
            "completion_create_params", "CompletionCreateParamsBase", "CompletionCreateParamsStreaming"
        )
    if api == "messages":
        types = pytest.importorskip("anthropic.types.message_create_params")
        kinds = types.MessageCreateParamsBase, types.MessageCreateParamsStreaming
        return {name for kind in kinds for name in kind.__annotations__}
    if api.startswith("ollama"):
        ollama = pytest.importorskip("ollama")
        request = ollama._types.ChatRequest if api == "ollama" else ollama._types.GenerateRequest
        options = [f"options.{name}" for name in ollama.Options.model_fields] if api == "ollama" else []
        return {*request.model_fields, *options}
    types = pytest.importorskip("huggingface_hub.inference._generated.types")
    if api == "tgi":
        return set(types.ChatCompletionInput.__dataclass_fields__)
    parameters = types.TextGenerationInputGenerateParameters.__dataclass_fields__
    return {*types.TextGenerationInput.__dataclass_fields__, *(f"parameters.{name}" for name in parameters)}


@pytest.mark.parametrize(
    "api", ["chat", "responses", "messages", "completions", "ollama", "ollama-generate", "tgi", "tgi-generate"]
)
def test_each_parameter_of_the_client_library_has_a_row(api):
    rows = {row["name"] for section in SECTIONS if section.values[:2] == (api, None) for row in section.values[2]}
    assert len(rows) > 5
    assert declared_by_client(api) - rows == set()


@pytest.mark.parametrize("place", [pytest.param(place, id=place["place"]) for place in DOCUMENTS["strings"]["places"]])
def test_each_step_of_a_string_sends_it(place):
    wrong = []
    for kind, cell in place["contents"].items():
        if "not_judged" in cell:
            continue
        _, body, _ = requests("chat").get((cell["scenario"], cell["step"]), (None, None, None))
        if not any(map(CONTAINED[kind], strings_at(body, place["path"]))):
            wrong.append((kind, cell))
    assert wrong == []


def test_a_place_and_a_value_are_there_once():
    places = Counter(json.dumps(place["path"]) for place in DOCUMENTS["strings"]["places"])
    values = Counter(row["value"] for row in DOCUMENTS["json_values"]["values"])
    assert [name for name, count in (places | values).items() if count > 1] == []


def steps_of(name):
    return {step.name: step for step in expand(SCENARIOS[name])}


def spelled(column, cell):
    """The letters of a step in which a value is looked for."""
    step = steps_of(cell["scenario"]).get(cell["step"])
    if step is None:
        return ""
    if column == "returned":
        return decode(list(step.script or ()))
    if column == "schema":
        return str(step.raw_body or json.dumps(step.request.get("tools"), ensure_ascii=False))
    return "\n".join(strings_at(step.request, ["messages", "*", "tool_calls", "*", "function", "arguments"]))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["value"]) for row in DOCUMENTS["json_values"]["values"]])
@pytest.mark.parametrize("column", ["returned", "history", "schema"])
def test_each_step_of_a_value_has_its_letters(row, column):
    cell = row[column]
    if "vector" in cell:
        assert cell["vector"] in set(golden.golden_file_ids()) | {test["id"] for test in vectors_of_typescript()}
    elif "not_judged" not in cell:
        assert cell["contains"] in spelled(column, cell)


@cache
def vectors_of_typescript():
    files = sorted((Path(str(golden.root())) / "typescript").glob("*.json"))
    return tuple(test for file in files for test in json.loads(file.read_text("utf-8"))["tests"])


def test_the_page_is_made_from_the_data():
    assert TOOL["PAGE"].read_text("utf-8") == TOOL["page_text"](DOCUMENTS), "run `python tools/write_coverage.py`"


def test_a_path_finds_strings_at_any_depth_and_names():
    value = {"a": [{"role": "x", "b": {"c": "1"}}, {"role": "y", "b": {"c": "2"}}]}
    assert list(strings_at(value, ["a", "*", "role=y", "b", "c"])) == ["2"]
    assert list(strings_at(value, ["**", "c"])) == ["1", "2"]
    assert list(strings_at(value, ["a", "*", "b", "@names"])) == ["c", "c"]
    assert list(strings_at(value, ["a", "b"])) == []
