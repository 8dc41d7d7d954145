"""The vector files: agreed on by two implementations, in their one form, and every change of an answer is noticed."""

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError
from unittest.mock import Mock

import pytest

import harmony_ref.huggingface
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.vectors import answers_huggingface, answers_openai_harmony
from harmony_conformance.golden.vectors.agreement import compare, complete
from harmony_conformance.golden.vectors.implementation import Implementation, UnavailableImplementation
from harmony_conformance.golden.vectors.implementations import KINDS, present
from harmony_conformance.golden.vectors.json_schemas import validate_files
from harmony_conformance.golden.vectors.vector_file import VectorFile, format_document, read_folder

OWN = ("render", "parse", "stream", "typescript")
LEAST = {"render": 150, "parse": 120, "stream": 40, "typescript": 120}
FILES = read_folder(golden.root(), KINDS)
AGREED = [file for file in FILES if file.kind in OWN]
TESTS = [
    pytest.param(test, id=test["id"]) for file in AGREED for test in file.document["tests"] if "text" in test["input"]
]
RENDERED = [
    pytest.param(test, id=test["id"]) for file in AGREED if file.kind == "render" for test in file.document["tests"]
]
PRINTED = [pytest.param(test, id=test["id"]) for file in AGREED for test in file.document["tests"] if "printed" in test]


@cache
def implementations():
    """Both; without the second nothing here says anything."""
    ours, library = present()
    assert isinstance(library, Implementation), library
    return [ours, library]


# the files


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path)
def test_file_is_in_its_one_form(file):
    assert (golden.root() / file.path).read_text("utf-8") == format_document(file.document)


def test_files_follow_their_schemas():
    validate_files(golden.root(), FILES)


def test_there_are_enough_of_each_kind():
    counts = Counter(vector.id.partition("/")[0] for file in FILES for vector in file.vectors)
    assert {kind: counts[kind] for kind, least in LEAST.items() if counts[kind] < least} == {}
    assert counts.total() >= 400


def test_flags_that_look_like_ids_of_the_catalogue_are_such():
    document = json.loads((golden.root() / "defects.json").read_text("utf-8"))
    flags = {flag for file in AGREED for flag in file.document["notes"] if re.fullmatch(r"[A-Z]\d\d", flag)}
    assert {"V01", "V02", "V04", "S01"} <= flags
    assert flags - {row["id"] for row in document["defects"]} == set()


# two implementations


def test_both_implementations_answer_each_vector_as_the_file_says():
    comparison = compare(AGREED, implementations())
    assert comparison.differences == []
    assert (comparison.single_answer_ids, comparison.unanswered_ids) == ([], [])


def test_our_answers_to_the_other_kinds_are_those_of_the_files():
    # The second implementation of these is asked by the tests of harmony_ref.
    comparison = compare([file for file in FILES if file.kind not in OWN], implementations())
    assert comparison.differences == []
    assert sum(comparison.agreement_counts.values()) >= 100


def test_only_lenient_parsing_is_not_agreed_on():
    differing = [vector for file in AGREED for vector in file.vectors if vector.differs]
    assert {vector.input.get("strictness") for vector in differing} == {"lenient"}
    assert all("not-in-the-library" in vector.flags for vector in differing)


@pytest.mark.parametrize("test", TESTS)
def test_tokens_are_those_of_the_text_by_the_library(test, library):
    given = test["input"]
    if given["text"] is None:
        assert "text-is-not-enough" in test["flags"]
    else:
        assert library.encode(given["text"], allowed_special="all") == given["tokens"]


@pytest.mark.parametrize("test", RENDERED)
def test_flag_says_where_the_text_does_not_determine_the_tokens(test, library):
    if "error" not in test["expected"]:
        again = library.encode(test["expected"]["text"], allowed_special="all")
        assert (again != test["expected"]["tokens"]) == ("text-is-not-enough" in test["flags"])


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (PackageNotFoundError(), "not installed"),
        (["0.0.9"], "0.0.9 is installed, the vectors are those of 0.0.8"),
    ],
    ids=["not installed", "another version"],
)
def test_library_that_can_not_take_part_says_why(monkeypatch, found, reason):
    monkeypatch.setattr(answers_openai_harmony, "version", Mock(side_effect=found))
    assert answers_openai_harmony.implementation.__wrapped__() == UnavailableImplementation(
        name="openai-harmony", reason=reason
    )


def test_without_the_extra_nobody_answers_for_templates(monkeypatch):
    monkeypatch.setitem(sys.modules, "harmony_ref.huggingface.golden_answers", None)
    monkeypatch.delattr(harmony_ref.huggingface, "golden_answers", raising=False)
    assert answers_huggingface.answers() == {}
    assert present()[-1] == UnavailableImplementation(
        name="harmony_ref for template and response_schema", reason="needs the extra huggingface"
    )


# every change of an answer is noticed


def another(value):
    """A value that differs in one place only: the last leaf, or one more element where there is none."""
    match value:
        case bool() | None:
            return "x"
        case int():
            return value + 1
        case str():
            return value + "x"
        case []:
            return [0]
        case list():
            return [*value[:-1], another(value[-1])]
        case {}:
            *names, last = [*value] or [None]
            return {**{name: value[name] for name in names}, last: another(value[last])} if value else {"x": 1}


def shorter(value):
    """Without the last element of its last list, or with another leaf where there is none."""
    match value:
        case dict() if any(isinstance(member, list) and member for member in value.values()):
            name = [name for name, member in value.items() if isinstance(member, list) and member][-1]
            return {**value, name: value[name][:-1]}
        case _:
            return another(value)


