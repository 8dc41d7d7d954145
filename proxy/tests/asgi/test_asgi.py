"""`HarmonyGuard` around applications in this process: what the client gets, what the application sees, what is handed on."""

import asyncio
import json
import socket
from http import HTTPStatus

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route as Path

from harmony_conformance.reference_server.server.app import create_app
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.asgi_observer import END_CALLBACK_KEY
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.capture.recorder import End
from harmony_proxy.configuration import InvalidSettingError, Rules
from harmony_proxy.guard.response_head import REQUEST_ID, VERDICT
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.queue_codec import decode_exchange, decode_frame
from harmony_proxy.policy.policy import Action, Policy, Route
from harmony_proxy.policy.repair_interface import Actions, Handlers, RepairedAnswer

openai = pytest.importorskip("openai")
CHAT = "/v1/chat/completions"
MODEL = "gpt-oss-reference"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
CHECK = "channels.no_marker_leak"


class Over(list):
    """Reads what is put into it."""

    def append(self, exchange):
        super().append(decode_exchange(exchange))


class Hands:
    """Stands for the handing: keeps what it is handed."""

    memory, captures = MemoryBudget(), False

    def __init__(self):
        self.finished_exchanges = self.handed = Over()
        self.problems, self.is_started, self.is_closed = 0, False, False

    def start(self):
        self.is_started = True

    def enqueue(self, exchange, size):
        self.finished_exchanges.append(exchange)

    def pack(self):
        return 1

    def count_problem(self):
        self.problems += 1

    def close(self):
        self.is_closed = True

    @property
    def passage(self):
        (handed,) = self.handed
        return build_exchange(handed)


class Swapping:
    """Acts on a stream: writes b for a, blocks at a leak."""

    def __init__(self, *_, request_id, **__):
        self.is_terminated, self.actions, self.request_id = False, Actions(repair_counts={CHECK: 1}), request_id

    def feed(self, data):
        if b"leak" in data:
            self.is_terminated, self.actions = True, Actions(blocked_checks=(CHECK,))
            return [b"data: blocked\n\n"]
        return [data.replace(b": a", b": b")]

    def close(self):
        return [b"rest"]

    def abort(self):
        return [b"aborted"]


def whole(x, actions, *, fallback):
    if b"leak" in x.response.body:
        return RepairedAnswer(actions=Actions(blocked_checks=(CHECK,)))
    return RepairedAnswer(body=x.response.body.replace(b"a", b"bb"), actions=Actions(repair_counts={CHECK: 1}))


ACTING = Rules(
    policy=Policy(routes=(Route(actions={CHECK: Action.REPAIR}),)),
    handlers=Handlers(open_stream=Swapping, repair_answer=whole, repairable_checks=frozenset({CHECK})),
)


def guarded(app, policy=None):
    hands = Hands()
    return HarmonyGuard(app, policy=policy, queue=hands), hands


def events(*data, kind="text/event-stream", fail=None):
    """An application that streams; `seen` says how it fared."""
    seen = []

    async def app(scope, receive, send):
        seen.append(dict(scope["headers"]))
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind.encode())]})
        for piece in data:
            try:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            except OSError:
                seen.append((await receive())["type"])
                raise
        if fail is not None:
            raise fail
        await send({"type": "http.response.body", "body": b""})

    return app, seen


async def call(app, *, path=CHAT, query=b"", method="POST", body=b"{}", incoming=(), headers=()):
    """What a server would be sent by an application: all its messages, and the exception that it ends with."""
    sent = []
    queue = [{"type": "http.request", "body": body, "more_body": False}, *incoming]

    async def receive():
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query}
    scope |= {"headers": list(headers), "extensions": None}
    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001 - what a server would see
        return sent, error
    return sent, None


def asked(app, **how):
    return asyncio.run(call(app, **how))


def body_of(sent):
    return b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")


def test_observed_the_messages_are_the_very_same_and_the_exchange_is_handed_over():
    app, _ = events(b"data: a\n\n", b"", b"data: [DONE]\n\n")
    bare, _ = asked(app)
    guard, hands = guarded(app)
    sent, _ = asked(guard)
    assert sent == bare
    told = hands.passage
    assert (told.end, told.exchange.response.body) == (End.COMPLETE, b"data: a\n\ndata: [DONE]\n\n")
    assert hands.is_started


