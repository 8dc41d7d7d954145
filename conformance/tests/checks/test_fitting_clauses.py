"""Each failure cites the clause that demands it, also if its result has failures of several kinds."""

from dataclasses import replace
from io import StringIO

import jsonschema
import pytest
from rich.console import Console

from harmony_conformance.checks import CHECKS
from harmony_conformance.checks.helpers.fitting_clauses import (
    clause_of_contrast,
    clause_of_forbidden_call,
    clause_of_text,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import dumps, loads
from harmony_conformance.judge.check import Severity, Verdict
from harmony_conformance.judge.judge import judge
from harmony_conformance.prompts.expected_parts import read_prompt
from harmony_conformance.report.formats.junit import junit
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.formats.terminal import print_report
from harmony_conformance.report.model import make_report, result_line
from harmony_conformance.report.pages.html import html
from harmony_conformance.transport.messages import Request
from harmony_ref import encode_with_special_tokens

RULES = {rule.id: rule for rule in CHECKS}


def result_of(check, name, api=""):
    file = golden.root() / "exchanges" / check / f"{name}.json"
    example = golden.read_example(file.read_bytes(), check=check, name=name)
    series = example.series
    if api:
        series = replace(series, exchanges={step: replace(x, api=api) for step, x in series.exchanges.items()})
    (result,) = judge([series], [RULES[check]])
    return result


@pytest.mark.parametrize(
    ("check", "name", "clauses"),
    [
        ("channels.nothing_is_lost", "fail-answer-as-reasoning", ["harmony#final"]),
        ("channels.nothing_is_lost", "fail-vllm-both-recipients", ["harmony#receiving-calls"]),
        ("channels.nothing_is_lost", "fail-vllm-no-channel", ["harmony#message-format"]),
        ("channels.nothing_is_lost", "fail-call-swallowed", ["chat#message"]),
        ("channels.answer_is_more_than_reasoning", "fail-allowed-call-dropped", ["chat#tool-call"]),
        ("channels.content_is_the_answer", "fail-arguments-in-it", ["harmony#receiving-calls"]),
        ("channels.content_is_the_answer", "fail-thought-in-it", ["harmony#analysis"]),
        ("channels.content_is_the_answer", "fail-raw-message", ["harmony#message-format"]),
        ("channels.content_is_the_answer", "fail-second-final-lost", ["harmony#final"]),
        ("channels.characters_are_whole", "fail-in-the-arguments", ["chat#arguments"]),
        ("channels.no_channel_words", "fail-in-the-name-of-a-function", ["harmony#message-format"]),
        ("channels.no_channel_words", "fail-known-ids", ["harmony#analysis"]),
        ("headers.broken_output_leaks_nothing", "fail-call-made-up", ["chat#arguments"]),
        ("headers.broken_output_leaks_nothing", "fail-thought-as-answer", ["harmony#analysis"]),
        (
            "headers.broken_output_leaks_nothing",
            "fail-channel-in-the-name",
            ["harmony#message-format", "harmony#receiving-calls"],
        ),
        ("headers.broken_output_loses_nothing", "fail-text-without-channel", ["harmony#message-format"]),
        ("prompt.text_costs_its_tokens", "fail-result-quoted", ["harmony#tool-messages"]),
        ("prompt.text_costs_its_tokens", "fail-markers-are-special", ["harmony#special-tokens"]),
        ("prompt.calls_are_rendered", "fail-value-changed", ["chat#arguments"]),
        ("tool_calls.calls_arrive", "fail-dropped", ["chat#tool-call"]),
        ("tool_calls.calls_arrive", "fail-value-changed", ["chat#arguments"]),
    ],
)
def test_a_failure_cites_the_clause_of_its_kind(check, name, clauses):
    assert [one.clause for one in result_of(check, name).findings if one.verdict is Verdict.FAIL] == clauses


@pytest.mark.parametrize(
    ("api", "clause"), [("responses", "responses#max-tokens"), ("messages", "messages#max-tokens")]
)
def test_a_limit_is_cited_from_the_reference_of_the_api(api, clause):
    result = result_of("channels.content_is_the_answer", "fail-beyond-the-limit", api)
    assert (result.clause.id, [one.clause for one in result.findings]) == (clause, [clause])


def exchange(script, **request):
    body = dumps({"model": "m", "messages": [], **request}).encode()
    return Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=body),
        script=tuple(encode_with_special_tokens(script)),
    )


