import json
import shlex
import subprocess
from dataclasses import replace

import pytest

from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Finding, Outcome, Severity, Verdict
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.runner.reproduce import reproduce, reproduce_result
from harmony_conformance.runtime.terminal_text import escape_invisible
from harmony_conformance.transport.messages import Request

BODY = '{"messages":[{"role":"user","content":"It\'s $HOME; `id` \\"quoted\\" ü"}]}'
VLLM = parse_target("vllm:http://host:8000/v1")


def exchange(body=BODY, name="a/chat/answer/0"):
    return Exchange(id=name, request=Request(path="/v1/chat/completions", body=body.encode()))


def words(target=VLLM, x=None, key_env=None):
    return shlex.split(reproduce(target, x or exchange(), "a", key_env))


def test_a_request_to_an_address_is_one_curl_command_that_survives_the_shell():
    assert words() == [
        "curl",
        "-sS",
        "-X",
        "POST",
        "http://host:8000/v1/chat/completions",
        "-H",
        "content-type: application/json",
        "-d",
        BODY,
    ]


def test_a_stream_is_shown_as_it_comes():
    assert words(x=exchange('{"stream":true}'))[:3] == ["curl", "-N", "-sS"]


def test_the_variable_of_the_key_is_named_and_left_to_the_shell():
    command = reproduce(VLLM, exchange(), "a", "HARMONY_KEY")
    assert '-H "authorization: Bearer $HARMONY_KEY"' in command


RUNS = {
    "the embedded server": ("reference:defect=effort-ignored", exchange(), None),
    "a recording": ("replay:some run/exchanges.jsonl", exchange(), None),
    "a request too long for a command line": ("vllm:http://host:8000", exchange("{" + " " * 10_000 + "}"), "KEY"),
    "no exchange to show": ("vllm:http://host:8000", None, None),
}


@pytest.mark.parametrize("what", RUNS)
def test_what_is_no_single_request_is_a_run_of_the_scenario(what):
    target, x, key_env = RUNS[what]
    key = ["--api-key-env", key_env] if key_env else []
    command = shlex.split(reproduce(parse_target(target), x, "a scenario", key_env))
    assert command == ["harmony-conformance", "run", target, *key, "--select", "a scenario"]


IDS_OF_THE_SERVER = {
    "retrieved": ("/v1/responses/resp_1", "{}"),
    "resumed": ("/v1/responses/resp_1?stream=true&starting_after=1", "{}"),
    "cancelled": ("/v1/responses/resp_1/cancel", "{}"),
    "continued": ("/v1/responses", '{"input":"Hi","previous_response_id":"resp_1"}'),
    "in a conversation": ("/v1/responses", '{"input":"Hi","conversation":{"id":"conv_1"}}'),
    "an item": ("/v1/responses", '{"input":[{"type":"item_reference","id":"msg_1"}]}'),
    "encrypted": ("/v1/responses", '{"input":[{"type":"reasoning","summary":[],"encrypted_content":"c2VhbA"}]}'),
}


@pytest.mark.parametrize("what", IDS_OF_THE_SERVER)
def test_a_request_with_an_id_of_the_server_is_a_run_of_the_scenario(what):
    path, body = IDS_OF_THE_SERVER[what]
    x = Exchange(id="a/responses/b/0", api="responses", request=Request(path=path, body=body.encode()))
    assert words(x=x) == ["harmony-conformance", "run", str(VLLM), "--select", "a"]


@pytest.mark.parametrize("body", ['{"input":"Hi"}', '{"input":[{"type":"reasoning","encrypted_content":null}]}'])
def test_a_request_without_an_id_of_the_server_is_a_curl_command(body):
    x = Exchange(id="a/responses/b/0", api="responses", request=Request(path="/v1/responses", body=body.encode()))
    assert words(x=x)[-1] == body


def result(outcome, *findings, exchanges=()):
    return Result(
        check="family.check",
        severity=Severity.MUST,
        clause=CLAUSES["harmony#receiving-calls"],
        scenario="a",
        api="chat",
        outcome=outcome,
        exchanges=exchanges,
        findings=findings,
    )


FIRST, SECOND = exchange('{"n":1}', "a/chat/one/0"), exchange('{"n":2}', "a/chat/two/0")
KNOWN = {x.id: x for x in (FIRST, SECOND)}


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (result(Outcome.FAIL, Finding(message="…", exchange=SECOND.id), exchanges=(FIRST.id, SECOND.id)), '{"n":2}'),
        (result(Outcome.FAIL, Finding(message="…"), exchanges=(FIRST.id, SECOND.id)), '{"n":1}'),
        (result(Outcome.INCONCLUSIVE, exchanges=("unknown", SECOND.id)), '{"n":2}'),
    ],
    ids=["the exchange of the finding", "the first exchange judged", "the first exchange known"],
)
def test_a_result_shows_the_exchange_that_its_first_finding_is_about(told, shown):
    assert shlex.split(reproduce_result(VLLM, told, KNOWN, None))[-1] == shown


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.VARIANT, Outcome.NOT_APPLICABLE])
def test_there_is_nothing_to_see_again_where_nothing_went_wrong(outcome):
    assert reproduce_result(VLLM, result(outcome, exchanges=(FIRST.id,)), KNOWN, None) == ""


def test_a_run_repeats_the_options_of_the_run():
    command = reproduce(VLLM, None, "a", None, ("--model", "a model", "--script", "vllm"))
    assert shlex.split(command)[2:] == [str(VLLM), "--model", "a model", "--script", "vllm", "--select", "a"]


