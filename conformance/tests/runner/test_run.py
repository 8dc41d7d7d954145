import asyncio
import json
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from threading import Lock

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange_json import exchange_line
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
from harmony_conformance.evidence.recording_file import read_recorded
from harmony_conformance.golden.scenario import skip_reason
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import NOT_ENOUGH_EVIDENCE
from harmony_conformance.runner.judge_run import covers_any_api, judge_all, sort_series
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.runner.selection import NothingSelectedError, load_scenarios

ONE = Options(select=("simple_answer",), seed=1)


def finished(target, options):
    kept = []
    plan = make_plan(options)
    done = asyncio.run(run(parse_target(target), options, plan, kept.append, lambda found: None))
    return done, kept


SCENARIOS = {scenario.name for scenario in load_scenarios()}
SEVERAL = ("simple_answer", "*@tool_*", "several_*", "structured_*", "cut_*", "side_by_side", "same_seed", "rows_names")


@pytest.fixture(scope="module")
def whole():
    return finished("reference", Options(seed=1))


@pytest.fixture(scope="module")
def twice():
    """Some scenarios, each of them twice."""
    return finished("reference", TWICE)


TWICE = Options(seed=1, tries=2, select=SEVERAL)


def test_every_check_applies_to_the_reference_and_passes_and_nothing_is_left_open(whole):
    results = whole[0].results
    assert {result.outcome for result in results} == {Outcome.PASS, Outcome.NOT_APPLICABLE}
    passed = {result.check for result in results if result.outcome is Outcome.PASS}
    assert {check.id for check in CHECKS if covers_any_api(check, Options().apis)} - passed == set()


def test_requests_that_may_end_a_server_are_sent_last(whole):
    sent = [exchange for exchange in whole[1] if exchange.scenario in SCENARIOS]
    wrong = {exchange.scenario for exchange in sent if exchange.validity in REFUSABLE_VALIDITIES}
    first = next(index for index, exchange in enumerate(sent) if exchange.scenario in wrong)
    assert wrong == {exchange.scenario for exchange in sent[first:]}


@pytest.mark.parametrize("defect", ["stream-without-done", "stream-chunk-after-done", "stream-call-id-changes"])
def test_ids_and_times_of_a_server_stand_in_no_finding(defect):
    options = Options(select=("streaming.*@tool_call",), seed=1)
    one, other = (finished(f"reference:defect={defect}", options)[0].results for _ in range(2))
    assert Outcome.FAIL in {result.outcome for result in one}
    assert one == other


def test_every_exchange_is_kept_under_an_id_of_its_own_and_judged(twice):
    done, kept = twice
    ids = [x.id for x in kept]
    judged = {x.id for one in done.series for x in one.exchanges.values()}
    assert len(set(ids)) == len(ids)
    assert judged == {name for name in ids if not name.startswith("discovery/")}
    assert {name.rpartition("/")[2] for name in judged} == {"0", "1"}


@pytest.mark.parametrize(("run_of", "options"), [("whole", Options()), ("twice", TWICE)])
def test_a_recorded_run_is_judged_to_the_same_results(run_of, options, request, tmp_path):
    done, kept = request.getfixturevalue(run_of)
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(b"".join(exchange_line(x) for x in reversed(kept)))
    plan = make_plan(options)
    again = tuple(judge_all(sort_series(read_recorded(path), plan.scenarios), plan))
    assert [(one, other) for one, other in zip(done.results, again, strict=True) if one != other] == []


def test_the_order_of_the_series_does_not_matter(whole):
    done, _ = whole
    plan = make_plan(Options())
    turned = [replace(one, exchanges=dict(reversed(one.exchanges.items()))) for one in reversed(done.series)]
    assert tuple(judge_all(sort_series(turned, plan.scenarios), plan)) == done.results


