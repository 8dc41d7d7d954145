"""Hostile servers behind `rates`, `load` and `run --against`, and responses in the background that never end."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from attacked_processes import judged, run
from case import Case, expect
from cases_run import fixed
from servers import EVENTS_HEAD, JSON_HEAD, Answer, Received, answer_with, completion, event, hostile, models, whole

PART = "rates, load, run --against, background"
GOOD = 2
KEY = "sk-canary-58b1e6c4d2a7"
ENVIRONMENT = {"CANARY_KEY": KEY}


def after_discovery(evil: Answer) -> Answer:
    """Answer the first requests well, so that the command begins."""
    seen: list[Received] = []

    def answer(request: Received) -> Iterable[bytes]:
        if not request.is_chat:
            return [models()]
        seen.append(request)
        return answer_with("Hello.")(request) if len(seen) <= GOOD else evil(request)

    return answer


def measured(folder: Path, answer: Answer, *words: str, codes: tuple[int, ...], seconds: float = 85) -> str:
    """Call a command with a key, against a server that turns hostile. The key may be in no output."""
    with hostile(after_discovery(answer)) as server:
        command, *options = words
        named = ("--api-key-env", "CANARY_KEY", "--out", "out")
        ended = run(folder, command, server.url, *options, *named, seconds=seconds, environment=ENVIRONMENT)
        outcome = f"{judged(ended, *codes)}; {len(server.received)} requests"
    texts = [ended.text.encode(), *(path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file())]
    expect(not any(KEY.encode() in one for one in texts), f"{outcome}; the key is in an output")
    return outcome


def usage(value: str) -> Answer:
    """An answer whose counts of tokens are these characters."""
    counts = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), "@")
    delta = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": counts}

    def answer(request: Received) -> Iterator[bytes]:
        if request.streams:
            yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
            yield event(delta) * 3
            yield event(end).replace(b'"@"', value.encode()) + b"data: [DONE]\n\n"
        else:
            yield whole(json.dumps({**completion("Hello."), "usage": counts}).replace('"@"', value).encode())

    return answer


def many_calls(request: Received) -> Iterator[bytes]:
    """An answer of 9 MB of calls of the function that the request offers."""
    tools = json.loads(request.body).get("tools") or [{"function": {"name": "x"}}]
    call = json.dumps({"id": "c", "function": {"name": tools[0]["function"]["name"], "arguments": "{}"}})
    calls = ",".join([call] * (9_000_000 // len(call)))
    message = f'{{"role":"assistant","content":null,"tool_calls":[{calls}]}}'
    yield whole(
        f'{{"object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}'.encode()
    )


def silent(_: Received) -> Iterator[bytes]:
    time.sleep(120)
    yield b""


def drip(_: Received) -> Iterator[bytes]:
    """One byte per second."""
    for byte in b"HTTP/1.1 200 OK\r\n" + JSON_HEAD + b"\r\n" + b" " * 120:
        yield bytes([byte])
        time.sleep(1)


def informational(_: Received) -> Iterator[bytes]:
    """Informational answers without end."""
    while True:
        yield b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 100


RATES = ("rates", "--tries", "1", "--timeout", "2", "--set", "tools")
LOOPS = ("rates", "--tries", "1", "--timeout", "10", "--task", "two steps", "--task", "price converted")
"""Tasks whose calls are answered with results."""
LOAD = ("load", "--clients", "4", "--requests", "20", "--warm-up", "0", "--timeout", "2")


def large_answers(folder: Path) -> str:
    """A whole run whose answers have 9 MB each: it stops at the limit of what is kept."""
    body = json.dumps(completion("x " * 4_500_000)).encode()
    options = ("--timeout", "20", "--latency", "0", "--select", "usage.*")
    return measured(folder, fixed(body), "run", *options, codes=(1, 2), seconds=280)


def against(folder: Path) -> str:
    """Two endpoints: one is silent."""
    with hostile(answer_with("Hello.")) as other:
        options = ("--against", other.url, "--timeout", "1", "--latency", "0", "--select", "simple_answer")
        return measured(folder, silent, "run", *options, codes=(1, 2))


def background(identity: str, folder: Path) -> str:
    """A response in the background that stays queued, with an id that the server chose."""

    def answer(request: Received) -> Iterator[bytes]:
        if request.path == "/v1/models":
            yield models()
        elif "/responses" in request.path:
            base = {"object": "response", "created_at": 1, "model": "gpt-oss-20b", "output": [], "status": "queued"}
            yield whole(json.dumps({"id": identity, **base}).encode())
        else:
            yield from answer_with("Hello.")(request)

    with hostile(answer) as server:
        options = ("--api", "responses", "--timeout", "2", "--latency", "0", "--select", "responses.*@*background*")
        outcome = judged(run(folder, "run", server.url, *options, "--out", "out", seconds=110), 1, 2)
        paths = {request.path.partition("?")[0] for request in server.received}
        escaped = sorted(path for path in paths if "/responses/" in path and path.count("/") > 4)
        expect(not escaped and not any("admin" in path and "%2F" not in path for path in paths), f"asked for {escaped}")
        return f"{outcome}; {len(server.received)} requests"


def foreign_file(command: str, folder: Path) -> str:
    """A file of someone else in the folder, by the name of a file of the command."""
    (folder / "out").mkdir()
    (folder / "out" / f"{command}.json").write_text("{}", "utf-8")
    words = RATES if command == "rates" else LOAD
    outcome = measured(folder, answer_with("Hello."), *words, codes=(2,))
    expect((folder / "out" / f"{command}.json").read_text("utf-8") == "{}", f"{outcome}; it was overwritten")
    return f"{outcome}; it is kept"


def case(name: str, expected: str, attack: object, **limits: float) -> Case:
    settings = {"seconds": 100.0, **limits}
    return Case(
        name=f"measure.{name}",
        part=PART,
        report="second attack",
        expected=expected,
        attack=attack,
        **settings,  # type: ignore[arg-type]
    )


def commanded(answer: Answer, *words: str, codes: tuple[int, ...]) -> object:
    return functools.partial(_attack, answer, words, codes)


def _attack(answer: Answer, words: tuple[str, ...], codes: tuple[int, ...], folder: Path) -> str:
    return measured(folder, answer, *words, codes=codes)


CASES = (
    case("rates, silent server", "nothing was measured: exit 2", commanded(silent, *RATES, codes=(2,))),
    case("rates, one byte per second", "nothing was measured: exit 2", commanded(drip, *RATES, codes=(2,))),
    case("rates, endless 103", "nothing was measured: exit 2", commanded(informational, *RATES, codes=(2,))),
    case("rates, 9 MB of calls", "no task is solved", commanded(many_calls, *LOOPS, codes=(0,)), memory=700),
    case("rates, count of 10^400", "measured", commanded(usage("1" + "0" * 400), *RATES, codes=(0,))),
    case("load, silent server", "nothing was measured: exit 2", commanded(silent, *LOAD, codes=(2,))),
    case("load, count of 10^400", "measured", commanded(usage("1" + "0" * 400), *LOAD, codes=(0,))),
    case("load, count of NaN", "measured", commanded(usage("NaN"), *LOAD, codes=(0,))),
    case("run, answers of 9 MB", "stops at 64 MiB; exit 1 or 2", large_answers, memory=2000, seconds=300),
    case("run --against, one silent", "over within the limits; exit 1 or 2", against),
    case("background, queued for ever", "over within the limits", functools.partial(background, "resp_1"), seconds=120),
    case("background, id ../../admin", "no other path", functools.partial(background, "../../admin"), seconds=120),
    case("background, id of a surrogate", "no fault of our own", functools.partial(background, "\ud800"), seconds=120),
    case("rates, foreign rates.json", "refused", functools.partial(foreign_file, "rates")),
    case("load, foreign load.json", "refused", functools.partial(foreign_file, "load")),
)
