"""Compare a real server directly and through each shell of the proxy, with the official client and a part of the suite.

    through.py TARGET --model NAME [--script vllm] [--watched-log FILE]

Through a shell that observes, the client receives the same answers, and the suite has the same results. The log has a line for each exchange.
A shell that repairs may only turn failed checks into passed ones. `--watched-log` is the log of a `HarmonyGuard` inside the server.
The script prints a table, and exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import openai

COMMAND = [sys.executable, "-m", "harmony_conformance.cli.main"]
IN_MITMPROXY = [str(Path(__file__).parents[2] / ".oracles" / "mitmproxy-12" / "bin" / "python"), *COMMAND[1:]]
SCENARIOS = (
    "simple_answer",
    "tool_call",
    "two_calls_in_one_turn",
    "preamble_and_call",
    "cut_in_header",
    "broken_missing_message",
)
REPAIRED = ("channels.no_marker_leak", "channels.no_channel_words", "channels.no_reasoning_in_content")
ALONE = {"top_k": 1}
"""For a teleprompter: else a grammar looks at each token of the vocabulary."""
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
BY_CHANCE = ("streaming.one_identity",)
"""llama.cpp writes the time of each chunk as `created`: it changes in the streams in which a second ends."""
SHELLS = {
    "standalone": [],
    "mitmproxy": ["--mitmproxy"],
    "standalone, repairing": [part for check in REPAIRED for part in ("--repair", check)],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--model", required=True)
    parser.add_argument("--script")
    parser.add_argument("--watched-log", type=Path)
    asked = parser.parse_args()
    engine, _, base = asked.target.partition(":")
    suite = _suite(asked.model, asked.script)
    extra = ALONE if asked.script == "teleprompter" else {}
    straight = talk(base, asked.model, extra)
    runs = [suite(f"{engine}:{base}") for _ in range(2)]
    judged = {key: fails and runs[1].get(key, False) for key, fails in runs[0].items()}
    at_times = {key for one in runs for key, fails in one.items() if fails} - {
        key for key, fails in judged.items() if fails
    }
    print(f"straight: {len(straight)} requests of the client, {sum(judged.values())} failures of the suite:")
    for check, scenario in sorted(key for key, fails in judged.items() if fails):
        print(f"  {check} in {scenario}")
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (shell, flags) in enumerate(SHELLS.items()):
            log = Path(folder) / f"{number}.jsonl"
            with proxied(asked.target, flags, log) as url:
                answers = talk(f"{url}/v1", asked.model, extra)
                found = suite(f"{engine}:{url}")
            problems += compare(
                shell, (straight, judged), (answers, found), at_times=at_times, repairs="repairing" in shell
            )
            problems += logged(shell, log, least=len(straight))
    if asked.watched_log:
        time.sleep(3)  # the judge is a separate process
        problems += logged("HarmonyGuard within the server", asked.watched_log, least=(1 + len(SHELLS)) * len(straight))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def talk(base: str, model: str, extra: dict[str, int]) -> dict[str, object]:
    """Return the official client's answers: whole, streamed, with a tool, over Responses if offered, a refusal, and a stream that it leaves."""
    client = openai.OpenAI(base_url=base, api_key="not-a-secret", max_retries=0, timeout=120)
    user = [{"role": "user", "content": "Say hi."}]
    common = {"model": model, "messages": user, "max_tokens": 24, "temperature": 0, "seed": 1, "extra_body": extra}
    cases: dict[str, Callable[[], object]] = {
        "whole": lambda: client.chat.completions.create(**common).model_dump(),
        "with a tool": lambda: client.chat.completions.create(**common, tools=[TOOL]).model_dump(),
        "streamed": lambda: [chunk.model_dump() for chunk in client.chat.completions.create(**common, stream=True)],
        "streamed with a tool": lambda: [
            chunk.model_dump() for chunk in client.chat.completions.create(**common, tools=[TOOL], stream=True)
        ],
        "refused": lambda: client.chat.completions.create(model=model, messages=[{"role": "nobody", "content": 1}]),
        "responses": lambda: client.responses.create(
            model=model, input="Say hi.", max_output_tokens=24, temperature=0, extra_body=extra
        ).model_dump(),
        "responses streamed": lambda: [
            event.model_dump()
            for event in client.responses.create(
                model=model, input="Say hi.", max_output_tokens=24, temperature=0, stream=True, extra_body=extra
            )
        ],
        "left": lambda: _leave(client, common),
    }
    return {name: _plain(_outcome(case)) for name, case in cases.items()}


def _outcome(case: Callable[[], object]) -> object:
    for may_ask_again in (True, False):
        try:
            return case()
        except (openai.APIStatusError, openai.APIConnectionError) as problem:
            status = getattr(
                problem, "status_code", 502
            )  # through a proxy it is one, that the server closed the connection
            if status != 502 or not may_ask_again:
                return {"status": status, "body": problem.body}
            print(f"{problem}; asked again", flush=True)
    return None


def _leave(client: openai.OpenAI, common: dict[str, object]) -> object:
    stream = client.chat.completions.create(**common, stream=True)
    first = next(iter(stream)).model_dump()
    stream.close()
    return first


