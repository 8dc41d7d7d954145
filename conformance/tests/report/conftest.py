import asyncio
from collections import Counter

import pytest

from harmony_conformance.engines.profiles import ENGINES, ScriptMethod
from harmony_conformance.engines.target import parse_target
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import ResultLine, make_report, result_line
from harmony_conformance.runner.latency.latency_probe import probe, summarise
from harmony_conformance.runner.request_builder import RequestProfile
from harmony_conformance.runner.run import Options, connect_client, make_plan, run

HEADER = {
    "version": "0.1.0",
    "target": {"engine": "vllm", "engine_version": "0.11.0", "model": "gpt-oss-20b", "url_host": "localhost:8000"},
    "capabilities": {
        "prompt": "ids",
        "prompt_source": "return_token_ids",
        "script": "none",
        "steady_prompt_count": True,
    },
    "tries": 1,
    "seed": None,
    "started": "2026-01-02T03:04:05+00:00",
}


def finding(message="the content differs", verdict="fail", **more):
    return {"verdict": verdict, "message": message, "exchange": "simple/chat/answer/0", "at": "content", **more}


def result(outcome=Outcome.PASS, **more):
    known = {
        "check": "channels.content_is_the_answer",
        "severity": Severity.MUST,
        "scenario": "simple_answer",
        "api": "chat",
        "spec": "harmony#final",
        "quotation": "Messages tagged in the final channel […]",
        "evidence": ("output: scripted", "prompt: ids"),
        "exchanges": ("simple/chat/answer/0",),
        "passed": int(outcome in (Outcome.PASS, Outcome.VARIANT)),
        "applied": int(outcome in (Outcome.PASS, Outcome.VARIANT, Outcome.FAIL, Outcome.ERROR)),
    }
    return ResultLine(**{**known, "outcome": outcome, **more})


def all_outcomes(text="plain"):
    """A report with each outcome, in which `text` stands wherever a server's or a model's words can."""
    lines = [
        result(check="usage.adds_up"),
        result(
            Outcome.FAIL,
            findings=(finding(text, expected="as it was", actual="as " + text + " was", excerpt=text),),
            reproduce=f"curl -d '{text}'",
        ),
        result(Outcome.FAIL, scenario="s-" + text, findings=(finding(text, actual=text),) * 3),
        result(Outcome.FAIL, check="prompt.one_header_form", severity=Severity.SHOULD, findings=(finding(text),)),
        result(Outcome.VARIANT, check="multi_turn.old", findings=(finding(text, verdict="variant"),)),
        result(Outcome.INCONCLUSIVE, check="tool_calls.calls_arrive", reason="not done: " + text),
        result(Outcome.NOT_APPLICABLE, check="tool_calls.name_is_declared", reason="applies to " + text),
    ]
    target = {**HEADER["target"], "engine_version": "0.11.0" + text, "model": "m" + text, "url_host": text}
    return make_report({**HEADER, "target": target}, lines, [latency_line(text)])


def latency_line(text="plain"):
    metric = {"unit": "s", "n": 20, "median": 0.2, "min": 0.1, "max": 1.5, "p95": None, "p99": None}
    metrics = dict.fromkeys(("ttft", "time_to_first_answer", "inter_event_gap", "tpot", "end_to_end"), metric)
    tokens = {**metric, "unit": "tokens", "median": 128.0, "min": 128.0, "max": 128.0}
    return {
        "load": "one at a time",
        "requests": 21,
        "failed": 1,
        "failures": {text: 1},
        "metrics": {**metrics, "itl": None, "output_tokens": tokens},
        "notes": [text],
    }


@pytest.fixture(scope="session")
def real_report():
    """What a run against a defective reference server gives: discovery, checks, latency."""
    target = parse_target("reference:defect=stream-reasoning-tail-in-content,tool-name-with-namespace")
    options = Options(select=("simple_answer", "tool_call", "tool_round_trip"))

    async def measured(model):
        async with connect_client(target, options) as client:
            how = RequestProfile(
                model=model, script_method=ScriptMethod.REFERENCE, ids_field="return_token_ids", extra_body={}
            )
            return await probe(client.send, how, ENGINES["reference"], requests=3, concurrency=2)

    finished = asyncio.run(run(target, options, make_plan(options), lambda _: None, lambda _: None))
    found = finished.capabilities
    latency = summarise(asyncio.run(measured(found.model)))
    known = {
        "engine": "reference",
        "engine_version": found.engine_version,
        "model": found.model,
        "url_host": "embedded",
    }
    header = {**HEADER, "target": known, "capabilities": found.to_json()}
    return make_report(
        header, (result_line(one, "harmony-conformance run reference") for one in finished.results), latency
    )


HOSTILE = {
    "script": "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "end of the style": "</style></title></details></pre></textarea><style>body{display:none}</style>",
    "end of CDATA": "]]> <![CDATA[ <!-- --> &lt; &#0; &nbsp; %25",
    "control characters": "a\0b\x1b[31mred\x07\b\x7f\x85\x0c",
    "right to left": "pay \u202egnp.exe\u2066 \u200f\ufeff",
    "lone surrogates": "\ud800 \udfff \udc80",
    "line ends": "one\r\ntwo\rthree\u2028four\u2029five\n\n\nsix",
    "no characters of XML": "\ufffe\uffff\U0001ffff\x0b",
    "Markdown": "`x` ```` ``` *b* _i_ # h | cell | [a](http://evil.example) <http://evil.example> ~~s~~ $x$ \\ 1. - + > q",
    "a fence": "```\n````\n</details>\n# heading\n| a | b |\n| --- | --- |",
    "only blanks": "   \t  ",
    "an emoji family": "👨‍👩‍👧 naïve 日本語",
    "very long": "W" * 100_000,
    "very long and wild": "<&`|\u202e\0\n" * 15_000,
}


@pytest.fixture(params=[pytest.param(text, id=name) for name, text in HOSTILE.items()])
def hostile(request):
    """A text such as a server could send to harm whoever reads the report."""
    return request.param


@pytest.fixture(scope="session")
def samples():
    """The builders above, for tests that make their own reports."""

    class Samples:
        header = HEADER
        finding = staticmethod(finding)
        result = staticmethod(result)
        all_outcomes = staticmethod(all_outcomes)
        latency_line = staticmethod(latency_line)

        @staticmethod
        def report(*lines):
            return make_report(HEADER, lines)

        @staticmethod
        def counts(report):
            return Counter(line.outcome for line in report.results)

    return Samples
