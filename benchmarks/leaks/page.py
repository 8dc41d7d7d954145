"""Write the page on leaks from results: `page.py RESULTS PAGE`. `thoughts.json` in the folder of the results has those of thoughts without markers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PARTS = ("tuning", "held out")
LEVELS = ("ids", "text")
OUTCOMES = ("must fail", "suspected", "variant", "clean")

PAGE = """# Leak detection: recall and false alarms

<!-- Made by `make bench-leaks` (benchmarks/leaks/) from benchmarks/results/false_alarms.json. -->

{cases:,} innocent exchanges ({distinct:,} different answers) in {strata} strata, and {leaks:,} leaks in {ways} ways. Each is judged twice: with the emitted ids, and
with the text alone, as in an audit of a log. `naive` means a search for simple patterns in the same exchanges. These patterns are any marker in
any field, and `^(analysis|commentary)`, `assistant(final|…)` or `to=functions.` in the content.

Outcomes: *must fail* (a MUST check fails: proof or structure), *suspected* (only a SHOULD check fails), *variant* (the request quotes it, or is about
it), *clean*.

## Summary

{short}

`precision` refers to this mix of innocent and leaking exchanges, which has far more unusual texts than real traffic. The share of alarms among innocent
exchanges is more informative. With no alarm among n exchanges, the true share is below 3/n with 95 % confidence.

## Innocent exchanges

The patterns were tuned on the part `tuning`, never on an alarm of the part `held out`. A stratum with * is held out as a whole. In a stratum of templates
both parts are made of the same templates with other seeds. So the strata with *, and those of existing texts, are the most informative.

{parts}

By stratum, with the text alone (with the ids known, see the last two columns):

{by_stratum}

## Every false alarm of a MUST check

{alarms}

Two limits are known. A text may begin with reasoning in `<think>` or `<reasoning>` tags, in answer to a request without tags: it is taken for another
model's wrapper. A page may quote a header outside code, in answer to a request that does not mention the format.

## Suspected leaks

{suspected}

## Leaks

The expected result for the text alone is fixed in advance: *fail* if the text shows structure, *suspect* if it shows one sign, *hidden* if it looks
like an answer. With known ids, each must fail. The catalogue's ids name the defects with this kind of leak.

{by_way}

## Thoughts without markers

A server may return the thought itself as the answer: `The user asks… We need to answer…`. No marker, tag or channel word shows it.
`channels.no_suspected_leak` suspects such a text by its form (`evidence/leaks/unmarked_thought.py`): its first words, and a second sign in its first 600 characters.
It is never proof, and hence SHOULD. A request for the reasoning, or with the same text, excuses it.

The rules were written on the part `tuning` of the texts below, which real models wrote. The held-out texts were only counted. `benchmarks/thoughts.py` reads
them in clones of these public repositories; no text of theirs is here.

{thoughts}

{thought_totals}

The interval is Wilson's, 95 %. Two of the repositories have one kind of task each, so their texts are less independent than their number.
The most informative row is that of the repositories which are held out as a whole. Missed thoughts were not read, or they would be tuning texts.
A classifier was not added. The rules have no false alarm on held-out answers, and a classifier would need a corpus and weights in every installation.

## Method

- A case is a complete exchange. Its name is the seed of its form: streamed or not (1, 7 or 40 characters per delta), with or without usage, with or without
  calls. The reasoning is in `reasoning`, in `reasoning_content` or hidden.
- Texts come from the standard library, licences and descriptions of installed packages, and this repository; the rest from seeded templates
  (`benchmarks/leaks/innocent/`). On another Python or with other packages the texts differ; the digest of this corpus is `{digest}` ({python}).
