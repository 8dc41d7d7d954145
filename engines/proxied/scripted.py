"""Send scripted requests with the official client to a real server: directly, and through each shell that observes, repairs or blocks.

    scripted.py ask TARGET --model NAME --by vllm|teleprompter --into FILE [--within SHELL ACTION] [--through SHELL ...]
    scripted.py page FILE PAGE --server TEXT

Each case in `CASES` has a script and, written by hand, the answer that the client must receive. `ask` first calls the server directly and writes
its answers to FILE. With `--within`, the guard is middleware of the server, and its answers are compared with those in FILE. `--through` puts a
proxy before the server, once for each action.

Expected results:
- Observe: the client receives the same as directly.
- Repair: the client receives a correct answer unchanged, and the intended answer instead of a leak.
- Block: a leaking answer is an error. That is a 502 before any output, or in a stream an error event before the leak.

`page` writes the results as Markdown, and exits with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import openai
from client_answer import ClientAnswer, add_chunk, add_event, blocked, of_chat, of_response
from through import BY_CHANCE, proxied

from harmony_conformance.engines.teleprompter.script import TRAILER_LENGTH, write_script
from harmony_ref import encode_with_special_tokens

ACTIONS = {
    "observe": [],
    "repair": ["--repair", "*"],
    "block": ["--block", "channels.no_marker_leak", "channels.no_channel_words"],
}
SHELLS = {"standalone": [], "mitmproxy": ["--mitmproxy"]}
BROKEN_OFF = ("APIConnectionError", "error None 502")
"""The errors of a request under way while llama.cpp closes the connection, as it does after each stream.

The client here does not retry by itself, so that a blocked request is one request.
"""
WAYS = [(api, streamed) for api in ("chat", "responses") for streamed in (False, True)]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}
THINKS = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
LOOKS = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
SAYS = "<|channel|>final<|message|>{}<|return|>"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script and the answer that must reach the client. `leaks`: real servers were seen to pass on its markup."""

    script: str
    meant: ClientAnswer
    has_tools: bool = False
    has_result: bool = False
    leaks: bool = False


CALLED = (("get_weather", '{"city":"Paris"}'),)
CASES = {
    "an answer": Case(
        script=THINKS.format("A greeting.") + SAYS.format("Hello there!"),
        meant=ClientAnswer(reasoning="A greeting.", answer="Hello there!"),
    ),
    "a call": Case(
        script=THINKS.format("I need the weather.") + LOOKS,
        meant=ClientAnswer(reasoning="I need the weather.", calls=CALLED),
        has_tools=True,
    ),
    "an answer to a result": Case(
        script=THINKS.format("It is sunny.") + SAYS.format("Paris is sunny."),
        meant=ClientAnswer(reasoning="It is sunny.", answer="Paris is sunny."),
        has_tools=True,
        has_result=True,
    ),
    "a thought without an end": Case(
        script="<|channel|>analysis<|message|>A greeting.<|start|>assistant" + SAYS.format("Hello there!"),
        meant=ClientAnswer(reasoning="A greeting.", answer="Hello there!"),
        leaks=True,
    ),
    "a call within a thought": Case(
        script="<|channel|>analysis<|message|>I need the weather.<|start|>assistant" + LOOKS,
        meant=ClientAnswer(reasoning="I need the weather.", calls=CALLED),
        has_tools=True,
        leaks=True,
    ),
}