HOSTILE = {
    "JSON with raw characters": '{"model":"a\x9b2J\u202e\u2066\u200b\U000e0041\x7f"}'.encode(),
    "JSON on several lines": '{\n "model": "\u2028"\n}'.encode(),
    "no JSON": "x\x1b[2J'\\\x9b\u202e\r\n".encode(),
    "no UTF-8": b"\xff\x9b'{",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_body_with_invisible_characters_is_escaped_and_survives_the_shell(body):
    x = Exchange(id="a", request=Request(path="/v1", body=body))
    command = reproduce(VLLM, x, "a", None)
    assert command == escape_invisible(command)
    shell = ["bash", "-c", f'curl() {{ printf %s "${{@: -1}}"; }}; {command}']
    sent = subprocess.run(shell, capture_output=True, check=True).stdout
    assert sent == body or json.loads(sent) == json.loads(body)


WHOLE, STREAM = exchange('{"n":1}', "a/chat/one/0"), exchange('{"stream":true}', "a/chat/one+stream/0")


def test_a_comparison_shows_both_exchanges():
    compared = result(Outcome.FAIL, Finding(message="…", exchange=STREAM.id))._replace(
        check="streaming.content_equals_whole", exchanges=(WHOLE.id, STREAM.id)
    )
    first, second = reproduce_result(VLLM, compared, {x.id: x for x in (WHOLE, STREAM)}, None).split("; ")
    assert (shlex.split(first)[-1], shlex.split(second)[-1]) == ('{"n":1}', '{"stream":true}')


@pytest.mark.parametrize(
    ("shorter", "longer", "check"),
    [
        ("plain system", "marked system", "prompt.text_costs_its_tokens"),
        ("tame text", "odd text", "prompt.text_costs_its_tokens"),
        ("short", "long", "robustness.long_message_is_whole"),
        ("one instruction", "two instructions", "prompt.text_costs_its_tokens"),
        ("open, short", "open, long", "multi_turn.reasoning_costs_what_it_must"),
        ("without tools", "with tools", "tools.tools_cost_tokens"),
    ],
)
def test_a_comparison_of_prompt_counts_shows_both_requests(shorter, longer, check):
    steps = {
        step: Exchange(
            id=f"a/chat/{step}/0",
            step=step,
            request=Request(path="/v1/chat/completions", body=f'{{"n":"{step}"}}'.encode()),
        )
        for step in ("another", shorter, "a third", longer)
    }
    known = {x.id: x for x in steps.values()}
    finding = Finding(message="…", exchange=steps[longer].id)
    compared = result(Outcome.FAIL, finding)._replace(check=check, exchanges=tuple(known))
    bodies = [shlex.split(one)[-1] for one in reproduce_result(VLLM, compared, known, None).split("; ")]
    assert bodies == [f'{{"n":"{shorter}"}}', f'{{"n":"{longer}"}}']


def counted(names):
    named = {name: exchange(f'{{"n":"{name}"}}', f"a/chat/{name}/0") for name in names}
    return {x.id: replace(x, step=name) for name, x in named.items()}


def test_the_accounting_of_prompts_shows_every_counted_request_once():
    known = counted(("plainest", "two tools", "loop", "plainest, again"))
    failure = Finding(message="…", exchange="a/chat/two tools/0")
    compared = result(Outcome.FAIL, failure)._replace(check="accounting.counts_fit_a_form", exchanges=tuple(known))
    bodies = [shlex.split(one)[-1] for one in reproduce_result(VLLM, compared, known, None).split("; ")]
    assert bodies == ['{"n":"plainest"}', '{"n":"loop"}', '{"n":"two tools"}']


@pytest.mark.parametrize("step", ["one", "one+stream"])
def test_a_comparison_of_apis_shows_the_step_over_both(step):
    places = (("chat", "another"), ("chat", step), ("ollama", "another"), ("ollama", step), ("responses", step))
    known = {
        x.id: x
        for api, name in places
        for x in [replace(exchange(f'{{"n":"{name}","api":"{api}"}}', f"a/{api}/{name}/0"), step=name, api=api)]
    }
    failure = Finding(message="…", exchange=f"a/responses/{step}/0")
    compared = result(Outcome.FAIL, failure)._replace(check="apis.same_end", exchanges=tuple(known))
    bodies = [shlex.split(one)[-1] for one in reproduce_result(VLLM, compared, known, None).split("; ")]
    assert bodies == [f'{{"n":"{step}","api":"chat"}}', f'{{"n":"{step}","api":"responses"}}']


def test_more_commands_than_a_terminal_takes_are_one():
    known = counted(f"{number} {'long ' * 500}" for number in range(10))
    compared = result(Outcome.FAIL)._replace(check="accounting.counts_fit_a_form", exchanges=tuple(known))
    assert len(reproduce_result(VLLM, compared, known, None).split("; ")) == 1


def test_a_failure_is_shown_before_a_variant():
    findings = (
        Finding(message="legitimate", exchange=FIRST.id, verdict=Verdict.VARIANT),
        Finding(message="wrong", exchange=SECOND.id),
    )
    told = result(Outcome.FAIL, *findings, exchanges=(FIRST.id, SECOND.id))
    assert shlex.split(reproduce_result(VLLM, told, KNOWN, None))[-1] == '{"n":2}'
