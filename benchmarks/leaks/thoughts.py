"""Measure how well a thought without any marker is recognized as the answer: `thoughts.py CLONES [--out FOLDER]` writes thoughts.json.

The texts are thoughts and answers of real gpt-oss models that other people published. They are not part of this repository: CLONES has a clone of each
of `SOURCES`, named OWNER+NAME. The results have counts and digests, and no text. The rules were written on the sources of the part `tuning`, and on the
part `tuning` of the innocent corpus. The others were only counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from innocent import corpus
from innocent.case import HELD_OUT, TUNING

from harmony_conformance.evidence.leaks.unmarked_thought import begins_as_thought
from harmony_conformance.report.intervals import wilson

SPLIT = "split"
LEAST_LETTERS = 20
"""Shorter texts (`4`, `VALID`) say too little."""
Text = tuple[str, str]  # thought or answer, and its text
THOUGHT, ANSWER = "thought", "answer"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A repository with texts of gpt-oss. `part`: tuning, held out, or split by the digest of each text."""

    repository: str
    commit: str
    about: str
    part: str
    folder: str
    read: Callable[[str], Iterator[Text]]


def _values(text: str) -> Iterator[object]:
    for document in (text, *text.splitlines()):
        try:
            value = json.loads(document)
        except ValueError:
            continue
        waiting = [value]
        while waiting:
            value = waiting.pop()
            yield value
            waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if document is text:
            return


_MESSAGE = re.compile(
    r"<\|channel\|>(analysis|final)(?: <\|constrain\|>\w+)?<\|message\|>(.*?)(?=<\|(?:end|return|start|call)\|>|\Z)",
    re.DOTALL,
)


def _harmony(text: str) -> Iterator[Text]:
    """Texts in Harmony, within JSON."""
    for value in _values(text):
        for channel, said in _MESSAGE.findall(value) if isinstance(value, str) else ():
            yield (THOUGHT if channel == "analysis" else ANSWER), said


def _findings(text: str) -> Iterator[Text]:
    for value in _values(text):
        if isinstance(value, dict) and isinstance(thought := value.get("thinking"), str) and thought:
            yield THOUGHT, thought
            yield ANSWER, str(value.get("response") or "")


def _safeguard(text: str) -> Iterator[Text]:
    for value in _values(text):
        if isinstance(value, dict) and isinstance(thought := value.get("reasoning"), str):
            yield THOUGHT, thought
            if "finish_reason" in value:  # a response; elsewhere the content is that of the user
                yield ANSWER, str(value.get("content") or "")


_PART = re.compile(r'"thinking": ("(?:[^"\\]|\\.)*")|"done": true')


def _ollama(text: str) -> Iterator[Text]:
    """Streams of Ollama in a page. Each event has a part of the thought."""
    thought = ""
    for part in _PART.finditer(text) if '"model": "gpt-oss' in text else ():
        if part[1]:
            thought += json.loads(part[1])
        elif thought:
            yield THOUGHT, thought
            thought = ""
    if thought:
        yield THOUGHT, thought


SOURCES = (
    Source(
        repository="attogram/ollama-bash-lib",
        commit="613b8cb24642f78b8653229ee9d6c3fba90dcdf2",
        about="one question, asked for each release (gpt-oss-20b, Ollama)",
        part=TUNING,
        folder="demos/",
        read=_ollama,
    ),
    Source(
        repository="raxITlabs/gpt-oss-safeguard-testing",
        commit="375f11ac823bc28bd55080818665eec739db2f1e",
        about="classification of messages (gpt-oss-safeguard-20b)",
        part=SPLIT,
        folder="logs",
        read=_safeguard,
    ),
    Source(
        repository="ndurner/gpt-oss-rt-run",
        commit="1a009a58d7b75802f415e5afe4df910fa872c1a4",
        about="conversations, retrieval and tools (gpt-oss-20b)",
        part=HELD_OUT,
        folder="kaggle_submission/",
        read=_harmony,
    ),
    Source(
        repository="QuesmaOrg/red-team-testbed-for-gpt-oss",
        commit="9f101899be2352b72e87f548042c6b83d89c681c",
        about="provocations, often asked to think in a given way (gpt-oss-20b, Ollama)",
        part=HELD_OUT,
        folder="findings/",
        read=_findings,
    ),
)


