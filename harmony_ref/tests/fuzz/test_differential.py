"""This package and openai-harmony 0.0.8 give the same answer to the same random input.

`make fuzz` tries 200,000 inputs, `make test` a few thousand with a fixed seed; fuzz_budget.py says how to set both. An
input that is answered differently is written to `runs/fuzz`, made as small as possible.
"""

from collections import Counter
from pprint import pformat

import fuzz_budget
import pytest
from fuzz_explained import EXPLAINED, reason_for
from fuzz_properties import PROPERTIES
from fuzz_shares import AT_LEAST
from hypothesis import given, seed

FEW = 10
"""Fewer are not counted on: inputs come in families, so a small number says little."""
SHARES = sum(one.share for one in PROPERTIES.values())


def rows():
    for name, one in PROPERTIES.items():
        for shard, examples in enumerate(fuzz_budget.shards_of(one.share, SHARES)):
            yield pytest.param(name, (shard, examples), id=f"{name}, part {shard}")


@pytest.mark.parametrize(("name", "part"), list(rows()))
def test_nothing_differs_when(name, part, oracle, request):
    checked = PROPERTIES[name]
    shard, examples = part
    counts, kinds, seen = Counter(), Counter(), set()

    @seed(fuzz_budget.seed_of(name, shard))
    @fuzz_budget.trying(examples)
    @given(case=checked.cases)
    def compare(case):
        counts["examples"] += 1
        seen.add(repr(case))
        counts["distinct"] = len(seen)
        answers = list(checked.ask(oracle, case))
        counts["answers"] += len(answers)
        kinds.update(set(checked.kinds_of(case, answers)))
        for question, theirs, mine in answers:
            if theirs == mine:
                continue
            reason = reason_for(case, theirs, mine)
            if reason is not None:
                counts[reason] += 1
                continue
            counts["differences"] = 1
            text = described(case, question, theirs, mine)
            keep(request.config.rootpath / fuzz_budget.FAILURES, f"{name} {shard}", text)
            pytest.fail(text)

    try:
        compare()
    finally:
        found = {"property": name, "counts": dict(counts), "kinds": dict(kinds)}
        request.node.user_properties.append((fuzz_budget.COUNTS, found))
    assert counts["examples"] >= examples
    wanted = {kind: share * examples // 1000 for kind, share in AT_LEAST[name].items()}
    rare = {kind: kinds[kind] for kind, number in wanted.items() if number >= FEW and kinds[kind] < number}
    assert not rare, f"too few of {examples} inputs are of these kinds"


@pytest.mark.parametrize(("name", "known"), EXPLAINED.items(), ids=EXPLAINED)
def test_a_known_difference_is_still_there(name, known, oracle):
    checked, case = known.witness
    answers = [(theirs, mine) for _, theirs, mine in PROPERTIES[checked].ask(oracle, case) if theirs != mine]
    assert answers, f"nothing differs any more: take the row {name!r} out of fuzz_explained.py"
    assert all(reason_for(case, theirs, mine) == name for theirs, mine in answers)


def described(case, question, theirs, mine):
    return "\n".join(
        [
            fuzz_budget.DESCRIPTION,
            f"question = {question!r}",
            f"case = {pformat(case, width=120)}",
            f"theirs = {pformat(theirs, width=120)}",
            f"mine = {pformat(mine, width=120)}",
        ]
    )


def keep(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name.replace(' ', '-')}.txt").write_text(text, "utf-8", errors="surrogatepass")
