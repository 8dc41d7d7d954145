"""No two checks demand opposite things of one answer: of what a server may do with a call that the model wrote, something passes every check."""

import json
from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden.scenario import SendMode
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import is_comparison, judge
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.runner.request_builder import StepSkippedError
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.selftest.row_runner import send_scenario
from harmony_conformance.transport.messages import Chunk
from harmony_ref import Role, decode, parse_leniently, text_of

ON_EXCHANGES = tuple(rule for rule in CHECKS if not is_comparison(rule))


def answered_steps():
    """The reference server's whole answers to the steps whose script has a call, alone and without streaming."""
    for scenario in load_scenarios():
        for step in scenario.steps if scenario.api == "chat" else ():
            if step.script is None or "to=" not in decode(step.script) or step.forced_prefix:
                continue
            alone = replace(step, send_mode=SendMode.WHOLE, stream_chunk_sizes=())
            try:
                sent = send_scenario(replace(scenario, steps=(alone,)), Changes())
            except StepSkippedError:
                continue
            x = sent.exchanges.get(step.name)
            if x is not None and x.turn is not None:
                yield pytest.param(x, id=f"{scenario.name}/{step.name}")


def written_calls(x):
    """The calls in the script, well-formed or not: names and arguments."""
    messages = parse_leniently(x.script, role=Role.ASSISTANT).messages
    return [(one.recipient.removeprefix("functions."), text_of(one)) for one in messages if one.recipient]


def answered_with(x, calls, rest, shown=()):
    """The answer with other calls, without the text of the `rest` in its content, and with the text of those that are `shown`."""
    body = json.loads(x.response.body)
    choice = body["choices"][0]
    message = choice["message"]
    content = message.get("content") or ""
    for _, arguments in rest:
        content = content.replace(arguments, "", 1)
    content = "".join((content, *(arguments for _, arguments in shown)))
    message |= {"content": content or None}
    message["tool_calls"] = [
        {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(calls)
    ]
    if not calls:
        del message["tool_calls"]
    if choice["finish_reason"] != "length":
        choice["finish_reason"] = "tool_calls" if calls else "stop"
    chunk = Chunk(arrival_time=0.1, data=json.dumps(body).encode("utf-8", "surrogatepass"))
    return replace(x, response=replace(x.response, chunks=(chunk,)))


def failing(x):
    results = judge([Series(name=x.scenario, exchanges={x.step: x})], ON_EXCHANGES)
    assert [one.reason for one in results if one.outcome is Outcome.ERROR] == []
    return {one.check for one in results if one.outcome is Outcome.FAIL}


def is_addressed_to_the_user(x, calls):
    """True if the row says that the text of a call must arrive: it is no call, but a message."""
    required = x.expectation.required_texts if x.expectation is not None else ()
    return any(arguments.strip() in required for _, arguments in calls)


ANSWERED = list(answered_steps())


@pytest.mark.parametrize("x", ANSWERED)
def test_something_may_be_done_with_a_call(x):
    calls = written_calls(x)
    own = [(call.name, call.arguments) for call in x.turn.tool_calls]
    rest = [call for call in calls if call not in own]
    ways = {
        "as the reference server answers": x,
        "returned": answered_with(x, calls, rest),
        "dropped": answered_with(x, own, rest),
        "as content": answered_with(x, own, rest, rest),
    }
    failed = {way: failing(answer) for way, answer in ways.items()}
    assert not failed["as the reference server answers"]
    if is_addressed_to_the_user(x, rest):
        assert not failed["as content"], failed
    elif rest:
        assert not (failed["returned"] and failed["dropped"]), failed


def test_calls_that_may_not_be_returned_are_among_them():
    forbidden = [x for (x,) in (one.values for one in ANSWERED) if written_calls(x) and not x.turn.tool_calls]
    assert {"forbidden_call", "broken_foreign_call", "rows_names"} <= {x.scenario for x in forbidden}
