"""Write a log of any size, with planted leaks and innocent mentions of the format: `generate.py FILE [--size 1GB]`.

A record is a request with a history, and its answer: a body, the events of a stream, or the text of the stream. The answers are those of
the corpora of `leaks/innocent/` and `leaks/leaking.py`. `FILE.truth.jsonl` has a line for each planted leak: the offset of its record, its form, and the
expected verdict. The same arguments write the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

sys.path.insert(0, str(Path(__file__).parents[1] / "leaks"))

from innocent import Case, corpus
from innocent.case import Shape, Shown, exchange, shown
from leaking import leaks

UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
MODELS = ("openai/gpt-oss-20b", "openai/gpt-oss-120b")
PROVIDERS = ("alpha", "beta", "gamma")
FIRST_SECOND = 1_790_000_000
PLAIN = ("docstrings", "library code", "licences", "package pages")
"""The strata of natural text. All other strata are made around the words of the format."""
WORDS = re.compile("assistant|analysis|commentary|final")
"""Words that the thoughts of ordinary answers do not have. Their contents may."""
POOL = 4000
LEAKS_OF_EACH_FORM = 12
STREAMS = 0.4
TURNS = (0, 0, 1, 2, 4, 8)
DEFAULT_LEAKS, DEFAULT_MENTIONS = 0.002, 0.01


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A logged answer in its JSON form, with its question and tools.

    `form` is the form of a planted leak, empty for an innocent answer. `expects` is the verdict from the text alone.
    """

    question: str
    system: str
    tools: list
    response: str
    is_stream: bool
    form: str = ""
    expects: str = ""


def parse_size(text: str) -> int:
    number, unit = text[:-2], text[-2:]
    if unit not in UNITS or not number.replace(".", "", 1).isdigit():
        raise argparse.ArgumentTypeError(f"invalid size: expected for example 500MB or 1GB, got {text!r}")
    return round(float(number) * UNITS[unit])


def answer(case: Case, what: Shown, rng: random.Random, *, form: str = "", expects: str = "") -> Answer:
    shape = Shape(field="reasoning", by_token=rng.random() < STREAMS)
    x = exchange(case, what, shape)
    asked = json.loads(x.request.body)
    data = x.response.chunks[0].data.decode()
    events = [json.loads(event[6:]) for event in data.split("\n\n") if event.startswith("data: {")]
    logged = json.dumps(events if rng.random() < 0.4 else data) if shape.by_token else data
    return Answer(
        question=case.user,
        system=case.system,
        tools=asked.get("tools", []),
        response=logged,
        is_stream=shape.by_token,
        form=form,
        expects=expects,
    )


def pools(seed: int) -> tuple[list[Answer], list[Answer], list[Answer]]:
    """Return ordinary answers, answers that mention the format or its words, and leaks."""
    rng = random.Random(seed)
    cases = list(corpus())
    rng.shuffle(cases)
    plain = [case for case in cases if case.stratum in PLAIN and not WORDS.search(case.reasoning)][:POOL]
    about = [case for case in cases if case.stratum not in PLAIN]
    planted = [
        answer(case, what, rng, form=way.name, expects=way.expects) for way, case, what in leaks(LEAKS_OF_EACH_FORM)
    ]
    rng.shuffle(planted)
    return (
        [answer(case, shown(case), rng) for case in plain],
        [answer(case, shown(case), rng) for case in about],
        planted,
    )


def records(seed: int, leak_share: float, mention_share: float) -> Iterator[tuple[bytes, Answer]]:
    """Yield records without end."""
    plain, mentions, planted = pools(seed)
    rng = random.Random(seed)
    number = leak = 0
    while True:
        draw = rng.random()
        if draw < leak_share:
            chosen = planted[leak % len(planted)]
            leak += 1
        else:
            chosen = rng.choice(mentions if draw < leak_share + mention_share else plain)
        yield _record(number, chosen, [rng.choice(plain) for _ in range(rng.choice(TURNS))], rng), chosen
        number += 1


def _record(number: int, chosen: Answer, history: Sequence[Answer], rng: random.Random) -> bytes:
    messages = [{"role": "system", "content": chosen.system or "You are a helpful assistant."}]
    for place, turn in enumerate(history):
        messages.append({"role": "user", "content": f"{place}: {turn.question}"})
        messages.append({"role": "assistant", "content": f"As to {turn.question[:60]}: {rng.random():.9f}."})
    messages.append({"role": "user", "content": chosen.question})
    model = rng.choice(MODELS)
    request = {"model": model, "messages": messages, "temperature": round(rng.random(), 2)}
    request |= ({"tools": chosen.tools} if chosen.tools else {}) | ({"stream": True} if chosen.is_stream else {})
    head = {
        "id": f"{number:012x}",
        "time": FIRST_SECOND + number // 20,
        "model": model,
        "provider": rng.choice(PROVIDERS),
        "user": f"user-{rng.randrange(10_000)}",
        "request": request,
    }
    return f'{json.dumps(head)[:-1]}, "response": {chosen.response}}}\n'.encode("utf-8", "replace")


def write(log: BinaryIO, truth: BinaryIO, size: int, made: Iterator[tuple[bytes, Answer]]) -> tuple[int, int]:
    """Write records up to a size, and return the number of records and of planted leaks."""
    offset = number = planted = 0
    for record, chosen in made:
        if offset + len(record) > size:
            break
        log.write(record)
        if chosen.form:
            truth.write(json.dumps({"offset": offset, "form": chosen.form, "expects": chosen.expects}).encode() + b"\n")
            planted += 1
        offset += len(record)
        number += 1
    return number, planted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=parse_size, default="1GB")
    parser.add_argument("--leaks", type=float, default=DEFAULT_LEAKS, help="share of records with a planted leak")
    parser.add_argument("--mentions", type=float, default=DEFAULT_MENTIONS, help="share of innocent mentions")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    truth = given.file.with_name(given.file.name + ".truth.jsonl")
    with given.file.open("wb") as log, truth.open("wb") as known:
        number, planted = write(log, known, given.size, records(given.seed, given.leaks, given.mentions))
    print(f"{given.file}: {number} records, {planted} planted leaks, {given.file.stat().st_size / 1e6:.1f} MB; {truth}")


if __name__ == "__main__":
    main()
