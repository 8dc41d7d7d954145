"""The plugin in pytest sessions of its own, in another folder than the checkout, with the plugins of the environment beside it."""

import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import pytest

from harmony_conformance.errors import UsageError
from harmony_conformance.pytest_plugin import plugin as pytest_plugin
from harmony_conformance.pytest_plugin.session import read_pytest_options
from harmony_conformance.reference_server import create_app, running
from harmony_conformance.reference_server.server import serving
from harmony_conformance.runner.run import Options

pytest_plugins = ["pytester"]

MODULE = "harmony_conformance.conformance_test"
PLAIN = ("-p", "no:randomly", "-p", "no:benchmark", "-p", "no:hypothesispytest")
CALLS = ("--harmony", "select=tool_calls.*@tool_call")
BROKEN = "reference:defect=finish-stop-with-calls"
FAILS = "tool_calls.finish_reason_agrees[tool_call]"


@pytest.fixture
def session(pytester):
    """Runs pytest against an endpoint, in an empty folder.

    A process of its own is slower: for all plugins of the environment, and for a conftest.py, which changes checks.
    """

    def run(*words, endpoint="reference", plugins=PLAIN):
        target = [] if endpoint is None else ["--endpoint", endpoint]
        alone = plugins != PLAIN or (pytester.path / "conftest.py").exists()
        start = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
        return start("--pyargs", MODULE, *target, *plugins, *words)

    return run


def scenarios(*names):
    """Every check on these alone: an item of any other says no more of the plugin, and there are ten thousand."""
    return [word for name in names for word in ("--harmony", f"select={name}")]


VARIED = scenarios(
    "simple_answer", "tool_call", "several_choices", "structured_answer", "unicode_answer", "wrong_formats"
)
ONE = scenarios("simple_answer")


def items(junit):
    """What became of each item, by name: passed, failure, error or skipped; and its element."""
    found = {}
    for case in ET.parse(junit).iter("testcase"):
        assert case.get("classname") == MODULE
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("name")] = (kinds[0] if kinds else "passed", case)
    return found


def properties(case):
    return [(prop.get("name"), prop.get("value")) for prop in case.iter("property")]


def test_items_are_named_after_check_and_scenario_and_collected_without_sending(session):
    done = session("--collect-only", "-q", *CALLS, endpoint="openai:http://127.0.0.1:9")
    assert done.ret == 0
    done.stdout.fnmatch_lines([f"{MODULE}::tool_calls.name_is_declared?tool_call?"])


def test_a_correct_server_passes_and_the_report_says_what_each_item_rests_on(session, pytester):
    """With all plugins of the environment: timeout, randomly, benchmark, xdist."""
    done = session("--junitxml=junit.xml", "--timeout=60", *VARIED, plugins=())
    assert done.ret == 0
    found = items(pytester.path / "junit.xml")
    assert {kind for kind, _ in found.values()} == {"passed", "skipped"}
    kind, case = found["tool_calls.name_is_declared[tool_call]"]
    assert kind == "passed"
    assert properties(case) == [
        ("severity", "must"),
        ("clause", "harmony#receiving-calls"),
        ("applied", "2"),
        ("evidence", "output: scripted"),
        ("evidence", "prompt: ids"),
    ]
    kind, case = found["tool_calls.name_is_declared[simple_answer]"]
    assert kind == "skipped"
    assert case.find("skipped").get("message") == "not applicable: applies to answers with a tool call"