@pytest.mark.parametrize(("path", "method"), [("/v1/models", "GET"), ("/v1/embeddings", "POST"), (CHAT, "OPTIONS")])
def test_what_is_no_api_of_ours_goes_past(path, method):
    app, _ = events(b"a")
    guard, hands = guarded(app, ACTING)
    assert asked(guard, path=path, method=method) == asked(app)
    assert hands.handed == []


@pytest.mark.parametrize("policy", [None, ACTING], ids=["observed", "acted on"])
def test_a_key_in_the_query_that_is_echoed_is_masked_and_the_query_is_not_kept(policy):
    guard, hands = guarded(events(b"data: wrong key sk-abcdef-1\n\n")[0], policy)
    asked(guard, query=b"api-version=1&api_key=sk-abcdef-1")
    told = hands.passage
    assert told.record.path == CHAT
    assert b"wrong key ***" in told.exchange.response.body
    assert "abcdef-1" not in repr(told.exchange)


def test_a_web_socket_goes_past():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    given = ({"type": "websocket", "path": CHAT}, object(), object())
    asyncio.run(guarded(app)[0](*given))
    assert all(one is other for one, other in zip(seen[0], given, strict=True))


@pytest.mark.parametrize(
    ("app", "incoming", "end"),
    [
        (events(b"a", fail=RuntimeError("died"))[0], (), End.CUT),
        (events(b"a")[0], (), End.COMPLETE),
    ],
    ids=["the application died", "it did not"],
)
def test_how_it_ended_is_told(app, incoming, end):
    guard, hands = guarded(app)
    _, error = asked(guard, incoming=incoming)
    assert hands.passage.end is end
    assert (error is not None) is (end is End.CUT), "what an application raises is the server's business"


def test_a_client_that_leaves_is_told_to_the_application_and_in_the_log():
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"

    guard, hands = guarded(app)
    asked(guard, incoming=[{"type": "http.disconnect"}])
    assert hands.passage.end is End.CLIENT_LEFT


@pytest.mark.parametrize("policy", [None, ACTING], ids=["observed", "acted on"])
def test_an_application_that_ends_its_answer_since_the_client_left_has_not_answered_to_the_end(policy):
    async def app(scope, receive, send):
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'data: {"choices": []}\n\n', "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.body", "body": b""})

    guard, hands = guarded(app, policy=policy)
    asked(guard, incoming=[{"type": "http.disconnect"}])
    assert (hands.passage.end, hands.passage.exchange) == (End.CLIENT_LEFT, None)


def test_an_application_that_never_answers_is_a_reset():
    async def app(scope, receive, send):
        raise RuntimeError

    guard, hands = guarded(app)
    asked(guard)
    assert hands.passage.end is End.RESET


def test_what_is_noted_is_what_it_was_when_it_passed():
    async def app(scope, receive, send):
        asked = await receive()
        asked["body"] = b"changed"
        headers, body = [(b"content-type", b"text/plain")], bytearray(b"told")
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
        headers.append((b"content-encoding", b"gzip"))
        message = {"type": "http.response.body", "body": body, "more_body": True}
        await send(message)
        body[:] = b"else"
        message["body"] = memoryview(b" me")
        await send(message)
        await send({"type": "http.response.body"})
        await send({"type": "http.response.body", "body": b"after the end"})

    guard, hands = guarded(app)
    asked(guard, body=b'{"a":1}', incoming=[{"type": "http.disconnect"}])
    kept = hands.passage.record
    assert (kept.end, kept.status, kept.request_body, kept.response_body) == (End.COMPLETE, 200, b'{"a":1}', b"told me")
    assert kept.response_headers == ((b"content-type", b"text/plain"),)
    assert (kept.chunks, hands.problems, len(kept.times)) == (2, 0, 2)
    assert 0 <= kept.first_byte <= kept.seconds < 60


def test_what_cannot_be_noted_is_a_problem_of_ours_and_passes():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": "fine"})
        await send({"type": "http.response.body", "body": 7.5})
        await send({"type": "http.response.body", "body": b"x"})

    guard, hands = guarded(app)
    sent, error = asked(guard)
    assert (sent, error) == (asked(app)[0], None)
    assert (hands.problems, hands.handed[0].response_body) == (2, b"x")


