"""Write logs of this folder that a service stores and its client returns: `make_stored_exports.py NAME FOLDER URL`, as `make_exports.py`.

The services are not on this machine. A server in their place returns what their API references describe, and their clients check it.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.request import Request, urlopen

from make_exports import CALL, MESSAGES, MODEL, started


class Stored(BaseHTTPRequestHandler):
    """Returns what a service stored, as its API reference describes it: `answers` by path."""

    answers: dict[str, dict] = {}  # noqa: RUF012 - of the whole process

    def do_GET(self):
        body = json.dumps(self.answers[self.path.partition("?")[0]]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def answered(url):
    """Return the messages of a call that leaks, and of an answer."""
    for more in (CALL, {}):
        body = json.dumps({"model": MODEL, "messages": MESSAGES, **more}).encode()
        sent = Request(f"{url}/chat/completions", body, {"content-type": "application/json"})
        with urlopen(sent) as answer:
            yield json.load(answer)["choices"][0]["message"]


def openrouter(folder, url):
    """What OpenRouter's client returns of stored generations, two and one that failed: openrouter 1.3.84."""
    from openrouter import OpenRouter

    outputs = [(one["content"], one["reasoning"], None) for one in answered(url)]
    failure = {
        "message": "Provider returned error",
        "status": 502,
        "provider_name": "alpha",
        "raw": None,
        "previous_errors": [],
    }
    lines = []
    with OpenRouter(api_key="none", server_url=started(Stored)) as client:
        for content, thought, error in (*outputs, (None, None, failure)):
            output = {"completion": content, "reasoning": thought}
            data = {"input": {"messages": MESSAGES}, "output": output, "error": error}
            Stored.answers["/generation/content"] = {"data": data}
            lines.append(client.generations.list_generation_content(id="gen-1").model_dump_json() + "\n")
    (folder / "openrouter.jsonl").write_text("".join(lines), encoding="utf-8")


def langfuse_observations(folder, url):
    """What Langfuse's client returns of stored observations: langfuse 5.0.4."""
    from langfuse.api.client import LangfuseAPI

    head = {"traceId": "1", "projectId": "1", "startTime": "2026-11-28T02:30:00Z", "endTime": "2026-11-28T02:30:01Z"}
    head |= {"type": "GENERATION", "model": MODEL, "modelParameters": {"temperature": 0}, "userId": "user-1"}
    kept = [
        {**head, "id": str(number), "input": MESSAGES, "output": output} for number, output in enumerate(answered(url))
    ]
    Stored.answers["/api/public/v2/observations"] = {"data": kept, "meta": {}}
    client = LangfuseAPI(base_url=started(Stored), username="none", password="none")
    found = client.observations.get_many(fields="core,basic,io,model").data
    lines = "".join(f"{one.json()}\n" for one in found)
    (folder / "langfuse_observations.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    {"openrouter": openrouter, "langfuse_observations": langfuse_observations}[sys.argv[1]](
        Path(sys.argv[2]), sys.argv[3]
    )