def test_a_defect_fails_exactly_its_items_and_says_so_in_words(session, pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")  # pytest cuts its short summary to the width of the terminal otherwise
    done = session("--junitxml=junit.xml", *CALLS, endpoint=BROKEN)
    assert done.ret == 1
    found = items(pytester.path / "junit.xml")
    assert [name for name, (kind, _) in found.items() if kind == "failure"] == [FAILS]
    assert not [name for name, (kind, _) in found.items() if kind == "error"]
    done.stdout.fnmatch_lines(
        [
            "*___ tool_calls.finish_reason_agrees in tool_call ___*",
            "calls are returned and finish_reason is stop",
            "  exchange tool_call/chat/answer/0 at /finish_reason",
            "  expected tool_calls",
            "  actual   stop",
            "MUST tool_calls.finish_reason_agrees: *",
            "  clause   chat#finish-reason: *The reason the model stopped generating tokens*",
            "  scenario tool_call: 0 of 2 passed",
            f"  to reproduce: harmony-conformance run {BROKEN} --select tool_call",
            f"FAILED {MODULE}::{FAILS.replace('[', '?').replace(']', '?')} - Failed: calls are returned and finish_reason is stop",
        ],
    )
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*pytest_items.py*")


@contextmanager
def counting_server():
    """The reference server, and how often it got each request."""
    seen, lock, inner = Counter(), Lock(), create_app()

    async def counted(scope, receive, send):
        parts = []

        async def heard():
            message = await receive()
            parts.append(message.get("body", b""))
            return message

        await inner(scope, heard, send)
        with lock:
            seen[scope["path"], b"".join(parts)] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "create_app", lambda **_: counted)
        with running() as url:
            yield url, seen


CHANGED_CHECKS = """
from harmony_conformance.judge.check import Finding, variant
from harmony_conformance.checks import CHECKS

def raising(x):
    raise ValueError("oops")

def varying(x):
    yield variant("another form")

def failing(x):
    yield Finding(message="not as it should be")

for name, run in {"channels.no_marker_leak": raising, "usage.adds_up": varying, "SHOULD": failing}.items():
    for check in CHECKS:
        if check.id == name:
            object.__setattr__(check, "run", run)
"""
SHOULD = "reasoning.reasoning_tokens_agree"


@pytest.mark.parametrize(("fail_on", "ends"), [("must", "skipped"), ("should", "failure"), ("never", "skipped")])
def test_each_outcome_ends_as_it_must(fail_on, ends, session, pytester):
    pytester.makeconftest(CHANGED_CHECKS.replace("SHOULD", SHOULD))
    done = session("--junitxml=junit.xml", *ONE, "--harmony", f"fail-on={fail_on}")
    assert done.ret == 1
    found = {name.removesuffix("[simple_answer]"): found for name, found in items(pytester.path / "junit.xml").items()}
    kind, case = found["channels.no_marker_leak"]
    assert kind == "error"
    assert "ValueError: oops" in case.find("error").text
    kind, case = found["usage.adds_up"]
    assert kind == "passed"
    assert ("variant", "another form") in properties(case)
    kind, case = found[SHOULD]
    assert kind == ends
    if kind == "skipped":
        skipped = case.find("skipped")
        assert (skipped.get("type"), skipped.get("message")) == ("pytest.xfail", "SHOULD: not as it should be")
    assert ("finding", "not as it should be") in properties(case)
    assert "Traceback" not in done.stdout.str()


@pytest.mark.parametrize(("fail_on", "fails"), [("must", False), ("inconclusive", True)])
def test_inconclusive_results_fail_if_they_are_named(fail_on, fails, session):
    words = ("select=simple_answer", "max-requests=1", f"fail-on={fail_on}")
    done = session(*(word for option in words for word in ("--harmony", option)))
    counts = done.parseoutcomes()
    assert (counts.get("failed", 0) > 0) is fails
    assert counts["passed"] > 0
    assert ("the endpoint did not do what the scenario asks for" in done.stdout.str()) is fails


def test_workers_share_one_run_and_k_chooses_what_is_sent(session, pytester):
    chosen = ("-k", "tool_calls and ([tool_call] or [simple_answer])", "--junitxml=junit.xml")
    with counting_server() as (url, seen):
        done = session("-n", "3", *chosen, *VARIED, endpoint=f"reference:{url}")
    assert done.ret == 0
    found = items(pytester.path / "junit.xml")
    assert {name.partition("[")[2] for name in found} == {"tool_call]", "simple_answer]"}
    assert "passed" in {kind for kind, _ in found.values()}
    scripted = {request: times for request, times in seen.items() if b"harmony_script" in request[1]}
    assert list(scripted.values()) == [1, 1, 1, 1, 1]  # the probe that a script is followed, and four requests
    assert seen["/v1/models", b""] == 1


