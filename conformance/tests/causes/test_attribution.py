"""Causes of failing results, on signatures and results written by hand."""

from dataclasses import replace

import pytest

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.known import FailurePattern, KnownCause
from harmony_conformance.causes.signatures import FailureKey, read_signatures, write_signatures
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.judge.check import Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.judge import Result
from harmony_conformance.redactable_text import RedactableText
from harmony_conformance.reference_server.defects import DEFECTS

BY_ID = {check.id: check for check in CHECKS}
LEAK, LOST, WORDS = "channels.no_marker_leak", "channels.nothing_is_lost", "channels.no_channel_words"
LEAKING, DROPPING, STREAM_ONLY = "content-parts-500", "null-content-refused", "empty-calls-500"
"""Defects whose real signatures play no part here."""


def result(check, steps, outcome=Outcome.FAIL, *, scenario="simple", message="it differs", severity=None):
    ids = tuple(f"{scenario}/chat/{step}/0" for step in steps)
    findings = tuple(Finding(message=message, exchange=one, location="content") for one in ids)
    return Result(
        check,
        severity or BY_ID[check].severity,
        BY_ID[check].clause,
        scenario,
        "chat",
        outcome,
        exchanges=ids,
        applied=len(ids),
        findings=findings if outcome is Outcome.FAIL else (),
    )


def signature(*failures):
    return {"ids": frozenset(FailureKey(check, "simple", step, "it differs") for check, step in failures)}


SIGNATURES = {
    LEAKING: signature((LEAK, "a"), (LEAK, "b"), (WORDS, "a"), (WORDS, "b")),
    DROPPING: signature((LOST, "c"), (LOST, "d")),
    STREAM_ONLY: signature((LEAK, "b")),
}


def named(*results):
    return [(cause.id, cause.defects) for cause in find_causes(results, SIGNATURES)]


def test_nothing_failed_has_no_cause():
    assert find_causes([result(LEAK, "ab", Outcome.PASS)], SIGNATURES) == ()


def test_the_fewest_defects_are_named():
    assert named(result(LEAK, "ab"), result(WORDS, "ab")) == [(LEAKING, (LEAKING,))]


def test_a_smaller_defect_is_named_if_the_larger_one_predicts_failures_that_passed():
    assert named(result(LEAK, "b"), result(LEAK, "a", Outcome.PASS), result(WORDS, "ab", Outcome.PASS)) == [
        (STREAM_ONLY, (STREAM_ONLY,))
    ]


def test_what_was_not_judged_does_not_count_against_a_defect():
    assert named(result(LEAK, "ab")) == [(LEAKING, (LEAKING,))]


def test_two_defects_are_two_causes_and_each_has_its_results():
    causes = find_causes([result(LEAK, "ab"), result(WORDS, "ab"), result(LOST, "cd")], SIGNATURES)
    assert {cause.id: [one.check for one in cause.results] for cause in causes} == {
        LEAKING: [LEAK, WORDS],
        DROPPING: [LOST],
    }
    assert causes[0].sentence == DEFECTS[LEAKING].summary


def test_defects_with_the_same_failures_are_named_together():
    same = {DROPPING: SIGNATURES[DROPPING], STREAM_ONLY: SIGNATURES[DROPPING]}
    (cause,) = find_causes([result(LOST, "cd")], same)
    assert cause.defects == (DROPPING, STREAM_ONLY)


def test_failures_that_no_defect_explains_are_groups_and_lose_nothing():
    unknown = [result(LOST, "xy", message="something else"), result("usage.adds_up", "z", message="wrong sum")]
    causes = find_causes(unknown, SIGNATURES)
    assert [(cause.id, cause.defects, cause.sentence) for cause in causes] == [
        (LOST, (), "something else"),
        ("usage.adds_up", (), "wrong sum"),
    ]


def test_the_example_is_a_failure_and_never_a_variant():
    variant = Finding(message="legitimate", exchange="simple/chat/c/0", verdict=Verdict.VARIANT)
    one = result(LOST, "cd")
    (cause,) = find_causes([one._replace(findings=(variant, *one.findings))], SIGNATURES)
    assert cause.example.message == "it differs"


def test_must_comes_first():
    causes = find_causes(
        [
            result("usage.adds_up", "abcd", message="1", severity=Severity.SHOULD),
            result(LOST, "z", message="2", scenario="other", severity=Severity.MUST),
        ],
        {},
    )
    assert [cause.severity for cause in causes] == [Severity.MUST, Severity.SHOULD]


def test_values_in_a_message_do_not_part_failures():
    texts = [RedactableText("{} is lost", name) for name in ("a", "b")]
    (cause,) = find_causes([result(LOST, "x", message=text, severity=Severity.MUST) for text in texts], {})
    assert len(cause.results) == 2


def test_signatures_survive_their_file(tmp_path, monkeypatch):
    (tmp_path / "signatures.json").write_text(write_signatures(SIGNATURES), "utf-8")
    monkeypatch.setattr("harmony_conformance.golden.data.root", lambda: tmp_path)
    read_signatures.cache_clear()
    try:
        assert read_signatures() == SIGNATURES
    finally:
        read_signatures.cache_clear()


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_each_defect_has_a_signature_of_existing_checks(defect):
    levels = read_signatures()[defect]
    assert levels["ids"]
    assert {failure.check for level in levels.values() for failure in level} <= BY_ID.keys()


