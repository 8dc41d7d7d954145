"""Write the page of figures from results: `report.py RESULTS PAGE`."""

import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MICRO = 1e6
STREAMED = "10,000"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A table row.

    Attributes:
        work: the measured work.
        ours: contender and task of this project.
        theirs: the task of openai-harmony to compare with.
        aim: the wanted speed-up.
        limit: the wanted multiple of the time of tiktoken alone.
        per: the input of one run, for figures per token; None for figures per run.
    """

    work: str
    ours: tuple[str, str]
    theirs: str
    aim: float
    limit: float | None = None
    per: str | None = None


def _row(work: str, task: str, aim: float, limit: float | None = None) -> Row:
    return Row(work=work, ours=("ours", task), theirs=task, aim=aim, limit=limit)


RENDER = (
    _row("a small chat", "render, small chat", 15),
    _row("five tools", "render, five tools", 10),
    _row("100k tokens in long messages", "render, long messages, 100000", 3.3, 1.10),
    _row("100k tokens in short messages", "render, short messages, 100000", 20),
)
PARSE = (
    _row("100k tokens, one message", "parse, one message, 100000", 12, 4),
    _row("100k tokens, 20-token messages", "parse, 20-token messages, 100000", 30, 9),
)
STREAM = (
    Row(
        work="`compat`: `process` + `last_content_delta`",
        ours=("compat", "stream, one message"),
        theirs="stream, one message",
        aim=6,
        per="one message",
    ),
    *(
        Row(
            work=f"`feed`, {size} token{'s' if size > 1 else ''} a call",
            ours=("ours", f"feed {size}, one message"),
            theirs="stream, one message",
            aim=aim,
            per="one message",
        )
        for size, aim in ((1, 1), (8, 4), (64, 10))
    ),
)


def times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.1f}×"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


class Results:
    """Figures of a run."""

    def __init__(self, path: Path) -> None:
        self.data = json.loads(path.read_text("utf-8"))

    def median(self, contender: str, task: str) -> float:
        return self.data["seconds"][task][contender]["median"]

    def ratio(self, one: tuple[str, str], other: tuple[str, str]) -> float:
        """Return the median ratio of two times over the rounds. Each round measured both on the same machine."""
        pairs = zip(self._rounds(*one), self._rounds(*other), strict=True)
        return statistics.median(first / second for first, second in pairs)

    def _rounds(self, contender: str, task: str) -> list[float]:
        return self.data["seconds"][task][contender]["rounds"]

    def has(self, contender: str, task: str) -> bool:
        return contender in self.data["seconds"].get(task, {})

    def cell(self, contender: str, task: str, parts: int = 1) -> str:
        if not self.has(contender, task):
            return "–"
        found = self.data["seconds"][task][contender]
        low, high = (duration(found[end] / parts) for end in ("min", "max"))
        return f"{duration(found['median'] / parts)} ({low} – {high})"

    def tokens(self, name: str) -> int:
        return self.data["tokens"][name]


def table(results: Results, rows: Iterable[Row]) -> list[str]:
    lines = [
        "| work | openai-harmony | oss-harmony | this package | faster | wanted | reached | tiktoken alone, times that |",
        "| --- | --- | --- | --- | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        contender, task = row.ours
        parts = 1 if row.per is None else results.tokens(row.per)
        ratio = results.ratio(("openai-harmony", row.theirs), row.ours)
        limit = ""
        if results.has("tiktoken", task):
            over = results.ratio(row.ours, ("tiktoken", task))
            wanted = f" (wanted {row.limit:.2f}×)" if row.limit else ""
            limit = f"{results.cell('tiktoken', task)}: {over:.2f}×{wanted}"
        cells = (
            row.work,
            results.cell("openai-harmony", row.theirs, parts),
            results.cell("oss-harmony", row.theirs, parts),
            results.cell(contender, task, parts),
            f"**{times(ratio)}**",
            f"{row.aim:g}×",
            "yes" if ratio >= row.aim else "**no**",
            limit,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def readings(results: Results) -> list[str]:
    lines = [
        "| read after every token | tokens | openai-harmony | `compat` | `StreamParser` |",
        "| --- | ---: | --- | --- | --- |",
    ]
    for attribute in ("current_content", "state", "messages"):
        for size in (1_000, 4_000):
            task = f"read {attribute} each time, {size}"
            cells = (results.cell(name, task, size) for name in ("openai-harmony", "compat", "ours"))
            lines.append(f"| `{attribute}` | {size:,} | " + " | ".join(cells) + " |")
    return lines


def others(results: Results) -> list[str]:
    growing = ("ours", "one message more, growing")
    faster = times(results.ratio(("openai-harmony", "one message more"), growing))
    lines = [
        "| work | openai-harmony | this package | faster |",
        "| --- | --- | --- | ---: |",
        f"| a prompt of 100k tokens, one message more | {results.cell('openai-harmony', 'one message more')} "
        f"| {results.cell(*growing)} | **{faster}** |",
    ]
    first = results.data["seconds"]["first use"]
    lines += ["", "| first use: import, vocabulary, one token | time |", "| --- | --- |"]
    names = {"ours": "`harmony_ref`", "compat": "`harmony_ref.compat`", "tiktoken": "tiktoken, from its cache"}
    lines += [f"| {names.get(name, name)} | {results.cell(name, 'first use')} |" for name in first]
    return lines


def parts(results: Results) -> list[str]:
    def share(task: str, whole: str) -> str:
        return f"{100 * results.median('parts', task) / results.median('ours', whole):.0f} %"

    whole = "parse, one message, 100000"
    lines = ["| part of parsing 100k tokens, one message | time | share |", "| --- | --- | ---: |"]
    for part in ("decode_bytes", "ids as characters", "markers counted", "bytes as text"):
        lines.append(f"| {part} | {results.cell('parts', f'part, {part}')} | {share(f'part, {part}', whole)} |")
    size = results.tokens("one message")
    lines += [
        "",
        f"A parser whose `process` and `last_content_delta` do nothing takes {results.cell('parts', 'part, calls alone', size)} "
        "per token in the same loop. No parser in Python can be faster than these calls.",
    ]
    return lines


def missed(results: Results) -> list[str]:
    found: list[str] = []
    for row in (*RENDER, *PARSE, *STREAM):
        _, task = row.ours
        why = WHY.get(task, "")
        ratio = results.ratio(("openai-harmony", row.theirs), row.ours)
        if ratio < row.aim:
            found.append(f"- {row.work}: {times(ratio)} instead of {row.aim:g}×. {why}")
        if row.limit is not None:
            over = results.ratio(row.ours, ("tiktoken", task))
            if over > row.limit:
                found.append(f"- {row.work}: {over:.2f}× the time of tiktoken alone instead of {row.limit:g}×. {why}")
    first = results.ratio(("ours", "first use"), ("tiktoken", "first use"))
    if first > 1:
        found.append(
            f"- First use takes {first:.2f}× the time of tiktoken from its cache. Reading the vocabulary is faster here; importing this package's own modules costs the rest."
        )
    return found or ["This run reached every goal."]


WHY = {
    "render, short messages, 100000": (
        "Most of it is encoding the texts one by one, as the column of tiktoken alone shows. Parts must be encoded separately, "
        "because no token crosses a marker."
    ),
    "render, long messages, 100000": "All but a few microseconds per message is tiktoken's encoding.",
    "stream, one message": "Most of it are two calls per token, see the profile.",
    "feed 1, one message": "A list and an event are created for every token.",
    "feed 8, one message": "An event is created for every eight tokens, and each token is read twice.",
    "parse, one message, 100000": "Half of it is tiktoken's decoding; the profile below shows the rest.",
    "parse, 20-token messages, 100000": "A message object is created for every 20 tokens.",
}

PAGE = """# Performance of harmony_ref

