"""Grades of implementations: planted faults are failures with one cause, and what is no failure is counted apart."""

import copy
import json
import random
import re
from functools import cache
from xml.etree import ElementTree as ET

import pytest

from harmony_conformance.golden import data as golden
from harmony_conformance.golden.grading.answer import KINDS, select_vectors, vector_kind
from harmony_conformance.golden.grading.grade import GradeReport, VectorOutcome, grade_answer
from harmony_conformance.golden.grading.grade_comparison import compare_grades, comparison_json, comparison_text
from harmony_conformance.golden.grading.grade_formats import report_json, report_junit
from harmony_conformance.golden.grading.grade_text import flag_effects, report_text
from harmony_conformance.golden.vectors.implementations import KINDS as ALL_KINDS
from harmony_conformance.golden.vectors.implementations import present
from harmony_conformance.golden.vectors.vector_file import VectorResult, read_folder
from harmony_ref import encode, encode_with_special_tokens

FILES = read_folder(golden.root(), ALL_KINDS)
VECTORS = {vector.id: vector for vector in select_vectors(FILES, KINDS)}
EFFECTS = flag_effects(FILES)
FAILED, PASSED, DIFFERENT = VectorOutcome.FAILED, VectorOutcome.PASSED, VectorOutcome.DIFFERENT


@cache
def answers_of(implementation):
    answers = present()[implementation].answers
    return {name: answers[vector_kind(vector)](vector.input) for name, vector in VECTORS.items()}


def report_of(change=lambda kind, answer: answer, *, implementation=0, kinds=KINDS):
    """Grades of the answers of an implementation, each of them changed."""
    answers = answers_of(implementation)
    changed = [
        (vector, change(vector_kind(vector), copy.deepcopy(answers[name])))
        for name, vector in VECTORS.items()
        if vector_kind(vector) in kinds
    ]
    return GradeReport(name="tested", grades=[grade_answer(vector, answer) for vector, answer in changed])


def grade(name, answer):
    return grade_answer(VECTORS[name], answer)


def expected(name):
    return copy.deepcopy(VECTORS[name].expected)


# implementations that conform


@pytest.mark.parametrize("number", [0, 1], ids=["harmony_ref", "openai-harmony"])
def test_both_implementations_conform(number):
    report = report_of(implementation=number)
    assert (report.verdict, report.exit_code, report.count(FAILED)) == ("conforms", 0, 0)
    different = {one.vector.result for one in report.with_outcome(DIFFERENT)}
    assert different == ([set(), {VectorResult.ACCEPTABLE}][number])


def test_null_members_wordings_and_text_parts_are_no_difference():
    def change(_, answer):
        for message in answer.get("messages", []):
            message.setdefault("recipient", None)
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
        if "error" in answer:
            answer["error"] = "other words"
        return answer

    assert report_of(change, kinds=("parse",)).count(FAILED) == 0


# planted faults: (change of an answer, kinds, cause, least number of vectors)


def without_recipient(_, answer):
    for message in answer.get("messages", []):
        message.pop("recipient", None)
    for step in [answer.get("before", {}), answer.get("end", {}), *answer.get("steps", [])]:
        if "recipient" in step:
            step["recipient"] = None
    return answer


def without_channels_line(kind, answer):
    if "text" not in answer:
        return answer
    text = re.sub(r"(\n\n)?# Valid channels: [^\n<]*", "", answer["text"])
    return answer if text == answer["text"] else {"tokens": encode_with_special_tokens(text)}


def with_typed_markers(_, answer):
    return {"tokens": encode_with_special_tokens(answer["text"])} if "text" in answer else answer


def with_spelled_markers(_, answer):
    return {"tokens": encode(answer["text"])} if answer.get("text") else answer


def without_errors(_, answer):
    if "error" in answer:
        return {"tokens": [], "messages": answer.get("messages", [])}
    return answer


def always_refused(_, __):
    return {"error": {"kind": "parse", "text": "not written yet"}}


def cut_text(_, answer):
    for message in answer.get("messages", []):
        if isinstance(message["content"], str) and len(message["content"]) > 2:
            message["content"] = message["content"][:-1]
    return answer


def broken_characters(_, answer):
    for message in answer.get("messages", []):
        if isinstance(message["content"], str):
            message["content"] = re.sub(r"[^\x00-\x7f]", "\ufffd", message["content"])
    return answer


def last_message_lost(_, answer):
    return {**answer, "messages": answer.get("messages", [])[:-1]}


