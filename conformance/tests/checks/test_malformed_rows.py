"""A difference of stream and whole answer on broken output: no source defines what a server makes of it."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import MUST, SHOULD, Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.judge.rulings import MALFORMED_OUTPUT
from harmony_ref import encode_with_special_tokens

RULES = {rule.id: rule for rule in CHECKS}
CHECK = "streaming.content_equals_whole"
ANSWER_IS_JSON = "structured.answer_is_json"


@pytest.mark.parametrize(
    ("expected", "ruling"),
    [
        pytest.param({"must": {}, "may": {}, "never": ["<|"]}, MALFORMED_OUTPUT, id="a row of broken output"),
        pytest.param(None, "", id="no row"),
    ],
)
def test_a_difference_has_the_ruling_of_its_row(expected, ruling):
    shown = json.loads((golden.root() / "exchanges" / CHECK / "fail-content-lost.json").read_text("utf-8"))
    for x in shown["exchanges"].values():
        x.update({"expected": expected} if expected else {})
    example = golden.read_example(json.dumps(shown).encode(), check=CHECK, name="fail-content-lost")
    (result,) = judge([example.series], [RULES[CHECK]])
    assert [finding.ruling for finding in result.findings] == [ruling]


def severity_of_lost_content(change):
    shown = json.loads((golden.root() / "exchanges" / CHECK / "fail-content-lost.json").read_text("utf-8"))
    for x in shown["exchanges"].values():
        change(x)
    example = golden.read_example(json.dumps(shown).encode(), check=CHECK, name="fail-content-lost")
    (result,) = judge([example.series], [RULES[CHECK]])
    return result.severity


@pytest.mark.parametrize(("cut", "severity"), [("<|end|>", MUST), ("", SHOULD)])
def test_a_message_before_the_limit_is_well_formed(cut, severity):
    def change(x):
        x["script"] = f"<|channel|>final<|message|>Hello!{cut}"
        x["expected"] = {"must": {}, "may": {}, "never": ["<|"]}
        x["request"]["json"]["max_tokens"] = len(encode_with_special_tokens(x["script"]))

    assert severity_of_lost_content(change) is severity


TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = "<|channel|>commentary to={} <|constrain|>json<|message|>{{}}"


@pytest.mark.parametrize(
    ("script", "request_", "severity"),
    [
        pytest.param(CALL.format("repo_browser.open_file"), {}, SHOULD, id="another namespace"),
        pytest.param(CALL.format("repo_browser.open_file"), {"tools": TOOLS}, SHOULD, id="beside functions"),
        pytest.param(CALL.format("f"), {"tools": TOOLS}, SHOULD, id="a bare name"),
        pytest.param(CALL.format("functions.f"), {}, SHOULD, id="nothing offered"),
        pytest.param(CALL.format("functions.g"), {"tools": TOOLS}, SHOULD, id="not declared"),
        pytest.param(CALL.format("functions.f"), {"tools": TOOLS, "tool_choice": "none"}, SHOULD, id="not allowed"),
        pytest.param(CALL.format("functions.f"), {"tools": TOOLS}, MUST, id="offered"),
        pytest.param(
            f"{CALL.format('functions.f')}<|call|><|start|>assistant{CALL.format('functions.g')}",
            {"tools": TOOLS},
            MUST,
            id="one of two is offered",
        ),
        pytest.param(CALL.format("browser.open"), {"tools": [{"type": "browser"}]}, MUST, id="a tool of the server"),
    ],
)
def test_the_severity_of_a_call_that_nobody_offered_does_not_depend_on_a_row(script, request_, severity):
    def change(x):
        x["script"] = f"{script}<|call|>"
        x["request"]["json"].update(request_)

    assert severity_of_lost_content(change) is severity


@pytest.mark.parametrize(("streamed", "severity"), [("Hello", SHOULD), ("Hell", MUST)])
def test_a_stream_may_lack_the_sign_of_an_incomplete_character(streamed, severity):
    def change(x):
        x["script"] = "<|channel|>final<|message|>Hello!<|return|>"
        for choice in x["response"].get("json", {}).get("choices", []):
            choice["message"]["content"] = "Hello\ufffd"
        for event in x["response"].get("events", [])[1:2]:
            event["choices"][0]["delta"] = {"content": streamed}

    assert severity_of_lost_content(change) is severity


@pytest.mark.parametrize(("header", "severity"), [("final json", SHOULD), ("final", MUST)])
def test_an_answer_behind_a_forced_malformed_header_is_not_required(header, severity):
    shown = json.loads((golden.root() / "exchanges" / ANSWER_IS_JSON / "fail-empty.json").read_text("utf-8"))
    forced = " ".join(map(str, encode_with_special_tokens(f"<|channel|>{header}<|message|>")))
    shown["request"]["json"]["vllm_xargs"] = {"harmony_script": forced, "harmony_script_then": "model"}
    example = golden.read_example(json.dumps(shown).encode(), check=ANSWER_IS_JSON, name="fail-empty")
    (result,) = judge([example.series], [RULES[ANSWER_IS_JSON]])
    assert (str(result.outcome), result.severity) == (str(Outcome.FAIL), severity)
