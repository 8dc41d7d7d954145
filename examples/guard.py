"""A guard that repairs leaks: ask a server directly, then through the proxy, and show both answers and the log of the proxy.

    python examples/guard.py TARGET [QUESTION]        for example llamacpp:http://127.0.0.1:8080/v1

The server must be running. `harmony-conformance serve --port 8080 --defect output-unparsed` is one that leaks. Needs the extra `proxy`.
Exit code: 0 if every failure of the answer was repaired or blocked; 1 if one is left.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

QUESTION = "What is the capital of France?"
COMMAND = (sys.executable, "-m", "harmony_conformance", "proxy", "--listen", "127.0.0.1:0", "--repair", "channels.*")
SECONDS = 120


def ask(url: str, model: str, question: str) -> object:
    """Return the message of an answer, or the body of an error."""
    request = {"model": model, "messages": [{"role": "user", "content": question}]}
    answer = httpx.post(f"{url}/chat/completions", json=request, timeout=SECONDS).json()
    return answer["choices"][0]["message"] if "choices" in answer else answer


def guarded(target: str, model: str, question: str) -> tuple[object, dict[str, Any]]:
    """Return the message that a proxy in front of the server lets through, and the line of its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        words = (*COMMAND, "--upstream", target, "--log", log)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as proxy:
            first = proxy.stdout.readline() if proxy.stdout else ""
            listening = re.search(r"http://127\.0\.0\.1:\d+", first)
            if listening is None:
                proxy.kill()
                sys.exit(first.strip())
            message = ask(f"{listening[0]}/v1", model, question)
            proxy.terminate()  # the log is complete when it has ended
        return message, json.loads(log.read_bytes().splitlines()[-1])


def main(arguments: list[str]) -> int:
    """Print both answers and the log."""
    if not arguments:
        sys.exit(f"usage: {sys.argv[0]} TARGET [QUESTION]")
    target, question = arguments[0], (arguments[1:] or [QUESTION])[0]
    url = target[target.index("http") :].rstrip("/")
    try:
        model = httpx.get(f"{url}/models", timeout=SECONDS).json()["data"][0]["id"]
        direct = ask(url, model, question)
        message, line = guarded(target, model, question)
    except httpx.HTTPError as problem:
        sys.exit(f"{url}: {problem}")
    print("direct: ", json.dumps(direct, ensure_ascii=False))
    print("guarded:", json.dumps(message, ensure_ascii=False))
    print("log:    ", json.dumps(line, ensure_ascii=False))
    if not line["judged"]:
        sys.exit("the proxy could not judge the answer")
    acted = line.get("acted", {"repaired": {}, "blocked": []})
    return int(bool(set(line["failed"]) - set(acted["repaired"]) - set(acted["blocked"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