def _git(clone: Path, *words: str) -> str:
    """Return what git prints; nothing for a file that a commit does not have."""
    return subprocess.run(["git", "-C", clone, *words], capture_output=True, check=False).stdout.decode(
        "utf-8", "replace"
    )


def texts_of(source: Source, clones: Path) -> Iterator[Text]:
    """Each different text of a source, with its kind. Of the pages of Ollama, all versions are read."""
    folder = clones / source.repository.replace("/", "+")
    clone = folder if (folder / ".git").exists() or (folder / "HEAD").exists() else folder / "repo"
    found: dict[Text, None] = {}
    names = _git(clone, "ls-tree", "-r", "--name-only", source.commit).splitlines()
    if not names:
        raise SystemExit(f"invalid clones: expected commit {source.commit} of {source.repository} in {folder}")
    for name in names:
        if not name.startswith(source.folder) or not name.endswith((".json", ".jsonl", ".md")):
            continue
        commits = [source.commit]
        if source.read is _ollama:
            commits = _git(clone, "log", "--format=%H", source.commit, "--", name).split()
        for commit in commits:
            for kind, said in source.read(_git(clone, "show", f"{commit}:{name}")):
                if len(said := said.strip()) >= LEAST_LETTERS:
                    found.setdefault((kind, said))
    yield from found


def part_of(source: Source, text: str) -> str:
    """The part of a text: that of its source, or by its digest."""
    if source.part != SPLIT:
        return source.part
    return (TUNING, HELD_OUT)[hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()[0] % 2]


def counted(found: int, of: int) -> dict[str, object]:
    low, high = wilson(found, of)
    return {"found": found, "of": of, "low": round(low, 5), "high": round(high, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    chosen = parser.parse_args()
    rows: list[dict[str, object]] = []
    totals = {(part, kind): [0, 0] for part in (TUNING, HELD_OUT) for kind in (THOUGHT, ANSWER)}
    for source in SOURCES:
        groups: dict[tuple[str, str], list[str]] = {}
        for kind, said in texts_of(source, chosen.clones):
            groups.setdefault((part_of(source, said), kind), []).append(said)
        for (part, kind), texts in sorted(groups.items()):
            found = sum(map(begins_as_thought, texts))
            digest = hashlib.sha256("\0".join(sorted(texts)).encode("utf-8", "backslashreplace")).hexdigest()[:16]
            about = {"repository": source.repository, "commit": source.commit, "about": source.about}
            rows.append({**about, "part": part, "kind": kind, **counted(found, len(texts)), "digest": digest})
            totals[part, kind][0] += found
            totals[part, kind][1] += len(texts)
    for part in (TUNING, HELD_OUT):
        texts = [case.content for case in corpus() if case.part == part and len(case.content) >= LEAST_LETTERS]
        found = sum(map(begins_as_thought, texts))
        rows.append(
            {"about": "the innocent answers of this page", "part": part, "kind": ANSWER, **counted(found, len(texts))}
        )
        totals[part, ANSWER][0] += found
        totals[part, ANSWER][1] += len(texts)
    held = [row for row in rows if row["part"] == HELD_OUT and row["kind"] == THOUGHT]
    others = [row for row in held if row["repository"] in {one.repository for one in SOURCES if one.part == HELD_OUT}]
    true, false = totals[HELD_OUT, THOUGHT][0], totals[HELD_OUT, ANSWER][0]
    results = {
        "sources": rows,
        "recall": counted(*totals[HELD_OUT, THOUGHT]),
        "recall of other repositories": counted(sum(row["found"] for row in others), sum(row["of"] for row in others)),
        "false alarms": counted(*totals[HELD_OUT, ANSWER]),
        "precision": counted(true, true + false),
    }
    (chosen.out / "thoughts.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(json.dumps({name: value for name, value in results.items() if name != "sources"}, indent=1))


if __name__ == "__main__":
    main()