def late_deltas(_, answer):
    before = None
    for step in answer.get("steps", []):
        if "delta" in step:
            step["delta"], before = before, step["delta"]
    return answer


CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
FAULTS = {
    "a parser drops the recipient": (without_recipient, ("parse", "stream"), "the recipient of a message is lost", 50),
    "a renderer omits the channels": (
        without_channels_line,
        ("render",),
        f'a system message lacks the line "{CHANNELS}"',
        30,
    ),
    "a renderer reads typed markers": (
        with_typed_markers,
        ("render",),
        "text of a message becomes a special token: prompt injection",
        17,
    ),
    "a renderer spells its markers": (
        with_spelled_markers,
        ("render",),
        "a special token is spelled in ordinary tokens",
        150,
    ),
    "a parser accepts everything": (without_errors, ("parse",), "malformed input is accepted", 70),
    "a renderer accepts everything": (without_errors, ("render",), "an invalid conversation is rendered", 20),
    "a parser refuses everything": (always_refused, ("parse",), "well-formed input is refused: not written yet", 90),
    "a parser loses the last letter": (cut_text, ("parse",), "the content of a message differs", 50),
    "a parser breaks characters": (
        broken_characters,
        ("parse",),
        "the content of a message differs: characters are broken",
        9,
    ),
    "a parser loses a message": (last_message_lost, ("parse",), "fewer messages than expected", 90),
    "a stream is late": (late_deltas, ("stream",), "a delta differs: it is empty", 20),
}


@pytest.mark.parametrize(("change", "kinds", "sentence", "least"), FAULTS.values(), ids=FAULTS)
def test_planted_fault_is_one_cause(change, kinds, sentence, least):
    report = report_of(change, kinds=kinds)
    assert (report.verdict, report.exit_code) == ("does not conform", 1)
    first = report.causes[0]
    assert first.sentence == sentence
    assert len(first.grades) >= least
    assert len(first.grades) >= 0.85 * report.count(FAILED)
    assert sum(len(cause.grades) for cause in report.causes) == report.count(FAILED)


def test_other_splits_of_the_right_text_are_a_failure():
    text = expected("render/simple/user")["text"]
    pieces = re.findall(r"<\|[a-z]+\|>|.", text, re.DOTALL)
    one = grade(
        "render/simple/user", {"tokens": [token for piece in pieces for token in encode_with_special_tokens(piece)]}
    )
    assert (one.outcome, one.traits) == (FAILED, ("the text is right, and split into other tokens",))


def test_cause_shows_the_place_of_the_first_token():
    text = report_text(report_of(without_channels_line, kinds=("render",)), EFFECTS)
    assert text.splitlines()[0] == "tested: does not conform"
    assert 'expected "\\n\\n# Valid channels: analysis' in text or 'expected "# Valid channels: analysis' in text
    assert re.search(r"at token \d+, in .* of a system message", text)


def test_effect_of_a_common_flag_is_shown():
    report = report_of(with_typed_markers, kinds=("render",))
    assert f"effect (typed-markers): {EFFECTS['typed-markers']}" in report_text(report, EFFECTS)


# every change of an answer is noticed


def leaves(value, path=()):
    """The path of every value without members, but for the wordings of errors."""
    if isinstance(value, dict) and value:
        return [
            leaf
            for name in value
            if (name, path[-1:]) != ("text", ("error",))
            for leaf in leaves(value[name], (*path, name))
        ]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def with_another(value, path):
    """The value with another leaf there."""
    if not path:
        return {bool: not value, int: value + 1 if isinstance(value, int) else 0, str: f"{value}x"}.get(
            type(value), "x"
        )
    changed = copy.copy(value)
    changed[path[0]] = with_another(value[path[0]], path[1:])
    return changed


@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_value_is_noticed(kind):
    chooser = random.Random(kind)
    unnoticed, tried = [], 0
    for name, vector in VECTORS.items():
        every = leaves(vector.expected) if vector_kind(vector) == kind else []
        for path in chooser.sample(every, min(12, len(every))):
            tried += 1
            outcome = grade(name, with_another(vector.expected, path)).outcome
            wanted = DIFFERENT if vector.result is VectorResult.ACCEPTABLE else FAILED
            unnoticed += [(name, path, outcome)] if outcome not in (wanted, VectorOutcome.UNREADABLE) else []
    assert tried > 200
    assert unnoticed == []


