"""`golden/defects.json`: every defect that was seen in a live server is switchable, the same as another, or outside for a reason."""

import json
from functools import cache

import jsonschema
import pytest

from harmony_conformance.golden import data as golden
from harmony_conformance.reference_server.defects import DEFECTS

NUMBERS = {
    "V": (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 17, 18, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 31, 33, 34, 35, 36, 38, 39, 41, 42),
    "O": (1, 2, 4, 5, 7, 8, 9, 10, 12, 14, 15, 17, 18, 19, 20, 21, 22),
    "L": (1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 15),
    "J": (1, 2, 5, 6, 7, 9, 10, 11),
    "S": (1, 2, 3, 4, 6, 7, 9),
    "T": (1, 2, 3, 4, 5, 7),
    "R": (1, 3),
    "M": (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15),
    "P": (1, 2, 4, 6, 7, 8, 9, 10, 11, 12),
}  # fmt: skip
CATALOGUE = [f"{engine}{number:02}" for engine, numbers in NUMBERS.items() for number in numbers]


@cache
def document():
    return json.loads((golden.root() / "defects.json").read_text("utf-8"))


@cache
def rows():
    return {row["id"]: row for row in document()["defects"]}


def test_file_is_canonical_and_follows_its_schema():
    written = (golden.root() / "defects.json").read_text("utf-8")
    assert written == json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
    schema = json.loads((golden.root() / "schema" / "defects.schema.json").read_text("utf-8"))
    problems = jsonschema.Draft202012Validator(schema).iter_errors(document())
    assert [f"{problem.json_path}: {problem.message}" for problem in problems] == []


def test_each_catalogued_defect_has_one_row():
    assert len(CATALOGUE) == len(set(CATALOGUE)) == 108
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


def test_own_defects_are_switches():
    assert [row["switch"] for row in document()["own"] if row["switch"] not in DEFECTS] == []
