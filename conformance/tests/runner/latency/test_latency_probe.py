import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from harmony_conformance.engines.profiles import ENGINES, ScriptMethod
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import read_exchange, write_exchange
from harmony_conformance.json_value import dumps, loads, value_at
from harmony_conformance.reference_server.server.serving import running
from harmony_conformance.runner.latency.latency_probe import Timing, UnmeasuredResponse, measure, probe, summarise
from harmony_conformance.runner.request_builder import RequestProfile
from harmony_conformance.transport.client import Client, ConnectionSettings, SendResult
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response

MODEL = "gpt-oss-reference"
REFERENCE, VLLM, OPENAI = ENGINES["reference"], ENGINES["vllm"], ENGINES["openai"]


def choice(delta, *, ids=None, finish=None):
    told = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"choices": [told if ids is None else {**told, "token_ids": ids}]}


def reasoning(text, **more):
    return choice({"reasoning": text}, **more)


def content(text, **more):
    return choice({"content": text}, **more)


def call(arguments, **more):
    return choice({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]}, **more)


def usage(completion):
    return {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": completion}}


ROLE = choice({"role": "assistant", "content": ""})
STOP = choice({}, finish="stop")
DONE = "[DONE]"


def streamed(*timed, failure=None, status=200):
    """An exchange whose events came at the given times."""
    chunks = tuple(
        Chunk(arrival_time=time, data=f"data: {event if isinstance(event, str) else dumps(event)}\n\n".encode())
        for time, event in timed
    )
    response = Response(status=status, chunks=chunks, headers={"content-type": "text/event-stream"})
    request = Request(path="/v1/chat/completions", body=b'{"stream":true}')
    return Exchange(id="x", request=request, response=response, failure=failure, step="one at a time")


def timing(x):
    measured = measure(x)
    assert isinstance(measured, Timing), measured
    return measured


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [(0.1, ROLE), (0.5, reasoning("a")), (0.7, reasoning("b")), (1.0, content("c")), (1.25, STOP), (1.3, usage(9)), (1.5, DONE)],
            Timing(first_token=0.5, first_answer=1.0, end=1.25, gaps=(0.2, 0.3), token_gaps=None, tokens=9, bundled=0),
            id="the role is no token, reasoning is the first, content the answer, finish_reason the end",
        ),
        pytest.param(
            [(0.5, content("a")), (0.75, choice({"content": "b"}, finish="stop")), (0.75, DONE)],
            Timing(first_token=0.5, first_answer=0.5, end=0.75, gaps=(0.25,), token_gaps=None, tokens=None, bundled=0),
            id="no usage: no count of tokens; a finish_reason may stand in the last delta",
        ),
        pytest.param(
            [(1.0, reasoning("a")), (2.0, call("")), (3.0, call("{}")), (3.0, choice({}, finish="tool_calls"))],
            Timing(first_token=1.0, first_answer=2.0, end=3.0, gaps=(1.0, 1.0), token_gaps=None, tokens=None, bundled=0),
            id="a call is an answer, from its name on",
        ),
        pytest.param(
            [(1.0, choice({"reasoning_content": "a"})), (2.0, choice({"thinking": "b"})), (3.0, DONE)],
            Timing(first_token=1.0, first_answer=None, end=2.0, gaps=(1.0,), token_gaps=None, tokens=None, bundled=0),
            id="other names of reasoning; no answer came; [DONE] without finish_reason ends with the last token",
        ),
        pytest.param(
            [(1.0, content("a")), (1.5, content("b")), (2.5, content("c")), (2.5, STOP), (2.5, usage(3)), (2.5, DONE)],
            Timing(first_token=1.0, first_answer=1.0, end=2.5, gaps=(0.5, 1.0), token_gaps=(0.5, 1.0), tokens=3, bundled=0),
            id="as many events as tokens: each is one token",
        ),
        pytest.param(
            [(1.0, content("a")), (1.5, content("bc")), (2.5, content("d")), (2.5, STOP), (2.5, usage(4)), (2.5, DONE)],
            Timing(first_token=1.0, first_answer=1.0, end=2.5, gaps=(0.5, 1.0), token_gaps=None, tokens=4, bundled=0),
            id="fewer events than tokens: nothing is known of single tokens",
        ),
        pytest.param(
            [
                (1.0, reasoning("a", ids=[1, 2, 3, 4])),
                (1.5, reasoning("b", ids=[5])),
                (2.0, choice({}, ids=[6])),
                (3.0, content("c", ids=[7, 8])),
                (3.5, content("d", ids=[9])),
                (3.75, choice({}, ids=[10], finish="stop")),
                (3.75, usage(10)),
            ],
            Timing(first_token=1.0, first_answer=3.0, end=3.75, gaps=(0.5, 1.5, 0.5), token_gaps=(0.5, 0.5, 0.5, 0.25), tokens=10, bundled=0),
            id="events that name their ids: gaps in which one token came, silent tokens among them",
        ),
        pytest.param(
            [(1.0, reasoning("a", ids=[4])), (1.5, reasoning("b", ids=[5])), (2.0, content("c", ids=[9])), (2.0, STOP), (2.0, usage(9))],
            Timing(first_token=1.0, first_answer=2.0, end=2.0, gaps=(0.5, 0.5), token_gaps=None, tokens=9, bundled=0),
            id="ids that do not add up to the completion: a gap may hide tokens",
        ),
        pytest.param(
            [(1.0, content("a")), (1.0, content("b")), (1.0, content("c")), (1.0, STOP)],
            Timing(first_token=1.0, first_answer=1.0, end=1.0, gaps=(0.0, 0.0), token_gaps=None, tokens=None, bundled=2),
            id="everything at once: two events came together with the one before",
        ),
        pytest.param(
            [(1.0, content("a")), (2.0, choice({"content": "x"}) | {"choices": [{"index": 1, "delta": {"content": "x"}}]}), (3.0, STOP)],
            Timing(first_token=1.0, first_answer=1.0, end=3.0, gaps=(), token_gaps=None, tokens=None, bundled=0),
            id="other choices are left out",
        ),
    ],
)  # fmt: skip
def test_times_of_an_answer(events, expected):
    found = timing(streamed(*events))
    assert replace(found, gaps=(), token_gaps=None) == replace(expected, gaps=(), token_gaps=None)
    assert found.gaps == pytest.approx(expected.gaps)
    assert found.token_gaps == (None if expected.token_gaps is None else pytest.approx(expected.token_gaps))


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        pytest.param(5, 0.5, id="four tokens after the first, in two seconds"),
        pytest.param(1, None, id="one token has none after it"),
        pytest.param(0, None, id="a server that counts nothing"),
    ],
)
def test_time_per_output_token(completion, expected):
    x = streamed((1.0, content("a")), (3.0, STOP), (3.5, usage(completion)), (4.0, DONE))
    assert timing(x).time_per_output_token == expected