@pytest.mark.slow
def test_the_embedded_server_is_shared_by_the_workers(session, pytester):
    done = session("-n", "2", "--junitxml=junit.xml", *CALLS, endpoint=BROKEN)
    assert done.ret == 1
    found = items(pytester.path / "junit.xml")
    assert [name for name, (kind, _) in found.items() if kind == "failure"] == [FAILS]


def test_exchanges_are_kept_where_they_are_asked_for_and_can_be_judged_again(session, pytester):
    session("--harmony", "out=kept", *CALLS, endpoint=BROKEN)
    assert [path.name for path in (pytester.path / "kept").iterdir()] == ["exchanges.jsonl"]
    done = session("-q", *CALLS, endpoint="replay:kept/exchanges.jsonl")
    done.stdout.fnmatch_lines(["*1 failed, *"])


UNUSABLE = {
    "nobody there": (["openai:http://127.0.0.1:9"], "openai:http://127.0.0.1:9: no HTTP response*"),
    "nobody there, with workers": (["openai:http://127.0.0.1:9", "-n", "2"], "openai:http://127.0.0.1:9: no HTTP*"),
    "the model is refused": (
        ["reference", "--harmony", "model=nothing"],
        "reference: invalid model or path*",
    ),
    "a wrong value": (
        ["reference", "--harmony", "tries=0"],
        "invalid --harmony: *--tries: expected a whole number from 1, got '0'",
    ),
    "a recording that is not there": (["replay:no.jsonl"], "*no.jsonl*no such file*"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_can_not_be_done_ends_the_session_with_one_line(what, session):
    (endpoint, *words), said = UNUSABLE[what]
    done = session(*words, *ONE, endpoint=endpoint)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert len([line for line in done.errlines if line.strip()]) == 1
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*[0-9] error*")


def test_options_without_an_endpoint_are_refused(session):
    done = session("--harmony", "tries=1", endpoint=None)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: invalid --harmony: expected --endpoint*"])


REFUSED = {
    "no target": ("nonsense", [], "invalid target 'nonsense'"),
    "an option that begins like one": ("reference", ["tri=1"], "--tri=1"),
    "an unknown option": ("reference", ["nothing=1"], "--nothing=1"),
    "an option without a value": ("reference", ["tries"], "expected OPTION=VALUE, .*got 'tries'"),
    "a value without an option": ("reference", ["=1"], "--=1"),
    "an option of the command line alone": ("reference", ["list=1"], "--list=1"),
    "a pattern without a match": ("reference", ["skip=nothing"], "got 'nothing'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_options_are_read_as_strictly_as_those_of_the_command(what):
    endpoint, options, said = REFUSED[what]
    with pytest.raises(UsageError, match=said):
        read_pytest_options(endpoint, options)


def test_every_option_of_a_run_can_be_given(monkeypatch):
    monkeypatch.setenv("HARMONY_KEY", "sk-0123456789")
    asked = read_pytest_options(
        "openai:https://host/v1",
        [
            *("model=-m", "tries=2", "concurrency=3", "select=prompt.*", "select=tools", "skip=effort", "script=none"),
            *("timeout=4.5", "api-key-env=HARMONY_KEY", "header=a: b=c", 'extra-body={"top_k": 1}', "max-requests=9"),
            *("max-rps=2", "seed=7", "fail-on=should", "out=kept here"),
        ],
    )
    assert asked.options == Options(
        model="-m",
        tries=2,
        concurrency=3,
        select=("prompt.*", "tools"),
        skip=("effort",),
        script="none",
        timeout=4.5,
        seed=7,
        key="sk-0123456789",
        key_env="HARMONY_KEY",
        headers=(("a", "b=c"),),
        extra_body={"top_k": 1},
        max_requests=9,
        max_rps=2.0,
    )
    assert (asked.fail_on, asked.key_env, asked.out) == ("should", "HARMONY_KEY", Path("kept here"))


def test_a_run_in_which_no_must_check_applied_is_no_success(session):
    done = session("-k", "name_is_declared", *ONE)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*no MUST check was applicable in 1 items; nothing was verified*"])


def test_the_items_of_a_run_over_every_api_are_named_after_theirs(session, pytester):
    done = session("--junitxml=junit.xml", "--harmony", "api=all", "--harmony", "select=simple_answer")
    assert done.ret == 0
    found = items(pytester.path / "junit.xml")
    assert {kind for kind, _ in found.values()} == {"passed", "skipped"}
    of_each = [f"channels.content_is_the_answer[simple_answer{api}]" for api in ("", "/responses", "/ollama", "/tgi")]
    across = ["apis.same_content[simple_answer/all]", "apis.same_prompt[simple_answer/all]"]
    assert {found[name][0] for name in [*of_each, *across]} == {"passed"}


def test_a_selection_of_nothing_collects_nothing(session):
    assert session("-m", "slow", *ONE).ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_one_item_is_run_by_its_id(pytester):
    item = f"{MODULE}::tool_calls.name_is_declared[tool_call]"
    done = pytester.runpytest_subprocess("--pyargs", item, "--endpoint", "reference", "-v", *PLAIN)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines([f"{MODULE}::tool_calls.name_is_declared?tool_call? PASSED*"])


def test_an_option_of_the_network_is_one_of_the_session(session):
    proxy = "http://me:s3cret-pass-word@127.0.0.1:9"
    done = session(
        "--harmony", f"proxy={proxy}", "--harmony", "select=simple_answer", endpoint="vllm:http://127.0.0.1:9"
    )
    assert done.ret != 0
    output = done.stdout.str() + done.stderr.str()
    assert "proxy http://127.0.0.1:9: connection refused" in output
    assert "s3cret" not in output


def test_an_option_without_a_value(session):
    done = session("--harmony", "http2", endpoint="vllm:http://127.0.0.1:9")
    done.stderr.fnmatch_lines(["*invalid --http2: expected an https URL, got http://127.0.0.1:9*"])


def test_without_an_endpoint_the_module_says_what_it_needs(session):
    done = session("-rs", endpoint=None)
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    done.stdout.fnmatch_lines(["*name the endpoint to test: --endpoint TARGET*"])


def test_without_an_endpoint_other_tests_run_as_if_there_were_no_plugin(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported(request):
            loaded = {name for name in sys.modules if name.startswith(("harmony", "httpx", "tiktoken", "starlette"))}
            assert loaded == {"harmony_conformance", "harmony_conformance.pytest_plugin", "harmony_conformance.pytest_plugin.plugin"}
            plugins = {name for name, _ in request.config.pluginmanager.list_name_plugin() if "harmony" in name}
            assert plugins == {"harmony_conformance"}
        """
    )
    pytester.runpytest_subprocess(*PLAIN).assert_outcomes(passed=1)


def test_with_an_endpoint_other_tests_run_beside(pytester):
    pytester.makepyfile("def test_own(): pass")
    done = pytester.runpytest_subprocess("--endpoint", "openai:http://127.0.0.1:9", *PLAIN)
    done.assert_outcomes(passed=1)
    assert done.ret == 0


def test_there_is_no_fixture_of_ours(pytester):
    done = pytester.runpytest_subprocess("--fixtures", "-v", "--endpoint", "reference", *PLAIN)
    done.stdout.no_fnmatch_line("*harmony_conformance*.py*")


def test_the_help_shows_exactly_two_options_in_a_group_of_their_own(pytester):
    done = pytester.runpytest_subprocess("--help")
    text = done.stdout.str()
    group = text[text.index("conformance of a gpt-oss endpoint to Harmony:") :].split("\n\n")[0]
    assert [line.split("=")[0].strip() for line in group.splitlines() if line.startswith("  --")] == [
        "--endpoint",
        "--harmony",
    ]


def test_the_module_that_pytest_imports_at_every_start_imports_nothing_but_pytest():
    source = Path(pytest_plugin.__file__).read_text()
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert imports == ["from __future__ import annotations", "import pytest"]
