"""`harmony-conformance rates` against a server that answers tasks as its test decides."""

import json
import random
import re
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.sampling.graders import Grade
from harmony_conformance.sampling.rates import Rate, all_rates, reasoning_length
from harmony_conformance.sampling.report import compare_rates
from harmony_conformance.sampling.sampler import TaskTry
from harmony_conformance.sampling.task import read_tasks
from harmony_conformance.transport.messages import Chunk, Request, Response

TASKS = {json.dumps(task.request["messages"]): task for tasks in read_tasks().values() for task in tasks}


SERVERS = []


def task_of(body):
    """The task whose messages begin the request; those with an effort also have its effort."""
    return next(
        task
        for task in (one for tasks in read_tasks().values() for one in tasks)
        if body["messages"][: len(task.request["messages"])] == task.request["messages"]
        and task.request.get("reasoning_effort") in (None, body.get("reasoning_effort"))
    )


def right(task, body):
    """The next message of the first right answer: its calls one by one, then its content."""
    example = task.right[0]
    made = sum(message["role"] == "tool" for message in body["messages"])
    message = {
        "role": "assistant",
        "content": None,
        "reasoning": "x" * 10 * ("low", "medium", "high").index(body.get("reasoning_effort", "medium")) + "y",
    }
    if made < len(example.calls):
        name, arguments = example.calls[made]
        call = {
            "id": f"call_{made}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        return {**message, "tool_calls": [call]}
    return {**message, "content": example.content}


def wrong(task, body):
    return {"role": "assistant", "content": "analysisThe user asks.assistantfinalNo."}


@contextmanager
def serving(answer, model="gpt-oss-20b"):
    """A server of Chat Completions. `answer`: the message for a task and a request, or a status."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.reply(200, {"object": "list", "data": [{"id": model, "object": "model"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                task = task_of(body)
            except StopIteration:  # a probe of discovery
                message = {"role": "assistant", "content": "Hi", "reasoning": "Greet."}
            else:
                bodies.append(body)
                message = answer(task, body)
            if isinstance(message, int):
                return self.reply(message, {"error": {"message": "busy", "type": "server_error"}})
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return self.reply(
                200,
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                },
            )

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    SERVERS.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    server.shutdown()


def rates(tmp_path, *words):
    """The exit code, and the document of the command."""
    code = main(["rates", *words, "--out", str(tmp_path / "out")])
    return code, json.loads((tmp_path / "out" / "rates.json").read_text("utf-8"))


def by_name(document, endpoint=0):
    return {rate["name"]: rate for rate in document["endpoints"][endpoint]["rates"]}


def test_right_answers(tmp_path):
    with serving(right) as (url, bodies):
        code, document = rates(tmp_path, url, "--tries", "2")
    assert code == 0
    shares = {name: rate["share"] for name, rate in by_name(document).items()}
    assert set(shares.values()) == {1.0}
    assert {"quality", "hierarchy", "tools", "effort", "effort.low-medium", "effort.medium-high"} <= shares.keys()
    assert {
        "answered",
        "reasoned",
        "no_leak",
        "language",
        "call_made",
        "arguments_json",
        "name_offered",
        "schema_met",
    } <= shares.keys()
    looped = [body for body in bodies if any(message["role"] == "tool" for message in body["messages"])]
    assert looped
    assert all(message["reasoning"] for body in looped for message in body["messages"] if message.get("tool_calls"))
    assert document["endpoints"][0]["pass"]["quality"][1] == {"k": 2, "pass_at_k": 1.0, "pass_hat_k": 1.0}


def test_wrong_answers_fail_a_minimum_and_end_early(tmp_path, capsys):
    with serving(wrong) as (url, bodies):
        code, document = rates(tmp_path, url, "--set", "quality", "--tries", "9", "--min", "quality=0.9")
    assert code == 1
    assert document["endpoints"][0]["below"] == ["quality"]
    assert len(bodies) == len(read_tasks()["quality"])  # one round decided
    assert by_name(document)["no_leak"]["share"] == 0.0
    assert "0 of 1 solved" in capsys.readouterr().out


def test_answers_in_another_writing_system_are_a_rate(tmp_path):
    def foreign(task, body):
        return {"role": "assistant", "content": "海は塩辛い" if "Japanese" not in task.id else "The sea is salty."}

    with serving(foreign) as (url, _):
        _, document = rates(tmp_path, url, "--set", "quality", "--tries", "1")
    language = by_name(document)["language"]
    assert (language["count"], language["of"]) == (0, len(read_tasks()["quality"]))


def test_answers_with_few_letters_have_no_language(tmp_path):
    def number(task, body):
        return {"role": "assistant", "content": "42 (π)"}

    with serving(number) as (url, _):
        _, document = rates(tmp_path, url, "--set", "quality", "--tries", "1")
    assert "language" not in by_name(document)


@pytest.mark.parametrize("model", ["[/bold][red]", "[link=http://x]a", "::error::a", "a ##vso[task.x]b"])
def test_a_name_of_a_model_is_plain_text(tmp_path, capsys, model):
    with serving(right, model) as (url, _):
        code, document = rates(tmp_path, url, "--set", "effort", "--tries", "1")
    printed = capsys.readouterr().out
    assert code in (0, 2)
    assert document["endpoints"][0]["model"] == model
    assert not re.search(r"^\s*::|##\[|##vso", printed, re.MULTILINE)
    assert model.replace("::e", r"\u003a:e").replace("##v", r"#\u0023v") in printed


def test_errors_count(tmp_path):
    chance = random.Random(3)

    def sometimes(task, body):
        return 500 if chance.random() < 0.5 else right(task, body)

    with serving(sometimes) as (url, _):
        _, document = rates(tmp_path, url, "--set", "effort", "--tries", "4")
    found = by_name(document)
    assert found["effort"]["of"] == found["answered"]["of"] == 4 * len(read_tasks()["effort"])
    assert 0.2 < found["effort"]["share"] < 0.8
    assert found["effort"]["count"] == found["answered"]["count"]


def test_optional_call_not_made_counts_apart(tmp_path):
    with serving(lambda task, body: {"role": "assistant", "content": "It is nice."}) as (url, _):
        code, document = rates(tmp_path, url, "--set", "tools", "--tries", "1", "--min", "tools=0.5")
    tools = by_name(document)["tools"]
    assert (tools["apart"], tools["count"], tools["of"]) == (6, 1, 4)
    assert by_name(document)["call_made"]["share"] == 0.0
    assert code == 0  # one of four is not certainly below a half


def test_a_rate_of_a_kind_has_a_meaning():
    tasks = [task for of_set in read_tasks().values() for task in of_set if task.set in ("tools", "quality")]
    samples = [TaskTry(task=task, attempt=0, grade=Grade.SOLVED, exchanges=()) for task in tasks]
    about = {rate.name: rate.about for rate in all_rates(samples) if "." in rate.name}
    assert about["tools.required"] == "tasks whose request demands a call"
    assert about["quality.arithmetic"] == "tasks of the kind 'arithmetic'"
    assert [name for name, meaning in about.items() if " " not in meaning] == []


def test_second_endpoint_is_compared(tmp_path, capsys):
    words = ("--set", "quality", "--tries", "3")
    with serving(right) as (good, _), serving(wrong) as (bad, _):
        worse, document = rates(tmp_path, bad, "--against", good, *words)
        better, _ = rates(tmp_path, good, "--against", bad, *words)
        same, equal = rates(tmp_path, good, "--against", good, *words)
    assert (worse, better, same) == (1, 0, 0)
    assert {one["name"] for one in document["differences"] if one["worse"]} >= {"quality", "no_leak"}
    assert not any(one["worse"] for one in equal["differences"])
    assert "no rate of" in capsys.readouterr().out


def test_prompts_of_the_compatibility_test_have_its_figures_beside_ours(tmp_path, capsys):
    with serving(right) as (url, _):
        code, document = rates(tmp_path, url, "--set", "compatibility", "--tries", "2")
    assert code == 0
    assert by_name(document)["compatibility"]["count"] == by_name(document)["schema_met"]["count"] == 60
    figures = {"tasks": 30, "pass@2": 1.0, "pass^2": 1.0, "invalid responses": 0, "left out": 0}
    assert document["endpoints"][0]["legacy"] == {"OpenAI's compatibility test": figures}
    assert "OpenAI's compatibility test, by its own rules: tasks 30, pass@2 1.000" in capsys.readouterr().out


def test_requests_of_a_file_are_sent_without_a_grade(tmp_path, capsys):
    task = read_tasks()["tools"][1]
    lines = [
        {"model": "other", "stream": True, **task.request, "max_completion_tokens": 77},
        {"messages": [{"role": "_input", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
    ]
    file = tmp_path / "samples.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)), "utf-8")
    with serving(right) as (url, bodies), serving(wrong) as (other, _):
        code, document = rates(tmp_path, url, "--requests", str(file), "--tries", "3", "--against", other)
    assert code == 0
    assert [body["model"] for body in bodies] == ["gpt-oss-20b"] * 3
    assert all(body["max_completion_tokens"] == 77 and "max_tokens" not in body for body in bodies)
    assert not any("stream" in body for body in bodies)
    first, second = (endpoint["legacy"]["Kimi's vendor verifier"] for endpoint in document["endpoints"])
    assert (first["finish_tool_calls"], first["schema_accuracy"], first["tool_call_f1"]) == (3, 1.0, 0.0)
    assert (second["finish_tool_calls"], second["schema_accuracy"]) == (0, None)
    assert {one["grade"] for one in document["endpoints"][0]["tries"]} == {"ungraded"}
    assert "requests" not in by_name(document)
    assert "finish_tool_calls 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected Chat Completions requests, one per line, got none"),
        ("{}", "line 1: expected a Chat Completions request with `messages`, got none"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}\n[', "line 2: "),
        ('{"messages": [1]}', "line 1: expected a message to be an object, got int"),
    ],
)
def test_unreadable_requests_are_one_line(tmp_path, capsys, text, problem):
    file = tmp_path / "samples.jsonl"
    file.write_text(text, "utf-8")
    assert main(["rates", "reference", "--requests", str(file)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.strip().splitlines()) == 1


def test_each_try_has_its_seed(tmp_path):
    with serving(right) as (url, bodies):
        rates(tmp_path, url, "--task", "one word", "--tries", "3", "--seed", "7")
    assert sorted(body["seed"] for body in bodies) == [7, 8, 9]


@pytest.mark.parametrize(
    ("less", "more", "is_below"),
    [
        ((10, 40), (20, 30), True),  # tokens decide
        ((10, 40), (None, 30), False),  # characters, if one server or answer counts no tokens
        ((0, 40), (0, 90), True),  # 0 tokens of a reasoning are not counted ones
        ((0, None), (5, None), True),  # a hidden reasoning
        ((None, None), (5, 30), None),
    ],
)
def test_reasoning_is_compared_in_one_unit(less, more, is_below):
    def answered(tokens, characters):
        usage = {"prompt_tokens": 9, "completion_tokens": 50, "total_tokens": 59}
        if tokens is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": tokens}
        reasoning = {} if characters is None else {"reasoning": "x" * characters}
        message = {"role": "assistant", "content": "12", **reasoning}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
        chunk = Chunk(data=json.dumps(body).encode(), arrival_time=0.0)
        response = Response(status=200, chunks=(chunk,), headers={"content-type": "application/json"})
        return Exchange(id="x", request=Request(path="/v1/chat/completions", body=b"{}"), response=response)

    assert reasoning_length(answered(*less)).is_below(reasoning_length(answered(*more))) is is_below


def test_equal_endpoints_that_sample_are_seldom_gated():
    chance = random.Random(5)

    def drawn():
        names = [(f"rate {number}", 0.5 + 0.05 * number) for number in range(10)]
        counts = ((name, sum(chance.random() < share for _ in range(60))) for name, share in names)
        return [Rate(name=name, about="", count=count, of=60) for name, count in counts]

    gated = [any(one.is_worse for one in compare_rates(drawn(), drawn())) for _ in range(300)]
    assert sum(gated) <= 15  # 5 %


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("http://127.0.0.1:9/v1",), "http://127.0.0.1:9"),
        (
            ("reference", "--task", "nothing*"),
            "expected a task of `harmony-conformance rates reference --list`, got 'nothing*'",
        ),
        (("replay:x.jsonl",), "expected an endpoint, got replay:x.jsonl"),
    ],
)
def test_wrong_use_is_one_line(words, problem, tmp_path, capsys):
    assert main(["rates", *words, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert problem in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_invalid_minimum_is_one_line(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["rates", "reference", "--min", "quality=9"])
    assert stopped.value.code == 2
    assert "expected RATE=SHARE like quality=0.9, got 'quality=9'" in capsys.readouterr().err


def test_dry_run_and_list_send_nothing(capsys):
    assert main(["rates", "http://127.0.0.1:9/v1", "--dry-run", "--set", "effort", "--tries", "3"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    bound = r"12 tasks, 36 conversations: at most 36 requests, about \d{4} input tokens, at most 147456 output tokens, at most 7 min"
    assert re.fullmatch(bound, first)
    assert others == [
        "the time assumes that 8 requests at a time get 50 tokens a second each",
        "nothing was sent: the URL, the key and the model were not tested",
    ]
    assert main(["rates", "http://127.0.0.1:9/v1", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    others = len(read_tasks()["compatibility"])
    assert len(listed) == len(TASKS) - others + 8  # efforts share their messages


def test_limit_of_requests_is_an_incomplete_run(tmp_path, capsys):
    with serving(right) as (url, bodies):
        code, _ = rates(tmp_path, url, "--set", "effort", "--tries", "2", "--max-requests", "15")
    assert (code, len(bodies)) == (2, 15)
    assert "incomplete: the limit of 15 requests was reached" in capsys.readouterr().err


def test_server_that_goes_away_stops_the_run(tmp_path, capsys):
    gone = {"after": 30}

    def until_gone(task, body):
        gone["after"] -= 1
        return right(task, body)

    with serving_until(until_gone, gone) as dying:
        code, document = rates(tmp_path, dying, "--tries", "50", "--concurrency", "1")
    assert code == 2
    assert "incomplete: the server went away: 5 connections in a row failed" in capsys.readouterr().err
    assert len(document["endpoints"][0]["tries"]) < 100


@contextmanager
def serving_until(answer, gone):
    """A server whose port is closed after a number of tries."""
    with serving(answer) as (url, _):
        port = int(url.rpartition(":")[2].partition("/")[0])
        listening = next(one for one in SERVERS if one.server_port == port)

        def watch():
            while gone["after"] > 0:
                time.sleep(0.01)
            listening.shutdown()
            listening.server_close()

        threading.Thread(target=watch, daemon=True).start()
        yield url


def test_unknown_minimum_is_refused_before_sending(tmp_path, capsys):
    with serving(right) as (url, bodies):
        assert main(["rates", url, "--min", "nope=0.9", "--out", str(tmp_path / "out")]) == 2
    assert not bodies
    err = capsys.readouterr().err
    assert "invalid --min: expected a rate such as compatibility, effort, hierarchy, quality, tools (all:" in err
    assert main(["rates", url, "--min", "qualty=0.9", "--out", str(tmp_path / "out")]) == 2
    assert "expected a rate such as quality, quality.turns, quality.format (all:" in capsys.readouterr().err


def test_minimum_of_a_rate_without_a_case_is_said(tmp_path, capsys):
    with serving(right) as (url, _):
        assert (
            main(
                ["rates", url, "--set", "effort", "--tries", "1", "--min", "tools=0.9", "--out", str(tmp_path / "out")]
            )
            == 2
        )
    assert "tools: no case, so its minimum was not checked" in capsys.readouterr().err


def test_an_answer_with_more_calls_than_any_model_makes_is_not_continued(tmp_path):
    def endless(task, body):
        name = body["tools"][0]["function"]["name"]
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [call] * 1000}

    with serving(endless) as (url, bodies):
        code, document = rates(tmp_path, url, "--tries", "1", "--task", "two steps", "--task", "weather answered")
    assert code == 0
    assert by_name(document)["quality"]["count"] == 0
    assert max(len(json.dumps(body)) for body in bodies) < 20_000


def test_a_try_that_a_limit_cuts_is_no_error_of_the_server(tmp_path):
    with serving(right) as (url, _):
        code, document = rates(tmp_path, url, "--tries", "2", "--task", "two steps", "--max-requests", "4")
    assert code == 2
    assert [one["grade"] for one in document["endpoints"][0]["tries"]] == ["solved"]


@pytest.mark.parametrize("command", ["rates", "load", "run", "run --against"])
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_files_of_others_are_not_overwritten(tmp_path, capsys, command, kind):
    out = tmp_path / "out"
    out.mkdir()
    names = {"rates": "rates.json", "load": "load.json", "run": "load.html", "run --against": "comparison.html"}
    path = out / names[command]
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text('{"mine": true}', "utf-8")
    name, *more = command.split()
    words = [name, "reference", *([*more, "reference"] if more else []), "--out", str(out)]
    assert main([*words, *(["--clients", "1"] if name == "load" else [])]) == 2
    assert f"{path.name} was not written by a run" in (said := capsys.readouterr().err) or "is a link" in said
    assert not (tmp_path / "elsewhere").exists()
    assert {one.name for one in out.iterdir()} == {path.name}
    if kind == "file":
        assert path.read_text("utf-8") == '{"mine": true}'


def test_rates_replace_those_of_an_earlier_run(tmp_path):
    with serving(right) as (url, _):
        for _ in range(2):
            code, _ = rates(tmp_path, url, "--tries", "1", "--set", "tools")
            assert code == 0


def test_without_any_answer_nothing_was_measured(tmp_path, capsys):
    with serving(lambda task, body: 500) as (url, _):
        code, document = rates(tmp_path, url, "--tries", "1", "--set", "tools")
    assert code == 2
    assert by_name(document)["answered"]["count"] == 0
    assert "no request was answered" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["70", "100"])
def test_figures_and_endpoints_of_a_comparison_are_whole_in_a_narrow_terminal(columns, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    path = "/deployments/of-a-very-long-name/in-some-region-of-the-world/behind-the-gateway/of-team"
    with serving(right) as (one, _), serving(wrong) as (other, _):
        urls = [base.replace("/v1", f"{path}-{name}/v1") for base, name in ((one, "a"), (other, "b"))]
        rates(tmp_path, urls[0], "--against", urls[1], "--set", "tools", "--tries", "1")
    printed = capsys.readouterr().out
    assert "…" not in printed.partition("tools no call")[0]
    assert re.findall(r"^(\S+): gpt-oss-20b on ", printed, re.MULTILINE) == [url.removesuffix("/v1") for url in urls]
    assert len(re.findall(r"^tools +[01]\.\d{3}  [01]\.\d\d to [01]\.\d\d +\d+/\d+ ", printed, re.MULTILINE)) == 2
