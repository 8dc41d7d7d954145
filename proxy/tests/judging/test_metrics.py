"""The metrics of answers: one verdict each, by known route and a bounded number of models."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("prometheus_client")
from prometheus_client import CollectorRegistry

from harmony_conformance.checks import CHECKS
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.capture.routes import route_of
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.judge_process import ExchangeJudge
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.metrics import GuardCollector
from harmony_proxy.judging.model_names import MOST_MODELS, ModelNames

CHAT = "/v1/chat/completions"
LEAK = "channels.no_marker_leak"
USAGE = {"prompt_tokens": 70, "completion_tokens": 12, "total_tokens": 82}
SSE = "text/event-stream; charset=utf-8"


def answer(model="m", *, path=CHAT, status=200, end=End.COMPLETE, content="Hi", kind="application/json", **actions):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    recorder = Recorder()
    recorder.request_head("POST", path, [])
    recorder.request_body(json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).encode())
    if status is not None:
        recorder.response_head(status, [(b"content-type", kind.encode())])
        body = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": USAGE,
        }
        recorder.feed(json.dumps(body).encode(), 0.1)
    for name, value in actions.items():
        setattr(recorder, name, value)
    recorder.abort(end, "", 0.2)
    return recorder.to_record("run-1", 1.5)


def counted(*records):
    counts = Counter()
    judge = ExchangeJudge(JudgeSettings(), lambda _line: None, CHECKS)
    for record in records:
        judge.judge(record, counts)
    assert not counts["problems",]
    return counts


def metrics(counts, gauges=None, *, is_judging=True):
    """The samples of one scrape: (name, labels): value."""
    queue = SimpleNamespace(tally=counts, memory=MemoryBudget(), queue_length=0, is_judging=is_judging)
    registry = CollectorRegistry()
    registry.register(collector := GuardCollector(queue, gauges or Gauges()))
    return collector, {
        (one.name, tuple(one.labels.values())): one.value for family in registry.collect() for one in family.samples
    }


def answers(counts):
    return {
        labels: value for (name, labels), value in metrics(counts)[1].items() if name == "harmony_guard_answers_total"
    }


@pytest.mark.parametrize(
    ("verdict", "options"),
    [
        ("passed", {}),
        ("failed", {"content": "<|channel|>analysis<|message|>We greet."}),
        ("repaired", {"repair_counts": {LEAK: 1}}),
        ("repaired", {"repair_counts": {LEAK: 1}, "unrepaired_reasons": {"tool_calls.x": "no tool"}}),
        (
            "failed",
            {
                "content": "<|channel|>analysis<|message|>We greet.",
                "repair_counts": {"tool_calls.x": 1},
                "unrepaired_reasons": {LEAK: "no tool"},
            },
        ),
        ("blocked", {"blocked_checks": (LEAK,), "repair_counts": {LEAK: 1}}),
        ("rejected", {"status": 404}),
        ("error", {"status": 500}),
        ("error", {"status": None, "end": End.NO_CONNECTION}),
        ("unjudged", {"status": None, "end": End.CLIENT_LEFT}),
    ],
    ids=str,
)
def test_each_answer_has_one_verdict(verdict, options):
    model = "m" if verdict in ("passed", "failed", "repaired", "blocked") else "other"
    assert answers(counted(answer(**options))) == {("/chat/completions", model, "whole", verdict): 1}


def test_blocked_streams_are_counted_apart():
    blocked = {"blocked_checks": (LEAK,), "end": End.BLOCKED, "kind": SSE}
    found = answers(counted(answer(**blocked), answer(**blocked), answer()))
    assert found == {
        ("/chat/completions", "m", "stream", "blocked"): 2,
        ("/chat/completions", "m", "whole", "passed"): 1,
    }


def test_names_of_models_are_bounded_and_keep_their_place():
    names = [f"model-{number}" for number in range(MOST_MODELS + 5)]
    found = answers(counted(*map(answer, names), *map(answer, names)))
    by_model = {labels[1]: value for labels, value in found.items()}
    assert by_model == {**dict.fromkeys(names[:MOST_MODELS], 2), "other": 10}


def test_names_are_bounded_over_restarts_of_the_judge():
    first, second = (counted(*(answer(f"{run}-{number}") for number in range(MOST_MODELS))) for run in "ab")
    collector, _ = metrics(first)
    models = [key[2] for key in collector._bounded(first + second) if key[0] == "answers"]
    assert sorted(models) == sorted([f"a-{number}" for number in range(MOST_MODELS)] + ["other"])


@pytest.mark.parametrize("name", ["a b", 'x"\n', "ü", "n" * 129], ids=repr)
def test_a_name_that_no_model_has_is_another(name):
    assert ModelNames().label(name, is_served=True) == "other"


def test_a_name_that_no_server_answered_takes_no_place():
    names = ModelNames()
    assert [names.label("m", is_served=served) for served in (False, True, False)] == ["other", "m", "m"]
    assert names.label("", is_served=True) == ""


@pytest.mark.parametrize(
    ("path", "route"),
    [
        (CHAT, "/chat/completions"),
        ("/any/prefix/v1/chat//completions/", "/chat/completions"),
        ("/v1/completions", "/v1/completions"),
        ("/completions", "/completions"),
        ("/generate", "/generate"),
        ("/v1/chat/completions;x=1", ""),
        ("/secret/of/a/client", ""),
    ],
)
def test_a_route_is_one_of_the_table(path, route):
    assert route_of(path) == route


def test_another_path_is_no_answer():
    assert answers(counted(answer(path="/v1/other"))) == {}


def test_the_state_of_the_judge_and_of_reloads_is_shown():
    found = metrics(Counter(), Gauges(reloads_done=2, reloads_failed=1), is_judging=False)[1]
    assert found["harmony_guard_judge_up", ()] == 0
    assert found["harmony_guard_reloads_total", ("done",)] == 2
    assert found["harmony_guard_reloads_total", ("failed",)] == 1
    assert metrics(Counter())[1]["harmony_guard_judge_up", ()] == 1