SCENARIOS = {scenario.name: scenario for scenario in load_scenarios()}
ALL_CHECKS = {check.id for check in CHECKS if covers_any_api(check, Options().apis)}
ALL_SCENARIOS = {name for name, scenario in SCENARIOS.items() if scenario.api == "chat"}
TOOL_CALLS = {name for name in ALL_CHECKS if name.startswith("tool_calls.")}
PLANS = {
    "all": ((), (), ALL_CHECKS, ALL_SCENARIOS),
    "a family, with every scenario": (("tool_calls.*",), (), TOOL_CALLS, ALL_SCENARIOS),
    "a scenario, with all checks": (("tool_call",), (), ALL_CHECKS, {"tool_call"}),
    "a family and a scenario": (("tool_calls.*", "tool_call"), (), ALL_CHECKS, ALL_SCENARIOS),
    "a family on a scenario": (("tool_calls.*@tool_call",), (), TOOL_CALLS, {"tool_call"}),
    "all but a family on a scenario": ((), ("tool_calls.*@tool_call",), ALL_CHECKS, ALL_SCENARIOS),
    "a scenario but one family": (("tool_call",), ("tool_calls.*",), ALL_CHECKS - TOOL_CALLS, {"tool_call"}),
    "all but a family": ((), ("tool_calls.*",), ALL_CHECKS - TOOL_CALLS, ALL_SCENARIOS),
    "all but a scenario": ((), ("tool_call",), ALL_CHECKS, ALL_SCENARIOS - {"tool_call"}),
}


@pytest.mark.parametrize("what", PLANS)
def test_select_and_skip_choose_checks_and_scenarios(what):
    select, skip, checks, scenarios = PLANS[what]
    plan = make_plan(Options(select=select, skip=skip))
    assert {check.id for check in plan.checks} == checks
    assert {scenario.name for scenario in plan.scenarios} == scenarios


PATTERNS = {
    "an unknown check": Options(select=("tool_cals.*",)),
    "an unknown scenario": Options(skip=("nothing_*",)),
    "a scenario before the @": Options(select=("tool_call@usage.adds_up",)),
    "checks of another API": Options(select=("responses.*",)),
    "all is skipped": Options(select=("tool_call",), skip=("tool_call",)),
}


@pytest.mark.parametrize("what", PATTERNS)
def test_a_pattern_that_matches_nothing_is_refused(what):
    with pytest.raises(NothingSelectedError, match=r"expected a check (or|and) a scenario"):
        make_plan(PATTERNS[what])


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("simple_answr", "simple_answer"),
        ("usage.ads_up", "usage.adds_up"),
        ("usage.adds_up@tool_cal", "tool_call"),
        ("usage.ads_up@tool_call", "usage.adds_up"),
    ],
)
def test_a_misspelt_pattern_gets_the_name_that_was_perhaps_meant(pattern, meant):
    with pytest.raises(NothingSelectedError, match=rf"got '{pattern}'; did you mean {meant}\?$"):
        make_plan(Options(select=(pattern,)))


def test_only_scenarios_of_apis_that_a_selected_check_judges_are_sent():
    plan = make_plan(Options(select=("responses.*",), apis=("chat", "responses", "tgi")))
    assert {scenario.api for scenario in plan.scenarios} == {"responses"}


MANY_REQUESTS = ("rows_*", "broken_*", "markers_*", "odd_texts", "questionable_*", "slow_stream", "side_by_side")
SELECTED = {
    "a check of calls": ("tool_calls.calls_arrive",),
    "a check of prompts": ("prompt.is_an_accepted_rendering",),
    "a comparison": ("streaming.finish_equals_whole",),
    "a check and a scenario": ("usage.adds_up", "tool_call"),
    "checks on a scenario": ("channels.*@tool_round_trip",),
}


