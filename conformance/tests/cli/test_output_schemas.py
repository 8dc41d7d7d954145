"""Each JSON document of the commands names its schema and is valid by it; equal input gives equal bytes."""

import json
from copy import deepcopy

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.cli.main import main
from harmony_conformance.golden import data as golden

SELECT = ["--select", "simple_answer", "--latency", "2"]
WRONG = "reference:defect=output-unparsed"


def schema(name):
    return json.loads((golden.root() / "schema" / name).read_text(encoding="utf-8"))


def problems(document):
    validator = Draft202012Validator(schema(document["$schema"]))
    return [f"{problem.json_path}: {problem.message}" for problem in validator.iter_errors(document)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("outputs")
    main(["run", "reference", *SELECT, "-q", "--out", str(out / "right")])
    main(["run", WRONG, *SELECT, "-q", "--out", str(out / "wrong")])
    load = ["--rate", "100", "--requests", "8", "--output-tokens", "8", "--slo", "e2e_p95=1s"]
    main(["load", "reference", *load, "--out", str(out / "load")])
    rates = ["--task", "named call", "--tries", "1", "--against", "reference"]
    main(["rates", "reference", *rates, "--out", str(out / "rates")])
    return out


COMMANDS = {
    "compare": ["compare", "right", "wrong"],
    "compare rates": ["compare", "rates", "rates"],
    "compare loads": ["compare", "load", "load"],
    "matrix": ["matrix", "right", "wrong", "load", "rates"],
}


def printed(capsys, folder, words, form):
    capsys.readouterr()
    main([words[0], *(str(folder / word) for word in words[1:]), "--format", form])
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_documents_of_commands_are_valid(name, folder, capsys):
    assert problems(json.loads(printed(capsys, folder, COMMANDS[name], "json"))) == []


@pytest.mark.parametrize("name", ["rates/rates.json", "load/load.json"])
def test_files_are_valid(name, folder):
    assert problems(json.loads((folder / name).read_text("utf-8"))) == []


def test_the_document_of_a_run_is_valid(folder, tmp_path, capsys):
    capsys.readouterr()
    main(["run", WRONG, *SELECT, "--format", "json", "--out", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    assert problems(document) == []
    assert document["causes"]


@pytest.mark.parametrize("name", ["run", "comparison", "matrix", "rates", "load"])
def test_a_schema_is_one_and_refuses_another_document(name, folder, capsys):
    described = schema(f"{name}.schema.json")
    Draft202012Validator.check_schema(described)
    assert described["$id"] == f"{name}.schema.json"
    other = "matrix" if name != "matrix" else "compare"
    document = json.loads(printed(capsys, folder, COMMANDS[other], "json"))
    assert problems({**document, "$schema": f"{name}.schema.json"})


def test_a_missing_or_unknown_member_is_no_valid_load(folder):
    document = json.loads((folder / "load" / "load.json").read_text("utf-8"))
    missing = deepcopy(document)
    del missing["loads"][0]["metrics"]["e2e"]["quantiles"]
    assert problems(missing)
    assert problems({**document, "unknown": 1})


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("compare", form) for form in ("text", "json", "html")),
        *(("matrix", form) for form in ("md", "json", "html")),
        ("compare rates", "json"),
        ("compare loads", "text"),
    ],
)
def test_the_same_input_gives_the_same_bytes(name, form, folder, capsys):
    words = COMMANDS[name]
    assert printed(capsys, folder, words, form) == printed(capsys, folder, words, form) != ""


@pytest.mark.parametrize("form", ["html", "md", "junit", "sarif", "ctrf", "github", "badge-svg", "badge-json"])
def test_the_same_report_gives_the_same_bytes(form, folder, capsys):
    words = ["report", "wrong"]
    assert printed(capsys, folder, words, form) == printed(capsys, folder, words, form) != ""
