"""`golden/defects.json`: every defect that was seen in a live server is switchable, the same as another, or outside for a reason."""

import json
import re
from functools import cache

import jsonschema
import pytest

from harmony_conformance.golden import data as golden
from harmony_conformance.reference_server.defects import DEFECTS

NUMBERS = {
    "V": (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 17, 18, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 31, 33, 34, 35, 36, 38, 39, 41, 42, 43, 44, 45, 46),
    "O": (1, 2, 4, 5, 7, 8, 9, 10, 12, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24),
    "L": (1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 15, 16, 17, 18),
    "J": (1, 2, 5, 6, 7, 9, 10, 11),
    "S": (1, 2, 3, 4, 6, 7, 9),
    "T": (1, 2, 3, 4, 5, 7),
    "R": (1, 3),
    "M": (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15),
    "P": (1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20),
}  # fmt: skip
CATALOGUE = [f"{engine}{number:02}" for engine, numbers in NUMBERS.items() for number in numbers]
EXPLAINED = {
    "sentence": "The server fails.",
    "users_see": "The chat is empty.",
    "threads": ["https://github.com/vllm-project/vllm/issues/23567"],
}


@cache
def document():
    return json.loads((golden.root() / "defects.json").read_text("utf-8"))


@cache
def rows():
    return {row["id"]: row for row in document()["defects"]}


def list_problems(instance):
    schema = json.loads((golden.root() / "schema" / "defects.schema.json").read_text("utf-8"))
    return [problem.json_path for problem in jsonschema.Draft202012Validator(schema).iter_errors(instance)]


def row_with(**fields):
    row = {"id": "V01", "engine": "vLLM", "switch": ["calls-dropped"], **EXPLAINED, **fields}
    return {**document(), "defects": [{name: value for name, value in row.items() if value is not None}]}


def list_faults_of_style(text):
    """Return the broken rules: one sentence, at most 25 words."""
    prose = re.sub(r"`[^`]*`", "x", text)
    return [
        rule
        for rule, broken in (("one sentence", re.search(r"[.!?]\s", prose)), ("25 words", len(prose.split()) > 25))
        if broken
    ]


def test_file_is_canonical_and_follows_its_schema():
    written = (golden.root() / "defects.json").read_text("utf-8")
    assert written == json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
    assert list_problems(document()) == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, None),
        ({"threads": ["https://inference-docs.cerebras.ai/capabilities/reasoning"]}, None),
        ({"threads": ["https://github.com/ollama/ollama/blob/v0.33.0-rc2/middleware/openai.go"]}, None),
        ({"sentence": None}, "$.defects[0]"),
        ({"users_see": None}, "$.defects[0]"),
        ({"threads": None}, "$.defects[0]"),
        ({"threads": []}, "$.defects[0].threads"),
        ({"threads": EXPLAINED["threads"] * 2}, "$.defects[0].threads"),
        ({"threads": ["issues/51977"]}, "$.defects[0].threads[0]"),
        ({"threads": ["http://github.com/openai/harmony/issues/38"]}, "$.defects[0].threads[0]"),
        ({"threads": ["https://github.com/openai/harmony/issues/38, 60"]}, "$.defects[0].threads[0]"),
        ({"threads": ["https://github.com/vllm-project/vllm/(harmony_utils)"]}, "$.defects[0].threads[0]"),
        ({"remedy": "upgrade"}, "$.defects[0].remedy"),
        ({"fixed_in": ""}, "$.defects[0].fixed_in"),
        ({"workaround": "Upgrade."}, "$.defects[0]"),
    ],
)
def test_schema_accepts_complete_rows_only(fields, path):
    assert list_problems(row_with(**fields)) == ([path] if path else [])


def test_each_catalogued_defect_has_one_row():
    assert len(CATALOGUE) == len(set(CATALOGUE)) == 125
    assert sorted(row["id"] for row in document()["defects"]) == sorted(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_row_says_what_becomes_of_it(name):
    row = rows()[name]
    assert [kind for kind in ("switch", "same_as", "outside") if row.get(kind)] != []
    assert [switch for switch in row.get("switch", []) if switch not in DEFECTS] == []
    if "same_as" in row:
        assert rows()[row["same_as"]].get("switch"), "the other one has a switch of its own"


@pytest.mark.parametrize("switch", DEFECTS)
def test_switch_and_rows_name_each_other(switch):
    held_by = {row["id"] for row in document()["defects"] if switch in row.get("switch", [])}
    own = [row for row in document()["own"] if row["switch"] == switch]
    assert set(DEFECTS[switch].catalogue) <= held_by
    assert len(own) == (0 if held_by else 1)


@pytest.mark.parametrize(
    "row", [*document()["defects"], *document()["own"]], ids=lambda row: row.get("id") or row["switch"]
)
def test_row_is_explained_in_single_short_sentences(row):
    texts = {name: row[name] for name in ("sentence", "users_see", "remedy") if name in row}
    assert {name: faults for name, text in texts.items() if (faults := list_faults_of_style(text))} == {}
    assert len(set(texts.values())) == len(texts), "each says something else"


def test_faults_of_style_are_found():
    assert list_faults_of_style("The chat shows `a. B`.") == []
    assert list_faults_of_style("It fails. " + "word " * 25) == ["one sentence", "25 words"]


def test_own_defects_are_switches():
    assert [row["switch"] for row in document()["own"] if row["switch"] not in DEFECTS] == []