@pytest.mark.parametrize("what", SELECTED)
def test_a_selection_has_the_results_of_the_whole_run(whole, what):
    def is_selected(result):
        pairs = (pattern.partition("@") for pattern in SELECTED[what])
        return result.scenario in SELECTED[what] or any(
            fnmatchcase(result.check, check) and fnmatchcase(result.scenario, scenario or "*")
            for check, _, scenario in pairs
        )

    done, _ = finished("reference", Options(seed=1, select=SELECTED[what], skip=MANY_REQUESTS))
    skipped = {
        result.scenario
        for result in whole[0].results
        if any(fnmatchcase(result.scenario, one) for one in MANY_REQUESTS)
    }
    expected = [result for result in whole[0].results if is_selected(result) and result.scenario not in skipped]
    assert Outcome.PASS in {result.outcome for result in expected}
    assert list(done.results) == expected


def test_what_a_limit_of_requests_kept_from_being_sent_is_inconclusive_and_not_blamed_on_the_model():
    done, _ = finished("reference", Options(max_requests=3, concurrency=1))
    unsent = [
        result
        for result in done.results
        if not result.exchanges
        and result.reason.startswith(("no", "needs "))
        and not result.reason.startswith(NOT_ENOUGH_EVIDENCE)  # a check that the begun scenario was not written for
    ]
    assert {result.scenario for result in unsent} > {
        name for name, scenario in SCENARIOS.items() if scenario.needs_unscripted_model
    }
    assert {(result.outcome, result.reason) for result in unsent} <= {
        (Outcome.INCONCLUSIVE, "not sent: --max-requests 3 was reached"),
        (Outcome.INCONCLUSIVE, "incomplete: --max-requests 3 was reached"),
    }


def test_a_limit_of_requests_that_was_not_reached_is_no_reason():
    done, _ = finished("reference", replace(ONE, max_requests=1000))
    assert not [result.reason for result in done.results if "--max-requests" in result.reason]


NEEDS = {
    "a script, and none can be played": (True, False, ScriptMethod.NONE, "needs a scripted model"),
    "a script, and vLLM plays it": (True, False, ScriptMethod.VLLM, None),
    "a script, and the reference plays it": (True, False, ScriptMethod.REFERENCE, None),
    "words of its own, and vLLM has none": (False, True, ScriptMethod.VLLM, "needs an unscripted model"),
    "words of its own, and the reference has some": (False, True, ScriptMethod.REFERENCE, None),
    "words of its own, and it has": (False, True, ScriptMethod.NONE, None),
    "nothing": (False, False, ScriptMethod.VLLM, None),
}


@pytest.mark.parametrize("what", NEEDS)
def test_a_scenario_is_not_sent_where_the_model_is_not_what_it_needs(what):
    needs_script, needs_own_words, script_by, reason = NEEDS[what]
    scenario = replace(SCENARIOS["tool_call"], needs_script=needs_script, needs_unscripted_model=needs_own_words)
    assert skip_reason(scenario, script_by) == reason


COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
DISCOVERY = 2  # chat requests that an endpoint without extra fields is asked before the scenarios


def http(status, body, *headers):
    data = json.dumps(body).encode()
    lines = [b"HTTP/1.1 %d X" % status, b"content-type: application/json", b"connection: close", *headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(data), b"", data])


def endpoint(raw_server, later=lambda connection, number: connection.sendall(http(200, COMPLETION))):
    """A plain endpoint; `later` answers what comes after discovery."""
    chats, lock = [], Lock()

    def answer(connection, request):
        path = request.split(b" ", 2)[1]
        if path != b"/v1/chat/completions":
            connection.sendall(http(200, {"data": [{"id": "m"}]}))
            return
        with lock:
            chats.append(request)
            number = len(chats)
        if number <= DISCOVERY:
            connection.sendall(http(200, COMPLETION))
        else:
            later(connection, number)

    return raw_server(answer), chats


def outcomes(done):
    return Counter(result.outcome for result in done.results)


def of_check(done, check):
    return [result for result in done.results if result.check == check]