@pytest.mark.parametrize("size", [1, 3000])
def test_past_its_limit_a_note_counts_and_keeps_little(size):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        for _ in range(2000):
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        await send({"type": "http.response.body"})

    class Measuring(Over):
        def append(self, exchange):
            self.size = len(repr(exchange))
            super().append(exchange)

    hands = Hands()
    hands.finished_exchanges = hands.handed = Measuring()
    asked(HarmonyGuard(app, queue=hands, limit=10_000), body=b"{}")
    kept = hands.passage.record
    assert hands.finished_exchanges.size < 80_000
    assert hands.passage.unjudged_reason == "larger than the limit of 10000 bytes for an exchange"
    assert (kept.request_bytes, kept.response_bytes, kept.chunks) == (2, 2000 * size, 2000)
    assert (kept.end, kept.status, kept.response_headers) == (End.COMPLETE, 200, ((b"a", b"b"),))
    assert 0 < kept.first_byte <= kept.seconds


@pytest.mark.parametrize(("more", "end", "detail"), [(True, End.EARLY, "cut"), (False, End.CUT, "")])
def test_an_answer_that_breaks_off_before_the_request_was_there_says_nothing_of_the_server(more, end, detail):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})

    guard, hands = guarded(app)

    async def receive():
        return {"type": "http.request", "body": b"{", "more_body": more}

    async def send(message):
        pass

    asyncio.run(guard({"type": "http", "method": "POST", "path": CHAT, "headers": ()}, receive, send))
    assert (hands.handed[0].end, hands.handed[0].detail) == (end.value, detail)


def test_the_process_may_end_while_an_answer_is_under_way():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    guard, hands = guarded(app)
    with pytest.raises(asyncio.CancelledError):
        asked(guard)
    assert (hands.passage.end, guard.gauges.exchanges_open) == (End.SHUT_DOWN, 0)


def test_a_repaired_stream_has_the_request_id_and_no_length():
    app, seen = events(b"data: a\n\n")
    guard, hands = guarded(app, ACTING)
    sent, error = asked(guard, headers=[(b"accept-encoding", b"gzip")])
    assert (body_of(sent), error) == (b"data: b\n\nrest", None)
    assert dict(sent[0]["headers"])[REQUEST_ID].decode() == hands.handed[0].id
    assert seen[0] == {b"accept-encoding": b"identity"}
    assert hands.passage.record.repair_counts == {CHECK: 1}
    assert hands.passage.exchange.response.body == b"data: a\n\n"


def test_a_blocked_stream_ends_well_for_the_client_and_as_if_it_had_left_for_the_application():
    app, seen = events(b"data: x\n\n", b"leak", b"never", b"ever")
    guard, hands = guarded(app, ACTING)
    sent, error = asked(guard)
    assert (body_of(sent), error) == (b"data: x\n\ndata: blocked\n\n", None)
    assert sent[-1]["more_body"] is False
    assert seen[1:] == ["http.disconnect"]
    assert (hands.passage.end, hands.passage.record.blocked_checks) == (End.BLOCKED, (CHECK,))


def test_a_stream_that_is_blocked_at_once_is_a_502():
    app, _ = events(b"leak", b"never")
    sent, error = asked(guarded(app, ACTING)[0])
    assert (sent[0]["status"], sent[-1]["more_body"], error) == (502, False, None)


def test_an_application_that_waits_for_its_client_hears_at_once_that_it_was_blocked():
    heard = []

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"leak", "more_body": True})
        heard.append(await waiting)

    asked(guarded(app, ACTING)[0])
    assert heard == [{"type": "http.disconnect"}]


def test_a_held_answer_has_its_verdict_and_its_new_length():
    app, _ = events(b'{"a"', b": 1}", kind="application/json")
    sent, _ = asked(guarded(app, ACTING)[0])
    headers = dict(sent[0]["headers"])
    assert body_of(sent) == b'{"bb": 1}'
    assert (headers[b"content-length"], headers[VERDICT]) == (b"9", b"repaired; " + CHECK.encode())
    assert len(sent) == 2