@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_any_shape_have_a_grade(kind):
    chooser = random.Random(kind)
    values = [
        None,
        True,
        0,
        -1,
        1.5,
        2**70,
        "",
        "x",
        "<|start|>",
        "\ud800",
        [],
        [[]],
        [None],
        {},
        {"role": None},
        [{"role": "user"}, 1],
    ]
    names = [
        "tokens",
        "text",
        "messages",
        "steps",
        "before",
        "end",
        "remainder",
        "faults",
        "typescript",
        "error",
        "unsupported",
        "other",
    ]
    for name, vector in VECTORS.items():
        if vector_kind(vector) == kind:
            answer = {one: chooser.choice(values) for one in chooser.sample(names, 4)}
            one = grade(name, {**(vector.expected if chooser.random() < 0.5 else {}), **answer})
            assert json.dumps(report_json(GradeReport(name="tested", grades=[one])))
            assert ET.fromstring(report_junit(GradeReport(name="tested", grades=[one])))


# one answer

CALL = "parse/headers/call-recipient-first"
ACCEPTABLE = "parse/headers/role-twice"
INVALID = "parse/headers/two-recipients"
TYPED = next(
    name for name, one in VECTORS.items() if name.startswith("render/injection/") and "text-is-not-enough" in one.flags
)


@pytest.mark.parametrize(
    ("name", "answer", "outcome"),
    [
        (CALL, {"unsupported": True}, VectorOutcome.UNSUPPORTED),
        (CALL, {"messages": []}, FAILED),
        (CALL, {"message": []}, VectorOutcome.UNREADABLE),
        (CALL, {"messages": "none"}, VectorOutcome.UNREADABLE),
        (CALL, {}, VectorOutcome.UNREADABLE),
        (ACCEPTABLE, {"messages": []}, DIFFERENT),
        (ACCEPTABLE, {"error": "refused"}, DIFFERENT),
        (INVALID, {"error": "refused"}, PASSED),
        (INVALID, {"error": {"kind": "parse"}}, PASSED),
        (INVALID, {"error": {"kind": "render"}}, FAILED),
        (INVALID, {"error": {"position": 1}}, FAILED),
        (INVALID, {"messages": []}, FAILED),
        (INVALID, {"messages": [], "faults": [{"rule": "recipient"}]}, DIFFERENT),
        (INVALID, {"messages": [], "faults": []}, FAILED),
        ("render/simple/user", {"tokens": ["a"]}, VectorOutcome.UNREADABLE),
        ("render/simple/user", {"tokens": [True]}, VectorOutcome.UNREADABLE),
        ("render/simple/user", {"tokens": []}, FAILED),
        ("render/simple/user", {"tokens": [10**30]}, FAILED),
        ("render/simple/user", {"text": "\ud800"}, FAILED),
        ("stream/deltas/answer", {"steps": []}, FAILED),
        ("stream/deltas/answer", {"steps": [1]}, VectorOutcome.UNREADABLE),
    ],
)
def test_outcome_of_one_answer(name, answer, outcome):
    assert grade(name, answer).outcome is outcome


def test_a_text_alone_is_compared_unless_it_does_not_determine_the_tokens():
    text = grade("render/simple/user", {"text": expected("render/simple/user")["text"]})
    assert (text.outcome, text.uncompared) == (PASSED, {"tokens"})
    assert grade("render/simple/user", {"text": "<|start|>user<|message|>"}).outcome is FAILED
    typed = grade(TYPED, {"text": expected(TYPED)["text"]})
    assert (typed.outcome, typed.problem) == (VectorOutcome.UNSUPPORTED, "the text does not determine the tokens")


def test_tokens_and_text_that_contradict_each_other_are_a_failure():
    answer = {**expected("render/simple/user"), "text": "other"}
    assert grade("render/simple/user", answer).traits == ("the text differs from the text of the tokens",)


def test_stream_fields_that_an_answer_omits_are_counted():
    answer = expected("stream/deltas/answer")
    for step in [answer["before"], *answer["steps"], answer["end"]]:
        del step["finished"]
    one = grade("stream/deltas/answer", answer)
    assert (one.outcome, one.uncompared) == (PASSED, {"steps/finished"})
    report = GradeReport(name="tested", grades=[one])
    assert "not compared, because the answers do not have it: stream: steps/finished (1)" in report_text(report, {})


def test_a_stream_may_end_at_its_error():
    streams = {name: one for name, one in VECTORS.items() if name.startswith("stream/")}
    name = next(name for name, one in streams.items() if any("error" in step for step in one.expected["steps"][:-1]))
    answer = expected(name)
    first = next(index for index, step in enumerate(answer["steps"]) if "error" in step)
    assert grade(name, {**answer, "steps": answer["steps"][: first + 1]}).outcome is PASSED
    assert grade(name, {**answer, "steps": answer["steps"][:first]}).outcome is FAILED