@dataclass(kw_only=True)
class Asking:
    """A server, and the method by which scripts reach it."""

    model: str
    by: str
    number: int = 0
    answers: dict[str, ClientAnswer] = field(default_factory=dict)

    def all(self, base: str) -> dict[str, ClientAnswer]:
        client = openai.OpenAI(base_url=base, api_key="not-a-secret", max_retries=0, timeout=180)
        answers: dict[str, ClientAnswer] = {}
        for name in CASES:
            for api, streamed in WAYS:
                request = _request_id(name, api, streamed=streamed)
                one = self.one(client, name, api, streamed=streamed)
                if one.end.startswith(BROKEN_OFF):
                    print(f"  {request}: {one.end}; asked again", flush=True)
                    one = self.one(client, name, api, streamed=streamed)
                answers[request] = one
        return answers

    def one(self, client: openai.OpenAI, name: str, api: str, *, streamed: bool) -> ClientAnswer:
        request = self._request(CASES[name], api) | {
            "extra_headers": {"x-request-id": _request_id(name, api, streamed=streamed).replace(" ", "_")}
        }
        create = client.chat.completions.create if api == "chat" else client.responses.create
        answer_so_far: dict[str, Any] = {
            "reasoning": "",
            "answer": "",
            "calls": {},
            "end": "the stream ended without a reason",
        }
        try:
            if not streamed:
                answer = create(**request).model_dump()
                return of_chat(answer) if api == "chat" else of_response(answer)
            for event in create(**request, stream=True):
                (add_chunk if api == "chat" else add_event)(answer_so_far, event.model_dump())
        except openai.APIStatusError as refusal:
            return ClientAnswer(end=f"{blocked(refusal.code)} {refusal.status_code}")
        except openai.APIConnectionError as problem:
            return ClientAnswer(end=f"{type(problem).__name__}: {problem.__cause__}")
        except openai.APIError as problem:
            answer_so_far["end"] = f"{blocked(problem.code)} in the stream"
        return ClientAnswer(
            **{**answer_so_far, "calls": tuple((call[0], call[1]) for call in answer_so_far["calls"].values())}
        )

    def _request(self, case: Case, api: str) -> dict[str, Any]:
        ids = encode_with_special_tokens(case.script)
        limit = len(ids) + 2
        asked, result, extra = "Hello.", '{"sky":"clear"}', {}
        if self.by == "vllm":
            extra = {"vllm_xargs": {"harmony_script": list(ids)}}
        elif case.has_result:
            result = "clear" + write_script(ids, TRAILER_LENGTH + 1)  # the template quotes a result
        else:
            asked += write_script(ids, TRAILER_LENGTH)
        if self.by == "teleprompter":
            extra = {"top_k": 1}  # else a grammar looks at each token of the vocabulary
        common: dict[str, Any] = {"model": self.model, "temperature": 0, "extra_body": extra}
        if api == "chat":
            messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
            if case.has_result:
                call = {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": CALLED[0][0], "arguments": CALLED[0][1]},
                }
                messages += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": result},
                ]
            tools = {"tools": [{"type": "function", "function": WEATHER}]} if case.has_tools else {}
            return {**common, **tools, "messages": messages, "max_tokens": limit}
        items: list[dict[str, Any]] = [{"role": "user", "content": asked}]
        if case.has_result:
            call = {"type": "function_call", "call_id": "call_1", "name": CALLED[0][0], "arguments": CALLED[0][1]}
            items += [call, {"type": "function_call_output", "call_id": "call_1", "output": result}]
        tools = {"tools": [{"type": "function", **WEATHER}]} if case.has_tools else {}
        return {**common, **tools, "input": items, "max_output_tokens": limit}


def _request_id(name: str, api: str, *, streamed: bool) -> str:
    return f"{name}, {api}, {'streamed' if streamed else 'whole'}"


def _unexpected_answers(straight: Mapping[str, ClientAnswer]) -> list[str]:
    """List the cases that the server itself answers differently than expected. A run then proves less."""
    return [
        f"WRONG: {request}: straight {'nothing leaks' if case.leaks else answers}"
        for request, answers in straight.items()
        for case in [CASES[request.partition(",")[0]]]
        if (not _leaked(answers) if case.leaks else answers.meaning != case.meant.meaning)
    ]


def judged(answers: Mapping[str, ClientAnswer], straight: Mapping[str, ClientAnswer], action: str) -> dict[str, str]:
    """Return the result of each request in a word or two. A wrong one begins with `WRONG`."""
    return {request: _result(answers[request], straight[request], request, action) for request in straight}


def _result(answers: ClientAnswer, straight: ClientAnswer, request: str, action: str) -> str:
    case = CASES[request.partition(",")[0]]
    if action == "observe" or not _leaked(straight):
        return "as the direct answer" if answers == straight else f"WRONG: {answers}"
    if action == "repair":
        return "as intended" if answers.meaning == case.meant.meaning else f"WRONG: {answers}"
    return answers.end if answers.is_blocked and not _leaked(answers) else f"WRONG: {answers}"


def _leaked(answers: ClientAnswer) -> bool:
    return any(mark in text for mark in ("<|", "assistant") for text in (answers.reasoning, answers.answer))