def test_two_defects_of_a_server_are_both_named(capsys, tmp_path):
    target = "reference:defect=finished-reasoning-kept,stream-without-done"
    code = main(
        [
            "run",
            target,
            "--select",
            "tool_round_trip",
            "--select",
            "finished_turn",
            "--latency",
            "0",
            "--out",
            str(tmp_path),
        ]
    )
    shown = capsys.readouterr().out
    assert code == 1
    assert "finished-reasoning-kept" in shown
    assert "stream-without-done" in shown
    assert len(shown.splitlines()) <= 30


def known(**pattern):
    every = dict.fromkeys(("check", "scenario", "api", "message", "at"), "*")
    return KnownCause(
        id="vllm-known",
        engine="vllm",
        sentence="The server does it wrong.",
        users_see="Users see it.",
        clause="harmony#roles",
        affected="1.0",
        fixed_in="",
        threads=("https://github.com/vllm-project/vllm/issues/1",),
        catalogue=("V07",),
        defects=(),
        remedy="Upgrade.",
        patterns=(FailurePattern(**{**every, **pattern}),),
    )


def test_a_known_cause_of_the_engine_owns_its_failures_before_any_defect():
    results = [result(LEAK, "ab"), result(WORDS, "ab"), result(LOST, "cd")]
    causes = find_causes(results, SIGNATURES, known=[known(check="channels.no_*")])
    assert [(cause.id, [one.check for one in cause.results]) for cause in causes] == [
        ("vllm-known", [LEAK, WORDS]),
        (DROPPING, [LOST]),
    ]
    line = causes[0].to_json()
    assert (line["sentence"], line["users_see"], line["remedy"]) == (
        "The server does it wrong.",
        "Users see it.",
        "Upgrade.",
    )
    assert line["clause"]["id"] == "harmony#roles"
    assert line["catalogue"] == ["V07"]
    assert line["threads"][0] == "https://github.com/vllm-project/vllm/issues/1"


@pytest.mark.parametrize(
    "pattern", [{"scenario": "other"}, {"api": "responses"}, {"message": "nothing"}, {"at": "reasoning"}]
)
def test_a_known_cause_owns_no_failure_that_one_of_its_patterns_does_not_match(pattern):
    (cause,) = find_causes([result(LOST, "cd")], SIGNATURES, known=[known(check="*", **pattern)])
    assert cause.id == DROPPING


def test_the_example_is_in_the_smallest_exchange():
    sizes = {"simple/chat/c/0": 100, "simple/chat/d/0": 10}
    (cause,) = find_causes([result(LOST, "cd")], SIGNATURES, sizes=sizes)
    assert cause.example.exchange == "simple/chat/d/0"


def test_the_example_is_of_an_everyday_request_if_there_is_one():
    sizes = {"odd_texts/chat/an empty result/0": 10, "simple/chat/x/0": 100}
    odd, everyday = result("usage.adds_up", ["an empty result"], scenario="odd_texts"), result("usage.adds_up", ["x"])
    (cause,) = find_causes([odd, everyday], {}, sizes=sizes)
    assert cause.example.exchange == "simple/chat/x/0"
    (alone,) = find_causes([odd], {}, sizes=sizes)
    assert alone.example.exchange == "odd_texts/chat/an empty result/0"


def test_an_inconclusive_result_does_not_count_against_a_defect():
    results = [result(LEAK, "ab"), result(WORDS, "ab", Outcome.INCONCLUSIVE), result(LOST, "x", Outcome.PASS)]
    assert named(*results) == [(LEAKING, (LEAKING,))]


def test_a_cause_has_the_severity_of_its_own_failures():
    ruled_one = Finding(message="quoted", exchange="simple/chat/a/0", location="content", ruling="quoted-results")
    wrong = Finding(message="lost", exchange="simple/chat/b/0", location="content")
    mixed = result(LOST, "ab")._replace(severity=Severity.MUST, findings=(ruled_one, wrong))
    causes = find_causes([mixed], {}, known=[known(check=LOST, message="quoted")])
    assert {cause.id: cause.severity for cause in causes} == {"vllm-known": Severity.SHOULD, LOST: Severity.MUST}


OF_ONE_API, OF_ALL_APIS = "ollama-thinking-unread", "reasoning-not-passed-back"
SHARED = {
    OF_ONE_API: signature((LOST, "a"), (LOST, "b"), (LOST, "c"), (LOST, "d")),
    OF_ALL_APIS: signature((LOST, "a"), (LOST, "b")),
}
"""The defect of one API predicts more, as a run over two APIs shows it."""


