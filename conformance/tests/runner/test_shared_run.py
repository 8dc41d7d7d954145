import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from harmony_conformance.engines.target import parse_target
from harmony_conformance.errors import UsageError
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.runner.shared_run import EXCHANGES, open_run, recorded_series

KEY = "sk-0123456789abcdef"
OPTIONS = Options(select=("simple_answer",), key=KEY, headers=(("x-api-token", "other-secret"),))
SCENARIOS = make_plan(OPTIONS).scenarios


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def echoing(raw_server):
    """A server that answers each request with all that it was sent."""

    def answer(connection, request):
        message = {"role": "assistant", "content": request.decode()}
        body = {
            "data": [{"id": "m"}],
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
        data = json.dumps(body).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(data) + data)

    return raw_server(answer)


def asked(server):
    return [request for request in server.requests if b"What is 2 + 2?" in request]


def test_many_that_ask_at_once_get_the_same_answers_and_one_sends(echoing, stack):
    run = open_run(parse_target(f"openai:{echoing.url}"), OPTIONS, None, stack)
    assert asked(echoing) == []
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: recorded_series(run, OPTIONS, SCENARIOS), range(4)))
    assert [series.name for series in answers[0]] == ["simple_answer"]
    assert answers == [answers[0]] * 4
    assert len(asked(echoing)) == 2


def test_no_key_is_written_to_the_folder_and_the_folder_is_private_and_removed(echoing, stack):
    run = open_run(parse_target(f"openai:{echoing.url}"), OPTIONS, None, stack)
    recorded_series(run, OPTIONS, SCENARIOS)
    assert all(KEY.encode() in request and b"other-secret" in request for request in echoing.requests)
    assert run.folder.stat().st_mode & 0o077 == 0
    for path in run.folder.iterdir():
        assert KEY.encode() not in path.read_bytes(), path.name
        assert b"other-secret" not in path.read_bytes(), path.name
    assert KEY not in repr(run)
    stack.close()
    assert not run.folder.exists()


def test_what_is_kept_holds_discovery_and_what_was_sent(echoing, stack, tmp_path):
    run = open_run(parse_target(f"openai:{echoing.url}"), OPTIONS, tmp_path / "a" / "b", stack)
    recorded_series(run, OPTIONS, SCENARIOS)
    lines = (tmp_path / "a" / "b" / EXCHANGES).read_text().splitlines()
    scenarios = [json.loads(line)["scenario"] for line in lines]
    assert scenarios == ["discovery", "discovery", "simple_answer", "simple_answer"]


def test_the_embedded_server_runs_until_the_session_ends(stack):
    options = Options(select=("simple_answer",))
    target = parse_target("reference")
    run = open_run(target, options, None, stack)
    (series,) = recorded_series(run, options, make_plan(options).scenarios)
    assert all(x.turn is not None for x in series.exchanges.values())
    assert target.base_url is None
    assert run.target.is_local


@pytest.mark.parametrize("content", [None, b"", b"{"], ids=["not there", "empty", "no JSON"])
def test_a_recording_that_can_not_be_judged_is_refused_at_once(content, stack, tmp_path):
    path = tmp_path / EXCHANGES
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError):
        open_run(parse_target(f"replay:{path}"), Options(), None, stack)