def logged(log: Path, requests: Mapping[str, str], action: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the requests without a line in the outcome log, and the failed checks of each request."""
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    exchanges = {line["request_id"].replace("_", " "): line for line in lines if line.get("request_id")}
    missing = [
        f"WRONG: {request}: no judged line in the log ({line.get('end')}, {line.get('unjudged')})"
        for request in requests
        if not (line := exchanges.get(request, {})).get("judged") and line.get("end") != "blocked"
    ]
    done = {"repair": "repaired", "block": "blocked"}.get(action)
    missing += [
        f"WRONG: {request}: {came} and the log does not say so"
        for request, came in requests.items()
        if done and came != "as the direct answer" and not (exchanges.get(request, {}).get("acted") or {}).get(done)
    ]
    return missing, {
        request: [check for check in exchanges.get(request, {}).get("failed", []) if check not in BY_CHANCE]
        for request in requests
    }


def ask(asked: argparse.Namespace) -> int:
    engine, _, base = asked.target.partition(":")
    asking = Asking(model=asked.model, by=asked.by)
    kept: dict[str, Any] = json.loads(asked.into.read_text()) if asked.into.exists() else {}
    answers = asking.all(base)
    if not asked.within:
        for problem in _unexpected_answers(answers):
            print(problem)
        kept = {"straight": {request: asdict(one) for request, one in answers.items()}, "runs": []}
    straight = _read(kept["straight"])
    if asked.within:
        shell, action = asked.within
        time.sleep(5)  # the judge is a separate process
        kept["runs"].append(_run(shell, action, judged(answers, straight, action), asked.log))
    for shell in asked.through:
        for action, flags in ACTIONS.items():
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "log.jsonl"
                capture = ["--capture", "full"]
                with proxied(asked.target, [*SHELLS[shell], *flags, *capture], log) as url:
                    answers = asking.all(f"{url}/v1")
                kept["runs"].append(_run(shell, action, judged(answers, straight, action), log))
                if asked.keep:
                    (asked.keep / f"{engine}-{shell}-{action}.jsonl").write_bytes(log.read_bytes())
    asked.into.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return 0


def _read(kept: Mapping[str, Any]) -> dict[str, ClientAnswer]:
    return {
        request: ClientAnswer(**{**answers, "calls": tuple(map(tuple, answers["calls"]))})
        for request, answers in kept.items()
    }


def _run(shell: str, action: str, came: dict[str, str], log: Path) -> dict[str, Any]:
    missing, failed = logged(log, came, action)
    wrong = [f"{request}: {what}" for request, what in came.items() if what.startswith("WRONG")] + missing
    print(f"{shell}, {action}: {len(came)} requests, {len(wrong)} wrong", flush=True)
    for one in wrong:
        print(f"  {one}", flush=True)
    return {"shell": shell, "action": action, "came": came, "missing": missing, "failed": failed}


def page(asked: argparse.Namespace) -> int:
    kept = json.loads(asked.file.read_text())
    asked.page.write_text("\n".join(_lines(kept, asked.server)) + "\n")
    answers = [what for run in kept["runs"] for what in [*run["came"].values(), *run["missing"]]]
    answers += _unexpected_answers(_read(kept["straight"]))
    return int(any(what.startswith("WRONG") for what in answers))


def _lines(kept: Mapping[str, Any], server: str) -> Iterator[str]:
    yield from (
        f"# The proxy before {server}",
        "",
        "Made by `engines/proxied/scripted.py`; nothing here is edited by hand.",
        "",
    )
    yield "Result of each request of the official client: `as the direct answer`, `as intended` (repaired) or `blocked`. The model's output is scripted."
    by_kind = [(name, [request for request in kept["straight"] if request.startswith(f"{name},")]) for name in CASES]
    yield from (
        "",
        "| shell | action | " + " | ".join(name for name, _ in by_kind) + " |",
        "| --- " * (len(by_kind) + 2) + "|",
    )
    for run in kept["runs"]:
        cells = ["; ".join(sorted({run["came"][request] for request in requests})) for _, requests in by_kind]
        yield f"| {run['shell']} | {run['action']} | " + " | ".join(cells) + " |"
    yield from ("", "Each cell is four requests: Chat Completions and Responses, whole and streamed.", "")
    yield from (
        "## Direct answers of the server",
        "",
        "| request | reasoning | answer | calls | end |",
        "| --- | --- | --- | --- | --- |",
    )
    for request, answers in kept["straight"].items():
        cells = [
            answers["reasoning"],
            answers["answer"],
            json.dumps(answers["calls"]) if answers["calls"] else "",
            answers["end"],
        ]
        yield f"| {request} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield from (
        "",
        "## What the guard's log says failed",
        "",
        f"Judged on the server's own answers. Left out is what depends on the moment: {', '.join(f'`{check}`' for check in BY_CHANCE)}.",
        "",
    )
    for request in kept["straight"]:
        failed = sorted({check for run in kept["runs"] for check in run["failed"][request]})
        if failed:
            yield f"- {request}: {', '.join(f'`{check}`' for check in failed)}"
    missing = [f"- {run['shell']}, {run['action']}: {one}" for run in kept["runs"] for one in run["missing"]]
    missing += [f"- {problem}" for problem in _unexpected_answers(_read(kept["straight"]))]
    yield from (["", *missing] if missing else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    asks = commands.add_parser("ask")
    asks.add_argument("target")
    asks.add_argument("--model", required=True)
    asks.add_argument("--by", choices=["vllm", "teleprompter"], required=True)
    asks.add_argument("--into", type=Path, required=True)
    asks.add_argument("--within", nargs=2, metavar=("SHELL", "ACTION"))
    asks.add_argument("--log", type=Path, help="the guard's, with --within")
    asks.add_argument("--through", nargs="*", choices=list(SHELLS), default=[])
    asks.add_argument("--keep", type=Path, help="a folder for the outcome logs, with samples of what failed")
    asks.set_defaults(run=ask)
    pages = commands.add_parser("page")
    pages.add_argument("file", type=Path)
    pages.add_argument("page", type=Path)
    pages.add_argument("--server", required=True)
    pages.set_defaults(run=page)
    asked = parser.parse_args()
    code: int = asked.run(asked)
    return code


if __name__ == "__main__":
    sys.exit(main())
