"""Write docs/clients.md from golden/clients.json and the recorded scenarios.

    python tools/write_clients.py [--check]

With `--check`, nothing is written, and the exit code is 1 if the page is stale.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.golden.clients import ClientProfile, client_profiles
from harmony_conformance.golden.data import root
from harmony_conformance.json_value import Json, loads, text, value_at

PAGE = Path(__file__).parents[1] / "docs" / "clients.md"
_HEAD = """# Is a server ready for a client?

Find out whether Codex, Claude Code or another client works with your server, what it will lose, and which setting avoids that.

- **For:** users and providers of coding agents and frameworks on gpt-oss.
- **You need:** the package [installed](install.md), and the URL of a server. The client itself is not needed.
- **You get:** a verdict for the client in one line, and its needs that fail.

## The shortest way

This server loses tool calls. Take your own URL instead:

```sh
harmony-conformance serve --port 18790 --defect calls-dropped &
```

<!-- output -->
```text
```

`--client` takes one of: CLIENTS.

```sh
harmony-conformance run http://127.0.0.1:18790/v1 --client opencode --latency 0 --out runs/opencode; echo "exit code $?"
```

<!-- output: first 6, last 1 lines -->
```text
```

A recording can be judged for another client, without a server:

```sh
harmony-conformance run replay:runs/opencode/exchanges.jsonl --client langchain --out runs/langchain | head -4
kill %1
```

<!-- output -->
```text
```

The output begins with the verdict. Then come the needs that fail, with the setting of the client that avoids the loss. Needs that could not be judged follow.
The exit code is that of [any run](run-reference.md#exit-codes-and-gates). `--format json` has the verdict as `client`.

## The profiles

A profile is data: [golden/clients.json](../golden/clients.json). It names the checks and scenarios of each need. It rests on requests that the real client sent
to the reference server, which are scenarios too. `make record-clients` records them again, from nothing: see [engines/clients](../engines/clients/README.md).
Long texts of a client are shortened. Of a proprietary client only names, types and structure are kept.

| client | version | API | licence of the package | recorded |
| --- | --- | --- | --- | --- |
"""
_REST = """
## Limits

- Two conversations are recorded of each client: a call after a preamble, and two calls in one turn, each with its results.
- Not recorded: compaction, images, MCP servers, background jobs, subagents, WebSockets, and `previous_response_id`.
- The verdict is about the server. Whether the client survives a broken rule of the API depends on its version.
- Other clients of the same API can use the nearest profile. OpenAI's and Anthropic's own SDKs are covered by `--api`.

## Next steps

- [The example](../examples/ready_for_client.sh): a server before and after a change of its options.
- [Test an endpoint](run.md): the whole suite.
"""
_OUTPUT = re.compile(r"^```text\n(?:(?!^```).*\n)*```\n", re.MULTILINE)


def page() -> str:
    """Return the page."""
    profiles = client_profiles()
    head = _with_outputs(_HEAD.replace("CLIENTS", ", ".join(f"`{name}`" for name in profiles)))
    rows = "\n".join(map(_row, profiles.values()))
    return f"{head}{rows}\n\n" + "\n".join(line for one in profiles.values() for line in _section(one)) + _REST


def _with_outputs(head: str) -> str:
    """Return the head with the outputs that the page has: `tools/write_guide_output.py` writes them."""
    outputs = _OUTPUT.findall(PAGE.read_text("utf-8")) if PAGE.is_file() else []
    return _OUTPUT.sub(lambda empty: outputs.pop(0) if outputs else empty[0], head)


def recording(profile: ClientProfile) -> Json:
    """Return the source of a client's recorded requests."""
    file = root() / "scenarios" / f"recorded_{profile.name.replace('-', '_')}_call.json"
    return value_at(loads(file.read_text(encoding="utf-8")), "source")


def _row(profile: ClientProfile) -> str:
    source = recording(profile)
    package, version, licence, day = (
        text(value_at(source, name)) for name in ("package", "version", "licence", "recorded")
    )
    anchor = profile.title.lower().replace(" ", "-")
    return f"| [{profile.title}](#{anchor}) (`--client {profile.name}`, {package}) | {version} | {profile.api} | {licence} | {day} |"


def _section(profile: ClientProfile) -> Iterator[str]:
    yield from (f"## {profile.title}", "", f"Setup: {profile.setup}", "")
    yield from ("| need | without it, the client | checks | instead |", "| --- | --- | --- | --- |")
    for need in profile.needs:
        checks = ", ".join(f"`{check}`" for check in need.checks)
        yield f"| {need.name} | {need.loss} | {checks} | {need.remedy} |"
    yield ""
    if profile.notes:
        yield from (*(f"- {note}" for note in profile.notes), "")


def main() -> int:
    """Write the page, or compare it."""
    parser = ArgumentParser()
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return int(page() != PAGE.read_text("utf-8"))
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