FINE = ((1.0, content("a")), (2.0, STOP), (2.0, DONE))


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        pytest.param(streamed(*FINE, failure=Failure(kind=FailureKind.CUT, detail="peer closed")), "cut", id="broke off"),
        pytest.param(replace(streamed(), response=None, failure=Failure(kind=FailureKind.TIMEOUT, detail="60 s")), "timeout", id="no answer"),
        pytest.param(streamed(*FINE, status=503), "HTTP 503", id="refused"),
        pytest.param(replace(streamed(), response=Response(status=200, chunks=(Chunk(arrival_time=1.0, data=b"{}"),))),
        "the response is not an event stream", id="no stream"),
        pytest.param(streamed((1.0, content("a")), (2.0, {"error": {"message": "boom"}})), "the stream contains an error", id="an error in the stream"),
        pytest.param(streamed((1.0, ROLE), (2.0, STOP), (2.0, DONE)), "no token in the stream", id="nothing but a role"),
        pytest.param(streamed((1.0, content("a"))), "the stream ends without finish_reason", id="ended in the middle, politely"),
    ],
)  # fmt: skip
def test_an_answer_that_gives_no_times_says_why(x, reason):
    assert measure(x) == UnmeasuredResponse(reason=reason)


def test_the_line_of_a_load_has_each_metric_with_its_count_and_range():
    def answer(place, first, last):
        events = ((first, reasoning("a")), (first + 1, content("b")), (last, STOP), (last, usage(5)), (last, DONE))
        return replace(streamed(*events), attempt=place)

    lost = replace(streamed(), response=None, failure=Failure(kind=FailureKind.RESET, detail="reset"))
    warm = replace(streamed((9.0, content("a")), (9.0, STOP)), step="warm-up, one at a time")
    line = summarise([warm, answer(0, 1.0, 3.0), lost, answer(1, 2.0, 8.0), lost, answer(2, 4.0, 6.0)])[0]
    assert {name: line[name] for name in ("load", "requests", "failed", "failures")} == {
        "load": "one at a time",
        "requests": 5,
        "failed": 2,
        "failures": {"reset": 2},
    }
    metrics = line["metrics"]
    assert metrics["ttft"] == {
        "unit": "s",
        "n": 3,
        "median": 2.0,
        "min": 1.0,
        "max": 4.0,
        "p95": None,
        "p99": None,
        "median_interval": [None, None],
    }
    assert metrics["time_to_first_answer"]["median"] == 3.0
    assert metrics["inter_event_gap"]["n"] == 3
    assert metrics["itl"] is None
    assert (metrics["tpot"]["n"], metrics["tpot"]["median"], metrics["tpot"]["max"]) == (3, 0.5, 1.5)
    assert metrics["end_to_end"]["max"] == 8.0
    assert metrics["output_tokens"]["unit"] == "tokens"
    assert line["notes"][0] == "1 request sent as warm-up, not counted"


