"""Write docs/clients.md from golden/clients.json and the recorded scenarios.

    python tools/write_clients.py [--check]

With `--check`, nothing is written, and the exit code is 1 if the page is stale.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.golden.clients import ClientProfile, client_profiles
from harmony_conformance.golden.data import root
from harmony_conformance.json_value import Json, loads, text, value_at

PAGE = Path(__file__).parents[1] / "docs" / "clients.md"
_HEAD = """# Is a server ready for a client?

```sh
harmony-conformance run URL --client codex            # also: CLIENTS
harmony-conformance run replay:runs/a/exchanges.jsonl --client langchain   # judge a recording for another client
```

The output begins with the verdict: Codex will lose parallel calls on this server. Then come the needs that fail, with the setting of the client that
avoids the loss. Needs that could not be judged follow. The exit code is that of [any run](run.md#exit-codes-and-gates).
`--format json` has the verdict as `client`.

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
"""


def page() -> str:
    """Return the page."""
    profiles = client_profiles()
    head = _HEAD.replace("CLIENTS", ", ".join(name for name in profiles if name != "codex"))
    rows = "\n".join(map(_row, profiles.values()))
    return f"{head}{rows}\n\n" + "\n".join(line for one in profiles.values() for line in _section(one)) + _REST


def recording(profile: ClientProfile) -> Json:
    """Return the source of a client's recorded requests."""
    file = root() / "scenarios" / f"recorded_{profile.name.replace('-', '_')}_call.json"
    return value_at(loads(file.read_text(encoding="utf-8")), "source")


def _row(profile: ClientProfile) -> str:
    source = recording(profile)
    package, version, licence, day = (
        text(value_at(source, name)) for name in ("package", "version", "licence", "recorded")
    )
    return f"| [{profile.title}](#{_anchor(profile)}) (`--client {profile.name}`, {package}) | {version} | {profile.api} | {licence} | {day} |"


def _anchor(profile: ClientProfile) -> str:
    return profile.title.lower().replace(" ", "-")


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