_OF_THE_MOMENT = re.compile(r"id$|cached_tokens|^created|_at$|timings|seed|system_fingerprint|duration|_ms$|per_second")


def _plain(value: object) -> object:
    """Remove ids, times and similar values. Join the deltas of a stream, because the grouping of tokens varies."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if not _OF_THE_MOMENT.search(name)}
    if isinstance(value, list):
        return _joined([_plain(one) for one in value])
    return value


def _joined(parts: list[object]) -> object:
    if not parts or not all(isinstance(part, dict) and ("choices" in part or "type" in part) for part in parts):
        return parts
    texts: dict[str, str] = {}
    kinds: dict[str, None] = {}
    for part in parts:
        assert isinstance(part, dict)
        kinds[str(part.get("type", part.get("object")))] = None
        deltas = [choice.get("delta") or {} for choice in part.get("choices") or []] or [{"delta": part.get("delta")}]
        for delta in deltas:
            for name, text in delta.items():
                if isinstance(text, str):
                    texts[name] = texts.get(name, "") + text
    return {"kinds": list(kinds), "texts": texts}


def _suite(model: str, script: str | None) -> Callable[[str], dict[tuple[str, str], bool]]:
    """Run a part of the suite against a target. Return whether each check of each scenario fails."""
    flags = [flag for name in SCENARIOS for flag in ("--select", name)]
    flags += ["--script", script] if script else []
    flags += ["--extra-body", json.dumps(ALONE)] if script == "teleprompter" else []

    def run(target: str) -> dict[tuple[str, str], bool]:
        with tempfile.TemporaryDirectory() as folder:
            command = [*COMMAND, "run", target, "--model", model, "--latency", "0", "--out", folder, *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            if done.returncode not in (0, 1):
                raise SystemExit(
                    f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
                )
            lines = [json.loads(line) for line in (Path(folder) / "report.jsonl").read_bytes().splitlines()]
        return {
            (line["check"], line["scenario"]): line["outcome"] in ("fail", "error")
            for line in lines
            if line.get("kind") == "result"
        }

    return run


@contextmanager
def proxied(target: str, flags: list[str], log: Path) -> Iterator[str]:
    """Start a proxy before the target, and yield its URL. Its log is complete after the block."""
    program = IN_MITMPROXY if "--mitmproxy" in flags else COMMAND
    command = [*program, "proxy", "--upstream", target, "--listen", "127.0.0.1:0", "--log", str(log), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = next(
            (found for line in process.stdout if (found := re.search(r"listening on (http://\S+?)[,\s]", line))), None
        )
        if said is None:
            raise SystemExit(f"{' '.join(command)}: did not say where it listens")
        yield said.group(1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


ClientAnswer = dict[str, object]
Judged = dict[tuple[str, str], bool]


def compare(
    shell: str,
    straight: tuple[ClientAnswer, Judged],
    through: tuple[ClientAnswer, Judged],
    *,
    at_times: Collection[tuple[str, str]],
    repairs: bool,
) -> list[str]:
    """Return the differences of a shell in answers and verdicts. `at_times`: checks that fail directly, but not every time."""
    (said, judged), (answers, found) = straight, through
    problems = [
        f"{shell}: {name}: answers differ:\n  direct  {json.dumps(said[name])[:600]}\n  through  {json.dumps(answers[name])[:600]}"
        for name in said
        if answers[name] != said[name] and not repairs
    ]
    worse = [key for key, fails in found.items() if fails and not judged.get(key, False) and key not in at_times]
    better = [key for key, fails in judged.items() if fails and not found.get(key, False)]
    worse, better = ([key for key in keys if key[0] not in BY_CHANCE] for keys in (worse, better))
    problems += [f"{shell}: {check} fails in {scenario}, and straight it does not" for check, scenario in worse]
    if not repairs:
        problems += [
            f"{shell}: {check} does not fail in {scenario}, and straight it does" for check, scenario in better
        ]
    alike = sum(answers[name] == said[name] for name in said)
    line = f"{shell}: {alike} of {len(said)} answers alike, {sum(found.values())} failures of the suite"
    print(line + (f", repaired: {', '.join(sorted({check for check, _ in better})) or 'nothing'}" if repairs else ""))
    return problems


def logged(shell: str, log: Path, *, least: int) -> list[str]:
    """Check that the log has all exchanges, judged."""
    if not log.exists():
        return [f"{shell}: there is no log"]
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    exchanges = [line for line in lines if line.get("kind") == "exchange"]
    judged = sum(bool(line.get("judged")) for line in exchanges)
    print(f"{shell}: {len(exchanges)} exchanges in the log, {judged} judged")
    left = Counter(
        f"{check}: {why}" for line in exchanges for check, why in ((line.get("acted") or {}).get("left") or {}).items()
    )
    for what, times in left.most_common():
        print(f"  {times} left as they were, {what}")
    return (
        [] if judged >= least - 1 else [f"{shell}: {judged} judged exchanges in the log, at least {least - 1} went by"]
    )


if __name__ == "__main__":
    sys.exit(main())