def test_percentiles_come_with_the_requests_that_carry_them():
    def line(requests):
        return summarise([streamed((1.0, content("a")), (2.0, STOP))] * requests)[0]["metrics"]["ttft"]

    assert [line(n)["p95"] is None for n in (59, 60)] == [True, False]
    assert [line(n)["p99"] is None for n in (299, 300)] == [True, False]


def asking(script_by=ScriptMethod.REFERENCE, **extra):
    return RequestProfile(model=MODEL, script_method=script_by, ids_field="return_token_ids", extra_body=extra)


@asynccontextmanager
async def connected(base):
    async with Client(ConnectionSettings(base_url=base, headers={}, timeout=10.0)) as client:
        yield client


def run_probe(base, *, delay, requests, concurrency, engine=REFERENCE, script_by=ScriptMethod.REFERENCE):
    async def run():
        async with connected(base) as client:
            how = asking(script_by, harmony_token_delay=delay)
            return await probe(client.send, how, engine, requests=requests, concurrency=concurrency)

    return asyncio.run(run())


def test_the_reference_server_is_measured_one_at_a_time_and_several():
    delay = 0.002
    with running() as base:
        exchanges = run_probe(base, delay=delay, requests=4, concurrency=3)
    alone, together = summarise(exchanges)
    assert (alone["load"], together["load"]) == ("one at a time", "3 at a time")
    for line in (alone, together):
        assert (line["requests"], line["failed"], line["failures"]) == (4, 0, {})
        metrics = line["metrics"]
        assert metrics["ttft"]["n"] == metrics["end_to_end"]["n"] == metrics["tpot"]["n"] == 4
        for figure in ("median", "min", "max"):
            assert metrics["ttft"][figure] < metrics["time_to_first_answer"][figure] < metrics["end_to_end"][figure]
        tokens = metrics["output_tokens"]
        assert tokens["min"] == tokens["max"]
        assert 120 < tokens["median"] < 160
        assert metrics["tpot"]["min"] >= 0.9 * delay  # the tokens of the first header come before the first event
        assert metrics["end_to_end"]["min"] >= 0.9 * delay * tokens["min"]
        assert metrics["itl"]["n"] > 4 * 100
        assert metrics["itl"]["p95"] is not None
        assert "fixed output: a script of reasoning and answer" in line["notes"]
    assert [x.step for x in exchanges].count("warm-up, 3 at a time") == 3
    assert len({x.request.body for x in exchanges}) == 1
    assert len({x.id for x in exchanges}) == len(exchanges)


def test_a_recorded_probe_gives_the_same_figures():
    with running() as base:
        exchanges = run_probe(base, delay=0.0, requests=3, concurrency=2)
    recorded = [dumps(write_exchange(x)) for x in exchanges]
    again = [read_exchange(loads(line)) for line in recorded]
    figures = [line["metrics"]["end_to_end"]["n"] for line in summarise(exchanges)]
    assert [line["metrics"]["end_to_end"]["n"] for line in summarise(again)] == figures
    assert [line["load"] for line in summarise(again)] == [line["load"] for line in summarise(exchanges)]


def test_an_unscripted_answer_is_measured_as_it_comes():
    with running() as base:
        exchanges = run_probe(base, delay=0.0, requests=2, concurrency=1, engine=OPENAI, script_by=ScriptMethod.NONE)
    (line,) = summarise(exchanges)
    assert (line["requests"], line["failed"]) == (2, 0)
    assert "output length limited by max_tokens 128, not fixed: shorter answers count as well" in line["notes"]