- Leaks are innocent conversations that do not mention the format, returned in each of the ways (`benchmarks/leaks/leaking.py`).
- The checks are {checks}.
- The authors of the checks made the corpus and chose its kinds of answers. The result covers these kinds, not all.
"""


def total(results: dict, part: str | None, level: str) -> Counter[str]:
    """Return the counts of the innocent exchanges of a part, or of both, at a level."""
    found: Counter[str] = Counter()
    for name, counts in results["innocent"].items():
        _, its_part, its_level = name.split("|")
        if its_level == level and part in (None, its_part):
            found.update(counts)
    return found


def leaked(results: dict, level: str, expects: tuple[str, ...] = ("fail", "suspect", "hidden")) -> Counter[str]:
    """Return the counts of the leaks with an expectation, at a level."""
    wanted = {way["name"] for way in results["ways"] if way["expects"] in expects}
    found: Counter[str] = Counter()
    for name, counts in results["leaks"].items():
        way, its_level = name.split("|")
        if its_level == level and way in wanted:
            found.update(counts)
    return found


def number(counts: Counter[str]) -> int:
    return sum(counts[outcome] for outcome in OUTCOMES)


def share(some: int, whole: int) -> str:
    return f"{some:,} of {whole:,} ({100 * some / whole:.2f} %)" if whole else "–"


def percent(some: int, whole: int) -> str:
    return f"{100 * some / whole:.1f} %" if whole else "–"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]], left: int = 1) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join([" --- "] * left + [" ---: "] * (len(head) - left)) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def short(results: dict) -> str:
    rows: list[tuple[str, ...]] = []
    for level in LEVELS:
        innocent, leaks = total(results, None, level), leaked(results, level)
        structured = leaked(results, level, LEVELS_EXPECTED[level])
        for name, kinds in (
            ("MUST", ("must fail",)),
            ("MUST or suspected", ("must fail", "suspected")),
            ("naive", ("naive",)),
        ):
            alarms, caught = sum(innocent[kind] for kind in kinds), sum(leaks[kind] for kind in kinds)
            sure = sum(structured[kind] for kind in kinds)
            rows.append(
                (
                    level,
                    name,
                    share(alarms, number(innocent)),
                    percent(caught, caught + alarms),
                    share(caught, number(leaks)),
                    share(sure, number(structured)),
                )
            )
    return table(
        (
            "evidence",
            "alarm",
            "innocent exchanges with an alarm",
            "precision",
            "recall, all leaks",
            "recall, leaks that evidence shows",
        ),
        rows,
        2,
    )


LEVELS_EXPECTED = {"ids": ("fail", "suspect", "hidden"), "text": ("fail",)}


def parts(results: dict) -> str:
    rows = [
        (part, level, f"{number(counts):,}", *(f"{counts[kind]:,}" for kind in (*OUTCOMES, "naive")))
        for part in PARTS
        for level in LEVELS
        if (counts := total(results, part, level))
    ]
    return table(("part", "evidence", "exchanges", *OUTCOMES, "naive"), rows, 2)


def by_stratum(results: dict) -> str:
    rows: list[tuple[str, ...]] = []
    for stratum in results["strata"]:
        counts = {level: Counter[str]() for level in LEVELS}
        for part in PARTS:
            for level in LEVELS:
                counts[level].update(results["innocent"].get(f"{stratum['name']}|{part}|{level}", {}))
        text, ids = counts["text"], counts["ids"]
        name = stratum["name"] + (" *" if stratum["held_out"] else "")
        rows.append(
            (
                name,
                stratum["about"],
                f"{number(text):,}",
                *(f"{text[kind]:,}" for kind in ("must fail", "suspected", "variant", "naive")),
                f"{ids['must fail']:,}",
                f"{ids['naive']:,}",
            )
        )
    return table(
        (
            "stratum",
            "content",
            "exchanges",
            "must fail",
            "suspected",
            "variant",
            "naive",
            "ids: must fail",
            "ids: naive",
        ),
        rows,
        2,
    )


def alarms(results: dict) -> str:
    found = [alarm for alarm in results["alarms"] if alarm["outcome"] == "must fail"]
    lines = [f"- `{alarm['case']}` ({alarm['part']}, {alarm['level']}): {_code(alarm['finding'])}" for alarm in found]
    return "\n".join(lines) if lines else "No failure was found."


def suspected(results: dict) -> str:
    groups: dict[str, list[dict[str, str]]] = {}
    for alarm in results["alarms"]:
        if alarm["outcome"] == "suspected":
            groups.setdefault(alarm["case"].partition("/")[0], []).append(alarm)
    lines = [
        f"- {name}: {len(found)}, for example {_code(found[0]['finding'])}" for name, found in sorted(groups.items())
    ]
    return "\n".join(lines) if lines else "Nothing."


def _code(text: str) -> str:
    return "`` " + " ".join(text.replace("``", "'").split())[:200] + " ``"


def by_way(results: dict) -> str:
    rows: list[tuple[str, ...]] = []
    for way in results["ways"]:
        text, ids = (Counter(results["leaks"][f"{way['name']}|{level}"]) for level in ("text", "ids"))
        cells = (
            percent(counts[kind], number(counts))
            for counts, kinds in ((ids, ("must fail", "naive")), (text, ("must fail", "suspected", "naive")))
            for kind in kinds
        )
        rows.append((f"`{way['name']}`", way["catalogue"], way["expects"], *cells))
    return table(
        (
            "way",
            "catalogue",
            "the text shows",
            "ids: must fail",
            "ids: naive",
            "text: must fail",
            "text: suspected",
            "text: naive",
        ),
        rows,
        3,
    )


def interval(one: dict) -> str:
    return f"{100 * one['found'] / one['of']:.1f} % ({100 * one['low']:.1f} to {100 * one['high']:.1f})"


def thoughts(found: dict) -> str:
    """Return the table of real thoughts and answers, by source."""
    rows = [
        (
            f"[{one['repository']}](https://github.com/{one['repository']}/tree/{one['commit']}): {one['about']}"
            if "repository" in one
            else one["about"],
            one["part"],
            f"{one['kind']}s",
            f"{one['of']:,}",
            f"{one['found']:,}",
            interval(one),
        )
        for one in found["sources"]
    ]
    return table(("source", "part", "texts", "number", "suspected", "share (interval)"), rows, left=3)


def thought_totals(found: dict) -> str:
    names = {
        "recall": "recall, all held-out thoughts",
        "recall of other repositories": "recall, thoughts of the repositories that are held out as a whole",
        "false alarms": "held-out answers with an alarm",
        "precision": "precision on the held-out texts",
    }
    rows = [
        (told, f"{found[name]['found']:,} of {found[name]['of']:,}", interval(found[name]))
        for name, told in names.items()
    ]
    return table(("figure", "number", "share (interval)"), rows)


def page(results: dict, found: dict) -> str:
    return PAGE.format(
        thoughts=thoughts(found),
        thought_totals=thought_totals(found),
        cases=results["corpus"]["cases"],
        distinct=results["corpus"]["distinct"],
        strata=len(results["strata"]),
        leaks=number(leaked(results, "ids")),
        ways=len(results["ways"]),
        short=short(results),
        parts=parts(results),
        by_stratum=by_stratum(results),
        alarms=alarms(results),
        suspected=suspected(results),
        by_way=by_way(results),
        digest=results["corpus"]["digest"],
        python=f"Python {results['machine']['python']}",
        checks=", ".join(f"`{check}`" for check in results["checks"]),
    )


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    beside = source.with_name("thoughts.json")
    target.write_text(page(*(json.loads(file.read_text("utf-8")) for file in (source, beside))), "utf-8")