<!-- Made by `make bench` (benchmarks/report.py) from benchmarks/results/side_by_side.json. -->

Measured on: {machine}.
Every contender runs in a separate process. In each of {rounds} rounds each task is run by one contender after the other.
Times are CPU time, which equals elapsed time on a quiet machine: medians, with the lowest and the highest in parentheses. "faster" is the median of the ratios of each round. Before any measurement, all contenders produced the same tokens and messages for every input.

## Rendering

Sizes: small chat {small} tokens, five tools {tools} tokens. Messages are built in advance; the task renders a prompt for the next turn.

{render}

## Parsing

{parse}

## Streaming

Time per token of a completion of {streamed} tokens. `feed` returns events; for openai-harmony the task is `process` + `last_content_delta`.

{stream}

Time per token, with one attribute read after every token. A figure that is equal for 1,000 and 4,000 tokens means linear total time; one that grows means quadratic:

{readings}

`compat` returns the same as openai-harmony: a new list of new messages that the caller may change. So its time for reading `messages` is proportional to their number. `StreamParser.messages` and `.tokens` are snapshots without a copy.
A text grows in place only while the caller has no reference to it. A caller that retains each `current_content` pays for the copies, as with any string.

## Growing conversations and first use

{others}

`GrowingConversation` caches the tokens of a conversation. It renders only the new message. Removing reasoning after a final answer, or restoring it, encodes nothing.

## Growth of the cost

![Time against the number of tokens, both axes logarithmic](performance.svg)

The time for rendering, parsing and streaming is proportional to the number of tokens, from 1,000 to 1,000,000, whichever attributes are read during streaming.

## Missed goals, and a profile

{missed}

{parts}
"""


def described(machine: dict[str, object]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(machine["versions"].items()))
    load = "/".join(f"{value:g}" for value in machine["load"])
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, {machine['python']}, load {load} at the start; {versions}"


def page(results: Results) -> str:
    return PAGE.format(
        machine=described(results.data["machine"]),
        rounds=results.data["rounds"],
        small=results.tokens("small chat"),
        tools=results.tokens("five tools"),
        streamed=STREAMED,
        render="\n".join(table(results, RENDER)),
        parse="\n".join(table(results, PARSE)),
        stream="\n".join(table(results, STREAM)),
        readings="\n".join(readings(results)),
        others="\n".join(others(results)),
        missed="\n".join(missed(results)),
        parts="\n".join(parts(results)),
    )


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(page(Results(source)), "utf-8")