@pytest.mark.parametrize("defect", ["stream-answered-whole", "stream-error-swallowed", "stream-all-at-once", "stream-without-usage"])  # fmt: skip
def test_a_defective_server_is_counted_not_fatal(defect):
    with running(defects=[defect]) as base:
        (line,) = summarise(run_probe(base, delay=0.0, requests=3, concurrency=1))
    assert line["failed"] == sum(line["failures"].values())
    assert line["failed"] == (3 if defect == "stream-answered-whole" else 0)
    assert (line["metrics"]["tpot"] is None) == (defect in ("stream-answered-whole", "stream-without-usage"))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


def chunked(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def hanging_up(hangs_up):
    """A server that leaves in the middle of the answers whose number, from 0, `hangs_up` names."""
    served = 0

    async def answer(reader, writer):
        nonlocal served
        place, served = served, served + 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        await reader.readexactly(length)
        writer.write(HEAD)
        for event in (content("a"), content("b"), STOP, usage(3)):
            writer.write(chunked(f"data: {dumps(event)}\n\n".encode()))
            await writer.drain()
            if hangs_up(place):
                break
        else:
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"


def probe_hanging_up(hangs_up, *, requests, concurrency):
    async def run():
        async with hanging_up(hangs_up) as base, connected(base) as client:
            return await probe(client.send, asking(), REFERENCE, requests=requests, concurrency=concurrency)

    return summarise(asyncio.run(run()))


def test_requests_on_which_the_server_hangs_up_are_counted_beside():
    (line,) = probe_hanging_up(lambda place: place % 3 == 2, requests=9, concurrency=1)
    assert (line["requests"], line["failed"], line["failures"]) == (9, 3, {"cut": 3})
    assert line["metrics"]["ttft"]["n"] == 6


def test_a_server_that_always_hangs_up_is_given_up():
    lines = probe_hanging_up(lambda _: True, requests=50, concurrency=4)
    assert [(line["requests"], line["failed"], line["failures"]) for line in lines] == [
        (3, 3, {"cut": 3}),
        (4, 4, {"cut": 4}),
    ]
    assert all(set(line["metrics"].values()) == {None} for line in lines)
    assert all(line["notes"][0].startswith("stopped: every warm-up") for line in lines)


@pytest.mark.parametrize(
    ("engine", "script_by", "expected"),
    [
        pytest.param(REFERENCE, ScriptMethod.REFERENCE, {"ignore_eos": None, "scripted": True}, id="the reference plays a script"),
        pytest.param(VLLM, ScriptMethod.VLLM, {"ignore_eos": None, "scripted": True}, id="vLLM with a script"),
        pytest.param(VLLM, ScriptMethod.NONE, {"ignore_eos": True, "scripted": False}, id="vLLM as it is goes on to the limit"),
        pytest.param(OPENAI, ScriptMethod.NONE, {"ignore_eos": None, "scripted": False}, id="no other server gets a field it may refuse"),
    ],
)  # fmt: skip
def test_the_length_is_fixed_where_the_server_can(engine, script_by, expected):
    sent = []

    async def send(request):
        sent.append(request.json)
        return SendResult(response=streamed(*FINE).response)

    asyncio.run(probe(send, asking(script_by), engine, requests=1))
    scripted = value_at(sent[0], "harmony_script") or value_at(sent[0], "vllm_xargs", "harmony_script")
    assert {"ignore_eos": value_at(sent[0], "ignore_eos"), "scripted": bool(scripted)} == expected
    assert value_at(sent[0], "stream") is True
    assert value_at(sent[0], "stream_options", "include_usage") is True
    assert isinstance(value_at(sent[0], "max_tokens"), int)


@pytest.mark.parametrize(("requests", "concurrency", "most"), [(6, 3, 3), (2, 8, 2), (5, 1, 1)])
def test_no_more_requests_are_open_than_asked(requests, concurrency, most):
    open_now, seen = 0, []

    async def send(_):
        nonlocal open_now
        open_now += 1
        seen.append(open_now)
        await asyncio.sleep(0.001)
        open_now -= 1
        return SendResult(response=streamed(*FINE).response)

    lines = summarise(asyncio.run(probe(send, asking(), REFERENCE, requests=requests, concurrency=concurrency)))
    assert max(seen) == most
    assert [line["requests"] for line in lines] == [requests] * len(lines)
