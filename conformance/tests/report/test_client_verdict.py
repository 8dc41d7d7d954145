"""`run --client`: the verdict for a client on a right server, on servers with defects, and on one without its API."""

import json
from html import unescape

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.golden.clients import client_profiles

LOSSES = [
    (
        "codex",
        "calls-dropped",
        "parallel calls",
        "Codex will lose tool calls and will lose parallel calls on this server.",
    ),
    ("codex", "responses-summary-500", "answers", "Codex gets errors instead of answers"),
    (
        "openai-agents",
        "responses-reasoning-text-unread",
        "reasoning in a tool loop",
        "OpenAI Agents SDK will lose the model's reasoning",
    ),
    (
        "opencode",
        "reasoning-not-passed-back",
        "reasoning in a tool loop",
        "opencode will lose the model's reasoning after each",
    ),
    ("claude-code", "later-tools-lost", "tool declarations", "Claude Code offers tools that the model does not see"),
    (
        "langchain",
        "stream-call-index-zero",
        "parallel calls",
        "LangChain may misread the streams and will lose parallel calls",
    ),
]


@pytest.fixture(autouse=True)
def _without_edge(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def run(out, target, client, capsys, *options):
    code = main(["run", target, "--client", client, "--out", str(out), *options])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("client", client_profiles())
def test_a_right_server_is_ready_for_each_client(client, tmp_path, capsys):
    code, shown = run(tmp_path, "reference", client, capsys)
    title = client_profiles()[client].title
    needs = len(client_profiles()[client].needs)
    assert shown[0] == f"{title} can work with this server: all of its {needs} needs are met."
    assert code == Exit.CONFORMS


@pytest.mark.parametrize("case", LOSSES, ids=[f"{one[0]} {one[1]}" for one in LOSSES])
def test_a_defect_is_named_as_what_the_client_loses(case, tmp_path, capsys):
    client, defect, need, sentence = case
    code, shown = run(tmp_path, f"reference:defect={defect}", client, capsys)
    assert shown[0].startswith(sentence)
    assert code == Exit.DIVERGES
    header = json.loads((tmp_path / "report.jsonl").read_text("utf-8").splitlines()[0])
    result = next(one for one in header["client"]["needs"] if one["need"] == need)
    assert result["state"] == "fails"
    assert result["failed_checks"]
    assert header["client"]["verdict"] in unescape((tmp_path / "report.html").read_text("utf-8"))
    assert header["client"]["verdict"].split()[0] in (tmp_path / "report.md").read_text("utf-8").splitlines()[0]


def test_the_remedy_of_a_failing_need_is_shown(tmp_path, capsys):
    _, shown = run(tmp_path, "reference:defect=stream-call-index-zero", "langchain", capsys)
    assert any("parallel calls: " in line and "`parallel_tool_calls=False`" in line for line in shown)


def test_json_has_the_verdict(tmp_path, capsys):
    _, shown = run(tmp_path, "reference", "vercel-ai", capsys, "--format", "json")
    assert json.loads("\n".join(shown))["client"]["name"] == "vercel-ai"


def test_a_recording_of_another_api_decides_nothing(tmp_path, capsys):
    main(["run", "reference", "--select", "simple_answer", "--out", str(tmp_path / "chat")])
    capsys.readouterr()
    code, shown = run(tmp_path / "again", f"replay:{tmp_path / 'chat' / 'exchanges.jsonl'}", "codex", capsys)
    assert shown[0] == "Nothing is known about Codex on this server: none of its 12 needs could be judged."
    assert code == Exit.USAGE


@pytest.mark.parametrize("option", [["--api", "chat"], ["--select", "simple_answer"]])
def test_options_that_the_profile_sets_are_refused(option, capsys):
    assert main(["run", "reference", "--client", "codex", *option]) == Exit.USAGE
    assert f"invalid --client: expected no {option[0]}" in capsys.readouterr().err