def test_a_blocked_answer_is_a_502():
    app, _ = events(b'{"leak": "Sue"}', kind="application/json")
    sent, _ = asked(guarded(app, ACTING)[0])
    assert sent[0]["status"] == 502
    assert b"Sue" not in repr(sent).encode()


@pytest.mark.parametrize(
    ("kind", "ends", "status"), [("text/event-stream", b"aborted", 200), ("application/json", b'"}}', 502)]
)
def test_an_application_that_dies_while_it_is_acted_on_is_no_good_end(kind, ends, status):
    app, _ = events(b'{"x":', kind=kind, fail=RuntimeError("died"))
    guard, hands = guarded(app, ACTING)
    sent, error = asked(guard)
    assert isinstance(error, RuntimeError)
    assert sent[0]["status"] == status
    assert body_of(sent).endswith(ends)
    assert sent[-1]["more_body"] is (status == 200), "a stream is broken off, a whole answer was replaced"
    assert hands.passage.end is End.CUT
    assert guard.gauges.exchanges_open == guard.gauges.responses_buffered == 0


def test_at_the_end_of_the_server_what_is_queued_is_judged():
    async def app(scope, receive, send):
        await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    guard, hands = guarded(app)
    sent = []

    async def send(message):
        sent.append(message["type"])

    asyncio.run(guard({"type": "lifespan"}, None, send))
    assert (sent, hands.is_closed) == (["lifespan.startup.complete", "lifespan.shutdown.complete"], True)


def test_starlette_takes_it_as_its_users_add_it():
    async def whole_answer(request):
        return JSONResponse({"got": await request.json()})

    async def leaking(request):
        async def pieces():
            for _ in range(1000):
                yield b"data: leak\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    hands = Hands()
    app = Starlette(
        routes=[Path("/v1/completions", whole_answer, methods=["POST"]), Path(CHAT, leaking, methods=["POST"])],
        middleware=[Middleware(HarmonyGuard, policy=ACTING, queue=hands)],
    )

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.post("/v1/completions", json={"a": 1}), await client.post(CHAT, json={})

    told, blocked = asyncio.run(ask())
    assert told.json() == {"got": {"bb": 1}}
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (502, "blocked_by_policy")
    assert len(hands.handed) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_client_gets_of_the_reference_server_what_it_gets_without(stream):
    async def content(app):
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http,
            openai.AsyncOpenAI(base_url="http://test/v1", api_key="k", http_client=http) as client,
        ):
            told = await client.chat.completions.create(**ASKED, stream=stream)
            if not stream:
                return told.choices[0].message.content
            return "".join([chunk.choices[0].delta.content or "" async for chunk in told if chunk.choices])

    guard, hands = guarded(create_app())
    assert asyncio.run(content(guard)) == asyncio.run(content(create_app()))
    told = hands.passage
    assert (told.end, told.exchange.turn.content is not None) == (End.COMPLETE, True)
    assert json.loads(told.exchange.request.body)["model"] == MODEL


def test_a_scope_that_the_server_keeps_holds_nothing_of_an_exchange_that_is_over():
    class Telling:
        reports_end = True

        async def __call__(self, scope, receive, send):
            self.scope = scope
            assert callable(scope[END_CALLBACK_KEY])
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"x"})

    app = Telling()
    guard, hands = guarded(app)
    assert asked(guard)[1] is None
    assert END_CALLBACK_KEY not in app.scope
    assert hands.passage.end is End.COMPLETE