def test_a_text_is_cited_by_the_header_of_its_message():
    x = exchange(
        "<|channel|>analysis<|message|>Think.<|end|>"
        "<|start|>assistant<|channel|>commentary to=user<|message|>Good news.<|end|>"
        "<|start|>assistant<|channel|>commentary to=f <|constrain|>json<|message|>{}<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>final<|channel|>analysis<|message|>Both.<|end|>"
        "<|start|>assistant Bare.<|end|>"
        "<|start|>assistant<|channel|>finally<|message|>Odd.<|end|>"
        "<|start|>assistant<|channel|>commentary to= functions.f<|message|>Blank.<|end|>"
        "<|start|>assistant<|channel|>commentary json<|message|>Typed.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    )
    texts = [
        "Think.",
        "Good news.",
        "{}",
        "I look.",
        "Both.",
        "Bare.",
        "Odd.",
        "Blank.",
        "Typed.",
        "Done.",
        "not there",
        " ",
    ]
    form = "harmony#message-format"
    assert [clause_of_text(x, one) for one in texts] == [
        "harmony#analysis",
        "harmony#preambles",
        "harmony#receiving-calls",
        "harmony#preambles",
        form,
        form,
        form,
        "harmony#receiving-calls",
        form,
        "harmony#final",
        form,
        form,
    ]


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": TOOLS[:1]}}


@pytest.mark.parametrize(
    ("name", "request_", "clause"),
    [
        ("f", {}, "chat#tool-choice"),
        ("f", {"tools": TOOLS, "tool_choice": "none"}, "chat#tool-choice"),
        ("g", {"tools": TOOLS, "tool_choice": ALLOWED}, "chat#allowed-tools"),
        ("f", {"tools": TOOLS, "parallel_tool_calls": False}, "chat#parallel-tool-calls"),
        ("h", {"tools": TOOLS}, "harmony#receiving-calls"),
    ],
)
def test_a_forbidden_call_is_cited_by_what_forbids_it(name, request_, clause):
    assert clause_of_forbidden_call(exchange("", **request_), name) == clause


def test_a_message_to_the_user_is_no_call():
    spoken = exchange("<|channel|>commentary to=user<|message|>Good news.<|end|>", tools=TOOLS)
    assert clause_of_forbidden_call(spoken, "user") == "harmony#preambles"
    assert clause_of_forbidden_call(exchange("", tools=TOOLS), "user") == "harmony#receiving-calls"


def message(text):
    (one,) = read_prompt(encode_with_special_tokens(f"<|start|>{text}<|end|>")).messages
    return one


SYSTEM = "system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nReasoning: {}\n\n# Valid channels: final"
DEVELOPER = "developer<|message|># Instructions\n\n{}\n\n# Tools\n\n## functions\n\nnamespace functions {{\n\ntype {} = () => any;\n\n}}"
THOUGHT, CALL = (
    "assistant<|channel|>analysis<|message|>Look.",
    "assistant to=functions.f<|channel|>commentary<|message|>{}",
)


@pytest.mark.parametrize(
    ("one", "other", "clause"),
    [
        (SYSTEM.format("low"), SYSTEM.format("medium"), "harmony#system"),
        (SYSTEM.format("low"), SYSTEM.format("low") + ", analysis", "harmony#message-format"),
        (SYSTEM.format("low"), SYSTEM.format("low") + "\n\n# Tools\n\n## browser", "harmony#built-in-tools"),
        (DEVELOPER.format("Be brief.", "f"), DEVELOPER.format("Be long.", "f"), "harmony#developer"),
        (DEVELOPER.format("Be brief.", "f"), DEVELOPER.format("Be brief.", "g"), "harmony#tools"),
        (THOUGHT, CALL, "harmony#keep-reasoning"),
        (THOUGHT.replace("Look", "Done"), "user<|message|>Go on.", "harmony#drop-reasoning"),
        (CALL, CALL.replace("{}", '{"a":1}'), "chat#arguments"),
        (CALL, CALL.replace("functions.f", "functions.g"), "harmony#receiving-calls"),
        ("developer<|message|># Instructions\n\nBe brief.", "user<|message|>Note: Be brief.", "harmony#roles"),
        ("assistant<|channel|>final<|message|>Empty.", "user<|message|>Go on.", "chat#messages"),
        ("user<|message|>Go.", "user<|message|>Go on.", "chat#messages"),
        ("user<|message|>Go.", None, "chat#messages"),
        (
            "functions.f to=assistant<|channel|>commentary<|message|>1",
            "functions.f to=assistant<|channel|>commentary<|message|>2",
            "harmony#tool-messages",
        ),
        ("assistant<|channel|>final<|message|>Yes.", "assistant<|channel|>final<|message|>No.", "harmony#final"),
        ("assistant<|channel|>final<|message|>Yes.", "assistant<|message|>Yes.", "harmony#message-format"),
    ],
)
def test_two_prompts_of_one_request_are_cited_by_what_differs(one, other, clause):
    request = {
        "messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "Yes.", "reasoning": "Done."},
            {"role": "user", "content": "Go on."},
        ]
    }
    pair = [message(text) if text is not None else None for text in (one, other)]
    assert clause_of_contrast(*pair, request) == clause
    assert clause_of_contrast(*reversed(pair), request) == clause


def printed(report):
    text = StringIO()
    print_report(report, Console(width=400, highlight=False, file=text), frozenset({Severity.MUST}))
    return text.getvalue()


@pytest.mark.parametrize("render", [markdown, html, printed, junit])
def test_a_report_quotes_the_clause_of_each_failure(render):
    line = result_line(result_of("headers.broken_output_leaks_nothing", "fail-channel-in-the-name"), "")
    shown = render(make_report({"target": {"engine": "vllm"}}, [line])).replace("\\", "")
    assert "The general structure of a message is as follows" in shown
    assert "If the model decides to call a tool it will define a" in shown


def test_a_finding_has_a_clause_if_it_is_not_that_of_the_result():
    line = result_line(result_of("headers.broken_output_leaks_nothing", "fail-channel-in-the-name"), "")
    first, second = line.findings
    assert (line.spec, "spec" in first, second["spec"]) == ("harmony#message-format", False, "harmony#receiving-calls")
    schema = loads((golden.root() / "schema" / "report.schema.json").read_text("utf-8"))
    jsonschema.validate(second, {**schema["$defs"]["finding"], "$defs": schema["$defs"]})