def test_a_server_that_dies_within_the_run_fails_and_leaves_the_other_checks_open(raw_server):
    server, chats = endpoint(raw_server, lambda connection, number: None)
    done, kept = finished(f"openai:{server.url}", ONE)
    (answered,) = of_check(done, "errors.valid_request_is_answered")
    assert answered.outcome is Outcome.FAIL
    assert answered.severity is Severity.MUST
    assert "reset" in answered.findings[0].message
    assert outcomes(done)[Outcome.PASS] == 0
    exercised = [result for result in done.results if result.check in SCENARIOS["simple_answer"].exercises]
    assert {result.outcome for result in exercised} <= {Outcome.FAIL, Outcome.INCONCLUSIVE}
    assert len(kept) == len(chats)


@pytest.mark.parametrize(
    ("after", "waits"), [((b"retry-after: 0",), (0.0, 0.0, 0.0)), ((), ())], ids=["says when", "does not say when"]
)
def test_a_server_that_stays_busy_is_inconclusive_and_named_so(raw_server, after, waits):
    busy = http(429, {"error": {"message": "busy"}}, *after)
    server, chats = endpoint(raw_server, lambda connection, number: connection.sendall(busy))
    done, kept = finished(f"openai:{server.url}", ONE)
    reasons = {result.reason for result in done.results if result.outcome is Outcome.INCONCLUSIVE}
    assert reasons
    assert all(reason.startswith("rate limited: simple_answer/chat/") for reason in reasons)
    assert outcomes(done)[Outcome.FAIL] == 0
    scenario = [x for x in kept if x.scenario == "simple_answer"]
    assert {x.retry_waits for x in scenario} == {waits}
    assert len(chats) == DISCOVERY + (1 + len(waits)) * len(scenario)


def test_no_more_requests_are_sent_than_allowed(raw_server):
    server, chats = endpoint(raw_server)
    done, kept = finished(f"openai:{server.url}", Options(max_requests=3))
    assert len(chats) == DISCOVERY + 3
    assert len(kept) == DISCOVERY + 3
    unsent = [result for result in done.results if result.reason == "not sent: --max-requests 3 was reached"]
    assert unsent
    assert {result.outcome for result in unsent} == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("allowed", [1, 3])
def test_no_more_requests_are_open_at_a_time_than_allowed(raw_server, allowed):
    open_now, most, lock = [0], [0], Lock()

    def count(connection, number):
        with lock:
            open_now[0] += 1
            most[0] = max(most[0], open_now[0])
        server.closing.wait(0.02)
        with lock:
            open_now[0] -= 1
        connection.sendall(http(200, COMPLETION))

    server, _ = endpoint(raw_server, count)
    finished(f"openai:{server.url}", Options(concurrency=allowed, max_requests=20))
    assert 1 <= most[0] <= allowed


def test_scenarios_that_need_a_script_are_not_applicable_where_none_can_be_played(raw_server):
    server, _ = endpoint(raw_server)
    done, kept = finished(f"openai:{server.url}", Options(select=("unicode_answer", "simple_answer")))
    assert {x.scenario for x in kept} == {"discovery", "simple_answer"}
    told = {(r.outcome, r.reason) for r in done.results if r.scenario == "unicode_answer"}
    assert told == {(Outcome.NOT_APPLICABLE, "needs a scripted model")}


def test_the_key_and_the_headers_go_to_every_request_and_stand_in_no_exchange(raw_server):
    server, chats = endpoint(raw_server)
    options = replace(ONE, key="sk-0123456789", headers=(("x-api-key", "other-secret"),))
    _, kept = finished(f"openai:{server.url}", options)
    assert all(b"Bearer sk-0123456789" in chat and b"other-secret" in chat for chat in chats)
    written = b"".join(exchange_line(x) for x in kept)
    assert b"sk-0123456789" not in written
    assert b"other-secret" not in written