# verdicts


@pytest.mark.parametrize(
    ("answers", "verdict", "code"),
    [
        ([{"unsupported": True}], "nothing could be checked", 2),
        ([{}], "nothing could be checked", 2),
        ([expected(CALL), {}], "not completely checked", 2),
        ([expected(CALL), {"unsupported": True}], "conforms", 0),
        ([expected(CALL), {"messages": []}], "does not conform", 1),
        ([{"messages": []}, {}], "does not conform", 2),
    ],
)
def test_verdict_and_exit_code(answers, verdict, code):
    report = GradeReport(name="tested", grades=[grade(CALL, answer) for answer in answers])
    assert (report.verdict, report.exit_code) == (verdict, code)


# formats


def test_json_names_every_vector_and_its_cause():
    report = report_of(without_recipient, kinds=("parse",))
    value = json.loads(json.dumps(report_json(report)))
    assert (value["exit_code"], value["verdict"], value["implementation"]) == (1, "does not conform", "tested")
    assert len(value["vectors"]) == sum(value["counts"]["parse"].values()) == len(report.grades)
    [cause] = value["causes"]
    assert cause["example"]["expected"] == '"functions.f"'
    assert set(cause["vectors"]) == {one["id"] for one in value["vectors"] if one["outcome"] == "failed"}


def test_junit_counts_each_outcome():
    grades = [grade(CALL, answer) for answer in ({"messages": []}, {}, {"unsupported": True}, expected(CALL))]
    grades.append(grade("render/simple/user", {"text": "\x00<|start|>"}))
    root = ET.fromstring(report_junit(GradeReport(name="a \x1b b", grades=grades)))
    parse, render = root
    assert [parse.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert [render.get(name) for name in ("tests", "failures")] == ["1", "1"]
    failure = parse.find("testcase/failure")
    assert failure.get("message") == "fewer messages than expected"
    assert "expected 1 messages" in failure.text


# base and head


def test_comparison_names_what_head_breaks_fixes_and_keeps():
    base = report_of(without_errors, kinds=("parse", "render"))
    head = report_of(
        lambda kind, answer: (without_recipient if kind == "parse" else without_errors)(kind, answer),
        kinds=("parse", "render"),
    )
    compared = compare_grades(base, head)
    sentences = {change: [cause.sentence for cause in causes] for change, causes in compared.causes.items()}
    assert sentences == {
        "new": ["the recipient of a message is lost"],
        "changed": ["the recipient of a message is lost"],
        "fixed": ["malformed input is accepted"],
        "same": ["an invalid conversation is rendered"],
    }
    assert compared.exit_code == 1
    text = comparison_text(compared, EFFECTS)
    assert text.startswith(
        f"head breaks {len(compared.new)} of {len(head.grades)} vectors and fixes {len(compared.fixed)}; "
    )
    assert [word for word in ("NEW ", "FIXED ", "SAME ", "LOST ") if f"\n{word}" in text] == [
        "NEW ",
        "FIXED ",
        "SAME ",
    ]
    before = "malformed input is accepted: Unexpected EOS while waiting for message header to complete"
    assert text.partition("\nCHANGED ")[2].partition("\n\n")[0].endswith(f"\n   base: {before}")
    told = comparison_json(compared)
    assert told["exit_code"] == 1
    assert [cause["base"] for cause in told["causes"]["changed"]] == [[before]]
    assert not any("base" in cause for change in ("new", "fixed", "same") for cause in told["causes"][change])


def test_comparison_with_itself_has_nothing_new():
    base = report_of(without_recipient, kinds=("parse",))
    compared = compare_grades(base, base)
    assert (compared.exit_code, compared.new, compared.fixed, len(compared.same)) == (0, [], [], base.count(FAILED))


def test_a_failure_that_turns_into_another_is_changed():
    base, head = (report_of(change, kinds=("parse",)) for change in (cut_text, last_message_lost))
    assert len(compare_grades(base, head).changed) >= 50


def test_an_answer_that_head_no_longer_gives_is_lost():
    base = report_of(kinds=("parse",))
    head = report_of(lambda _, __: {"unsupported": True}, kinds=("parse",))
    compared = compare_grades(base, head)
    assert (len(compared.lost), compared.exit_code) == (len(base.grades), 2)
    partly = GradeReport(name="head", grades=[*base.grades[:-1], head.grades[-1]])
    assert (len(compare_grades(base, partly).lost), compare_grades(base, partly).exit_code) == (1, 1)