def test_observed_some_are_packed_at_a_time_and_a_large_one_at_once():
    async def app(scope, receive, send):
        size = int((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    class Unstarted(JudgeQueue):
        def start(self):
            pass

    handing = Unstarted(JudgeSettings())
    guard = HarmonyGuard(app, queue=handing)

    def after(*sizes):
        for size in sizes:
            asked(guard, body=b"%d" % size)
        return len(handing._packed), len(handing.finished_exchanges)

    asked(guard, body=b"1")
    assert after(*[1] * 31) == (1, 31)
    assert after(1) == (2, 0)
    assert after(1, 1, 100_000) == (3, 0), "a large one does not wait for others"
    told = [kept for _ in range(3) for body, _ in handing._dequeue_batches() for kept in decode_frame(body)]
    assert [kept.response_bytes for kept in told] == [1] * 35 + [100_000]
    run, _, first = told[0].id.partition("-")
    assert [kept.id for kept in told] == [f"{run}-{number}" for number in range(int(first), int(first) + 36)]
    assert (guard.gauges.exchanges_started, guard.gauges.exchanges_open) == (36, 0)


@pytest.mark.parametrize("several", [tuple, iter], ids=["a tuple", "what is read but once"])
def test_headers_that_are_no_list_reach_the_server(several):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": several([(b"a", b"b"), (b"c", b"d")])})
        await send({"type": "http.response.body"})

    guard, hands = guarded(app)
    sent, _ = asked(guard)
    assert list(sent[0]["headers"]) == [(b"a", b"b"), (b"c", b"d")]
    assert hands.handed[0].response_headers == (((b"a", b"b"), (b"c", b"d")) if several is tuple else ())
    assert hands.problems == 0


@pytest.mark.parametrize(
    "message",
    [{"type": "http.request"}, {"type": "http.request", "body": b""}, {"type": "http.request", "more_body": False}],
    ids=["neither", "no more_body", "no body"],
)
def test_a_request_may_leave_out_what_it_may(message):
    app, _ = events(b"data: a\n\n")
    guard, hands = guarded(app)

    async def receive():
        return dict(message)

    async def send(_):
        pass

    asyncio.run(guard({"type": "http", "method": "POST", "path": CHAT, "headers": ()}, receive, send))
    assert (hands.handed[0].end, hands.handed[0].request_body, hands.problems) == (End.COMPLETE, b"", 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_past_its_limit_a_request_is_counted_whatever_its_bytes_came_in(kind):
    async def app(scope, receive, send):
        for _ in range(4):
            await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hi"})

    _, hands = guarded(app)
    guard = HarmonyGuard(app, queue=hands, limit=70_000)
    parts = iter(
        [{"type": "http.request", "body": kind(b"x" * 40_000), "more_body": left > 0} for left in (3, 2, 1, 0)]
    )

    async def receive():
        return next(parts)

    async def send(_):
        pass

    asyncio.run(guard({"type": "http", "method": "POST", "path": CHAT, "headers": ()}, receive, send))
    kept = hands.handed[0]
    assert (kept.request_bytes, kept.end, kept.is_whole, hands.problems) == (160_000, End.COMPLETE, False, 0)


def test_metrics_without_a_port_fail_no_request(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HARMONY_GUARD_METRICS", address)
        app, _ = events(b"data: a\n\n")
        guard, hands = guarded(app)
        sent, error = asked(guard)
    assert (sent[0]["status"], error, hands.problems) == (200, None, 0)
    assert capsys.readouterr().err == f"harmony guard: no metrics at {address}: Address already in use\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("excerpts", "none"),
        ("capture", "redacted"),
        ("limit", 1 << 20),
        ("log", "log.jsonl"),
        ("policy", "policy.toml"),
    ],
)
def test_the_documented_arguments_are_taken(tmp_path, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.toml").write_text('fail = "open"\n')
    assert HarmonyGuard(Starlette(), **{name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"excerpts": "some"}, "invalid excerpts: expected one of redacted, full, none, got 'some'"),
        ({"capture": "all"}, "invalid capture: expected one of redacted, full, none, got 'all'"),
        ({"policy": "missing.toml"}, "missing.toml: No such file or directory"),
    ],
)
def test_an_application_that_is_wrapped_with_an_invalid_setting_fails_at_once(tmp_path, monkeypatch, settings, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSettingError) as refused:
        HarmonyGuard(Starlette(), **settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["metrics", "block", "repair", "fail"])
def test_settings_of_the_environment_are_no_arguments(name):
    with pytest.raises(TypeError):
        HarmonyGuard(Starlette(), **{name: "closed"})


def test_an_empty_policy_file_is_a_warning(tmp_path, capsys):
    (policy := tmp_path / "policy.toml").touch()
    assert HarmonyGuard(Starlette(), policy=policy).rules.policy.observes
    assert capsys.readouterr().err == f"harmony guard: {policy} is empty, so every check is observed\n"