def first_changed(value):
    """As `another`, but in the first place."""
    match value:
        case dict() if value:
            first, *_ = value
            return {**value, first: first_changed(value[first])}
        case list() if value:
            return [first_changed(value[0]), *value[1:]]
        case _:
            return another(value)


def without_a_member(value):
    *names, _ = value
    return {name: value[name] for name in names}


def changed(file: VectorFile, change) -> VectorFile:
    return replace(file, vectors=[replace(vector, expected=change(vector.expected)) for vector in file.vectors])


@pytest.mark.parametrize(
    "change", [another, first_changed, shorter, without_a_member], ids=lambda change: change.__name__
)
def test_every_changed_answer_is_named(change):
    comparison = compare([changed(file, change) for file in AGREED], implementations())
    named = {difference.id for difference in comparison.differences}
    assert {vector.id for file in AGREED for vector in file.vectors} - named == set()


def test_changed_answers_that_differ_are_named():
    files = [
        replace(file, vectors=[replace(vector, differs={"openai-harmony": another(vector.differs["openai-harmony"])})])
        for file in AGREED
        for vector in file.vectors
        if vector.differs
    ]
    comparison = compare(files, implementations())
    assert {difference.id for difference in comparison.differences} == {file.vectors[0].id for file in files}
    assert {difference.implementation for difference in comparison.differences} == {"openai-harmony"}


def test_changed_tokens_of_a_text_are_named():
    files = [
        replace(file, vectors=[replace(vector, input={**vector.input, "tokens": [*vector.input["tokens"], 64]})])
        for file in AGREED
        for vector in file.vectors
        if vector.input.get("text") is not None
    ]
    named = {difference.id for difference in compare(files, implementations()).differences}
    assert named == {file.vectors[0].id for file in files}


def test_true_is_not_one():
    file = next(file for file in AGREED if file.path == "parse/malformed.json")
    vector = next(vector for vector in file.vectors if vector.id.endswith("/stop-token-first"))
    assert vector.expected["error"]["position"] == 1
    expected = {**vector.expected, "error": {**vector.expected["error"], "position": True}}
    comparison = compare([replace(file, vectors=[replace(vector, expected=expected)])], implementations())
    assert len(comparison.differences) == 2


def test_what_the_implementations_do_not_agree_on_is_not_filled_in():
    def lies(given):
        return {**implementations()[1].answers["typescript"](given), "more": 1}

    ours, library = implementations()
    file = next(file for file in AGREED if file.path == "typescript/nullable.json")
    other = replace(library, answers={**library.answers, "typescript": lies})
    _, disagreements = complete(file, [ours, other])
    assert [disagreement.id for disagreement in disagreements] == [vector.id for vector in file.vectors]
    assert "harmony_ref and openai-harmony disagree: /more" in disagreements[0].problem


# the guide

EXAMPLES = {
    "Harmony renderer library": ["renderer-sample", "stream-sample"],
    "Message format": ["message-form"],
    "Chat conversation format": ["chat-input", "chat-output", "history-form"],
    "System message format": ["system", "system-with-functions"],
    "Developer message format": ["developer-form"],
    "Reasoning": ["effort-line", "reasoning-output", "quoted-reasoning", "quoted-answer"],
    "Handling reasoning output in subsequent sampling": ["first-input", "first-output", "next-input"],
    "Defining available tools": ["function-form", "functions"],
    "Receiving tool calls": ["call"],
    "Handling tool calls": ["tool-form", "tool-answer", "input-with-a-tool-answer"],
    "Preambles": ["preamble"],
    "Structured output": ["response-format-form", "response-format"],
    "Browser tool": ["browser"],
    "Python tool": ["python"],
}
"""Every example of the guide, by its heading: its 25 blocks, and the two forms that stand within a sentence."""

WHITE_SPACE = {
    "guide-newline-between-messages",
    "guide-newlines-lost",
    "guide-blank-lines-lost",
    "guide-trailing-newline",
}
OTHER_WORDS = {
    "guide-excerpt": lambda text, printed: bare(filled_in(printed)) in bare(text),
    "guide-recipient-after-channel": lambda text, printed: recipient_first(bare(printed)) == bare(text),
}


@pytest.mark.parametrize("document", ["guide_ja", "guide_ko_a", "guide_ko_b"])
def test_every_example_of_the_guide_is_a_vector(document):
    names = {vector.id.rpartition("/")[2] for file in AGREED if file.name == document for vector in file.vectors}
    examples = [name for names in EXAMPLES.values() for name in names]
    assert len(examples) == 27
    assert {name.removesuffix("-as-printed") for name in names} == set(examples)


def bare(text):
    return re.sub(r"\s", "", text)


def filled_in(printed):
    """With plain quotation marks, and the schema that the vector has."""
    return re.sub("[“”]", '"', printed).replace("{schema}", "{}")


def recipient_first(text):
    return re.sub(r"(<\|start\|>assistant)(<\|channel\|>commentary)(to=[\w.]+)", r"\1\3\2", text)


@pytest.mark.parametrize("test", PRINTED)
def test_what_the_guide_prints_is_the_vector_but_for_what_its_flags_say(test):
    text = test["input"].get("text") or test["expected"]["text"]
    printed, flags = test["printed"], set(test["flags"])
    if test["id"].endswith("-as-printed"):
        assert text == printed
    elif apart := flags & set(OTHER_WORDS):
        assert all(OTHER_WORDS[flag](text, printed) for flag in apart)
    elif text != printed:
        assert flags & WHITE_SPACE
        assert bare(text) == bare(printed)
