"""Runs over WebSockets: what is sent over them, the recording, its replay, and the command that reproduces a failure."""

import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import read_exchange, write_exchange
from harmony_conformance.reference_server import running
from harmony_conformance.runner import options as run_options
from harmony_conformance.runner.reproduce import reproduce
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.transport.messages import Request
from harmony_ref.extras import install_command

SCENARIO = "responses_websocket"
SELECTED = ("--api", "responses", "--select", SCENARIO, "--select", "simple_answer", "--latency", "0")


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def run(target, folder, *arguments):
    return main(["run", target, *(arguments or SELECTED), "--out", str(folder)])


def outcomes(folder):
    return {
        (line["check"], line["scenario"]): line["outcome"]
        for line in lines(folder, "report.jsonl")
        if line.get("kind") == "result"
    }


def test_streams_go_over_websockets_and_the_replay_has_the_same_results(tmp_path, capsys):
    with running() as url:
        code = run(f"ws{url.removeprefix('http')}/v1", tmp_path / "live")
    assert code == 0
    sent = [
        line
        for line in lines(tmp_path / "live", "exchanges.jsonl")
        if line.get("scenario") in (SCENARIO, "simple_answer")
    ]
    over = {line["step"]: line.get("websocket") for line in sent if line["api"] == "responses"}
    streams = {line["step"] for line in sent if line["request"]["json"].get("stream")}
    assert streams
    assert {step for step, number in over.items() if number is not None} == streams
    in_scenario = [line for line in sent if line["scenario"] == SCENARIO]
    assert len({line["websocket"] for line in in_scenario}) == 1
    assert [line["response"]["status"] for line in in_scenario] == [*[200] * 7, 400, 200]
    assert run(f"replay:{tmp_path / 'live' / 'exchanges.jsonl'}", tmp_path / "again", "--latency", "0") == 0
    live = outcomes(tmp_path / "live")
    again = outcomes(tmp_path / "again")
    assert {name: again[name] for name in live} == live
    assert live["responses.websocket_continues_the_last_response", SCENARIO] == "pass"
    assert live["streaming.is_a_stream", "simple_answer"] != "inconclusive"


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        ("websocket-responses-forgotten", "responses.websocket_continues_the_last_response"),
        ("websocket-closes-after-error", "responses.websocket_survives_an_error"),
    ],
)
def test_a_defect_of_a_real_connection_is_caught_and_the_command_finds_it_again(defect, check, tmp_path, capsys):
    with running(defects=[defect]) as url:
        target = f"ws{url.removeprefix('http')}/v1"
        assert run(target, tmp_path / "live") == 1
        assert outcomes(tmp_path / "live")[check, SCENARIO] == "fail"
        failed = next(
            line
            for line in lines(tmp_path / "live", "report.jsonl")
            if line.get("check") == check and line["outcome"] == "fail"
        )
        command = failed["reproduce"]
        words = command.split()
        assert words[:3] == ["harmony-conformance", "run", f"ws{url.removeprefix('http')}"]
        assert main([*words[1:], "--latency", "0", "--out", str(tmp_path / "again")]) == 1
        assert outcomes(tmp_path / "again")[check, SCENARIO] == "fail"


def test_requests_in_flight_are_answered_in_turn_and_a_server_that_alternates_fails(tmp_path, capsys):
    check, scenario = "responses.websocket_answers_follow_each_other", f"{SCENARIO}_in_flight"
    for defects, outcome in ((), "pass"), (["websocket-answers-alternate"], "fail"):
        with running(defects=defects) as url:
            folder = tmp_path / outcome
            arguments = ("--api", "responses", "--select", scenario, "--latency", "0")
            run(f"ws{url.removeprefix('http')}/v1", folder, *arguments)
        assert outcomes(folder)[check, scenario] == outcome
        sent = [line for line in lines(folder, "exchanges.jsonl") if line.get("scenario") == scenario]
        assert [(line["websocket"], line["together"]) for line in sent] == [(sent[0]["websocket"], 2)] * 2


def test_the_embedded_server_gets_the_scenario_and_an_http_url_does_not(tmp_path, capsys):
    assert run("reference", tmp_path / "embedded", "--api", "responses", "--select", SCENARIO, "--latency", "0") == 0
    with running() as url:
        assert run(f"{url}/v1", tmp_path / "http", "--api", "responses", "--select", SCENARIO, "--latency", "0") == 2
    assert "expected a ws:// or wss:// URL" in capsys.readouterr().err


def test_a_run_without_websockets_has_no_scenario_about_them():
    def planned(use):
        return {one.name for one in make_plan(Options(apis=("responses",), websocket_use=use)).scenarios}

    assert planned(WebSocketUse.SCENARIOS) - planned(WebSocketUse.NONE) == {
        SCENARIO,
        f"{SCENARIO}_in_flight",
        "recorded_codex_websocket",
    }
    assert planned(WebSocketUse.STREAMS) == planned(WebSocketUse.SCENARIOS)


WRONG = {
    "another API": (["ws://127.0.0.1:9/v1"], "expected --api responses with a ws URL, got ws://127.0.0.1:9"),
    "a SOCKS proxy": (
        ["ws://127.0.0.1:9/v1", "--api", "responses", "--proxy", "socks5://127.0.0.1:1"],
        "expected an http or https proxy with a ws URL, got socks5://127.0.0.1:1",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_options_that_do_not_fit_a_websocket_are_refused(what, capsys):
    arguments, message = WRONG[what]
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_the_message_names_it(monkeypatch, capsys):
    monkeypatch.setattr(run_options, "has_websockets", lambda: False)
    assert main(["run", "ws://127.0.0.1:9/v1", "--api", "responses"]) == 2
    assert install_command("websocket") in capsys.readouterr().err


def test_an_exchange_keeps_the_number_of_its_connection():
    x = Exchange(id="x", api="responses", request=Request(path="/v1/responses", body=b"{}"), websocket=3)
    assert read_exchange(write_exchange(x)).websocket == 3
    assert "websocket" not in write_exchange(Exchange(id="x", request=x.request))


def test_a_failure_over_a_websocket_is_reproduced_by_a_run_of_its_scenario():
    x = Exchange(id="x", api="responses", request=Request(path="/v1/responses", body=b"{}"), websocket=1)
    target = parse_target("vllm:ws://host:8000/v1")
    command = reproduce(target, x, SCENARIO, "KEY", ("--api", "responses"))
    assert command == (
        f"harmony-conformance run vllm:ws://host:8000 --api responses --api-key-env KEY --select {SCENARIO}"
    )