def over(api, one):
    """Give a result another API; `all/API`: that of a comparison, with exchanges of this API."""
    judged, _, own = api.partition("/")
    ids = tuple(name.replace("/chat/", f"/{own or judged}/") for name in one.exchanges)
    findings = tuple(replace(each, exchange=name) for each, name in zip(one.findings, ids, strict=True))
    return one._replace(api=judged, exchanges=ids, findings=findings)


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("chat", OF_ALL_APIS),
        ("messages", OF_ALL_APIS),
        ("ollama", OF_ONE_API),
        ("all/ollama", OF_ONE_API),
        ("all/chat", OF_ALL_APIS),
    ],
)
def test_a_defect_of_one_api_explains_failures_over_that_api_alone(api, expected):
    (cause,) = find_causes([over(api, result(LOST, "abcd"))], SHARED)
    assert cause.id == expected


def test_a_failure_over_another_api_does_not_count_for_a_defect_of_one_api():
    over_chat = result(LOST, "abcd")._replace(api="chat")
    passed = result(LOST, "abcd", Outcome.PASS)._replace(api="ollama")
    assert [cause.id for cause in find_causes([over_chat, passed], SHARED)] == [OF_ALL_APIS]


def test_a_defect_is_named_over_one_api_where_a_larger_one_shows_the_same_failures_over_another():
    over_chat, over_ollama = (result(LOST, "ab")._replace(api=api) for api in ("chat", "ollama"))
    more = result(LOST, "cd")._replace(api="ollama")
    causes = find_causes([over_chat, over_ollama, more], SHARED)
    assert {cause.id: {one.api for one in cause.results} for cause in causes} == {
        OF_ONE_API: {"ollama"},
        OF_ALL_APIS: {"chat", "ollama"},
    }


def test_a_failure_joins_no_defect_that_cannot_show_over_its_api():
    elsewhere = result(LOST, "x", scenario="other")._replace(api="chat")
    causes = find_causes([result(LOST, "abcd")._replace(api="ollama"), elsewhere], {OF_ONE_API: SHARED[OF_ONE_API]})
    assert {cause.id: [one.api for one in cause.results] for cause in causes} == {
        OF_ONE_API: ["ollama"],
        LOST: ["chat"],
    }


HIDING = {
    LEAKING: signature(*((LEAK, step) for step in "abcdefgh")),
    DROPPING: signature(*((LOST, step) for step in "ghijklm")),
}
"""The second defect shows in two steps of the first one too, and in five others."""


@pytest.mark.parametrize(("passed", "is_named"), [("gh", True), ("ijk", False), ("ghi", True), ("hij", True)])
def test_what_a_named_defect_can_hide_does_not_count_against_another(passed, is_named):
    failed = "".join(step for step in "ghijklm" if step not in passed)
    results = [result(LEAK, "abcdefgh"), result(LOST, failed), result(LOST, passed, Outcome.PASS)]
    named = {cause.id for cause in find_causes(results, HIDING) if cause.defects}
    assert (DROPPING in named) is is_named


def test_a_failure_joins_the_defect_of_all_apis_that_shows_in_the_same_step():
    compared = over("all/responses", result("apis.same_prompt", "a"))
    causes = find_causes([result("prompt.results_are_rendered", "ab"), compared], RENDERED)
    assert [(cause.id, len(cause.results)) for cause in causes] == [("result-parts-lost", 2)]


RENDERED = {"result-parts-lost": signature(("prompt.results_are_rendered", "a"), ("prompt.results_are_rendered", "b"))}


CRASHING = {OF_ONE_API: {"ids": frozenset(FailureKey(LOST, name, "a", "it differs") for name in ("simple", "other"))}}


@pytest.mark.parametrize(("has_own", "apis"), [(True, {"ollama", "chat"}), (False, set())])
def test_a_defect_of_one_api_explains_failures_in_scenarios_that_this_api_does_not_have(has_own, apis):
    elsewhere = result(LOST, "a", scenario="other")
    own = over("ollama", result(LOST, "a"))
    causes = find_causes([own, elsewhere] if has_own else [elsewhere], CRASHING)
    assert {one.api for cause in causes if cause.defects for one in cause.results} == apis


def of_series(check, outcome=Outcome.FAIL):
    return result(check, "x", outcome)._replace(
        exchanges=("",), findings=(Finding(message="it differs"),) if outcome is Outcome.FAIL else ()
    )


OF_SERIES = [name for name in BY_ID if name not in (LEAK, WORDS, LOST)][:7]
SERIES = {
    LEAKING: {"ids": frozenset(FailureKey(check, "simple", "", "it differs") for check in (LEAK, WORDS, LOST))},
    DROPPING: {"ids": frozenset(FailureKey(check, "simple", "", "it differs") for check in OF_SERIES)},
}


@pytest.mark.parametrize(("failed", "is_named"), [(5, True), (4, False)])
def test_a_failure_of_a_whole_series_hides_none(failed, is_named):
    seen = [of_series(check) for check in (LEAK, WORDS, LOST, *OF_SERIES[:failed])]
    passed = [of_series(check, Outcome.PASS) for check in OF_SERIES[failed:]]
    causes = find_causes([*seen, *passed], SERIES)
    assert (DROPPING in {cause.id for cause in causes if cause.defects}) is is_named
