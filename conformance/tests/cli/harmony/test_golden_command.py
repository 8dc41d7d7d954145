"""`harmony-conformance golden`: what it says of good, changed and broken data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harmony_conformance.cli.harmony import golden as command
from harmony_conformance.cli.main import main
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.vectors import answers_harmony_ref, json_schemas
from harmony_conformance.golden.vectors.implementation import UnavailableImplementation
from harmony_conformance.golden.vectors.vector_file import format_document

KINDS = ("render", "parse", "stream", "typescript")


def run(capsys, *words):
    """Exit code, standard output, standard error."""
    try:
        code = main(["golden", *map(str, words)])
    except SystemExit as refused:
        code = refused.code
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def folder(tmp_path):
    """A small copy: a file of each kind, and the schemas."""
    for path in ("render/tool_calls", "parse/malformed", "parse/lenient", "stream/deltas", "typescript/defaults"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(golden.root() / f"{path}.json", tmp_path / f"{path}.json")
    shutil.copytree(golden.root() / "schema", tmp_path / "schema")
    return tmp_path


class Data:
    """A file of the copy, to be changed."""

    def __init__(self, folder, path):
        self.file = folder / f"{path}.json"
        self.value = json.loads(self.file.read_text("utf-8"))

    def test(self, name):
        return next(test for test in self.value["tests"] if test["id"].endswith(f"/{name}"))

    def save(self):
        self.file.write_text(format_document(self.value), "utf-8")


# check


def test_good_data_conforms(capsys, folder):
    code, said, _ = run(capsys, "check", folder)
    assert code == 0
    lines = said.splitlines()
    assert lines[-1].endswith(" vectors in 5 files: 0 differences")
    for kind in KINDS:
        at = next(index for index, line in enumerate(lines) if line.startswith(f"{kind}: "))
        assert [line.split()[0] for line in lines[at + 1 : at + 3]] == ["harmony_ref", "openai-harmony"]
    assert "  openai-harmony 0.0.8: 45 as expected, 70 differ as noted in the vectors" in lines
    assert any(line.startswith("schemas: jsonschema 4.") for line in lines)


def test_data_of_the_package_is_checked_when_no_folder_is_named(capsys):
    code, said, _ = run(capsys, "check")
    assert (code, " 0 differences" in said.splitlines()[-1]) == (0, True)


CHANGES = {
    "a rendered id that is one more": ("render/tool_calls", "call", "harmony_ref", lambda e: e["tokens"].__setitem__(4, e["tokens"][4] + 1)),
    "a rendered id that is lost": ("render/tool_calls", "call", "openai-harmony", lambda e: e["tokens"].pop()),
    "a text with another letter": ("render/tool_calls", "call-and-answer", "harmony_ref", lambda e: e.update(text=e["text"] + " ")),
    "another wording of an error": ("parse/malformed", "two-stop-tokens", "openai-harmony", lambda e: e["error"].update(text="No.")),
    "another place of an error": ("parse/malformed", "two-stop-tokens", "openai-harmony", lambda e: e["error"].update(position=4)),
    "a message that is lost before an error": ("parse/malformed", "two-stop-tokens", "harmony_ref", lambda e: e["messages"].clear()),
    "a channel that is lost": ("parse/malformed", "broken-arguments", "harmony_ref", lambda e: e["messages"][0].pop("channel")),
    "a delta that comes late": ("stream/deltas", "answer", "openai-harmony", lambda e: e["steps"].reverse()),
    "a step that is lost": ("stream/deltas", "answer", "harmony_ref", lambda e: e["steps"].pop()),
    "a number in another form": ("typescript/defaults", "1e16", "openai-harmony", lambda e: e.update(typescript=e["typescript"].replace("1e16", "1e+16"))),
    "a fault that is not told": ("parse/lenient", "two-stop-tokens", "harmony_ref", lambda e: e["faults"].clear()),
}  # fmt: skip


@pytest.mark.parametrize("row", CHANGES.values(), ids=CHANGES)
def test_changed_answer_is_named(capsys, folder, row):
    path, name, implementation, change = row
    data = Data(folder, path)
    change(data.test(name)["expected"])
    data.save()
    code, said, _ = run(capsys, "check", folder)
    assert code == 1
    named = [line for line in said.splitlines() if line.startswith(f"{path}.json: {path}/{name}: {implementation}: ")]
    assert len(named) == 1
    assert "expected " in named[0]
    assert "actual " in named[0]


def test_difference_that_is_not_noted_is_named(capsys, folder):
    data = Data(folder, "parse/lenient")
    del data.test("two-stop-tokens")["differs"]
    data.save()
    code, said, _ = run(capsys, "check", folder)
    assert code == 1
    assert said.startswith("parse/lenient.json: parse/lenient/two-stop-tokens: openai-harmony: /")


def test_changed_input_is_named(capsys, folder):
    data = Data(folder, "parse/malformed")
    data.test("two-stop-tokens")["input"]["tokens"].pop()
    data.save()
    code, said, _ = run(capsys, "check", folder)
    assert (code, said.startswith("parse/malformed.json: parse/malformed/two-stop-tokens: the tokenizer: ")) == (
        1,
        True,
    )


def test_library_that_is_not_there_is_reported(capsys, folder, monkeypatch):
    alone = [
        answers_harmony_ref.implementation(),
        UnavailableImplementation(name="openai-harmony", reason="not installed"),
    ]
    monkeypatch.setattr(command, "present", lambda: alone)
    code, said, _ = run(capsys, "check", folder)
    assert code == 0
    assert "openai-harmony not run: not installed" in said.splitlines()
    assert said.splitlines()[-1].endswith(" run by one implementation")


def test_schemas_that_are_not_checked_are_reported(capsys, folder, monkeypatch):
    monkeypatch.setattr(json_schemas, "validator_version", lambda: None)
    code, said, _ = run(capsys, "check", folder)
    assert (code, "schemas: not checked, jsonschema is not installed" in said.splitlines()) == (0, True)


def test_data_that_nobody_answers_is_not_called_right(capsys, folder, monkeypatch):
    for kind in KINDS:
        shutil.rmtree(folder / kind)
    shutil.copytree(golden.root() / "template", folder / "template")
    monkeypatch.setattr(command, "present", lambda: [replace(answers_harmony_ref.implementation(), answers={})])
    code, said, told = run(capsys, "check", folder)
    assert (code, said, told.count("\n")) == (2, "", 1)
    assert "nothing could be checked" in told


# data that is none


def doubled_id(folder):
    data = Data(folder, "parse/malformed")
    data.value["tests"].append(data.value["tests"][0])
    data.save()


def edited(path, change):
    def edit(folder):
        data = Data(folder, path)
        change(data.value)
        data.save()

    return edit


def first(change):
    return lambda value: change(value["tests"][0])


def lenient_without_flags(value):
    value["tests"][0]["flags"] = []
    value["tests"][1]["flags"] = [*value["notes"]]


def lone_surrogate(folder):
    path = folder / "parse/malformed.json"
    path.write_text(path.read_text("utf-8").replace('"comment": "', '"comment": "\\ud800', 1), "utf-8")


def malformed(change):
    """A change of parse/malformed."""
    return edited("parse/malformed", change)


NOTE = {"bug_class": "ER", "effect": "x", "links": []}
BROKEN = {
    "a folder that is not there": (shutil.rmtree, "not a directory: "),
    "a folder without vectors": (lambda folder: [shutil.rmtree(folder / kind) for kind in KINDS], "no vectors in "),
    "a file that is cut off": (lambda folder: (folder / "parse/malformed.json").write_text("{"), "parse/malformed.json: invalid JSON: "),
    "an empty file": (lambda folder: (folder / "parse/malformed.json").write_text(""), "parse/malformed.json: invalid JSON: "),
    "a file that is no UTF-8": (lambda folder: (folder / "parse/a.json").write_bytes(b"\xff"), "parse/a.json: invalid UTF-8 at byte 0"),
    "a file that is a list": (lambda folder: (folder / "parse/a.json").write_text("[]"), "parse/a.json: expected a JSON object"),
    "a file that is a folder": (lambda folder: (folder / "parse/a.json").mkdir(), "cannot read parse/a.json: "),
    "a file of another name": (lambda folder: (folder / "parse/a.txt").touch(), "parse/a.txt: expected a .json file"),
    "half a character": (lone_surrogate, "parse/malformed.json: lone surrogate"),
    "an unknown kind": (lambda folder: (folder / "rendr").mkdir(), "invalid kind of vectors rendr: expected one of render, "),
    "an id that two tests have": (doubled_id, "parse/malformed.json: duplicate id 'parse/malformed/plain-text'"),
    "an id of another file": (malformed(first(lambda test: test.update(id="parse/x/y"))), "test 0: invalid id 'parse/x/y': expected"),
    "a member too many": (malformed(lambda value: value.update(more=1)), "invalid members: expected"),
    "a test without an input": (malformed(first(lambda test: test.pop("input"))), "parse/malformed/plain-text: missing member input"),
    "a test that is a number": (malformed(lambda value: value["tests"].insert(0, 5)), "test 0: missing member id"),
    "no tests": (malformed(lambda value: value["tests"].clear()), "no tests"),
    "a comment that is no sentence": (malformed(first(lambda test: test.update(comment="x"))), "invalid comment: expected a sentence"),
    "a flag without a note": (malformed(first(lambda test: test["flags"].append("V99"))), "invalid flag 'V99': expected a key of the notes"),
    "a flag that is no text": (malformed(first(lambda test: test["flags"].append({}))), "invalid flag {}: expected a key of the notes"),
    "a note without a flag": (malformed(lambda value: value["notes"].update(x=NOTE)), "unused note 'x'"),
    "a result that there is not": (malformed(first(lambda test: test.update(result="bad"))),
        "invalid result: expected one of valid, invalid, acceptable, got 'bad'"),
    "an error that is valid": (malformed(first(lambda test: test.update(result="valid"))), "if and only if the result is invalid"),
    "a difference without a reason": (edited("parse/lenient", lenient_without_flags), "`differs` needs a flag with the reason"),
}  # fmt: skip
AGAINST_SCHEMA = {
    "a mode that there is not": (
        edited("render/tool_calls", first(lambda test: test["input"].update(mode="all"))),
        "render/tool_calls.json violates its schema at $.tests[0].input",
    ),
    "a token that is a text": (
        malformed(first(lambda test: test["input"].update(text=None, tokens=["x"]))),
        "parse/malformed.json violates its schema at $.tests[0].input.tokens",
    ),
    "a schema that is not there": (
        lambda folder: (folder / "schema/parse.schema.json").unlink(),
        "schema/parse.schema.json is missing",
    ),
    "a schema that is cut off": (
        lambda folder: (folder / "schema/parse.schema.json").write_text("{"),
        "schema/parse.schema.json: invalid JSON: ",
    ),
}


def refused_in_one_line(capsys, *words):
    code, _, told = run(capsys, *words)
    assert code == 2
    assert told.count("\n") == 1
    assert told.startswith("harmony-conformance golden: ")
    return told


@pytest.mark.parametrize("action", ["check", "write"])
@pytest.mark.parametrize(("spoil", "said"), BROKEN.values(), ids=BROKEN)
def test_broken_data_is_reported(capsys, folder, spoil, said, action):
    spoil(folder)
    assert said in refused_in_one_line(capsys, action, folder)


@pytest.mark.parametrize(("spoil", "said"), AGAINST_SCHEMA.values(), ids=AGAINST_SCHEMA)
def test_data_against_its_schema_is_reported(capsys, folder, spoil, said):
    spoil(folder)
    assert said in refused_in_one_line(capsys, "check", folder)


UNREADABLE = {
    "an input of another kind": ("parse/malformed", {"schema": {}}, "unknown member 'schema' in input"),
    "a mode that there is not": ("render/tool_calls", {"messages": [], "mode": "all"}, "invalid mode: expected one of message, "),
    "no messages": ("render/tool_calls", {"mode": "training"}, "invalid messages: expected a list"),
    "two messages for one": ("render/tool_calls", {"messages": [1, 2], "mode": "message"}, "invalid messages: expected a list of one message"),
    "a flag that is a number": ("render/tool_calls", {"messages": [], "mode": "training", "auto_drop_analysis": 1},
        "invalid auto_drop_analysis: expected true or false"),
    "a token below zero": ("parse/malformed", {"text": None, "tokens": [-1], "role": None, "strictness": "strict"}, "invalid token id -1: "),
    "a token beyond 32 bits": ("parse/malformed", {"text": None, "tokens": [2**32], "role": None, "strictness": "strict"}, "invalid token id 4294967296: "),
    "a role that there is not": ("parse/malformed", {"text": "", "role": "bob", "strictness": "strict"}, "invalid role: expected one of user, "),
    "no role": ("parse/malformed", {"text": "", "strictness": "strict"}, "text and role are required"),
    "nothing to observe": ("stream/deltas", {"text": "", "role": None, "strictness": "strict"}, "invalid observe: expected a list of names"),
    "no schema": ("typescript/defaults", {}, "schema is missing"),
}  # fmt: skip


@pytest.mark.parametrize("row", UNREADABLE.values(), ids=UNREADABLE)
def test_input_that_is_none_is_reported_without_jsonschema_too(capsys, folder, monkeypatch, row):
    path, given, said = row
    monkeypatch.setattr(json_schemas, "validator_version", lambda: None)
    data = Data(folder, path)
    data.value["tests"][0]["input"] = given
    data.save()
    code, _, told = run(capsys, "check", folder)
    assert (code, told.count("\n")) == (2, 1)
    assert f"{path}.json: {data.value['tests'][0]['id']}: " in told
    assert said in told


# write


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def test_nothing_changes_when_nothing_has_changed(capsys, folder):
    before = content(folder)
    code, said, _ = run(capsys, "write", folder)
    assert (code, said) == (0, "5 files, 0 written\n")
    assert content(folder) == before


def test_answers_are_filled_in(capsys, folder):
    before = content(folder)
    for path in ("render/tool_calls", "parse/lenient", "stream/deltas"):
        data = Data(folder, path)
        for test in data.value["tests"]:
            test["expected"] = None
            test.update({"differs": {"openai-harmony": None}} if "differs" in test else {})
        data.save()
    code, said, _ = run(capsys, "write", folder)
    assert (code, said.splitlines()[-1]) == (0, "5 files, 3 written")
    assert content(folder) == before


def test_tokens_are_filled_in(capsys, folder):
    before = content(folder)
    data = Data(folder, "parse/malformed")
    for test in data.value["tests"]:
        if test["input"]["text"] is not None:
            del test["input"]["tokens"]
    data.save()
    assert run(capsys, "write", folder)[0] == 0
    assert content(folder) == before


REFUSED = {
    "a difference that is not marked": (
        "parse/lenient",
        lambda test: test.pop("differs"),
        "harmony_ref and openai-harmony disagree: /",
    ),
    "a difference that is none": (
        "render/tool_calls",
        lambda test: test.update(differs={"openai-harmony": None}),
        "invalid `differs`: openai-harmony agrees with harmony_ref",
    ),
    "an implementation that there is not": (
        "render/tool_calls",
        lambda test: test.update(differs={"bob": None}),
        "invalid `differs`: no answer of bob",
    ),
    "our own difference from us": (
        "render/tool_calls",
        lambda test: test.update(differs={"harmony_ref": None}),
        "invalid `differs`: no answer of harmony_ref",
    ),
    "an error that was not foreseen": (
        "render/tool_calls",
        lambda test: test["input"]["messages"].append({"role": "tool", "content": "x"}),
        "invalid result acceptable: the answer is Tools should have a name!",
    ),
}


@pytest.mark.parametrize(("path", "change", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_agreed_on_is_not_written(capsys, folder, path, change, problem):
    data = Data(folder, path)
    change(data.value["tests"][0])
    data.value["tests"][1]["expected"] = None
    data.save()
    before = content(folder)
    code, said, _ = run(capsys, "write", folder)
    first_line, *_, last_line = said.splitlines()
    assert code == 1
    assert first_line.startswith(f"{path}.json: {data.value['tests'][0]['id']}: {problem}")
    assert last_line == "nothing written: the implementations disagree on 1 vector"
    assert content(folder) == before


def test_one_implementation_can_not_agree(capsys, folder, monkeypatch):
    monkeypatch.setattr(command, "present", lambda: [answers_harmony_ref.implementation()])
    data = Data(folder, "typescript/defaults")
    data.value["tests"][0]["expected"] = None
    data.save()
    code, said, _ = run(capsys, "write", folder)
    assert code == 1
    assert "typescript/defaults/text: needs answers of two implementations, got those of: harmony_ref" in said


# list, copy


def test_every_vector_and_every_other_file_has_a_line(capsys):
    code, said, _ = run(capsys, "list")
    lines = said.splitlines()
    assert code == 0
    assert len(set(lines)) == len(lines)
    assert {"render/simple/user", "parse/headers/two-recipients", "scenarios/simple_answer", "api/plain"} <= set(lines)
    assert "render/simple" not in lines


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copy_to_a_loop_of_links_is_one_line(capsys, tmp_path):
    (loop := tmp_path / "loop").symlink_to(loop)
    code, said, told = run(capsys, "copy", loop)
    assert (code, said) == (2, "")
    assert told.endswith(("Too many levels of symbolic links\n", "File exists\n"))
    assert len(told.splitlines()) == 1


def test_copy_is_the_same_and_can_be_checked(capsys, tmp_path):
    code, said, _ = run(capsys, "copy", tmp_path / "new")
    assert code == 0
    copied = files_of(tmp_path / "new")
    assert copied == files_of(Path(golden.root()))
    assert said.startswith(f"{len(copied)} files copied to ")
    assert run(capsys, "check", tmp_path / "new")[0] == 0


def test_folder_with_something_in_it_is_refused(capsys, tmp_path):
    (tmp_path / "mine").touch()
    code, _, told = run(capsys, "copy", tmp_path)
    assert (code, told) == (
        2,
        f"harmony-conformance golden: invalid DIR: expected a new or empty folder, got {tmp_path}\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_file_in_place_of_a_folder_is_refused(capsys, tmp_path):
    (tmp_path / "mine").touch()
    code, _, told = run(capsys, "copy", tmp_path / "mine")
    assert (code, told) == (2, f"harmony-conformance golden: {tmp_path / 'mine'}: File exists\n")


def test_copy_into_the_data_itself_is_refused(capsys):
    target = golden.root() / "copy"
    code, _, told = run(capsys, "copy", target)
    assert (code, told) == (
        2,
        f"harmony-conformance golden: invalid DIR: expected a folder outside the golden data, got {target}\n",
    )
    assert not target.exists()


@pytest.mark.parametrize("words", [[], ["bake"], ["write"], ["copy"], ["check", "a", "b"]], ids=" ".join)
def test_other_words_are_refused_in_one_line(capsys, words):
    code, _, told = run(capsys, *words)
    assert (code, told.count("\n")) == (2, 1)
